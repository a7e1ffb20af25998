//! Stories of leaders: killed, paused, cut off, handing on.

use kvcore::{Event, GroupId, Refusal, Reply, Version};

use super::stage::{FOR_EVER, MOMENT, Stage, TAKE_OVER, group, serving_leader, stored};
use crate::sim::weather::{MILLIS, SECONDS};

#[test]
fn a_leader_killed_before_its_own_write_is_durable_loses_nothing() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.world.stall(leader, 300 * MILLIS);
    let write = stage.put(leader, "k", "committed");
    stage.run(MOMENT);
    // Its followers have synced and it knows; it has not, and so it cannot apply the entry and
    // answer. It is back well within the election timeout.
    let summary = stage.world.summary(leader, group()).expect("it leads");
    assert_eq!((summary.commit, stage.answer(write)), (summary.last, None));
    stage.world.crash(leader, 0, 50 * MILLIS);
    stage.until("another leader", |world| serving_leader(world, group()).is_some());
    let next = stage.leader();
    let kept = stage.stored(next, "k").map(|record| record.value);
    assert_eq!(kept, Some("committed".into()));
    stage.until("the old leader to have it", |world| stored(world, leader, "k").is_some());
    stage.ends_well();
}

#[test]
fn a_paused_leader_serves_nothing_old_when_it_goes_on() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.write(leader, "k", "old");
    let read = stage.read(leader);
    assert_eq!(stage.await_answer(read), Reply::Readable);
    assert!(stage.holds_lease(leader));
    stage.world.pause(leader, 5 * SECONDS, true);
    let followers: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    stage.until("a failover", |world| world.leader(group()).is_some_and(|it| it != leader));
    stage.until("it to serve", |world| serving_leader(world, group()).is_some());
    let next = stage.leader();
    assert!(followers.contains(&next));
    stage.write(next, "k", "new");
    // What reached the paused leader meanwhile is handled when it wakes.
    let write = stage.put(leader, "k", "queued");
    let read = stage.read(leader);
    stage.run(5 * SECONDS);
    assert!(!stage.holds_lease(leader));
    for request in [write, read] {
        let reply = stage.answer(request).cloned();
        let refused = matches!(reply, Some(Reply::NotLeader(_) | Reply::Refused(_)));
        assert!(refused, "{reply:?}");
    }
    assert_eq!(stage.stored(next, "k").map(|record| record.value), Some("new".into()));
    stage.ends_well();
}

#[test]
fn a_leader_that_reaches_clients_but_no_followers_acknowledges_nothing() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.isolate(leader);
    let write = stage.put(leader, "k", "lost");
    let read = stage.read(leader);
    stage.within(TAKE_OVER, "the others to take over", |world| {
        world.leader(group()).is_some_and(|it| it != leader)
            && serving_leader(world, group()).is_some()
    });
    let next = stage.leader();
    let version = stage.write(next, "k", "kept");
    stage.run(2 * SECONDS);
    assert!(!stage.holds_lease(leader), "it cannot hold a lease without followers");
    assert!(matches!(stage.answer(read), None | Some(Reply::NotLeader(_))));
    assert_eq!(stage.answer(write), None, "nothing is known of it yet");
    stage.world.network.mend();
    // Its entry was overwritten: that is known once the other leader's entry is applied.
    assert_eq!(stage.await_answer(write), Reply::Refused(Refusal::Overwritten));
    stage.until("the old leader to follow", |world| {
        stored(world, leader, "k").is_some_and(|record| record.version == version)
    });
    stage.ends_well();
}

#[test]
fn one_way_cuts_leave_a_leader_that_others_can_hear() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    // Nothing reaches the leader, everything it says arrives.
    for node in (0..3).filter(|node| *node != leader) {
        stage.world.network.cut(node, leader, FOR_EVER);
    }
    stage.within(4 * SECONDS, "another leader", |world| {
        world.leader(group()).is_some_and(|it| it != leader)
            && serving_leader(world, group()).is_some()
    });
    let next = stage.leader();
    stage.write(next, "k", "v");
    stage.ends_well();
}

#[test]
fn a_read_that_arrives_before_the_leader_committed_in_its_term_is_answered() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.world.kill(leader, FOR_EVER / 2);
    stage.until("a leader that has committed nothing yet", |world| {
        let next = world.leader(group()).filter(|it| *it != leader);
        let summary = next.and_then(|next| world.summary(next, group()));
        summary.is_some_and(|it| it.applied < it.last)
    });
    let next = stage.world.leader(group()).expect("it was just seen");
    let read = stage.read(next);
    assert_eq!(stage.await_answer(read), Reply::Readable);
}

