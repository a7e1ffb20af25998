//! Stories of replicas: added, promoted, demoted, removed, and what is said to them too late.

use kvcore::event::ConfigurationChange;
use kvcore::group::Role;
use kvcore::message::PeerMessage;
use kvcore::storage::Member;
use kvcore::store::{Condition, WriteOutcome};
use kvcore::{Event, Refusal, Reply, Term};
use raft::eraftpb::{Message, MessageType};

use super::stage::{FOR_EVER, Stage, group, serving_leader, stored};
use crate::sim::weather::{MILLIS, SECONDS};

fn swap(promote: kvcore::ReplicaId, demote: kvcore::ReplicaId) -> ConfigurationChange {
    ConfigurationChange::Swap { promote: vec![promote], demote: vec![demote] }
}

#[test]
fn a_replica_takes_the_place_of_another_and_the_way_back_works() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    let old = stage.followers()[0];
    let old_replica = stage.replica(old);
    let replica = stage.add_learner(3);
    stage.until("the learner to catch up", |world| stored(world, 3, "k").is_some());
    stage.changed(swap(replica, old_replica));
    stage.changed(ConfigurationChange::LeaveJoint);
    let voters = |stage: &Stage| {
        stage.world.summary(stage.leader(), group()).map(|it| it.configuration.voters)
    };
    assert!(voters(&stage).is_some_and(|it| it.contains(&replica) && !it.contains(&old_replica)));
    stage.changed(swap(old_replica, replica));
    stage.changed(ConfigurationChange::LeaveJoint);
    assert!(voters(&stage).is_some_and(|it| !it.contains(&replica) && it.contains(&old_replica)));
    stage.changed(ConfigurationChange::Remove(replica));
    stage.until("the removed replica to end", |world| world.summary(3, group()).is_none());
    stage.ends_well();
}

#[test]
fn a_leader_killed_in_the_joint_state_leaves_a_group_that_goes_on() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    let old_replica = stage.replica(leader);
    let replica = stage.add_learner(3);
    stage.until("the learner to catch up", |world| stored(world, 3, "k").is_some());
    stage.changed(swap(replica, old_replica));
    stage.world.crash(leader, 0, 4 * SECONDS);
    stage.until("another leader", |world| {
        serving_leader(world, group()).is_some_and(|it| it != leader)
    });
    stage.changed(ConfigurationChange::LeaveJoint);
    let next = stage.leader();
    stage.write(next, "k", "w");
    stage.ends_well();
}

#[test]
fn a_leader_that_was_demoted_serves_nothing_and_hands_on() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    let replica = stage.add_learner(3);
    stage.until("the learner to catch up", |world| stored(world, 3, "k").is_some());
    stage.changed(swap(replica, stage.replica(leader)));
    let leave = stage.change(leader, ConfigurationChange::LeaveJoint);
    assert_eq!(stage.await_answer(leave), Reply::Done);
    // It may lead for a moment yet; asked now, it refuses.
    let write = stage.put(leader, "k", "from outside");
    let read = stage.read(leader);
    assert!(!stage.holds_lease(leader));
    assert!(matches!(stage.await_answer(write), Reply::NotLeader(_)));
    assert!(matches!(stage.await_answer(read), Reply::NotLeader(_)));
    stage.within(2 * SECONDS, "a voter to lead", |world| {
        serving_leader(world, group()).is_some_and(|it| it != leader)
    });
    let next = stage.leader();
    stage.write(next, "k", "from inside");
    stage.ends_well();
}

#[test]
fn of_two_changes_at_once_one_is_refused() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    let member = |stage: &mut Stage| Member {
        replica: stage.world.fresh_replica(),
        node: stage.world.nodes[3].id,
    };
    let (one, other) = (member(&mut stage), member(&mut stage));
    let one = stage.change(leader, ConfigurationChange::AddLearner(one));
    let other = stage.change(leader, ConfigurationChange::AddLearner(other));
    assert_eq!(stage.await_answer(one), Reply::Done);
    assert_eq!(stage.await_answer(other), Reply::Refused(Refusal::NotNow));
    let unfit = stage.change(leader, ConfigurationChange::LeaveJoint);
    assert_eq!(stage.await_answer(unfit), Reply::Refused(Refusal::NotNow));
}

#[test]
fn a_learner_never_counts_whether_or_not_it_has_anything() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    stage.write(leader, "k", "v");
    stage.add_learner(3);
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
    for node in 0..3 {
        stage.world.network.cut(node, 3, FOR_EVER);
    }
    let replica = stage.add_learner(3);
    stage.run(4 * SECONDS);
    let summary = stage.world.summary(3, group()).expect("it was created");
    assert_eq!((summary.replica, summary.role, summary.term), (replica, Role::Learner, Term(0)));
    assert_eq!(stage.leader(), leader, "the others do not care");
    stage.write(leader, "k", "v");
    stage.ends_well();
}

#[test]
fn what_is_said_to_a_removed_replica_too_late_changes_nothing() {
    let mut stage = Stage::of(3, 1);
    let leader = stage.leader();
    let removed = stage.add_learner(3);
    stage.until("it to be there", |world| world.summary(3, group()).is_some());
    stage.run(500 * MILLIS);
    stage.changed(ConfigurationChange::Remove(removed));
    // Whether it hears of its removal from the group itself is a matter of luck.
    stage.world.tell(3, Event::EndReplica { group: group(), replica: removed });
    stage.until("it to end", |world| world.summary(3, group()).is_none());
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
    // The same id cannot come back either, the node remembers that it ended here.
    stage.world.tell(3, Event::CreateReplica { group: group(), replica: removed, rank: 3 });
    stage.run(100 * MILLIS);
    assert!(stage.world.summary(3, group()).is_none());
    let again = stage.add_learner(3);
    stage.run(500 * MILLIS);
    for kind in kinds {
        late(&mut stage, kind);
        let summary = stage.world.summary(3, group()).expect("it was created again");
        assert_eq!(summary.replica, again);
        assert!(summary.term < Term(99), "it listened to what was meant for its predecessor");
    }
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
    stage.add_learner(1);
    stage.until("the learner to catch up", |world| stored(world, 1, "k").is_some());
    for round in 0..20 {
        // It elects itself again while its sync hangs, speaks, and loses what it had not synced.
        stage.world.kill(0, MILLIS);
        stage.run(10 * MILLIS);
        stage.world.stall(0, 3 * SECONDS);
        stage.run(1500 * MILLIS);
        stage.put(0, "k", &round.to_string());
        stage.run(20 * MILLIS);
        stage.world.crash(0, 0, MILLIS);
        stage.world.nodes[0].stalled_until = 0;
        stage.until("it to lead again", |world| serving_leader(world, group()) == Some(0));
    }
    stage.ends_well();
}
