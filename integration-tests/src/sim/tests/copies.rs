//! Copies that are slow, that are interrupted, and that the writes outrun.

use kvcore::group::CopyState;
use kvcore::message::CopyFailure;
use kvcore::{ReplicaId, Reply};

use super::stage::*;
use crate::sim::weather::{MILLIS, SECONDS};
use crate::sim::{Setup, Weather, World};

/// The log that is kept for a copy at first, and at most: see `small_limits`.
const LOG_KEPT: [u64; 2] = [40 << 10, 80 << 10];

/// A group with a follower that is down, whose place in the log is gone, and chunks that take so
/// long each.
fn with_an_absent_follower(chunk: std::ops::Range<u64>) -> (Stage, usize, ReplicaId) {
    let weather = Weather { clients: 0, chunk, ..Weather::calm() };
    let mut stage = Stage::with(Setup { weather, spares: 0, ..Setup::scripted(3) });
    let leader = stage.leader();
    let absent = stage.followers()[0];
    let replica = stage.replica(absent);
    let last = stage.world.summary(absent, group()).expect("it holds a replica").last;
    stage.world.kill(absent, 4 * SECONDS);
    for number in 0..60 {
        stage.write(leader, &format!("k{}", number % 4), &"v".repeat(1000));
    }
    stage.until("its place in the log is gone", |world| {
        world.summary(leader, group()).is_some_and(|it| it.first > last.next())
    });
    stage.within(10 * SECONDS, "it to be back", |world| {
        world.nodes[absent].is_running() && world.leader(group()) == Some(leader)
    });
    (stage, absent, replica)
}

fn copy_of(world: &World, replica: ReplicaId) -> Option<CopyState> {
    let leader = world.leader(group())?;
    world.nodes[leader].process.as_ref()?.core.copy_of(group(), replica)
}

fn is_caught_up(world: &World, node: usize) -> bool {
    let leader = world.leader(group()).and_then(|leader| world.summary(leader, group()));
    let here = world.summary(node, group());
    leader.zip(here).is_some_and(|(leader, here)| here.applied == leader.last)
}

#[test]
fn a_slow_copy_is_not_taken_for_a_stalled_one() {
    // Each chunk takes several times as long as silence may last.
    let (mut stage, absent, replica) = with_an_absent_follower(3 * SECONDS..4 * SECONDS);
    let mut seen = Vec::new();
    stage.within(60 * SECONDS, "the copy to be complete", |world| {
        seen.extend(copy_of(world, replica));
        is_caught_up(world, absent)
    });
    seen.dedup();
    assert!(seen.iter().all(|copy| copy.attempts == 1), "{seen:?}");
    assert!(seen.iter().all(|copy| copy.last_failure.is_none()), "{seen:?}");
    assert!(seen.iter().any(|copy| 0 < copy.bytes_done && copy.bytes_done < copy.bytes_total));
    assert!(seen.is_sorted_by_key(|copy| copy.bytes_done), "{seen:?}");
    assert_eq!(stage.world.counters.snapshots_broken_off, 0);
    stage.until("success clears the book", |world| copy_of(world, replica).is_none());
    stage.ends_well();
}

#[test]
fn a_copy_goes_on_under_another_leader() {
    let (mut stage, absent, replica) = with_an_absent_follower(900 * MILLIS..SECONDS);
    let leader = stage.leader();
    stage.within(10 * SECONDS, "some chunks", |world| {
        copy_of(world, replica).is_some_and(|copy| copy.bytes_done > 0)
    });
    let built = stage.world.snapshots;
    let next = stage.followers().into_iter().find(|node| *node != absent).expect("three nodes");
    let request = stage.transfer(leader, next);
    assert_eq!(stage.await_answer(request), Reply::Done);
    stage.until("the next leader hears of the copy", |world| {
        world.leader(group()) == Some(next) && copy_of(world, replica).is_some()
    });
    stage.within(20 * SECONDS, "the copy to be complete", |world| is_caught_up(world, absent));
    assert_eq!(stage.world.snapshots, built, "no snapshot was built for nothing");
    assert_eq!(stage.world.counters.snapshots_broken_off, 0);
    stage.ends_well();
}

