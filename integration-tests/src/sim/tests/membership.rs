//! Stories of membership: replicas that come, vote, go and are held to nothing they were.

use kvcore::cluster::{ClusterCommand, ClusterOutcome, rollback_order};
use kvcore::faults::Hold;
use kvcore::group::Role;
use kvcore::message::PeerMessage;
use kvcore::store::{Command, Condition, WriteOutcome};
use kvcore::{Event, Reply, Term};
use migration::Step;
use placement::Change;
use raft::eraftpb::{Message, MessageType};

use super::stage::{FOR_EVER, PARTITION, Stage, group, serving_leader, stored};
use crate::sim::weather::{MILLIS, SECONDS};

#[test]
fn a_replica_takes_the_place_of_another_and_the_way_back_keeps_what_was_written() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    let old = stage.followers()[0];
    let old_replica = stage.replica(old);
    let plan = stage.plan(&[stage.replace(old, 3)]);
    stage.await_step(Step::Serving);
    let replica = stage.replica(3);
    assert!(stage.voters().contains(&replica) && !stage.voters().contains(&old_replica));
    let leader = stage.leader();
    let version = stage.write(leader, "k", "written to the new owners");
    let order = rollback_order(&stage.cluster(), plan, 0).expect("it serves");
    let outcome = stage.ordered(ClusterCommand::Apply(Box::new(order)));
    let ClusterOutcome::Planned(back) = outcome else { panic!("{outcome:?}") };
    stage.await_step(Step::Serving);
    assert_eq!(stage.replica(old), old_replica, "nothing was copied");
    assert!(!stage.voters().contains(&replica) && stage.voters().contains(&old_replica));
    assert_eq!(stage.cluster().epoch().get(), 3, "epochs never go back");
    stage.end_grace(back);
    stage.await_end(back);
    assert!(stage.world.summary(3, group()).is_none(), "its copy is destroyed");
    assert_eq!(stage.stored(old, "k").map(|record| record.version), Some(version));
    stage.ends_well();
}

#[test]
fn a_leader_killed_in_the_joint_state_leaves_a_group_that_goes_on() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    stage.hold(Some(Hold::Joint));
    let plan = stage.plan(&[stage.replace(leader, 3)]);
    stage.within(10 * SECONDS, "a joint configuration", |world| {
        world.summary(leader, group()).is_some_and(|it| it.configuration.is_joint())
    });
    stage.world.crash(leader, 0, 4 * SECONDS);
    stage.hold(None);
    stage.until("another leader", |world| {
        serving_leader(world, group()).is_some_and(|it| it != leader)
    });
    let next = stage.leader();
    stage.write(next, "k", "w");
    stage.await_step(Step::Serving);
    stage.end_grace(plan);
    stage.await_end(plan);
    stage.ends_well();
}

#[test]
fn a_leader_outside_its_configuration_serves_nothing_and_hands_on() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    let going = stage.followers()[0];
    stage.hold(Some(Hold::Joint));
    stage.plan(&[stage.replace(going, 3)]);
    stage.within(10 * SECONDS, "a joint configuration", |world| {
        world.summary(going, group()).is_some_and(|it| it.configuration.is_joint())
    });
    // That the joint configuration is left reaches only the one that goes: nobody else can lead.
    for other in (0..4).filter(|node| ![leader, going].contains(node)) {
        stage.world.network.cut(leader, other, FOR_EVER);
    }
    stage.world.tell(leader, Event::Hold(None));
    stage.run(150 * MILLIS);
    stage.world.kill(leader, 6 * SECONDS);
    stage.until("it to lead from outside", |world| world.leads_from_outside(going, group()));
    let write = stage.put(going, "k", "from outside");
    let read = stage.read(going);
    assert!(!stage.holds_lease(going));
    assert!(matches!(stage.await_answer(write), Reply::NotLeader(_)));
    assert!(matches!(stage.await_answer(read), Reply::NotLeader(_)));
    stage.within(2 * SECONDS, "a voter to lead", |world| {
        serving_leader(world, group()).is_some_and(|it| it != going)
    });
    let next = stage.leader();
    stage.write(next, "k", "from inside");
    stage.ends_well();
}