#[test]
fn a_transfer_without_an_answer_is_given_up_and_ends_the_lease_of_its_term() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    let followers = stage.followers();
    let read = stage.read(leader);
    assert_eq!(stage.await_answer(read), Reply::Readable);
    assert!(stage.holds_lease(leader));
    stage.run(MOMENT);
    stage.world.network.cut(leader, followers[0], stage.world.now + 300 * MILLIS);
    let transfer = stage.transfer(leader, followers[0]);
    stage.run(MILLIS);
    assert!(!stage.holds_lease(leader), "the order to campaign may be on its way");
    let write = stage.put(leader, "k", "v");
    stage.within(200 * MILLIS, "an answer", |world| world.answers.contains_key(&transfer));
    assert_eq!(stage.answer(transfer), Some(&Reply::Refused(Refusal::NotNow)));
    assert!(matches!(stage.await_answer(write), Reply::Written(_)), "proposals go on");
    let read = stage.read(leader);
    assert_eq!(stage.await_answer(read), Reply::Readable, "reads go by rounds");
    assert!(!stage.holds_lease(leader), "no lease until the term changes");
    stage.ends_well();
}

#[test]
fn leadership_is_not_handed_to_a_replica_that_lags() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    let followers = stage.followers();
    stage.world.stall(followers[0], 2 * SECONDS);
    stage.write(leader, "k", "v");
    let transfer = stage.transfer(leader, followers[0]);
    assert_eq!(stage.await_answer(transfer), Reply::Refused(Refusal::NotNow));
    assert_eq!(stage.leader(), leader);
    let transfer = stage.transfer(leader, followers[1]);
    assert_eq!(stage.await_answer(transfer), Reply::Done);
    stage.ends_well();
}

#[test]
fn a_planned_move_of_leadership_pauses_writes_for_less_than_fifty_milliseconds() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    let to = stage.followers()[0];
    stage.write(leader, "k", "before");
    let began = stage.world.now;
    let transfer = stage.transfer(leader, to);
    assert_eq!(stage.await_answer(transfer), Reply::Done);
    stage.until("the new leader to serve", |world| serving_leader(world, group()) == Some(to));
    stage.write(to, "k", "after");
    let pause = stage.world.now - began;
    assert!(pause < 50 * MILLIS, "{} ms", pause / MILLIS);
    stage.ends_well();
}

#[test]
fn a_node_that_hands_over_leads_nothing_soon_after() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    stage.world.tell(leader, Event::HandOver);
    stage.within(SECONDS, "it to lead nothing", |world| {
        world.founding.groups().all(|group| world.leader(group) != Some(leader))
    });
    stage.run(2 * SECONDS);
    let groups: Vec<GroupId> = stage.world.founding.groups().collect();
    for group in groups {
        assert_ne!(stage.world.leader(group), Some(leader), "it takes none back");
    }
    stage.ends_well();
}

#[test]
fn a_restarted_voter_neither_votes_nor_campaigns_for_an_election_timeout() {
    let mut stage = Stage::of(3, 0);
    let leader = stage.leader();
    let followers = stage.followers();
    let read = stage.read(leader);
    assert_eq!(stage.await_answer(read), Reply::Readable);
    // One follower wants an election; the other, which has just confirmed a round, restarts.
    stage.world.network.cut(leader, followers[0], FOR_EVER);
    stage.run(600 * MILLIS);
    let read = stage.read(leader);
    assert_eq!(stage.await_answer(read), Reply::Readable);
    stage.isolate(leader);
    stage.world.kill(followers[1], MILLIS);
    let term = stage.world.summary(leader, group()).map(|it| it.term);
    let leased_until = stage.world.now + 550 * MILLIS;
    while stage.world.now < leased_until {
        stage.run(10 * MILLIS);
        let elected = stage.world.leader(group()).filter(|it| *it != leader);
        assert_eq!(elected, None, "elected while the old leader held its lease");
        assert_eq!(
            stage.world.summary(followers[1], group()).map_or(term, |it| Some(it.term)),
            term
        );
    }
    stage.until("an election afterwards", |world| {
        world.leader(group()).is_some_and(|it| it != leader)
    });
    stage.ends_well();
}

#[test]
fn every_node_loses_its_power_at_once_and_nothing_acknowledged_is_lost() {
    let mut stage = Stage::of(3, 0);
    let mut last = Version(0);
    for round in 0..5 {
        stage.until("a leader", |world| serving_leader(world, group()).is_some());
        for write in 0..5 {
            let leader = stage.leader();
            let version = stage.write(leader, "k", &format!("{round}.{write}"));
            assert!(version > last, "versions never go back");
            last = version;
        }
        for node in 0..3 {
            stage.world.crash(node, 0, 20 * MILLIS);
        }
        stage.run(MOMENT);
    }
    stage.ends_well();
}

#[test]
fn a_cluster_of_one_node_serves_and_comes_back() {
    let mut stage = Stage::of(1, 0);
    let first = stage.write(0, "k", "1");
    stage.world.crash(0, 0, MILLIS);
    stage.until("it to serve again", |world| serving_leader(world, group()) == Some(0));
    assert_eq!(stage.stored(0, "k").map(|record| record.version), Some(first));
    assert!(stage.write(0, "k", "2") > first);
    stage.ends_well();
}
