//! Stories of disks: syncs that hang, logs that are gone, snapshots that break off, disks lost.

use kvcore::group::Role;
use kvcore::{GroupId, Reply};
use migration::Step;
use placement::Change;

use super::stage::{FOR_EVER, MOMENT, Stage, TAKE_OVER, group, serving_leader};
use crate::sim::cast::node_id;
use crate::sim::weather::{MILLIS, SECONDS, Setup, Weather};

/// Writes so much that the logs are truncated beyond what a follower that is away has.
fn outgrow_the_log(stage: &mut Stage) {
    for number in 0..250 {
        let leader = stage.leader();
        let value = "x".repeat(200);
        stage.write(leader, &format!("k{}", number % 10), &value);
    }
}

#[test]
fn others_take_over_within_two_seconds_when_a_leaders_sync_hangs() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.world.stall(leader, 20 * SECONDS);
    stage.put(leader, "k", "under way");
    // It hands leadership on as soon as it notices, and nobody waits for an election timeout.
    stage.within(TAKE_OVER / 2, "another leader that serves", |world| {
        serving_leader(world, group()).is_some_and(|it| it != leader)
    });
    let next = stage.leader();
    stage.write(next, "k", "v");
    stage.run(3 * SECONDS);
    assert_eq!(stage.leader(), next, "nothing is handed back while the disk hangs");
    stage.ends_well();
}

#[test]
fn writes_go_on_while_a_followers_sync_hangs() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    let follower = stage.followers()[0];
    stage.world.stall(follower, 20 * SECONDS);
    for number in 0..50 {
        let began = stage.world.now;
        stage.write(leader, "k", &number.to_string());
        assert!(stage.world.now - began < 100 * MILLIS);
    }
    assert_eq!(stage.leader(), leader);
    stage.ends_well();
}

#[test]
fn group_zero_moves_away_from_a_node_whose_sync_hangs() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.world.leader(GroupId::CLUSTER).expect("group 0 has a leader");
    stage.world.stall(leader, 20 * SECONDS);
    // A registration with news keeps its log moving.
    stage.put(leader, "k", "v");
    stage.within(TAKE_OVER, "another leader of group 0", |world| {
        serving_leader(world, GroupId::CLUSTER).is_some_and(|it| it != leader)
    });
    stage.ends_well();
}

#[test]
fn a_follower_whose_place_in_the_log_is_gone_comes_back_by_snapshot() {
    let mut stage = Stage::of(3, 0);
    let follower = stage.followers()[0];
    stage.world.kill(follower, FOR_EVER / 2);
    outgrow_the_log(&mut stage);
    let first = stage.world.summary(stage.leader(), group()).map(|it| it.first.get());
    assert!(first > Some(100), "the log was truncated: {first:?}");
    let installed = stage.world.counters.snapshots_installed;
    stage.start(follower);
    let leader = stage.leader();
    let applied = stage.world.summary(leader, group()).map(|it| it.applied);
    stage.until("it to catch up", |world| {
        world.summary(follower, group()).map(|it| it.applied) >= applied
    });
    assert!(stage.world.counters.snapshots_installed > installed);
    stage.ends_well();
}

/// A follower that takes a snapshot slowly; returns it once the copy is under way.
fn slow_copy() -> (Stage, usize) {
    let weather = Weather { chunk: 40 * MILLIS..60 * MILLIS, ..Setup::scripted(2).weather };
    let mut stage = Stage::with(Setup { weather, ..Setup::scripted(2) });
    let follower = stage.followers()[0];
    stage.world.kill(follower, FOR_EVER / 2);
    outgrow_the_log(&mut stage);
    stage.start(follower);
    stage.until("a copy", |world| {
        world.nodes[follower]
            .process
            .as_ref()
            .is_some_and(|it| it.copying.values().any(|copying| copying.chunks > 2))
    });
    (stage, follower)
}