#[test]
fn both_sides_restart_and_the_copy_goes_on_with_the_chunks_that_are_there() {
    let (mut stage, absent, replica) = with_an_absent_follower(900 * MILLIS..SECONDS);
    let mut done = 0;
    stage.within(10 * SECONDS, "some chunks", |world| {
        done = copy_of(world, replica).map_or(0, |copy| copy.bytes_done);
        done > 0
    });
    let built = stage.world.snapshots;
    let leader = stage.leader();
    stage.world.kill(absent, 500 * MILLIS);
    stage.world.kill(leader, 500 * MILLIS);
    stage.within(60 * SECONDS, "the copy to be complete", |world| is_caught_up(world, absent));
    let counters = &stage.world.counters;
    assert!(counters.snapshots_resumed >= 1, "the receiver began anew");
    assert!(stage.world.snapshots <= built + 1, "{} were built", stage.world.snapshots - built);
    stage.ends_well();
}

#[test]
fn a_copy_that_the_writes_outrun_gets_more_log_and_then_waits() {
    let (mut stage, absent, replica) = with_an_absent_follower(3 * SECONDS..4 * SECONDS);
    let leader = stage.leader();
    let mut kept = Vec::new();
    let mut attempts = 0;
    let mut blocked = false;
    for number in 0..1500 {
        stage.write(leader, &format!("k{}", number % 4), &"v".repeat(1000));
        stage.run(10 * MILLIS);
        let Some(copy) = copy_of(&stage.world, replica) else { continue };
        if let Some(CopyFailure::FellOffTheLog { kept_bytes }) = copy.last_failure {
            kept.push(kept_bytes);
            let now = stage.world.nodes[leader].clock.local(stage.world.now);
            let pause = copy.next_attempt.map(|at| at.since(now));
            blocked |= pause.is_some_and(|pause| pause.as_secs() >= 2);
        }
        attempts = attempts.max(copy.attempts);
    }
    kept.dedup();
    assert_eq!(kept, LOG_KEPT, "the bound doubles up to its limit");
    assert!(blocked, "after the limit it waits");
    assert!((3..12).contains(&attempts), "{attempts} attempts");
    // The writes end, and the copy comes through.
    stage.within(90 * SECONDS, "the copy to be complete", |world| is_caught_up(world, absent));
    stage.until("success clears the book", |world| copy_of(world, replica).is_none());
    stage.ends_well();
}

#[test]
fn failures_are_followed_by_pauses_that_double() {
    let (mut stage, absent, replica) = with_an_absent_follower(100 * MILLIS..110 * MILLIS);
    let leader = stage.leader();
    // The receiver takes offers and gets no chunk: it hears the leader, and the way back is cut for
    // a moment whenever it asks.
    let mut pauses = Vec::new();
    for _ in 0..400 {
        stage.run(20 * MILLIS);
        stage.world.nodes[leader].disk.files.clear();
        let Some(copy) = copy_of(&stage.world, replica) else { continue };
        if let (Some(CopyFailure::SourceGone), Some(at)) = (copy.last_failure, copy.next_attempt) {
            let now = stage.world.nodes[leader].clock.local(stage.world.now);
            pauses.push((at, at.since(now).as_millis()));
        }
    }
    pauses.dedup_by_key(|(at, _)| *at);
    let pauses: Vec<u128> = pauses.into_iter().map(|(_, pause)| pause).collect();
    assert!(pauses.len() >= 4, "{pauses:?}");
    // 200, 400, 800, 1600 and then 2000 ms at most, seen within a few steps.
    for (pause, expected) in pauses.iter().zip([200, 400, 800, 1600, 2000, 2000, 2000]) {
        assert!((expected - 60..=expected).contains(pause), "{pauses:?}");
    }
    stage.within(20 * SECONDS, "the copy to be complete", |world| is_caught_up(world, absent));
    stage.ends_well();
}