#[test]
fn of_two_plans_for_one_epoch_one_is_taken() {
    let mut stage = Stage::of(3, 2);
    let (one, other) = (stage.join(3), stage.join(4));
    assert_eq!(stage.ordered(ClusterCommand::Stage(one.clone())), ClusterOutcome::Done);
    let orders = [stage.order_of(&[one]), stage.order_of(&[other])];
    let requests = orders.map(|order| stage.order(order));
    let replies = requests.map(|request| stage.await_answer(request));
    let is_taken = |reply: &&Reply| matches!(reply, Reply::Cluster(ClusterOutcome::Planned(_)));
    assert_eq!(replies.iter().filter(is_taken).count(), 1, "{replies:?}");
    stage.ends_well();
}

#[test]
fn a_cancelled_join_leaves_nothing_and_the_next_one_finds_nothing_stale() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "deleted", "v");
    stage.hold(Some(Hold::At(Step::CatchingUp)));
    let plan = stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.await_step(Step::CatchingUp);
    let cancelled = stage.ordered(ClusterCommand::Cancel { plan, at_ms: 0 });
    assert_eq!(cancelled, ClusterOutcome::Done);
    stage.await_end(plan);
    assert!(stage.world.summary(3, group()).is_none());
    let leader = stage.leader();
    let delete = Command::Delete { key: "deleted".into(), condition: Condition::Always };
    let delete = stage.world.write(leader, PARTITION, delete);
    assert!(matches!(stage.await_answer(delete), Reply::Written(WriteOutcome::Deleted(_))));
    stage.hold(None);
    stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.await_step(Step::Serving);
    assert!(stage.stored(3, "deleted").is_none(), "a deleted key came back");
    stage.ends_well();
}

#[test]
fn a_learner_never_counts_whether_or_not_it_has_anything() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    stage.hold(Some(Hold::At(Step::CatchingUp)));
    stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.until("the learner to catch up", |world| stored(world, 3, "k").is_some());
    for follower in (0..3).filter(|node| *node != leader) {
        stage.world.kill(follower, FOR_EVER / 2);
    }
    let write = stage.put(leader, "k", "w");
    stage.run(3 * SECONDS);
    assert!(!matches!(stage.answer(write), Some(Reply::Written(_))), "a learner was counted");
    assert_eq!(stage.world.summary(3, group()).map(|it| it.role), Some(Role::Learner));
    assert_eq!(serving_leader(&stage.world, group()), None);
    stage.ends_well();
}

#[test]
fn a_learner_without_its_snapshot_waits_and_never_campaigns() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.until("it to be created", |world| world.summary(3, group()).is_some());
    stage.isolate(3);
    stage.run(4 * SECONDS);
    let summary = stage.world.summary(3, group()).expect("it was created");
    assert_eq!((summary.role, summary.applied.get()), (Role::Learner, 0));
    assert_eq!(stage.leader(), leader, "the others do not care");
    stage.write(leader, "k", "v");
    stage.ends_well();
}

#[test]
fn what_is_said_to_a_removed_replica_too_late_changes_nothing() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.hold(Some(Hold::At(Step::CatchingUp)));
    let plan = stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.await_step(Step::CatchingUp);
    let removed = stage.replica(3);
    stage.ordered(ClusterCommand::Cancel { plan, at_ms: 0 });
    stage.await_end(plan);
    let late = |stage: &mut Stage, kind: MessageType| {
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.to = removed.get();
        message.from = stage.replica(leader).get();
        message.term = 99;
        let message = PeerMessage::Raft { group: group(), message };
        let from = stage.world.nodes[leader].id;
        stage.world.tell(3, Event::Peer { from, messages: vec![message] });
        stage.run(100 * MILLIS);
    };
    let kinds = [
        MessageType::MsgHeartbeat,
        MessageType::MsgAppend,
        MessageType::MsgRequestVote,
        MessageType::MsgTimeoutNow,
    ];
    for kind in kinds {
        late(&mut stage, kind);
        assert!(stage.world.summary(3, group()).is_none(), "a message creates nothing");
    }
    stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.await_step(Step::CatchingUp);
    let again = stage.replica(3);
    assert_ne!(again, removed, "an id is never used twice");
    for kind in kinds {
        late(&mut stage, kind);
        let summary = stage.world.summary(3, group()).expect("it was created again");
        assert_eq!(summary.replica, again);
        assert!(summary.term < Term(99), "it listened to what was meant for its predecessor");
    }
    stage.ends_well();
}