#[test]
fn a_snapshot_goes_on_after_its_source_died() {
    let (mut stage, follower) = slow_copy();
    let source = stage.leader();
    stage.world.crash(source, 0, 300 * MILLIS);
    stage.run(SECONDS);
    stage.within(10 * SECONDS, "the follower to catch up", |world| {
        let leader = serving_leader(world, group());
        let applied = leader.and_then(|it| world.summary(it, group())).map(|it| it.applied);
        applied.is_some() && world.summary(follower, group()).map(|it| it.applied) == applied
    });
    stage.ends_well();
}

#[test]
fn half_a_snapshot_is_never_readable_after_its_receiver_died() {
    let (mut stage, follower) = slow_copy();
    let applied = stage.world.summary(follower, group()).map(|it| it.applied);
    stage.world.crash(follower, 0, MOMENT);
    stage.until("it to run again", |world| world.nodes[follower].process.is_some());
    // The old state is whole, and what came of the copy is swept.
    assert_eq!(stage.world.summary(follower, group()).map(|it| it.applied), applied);
    let installations = stage.world.nodes[follower].disk.visible().data.keys();
    assert!(
        installations.filter(|(partition, _)| group().partition() == Some(*partition)).count() < 2
    );
    stage.ends_well();
}

#[test]
fn a_replica_whose_snapshot_is_not_durable_does_not_campaign() {
    let (mut stage, follower) = slow_copy();
    let applied = stage.world.summary(follower, group()).map(|it| it.applied);
    stage.world.stall(follower, 20 * SECONDS);
    stage.until("the snapshot to be put in place", |world| {
        world.summary(follower, group()).map(|it| it.applied) > applied
    });
    // raft-rs would look for configuration changes in the gap that the snapshot leaves.
    stage.isolate(follower);
    stage.run(4 * SECONDS);
    assert_eq!(stage.world.summary(follower, group()).map(|it| it.role), Some(Role::Follower));
    stage.ends_well();
}

#[test]
fn a_wiped_node_comes_as_a_new_one_and_never_votes_as_the_old_one() {
    let mut stage = Stage::of(3, 0);
    let wiped = stage.followers()[0];
    let lost = stage.replica(wiped);
    let version = {
        let leader = stage.leader();
        stage.write(leader, "k", "v")
    };
    stage.world.kill(wiped, FOR_EVER / 2);
    stage.world.nodes[wiped].disk.wipe();
    stage.world.nodes[wiped].id = node_id(wiped, 1);
    stage.world.nodes[wiped].wipes = 1;
    // It is back, at the same address, while a failover is under way.
    let leader = stage.leader();
    stage.world.kill(leader, 2 * SECONDS);
    stage.start(wiped);
    stage.run(1800 * MILLIS);
    assert!(stage.world.summary(wiped, group()).is_none(), "it holds no replica");
    let alone = (0..3).find(|node| *node != leader && *node != wiped).expect("one is left");
    assert_ne!(stage.world.leader(group()), Some(alone), "nobody voted for it");
    stage.until("two of three", |world| serving_leader(world, group()).is_some());
    // It takes the place of the lost replica under an identity of its own.
    stage.until("a leader of group 0", |world| serving_leader(world, GroupId::CLUSTER).is_some());
    stage.world.register_spares();
    stage.until("its registration", |world| {
        world.oracle.cluster().is_some_and(|it| it.nodes.contains_key(&node_id(wiped, 1)))
    });
    stage.plan(&[Change::Remove(node_id(wiped, 0)), stage.join(wiped)]);
    stage.await_step(Step::Serving);
    assert!(!stage.voters().contains(&lost));
    stage.until("it to have the data", |world| {
        super::stage::stored(world, wiped, "k").is_some_and(|record| record.version == version)
    });
    let leader = stage.leader();
    let read = stage.read(leader);
    assert_eq!(stage.await_answer(read), Reply::Readable);
}
