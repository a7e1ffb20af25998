mod harness;

use std::time::Duration;

use bytes::Bytes;
use placement::PartitionId;

use self::harness::{Trio, node_id};
use crate::event::{Event, Reply};
use crate::group::Role;
use crate::ids::{GroupId, Version};
use crate::message::{NodeHeartbeat, PeerMessage};
use crate::store::{Command, Condition, WriteOutcome};

const PARTITION: PartitionId = PartitionId::new(0);

fn group() -> GroupId {
    GroupId::of_partition(PARTITION)
}

fn put(key: &str, value: &str) -> Command {
    Command::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        content_type: None,
        condition: Condition::Always,
    }
}

fn write(trio: &mut Trio, number: usize, key: &str, value: &str) -> Reply {
    let command = put(key, value);
    trio.ask(number, |reply| Event::Write { partition: PARTITION, command, reply })
}

fn with_leader(bits: u8) -> (Trio, usize) {
    let mut trio = Trio::found(bits);
    trio.run_until("a leader of group 0", |trio| trio.leader(GroupId::CLUSTER));
    let leader = trio.run_until("a leader", |trio| trio.leader(group()));
    (trio, leader)
}

#[test]
fn a_founded_cluster_elects_and_every_replica_applies_what_is_written() {
    let (mut trio, leader) = with_leader(1);
    let reply = write(&mut trio, leader, "k", "v");
    assert_eq!(reply, Reply::Written(WriteOutcome::Put(Version(1))));
    for number in 0..3 {
        let record = trio.run_until("the value", |trio| trio.value(number, PARTITION, b"k"));
        assert_eq!((record.version, &record.value[..]), (Version(1), &b"v"[..]));
    }
}

#[test]
fn a_follower_refuses_writes_and_names_the_leader() {
    let (mut trio, leader) = with_leader(0);
    let follower = (leader + 1) % 3;
    let reply = write(&mut trio, follower, "k", "v");
    let Reply::NotLeader(elsewhere) = reply else { panic!("{reply:?}") };
    assert_eq!(elsewhere.leader, Some(node_id(leader)));
}

#[test]
fn a_read_is_confirmed_by_a_round_and_the_round_opens_the_gate() {
    let (mut trio, leader) = with_leader(0);
    let margin = Duration::from_millis(100);
    assert!(trio.gate(leader, group()).arrive(trio.now, margin).is_none(), "no lease yet");
    let reply = trio.ask(leader, |reply| Event::Read { partition: PARTITION, reply });
    assert_eq!(reply, Reply::Readable);
    let gate = trio.gate(leader, group());
    let ticket = gate.arrive(trio.now, margin).expect("the round granted a lease");
    assert!(gate.still_held(&ticket, trio.now));
    let later = trio.now + Duration::from_secs(1);
    assert!(!gate.still_held(&ticket, later), "a lease ends");
}

#[test]
fn a_restarted_replica_keeps_what_it_had_and_catches_up() {
    let (mut trio, leader) = with_leader(0);
    write(&mut trio, leader, "k", "1");
    let follower = (leader + 1) % 3;
    trio.stop(follower);
    assert_eq!(write(&mut trio, leader, "k", "2"), Reply::Written(WriteOutcome::Put(Version(2))));
    trio.start(follower);
    let applied = trio.applied(leader, group());
    trio.run_until("the follower to catch up", |trio| {
        (trio.applied(follower, group()) == applied).then_some(())
    });
    assert_eq!(trio.value(follower, PARTITION, b"k").map(|it| it.version), Some(Version(2)));
}

#[test]
fn writes_go_on_after_the_leader_stops_for_good() {
    let (mut trio, leader) = with_leader(0);
    write(&mut trio, leader, "k", "1");
    trio.stop(leader);
    let next = trio.run_until("another leader", |trio| trio.leader(group()));
    assert_eq!(write(&mut trio, next, "k", "2"), Reply::Written(WriteOutcome::Put(Version(2))));
}

#[test]
fn leadership_is_transferred_on_request() {
    let (mut trio, leader) = with_leader(0);
    write(&mut trio, leader, "k", "v");
    let to = (leader + 1) % 3;
    let reply = trio.ask(leader, |reply| Event::TransferLeadership {
        group: group(),
        to: node_id(to),
        reply,
    });
    assert_eq!(reply, Reply::Done);
    trio.run_until("the transferee to lead", |trio| {
        (trio.leader(group()) == Some(to)).then_some(())
    });
    assert_eq!(trio.summary(leader, group()).map(|it| it.role), Some(Role::Follower));
}

#[test]
fn the_whole_cluster_comes_back_after_every_node_restarted() {
    let (mut trio, leader) = with_leader(1);
    write(&mut trio, leader, "k", "v");
    for number in 0..3 {
        trio.restart(number);
    }
    let leader = trio.run_until("a leader", |trio| trio.leader(group()));
    let reply = write(&mut trio, leader, "k", "w");
    assert_eq!(reply, Reply::Written(WriteOutcome::Put(Version(2))));
}

#[test]
fn a_heartbeat_of_an_unknown_node_changes_nothing() {
    let (mut trio, _) = with_leader(0);
    let heartbeat = NodeHeartbeat {
        revision: crate::Revision(99),
        disk_ok: true,
        epoch: placement::Epoch::new(1),
        led: crate::message::LedPartitions::default(),
        misrouted_per_mille: 0,
    };
    trio.deliver(0, 77, PeerMessage::Heartbeat(heartbeat));
    trio.step();
}