#[test]
fn a_target_that_is_lost_after_publication_is_replaced_by_a_repair() {
    let mut stage = Stage::of(3, 2);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    stage.hold(Some(Hold::At(Step::Swapping)));
    let plan = stage.plan(&[stage.replace(stage.followers()[0], 3)]);
    stage.await_step(Step::Swapping);
    stage.world.kill(3, FOR_EVER / 2);
    stage.world.nodes[3].lost = true;
    stage.hold(None);
    let leader = stage.leader();
    stage.write(leader, "k", "the old voters serve");
    let remove = Change::Remove(stage.id(3));
    assert_eq!(stage.ordered(ClusterCommand::Stage(remove.clone())), ClusterOutcome::Done);
    let order = stage.order_of(&[remove]);
    let outcome = stage.ordered(order);
    let ClusterOutcome::Planned(repair) = outcome else { panic!("{outcome:?}") };
    for plan in [plan, repair] {
        stage.within(30 * SECONDS, "publication", |world| {
            let plan = world.oracle.cluster().and_then(|state| state.plan(plan).cloned());
            plan.is_some_and(|plan| !plan.is_moving())
        });
        stage.end_grace(plan);
    }
    stage.await_end(repair);
    stage.await_end(plan);
    stage.ends_well();
}

#[test]
fn of_conditional_writes_that_race_exactly_one_wins_per_version() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    let mut version = stage.write(leader, "k", "0");
    for round in 0..5 {
        let requests: Vec<u64> = (0..10)
            .map(|client| {
                let condition = Condition::Version(version);
                stage.write_if(leader, "k", &format!("{round}.{client}"), condition)
            })
            .collect();
        let replies: Vec<Reply> =
            requests.into_iter().map(|request| stage.await_answer(request)).collect();
        let won: Vec<kvcore::Version> = replies
            .iter()
            .filter_map(|reply| match reply {
                Reply::Written(WriteOutcome::Put(version)) => Some(*version),
                _ => None,
            })
            .collect();
        assert_eq!(won.len(), 1, "{replies:?}");
        let told = Reply::Written(WriteOutcome::ConditionFailed(Some(won[0])));
        assert_eq!(replies.iter().filter(|reply| **reply == told).count(), 9, "{replies:?}");
        version = won[0];
    }
    stage.ends_well();
}

#[test]
fn an_entry_that_a_snapshot_took_the_place_of_is_unknown() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.isolate(leader);
    let write = stage.put(leader, "k0", "nobody will know");
    stage.until("another leader", |world| {
        serving_leader(world, group()).is_some_and(|it| it != leader)
    });
    for number in 0..250 {
        let next = stage.leader();
        stage.write(next, &format!("k{}", number % 10), &"x".repeat(200));
    }
    assert_eq!(stage.answer(write), None);
    stage.world.network.mend();
    assert_eq!(stage.await_answer(write), Reply::Unknown);
    stage.ends_well();
}

#[test]
fn a_sole_voter_that_lost_its_vote_does_not_lead_the_same_term_twice() {
    let mut stage = Stage::of(1, 1);
    stage.write(0, "k", "v");
    let hold = Some(Hold::At(Step::CatchingUp));
    stage.hold(hold);
    stage.plan(&[stage.join(1)]);
    stage.until("the learner to catch up", |world| stored(world, 1, "k").is_some());
    for round in 0..20 {
        // It elects itself again while its sync hangs, speaks, and loses what it had not synced.
        stage.world.kill(0, MILLIS);
        stage.run(10 * MILLIS);
        stage.hold(hold);
        stage.world.stall(0, 3 * SECONDS);
        stage.run(1500 * MILLIS);
        stage.put(0, "k", &round.to_string());
        stage.run(20 * MILLIS);
        stage.world.crash(0, 0, MILLIS);
        stage.world.nodes[0].stalled_until = 0;
        stage.run(10 * MILLIS);
        stage.hold(hold);
        stage.until("it to lead again", |world| serving_leader(world, group()) == Some(0));
    }
    stage.ends_well();
}
