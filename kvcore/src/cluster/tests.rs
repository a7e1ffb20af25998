mod plans;

use std::time::Duration;

use placement::{
    Epoch, NodeId, NodeName, PartitionBits, ReplicationFactor, TokenPolicy, Weight, Zone,
};

use super::*;
use crate::codec;
use crate::ids::{ClusterId, GroupId, LogIndex, Revision};
use crate::time::Time;

fn registration(number: u128, zone: &str) -> Registration {
    Registration {
        id: NodeId::from_u128(number),
        name: NodeName::parse(&format!("n{number}")).unwrap(),
        zone: Zone::parse(zone).unwrap(),
        weight: Weight::ONE,
        client_address: format!("127.0.0.1:{}", 7400 + number),
        peer_address: format!("127.0.0.1:{}", 8400 + number),
    }
}

fn founding(zones: &[&str]) -> Founding {
    let founders = zones.iter().zip(1..).map(|(zone, number)| registration(number, zone));
    Founding {
        cluster: ClusterId(77),
        founders: founders.collect(),
        partition_bits: PartitionBits::new(4).unwrap(),
        replication_factor: ReplicationFactor::new(3).unwrap(),
        vnodes_per_node: 16,
        policy: TokenPolicy::Balanced,
        now_ms: 1_000,
    }
}

fn founded(zones: &[&str]) -> ClusterState {
    found(&founding(zones)).unwrap()
}

#[test]
fn a_founded_cluster_has_three_replicas_of_each_partition_in_three_zones() {
    let state = founded(&["a", "b", "c", "a", "b", "c"]);
    state.check().unwrap();
    assert_eq!(state.epoch(), Epoch::new(1));
    assert_eq!(state.groups().count(), 17);
    for group in state.groups() {
        let zones: std::collections::BTreeSet<_> = state
            .members(group)
            .iter()
            .map(|member| state.nodes[&member.node].registration.zone.clone())
            .collect();
        assert_eq!(zones.len(), 3, "group {group}");
    }
}

#[test]
fn equal_foundings_give_equal_states_with_equal_bytes() {
    let state = founded(&["a", "b", "c"]);
    assert_eq!(codec::encode(&state), codec::encode(&founded(&["a", "b", "c"])));
    let decoded: ClusterState = codec::decode(&codec::encode(&state)).unwrap();
    assert_eq!(decoded, state);
}

#[test]
fn one_and_two_nodes_found_a_cluster_with_one_voter_of_group_0() {
    for zones in [&["a"][..], &["a", "b"][..]] {
        let state = founded(zones);
        state.check().unwrap();
        assert_eq!(state.members(GroupId::CLUSTER).len(), 1);
    }
    let nobody = Founding { founders: Vec::new(), ..founding(&[]) };
    assert!(matches!(found(&nobody), Err(FoundingError::NoFounders)));
}

#[test]
fn two_founders_of_one_name_are_refused() {
    let mut twins = founding(&["a", "b", "c"]);
    twins.founders[1].name = twins.founders[0].name.clone();
    assert!(matches!(found(&twins), Err(FoundingError::Placement(_))));
}

#[test]
fn a_new_node_registers_as_a_spare_and_changes_no_epoch() {
    let mut state = founded(&["a", "b", "c"]);
    let before = state.clone();
    let spare = registration(9, "a");
    let outcome = apply(&mut state, Revision(5), ClusterCommand::Register(spare.clone()));
    assert_eq!(outcome, ClusterOutcome::Done);
    assert_eq!(state.revision, Revision(5));
    assert_eq!(state.ring, before.ring);
    assert_eq!(state.nodes[&spare.id].registration, spare);
    let again = apply(&mut state, Revision(6), ClusterCommand::Register(spare));
    assert_eq!(again, ClusterOutcome::Done);
    assert_eq!(state.revision, Revision(5), "saying the same again changes nothing");
}

#[test]
fn a_wiped_node_under_an_old_name_is_refused() {
    let mut state = founded(&["a", "b", "c"]);
    let before = state.clone();
    let mut impostor = registration(9, "a");
    impostor.name = NodeName::parse("n1").unwrap();
    let outcome = apply(&mut state, Revision(5), ClusterCommand::Register(impostor));
    assert_eq!(
        outcome,
        ClusterOutcome::Refused(ClusterRefusal::NameTaken {
            name: "n1".into(),
            owner: NodeId::from_u128(1)
        })
    );
    assert_eq!(state, before);
}

#[test]
fn a_node_that_owns_partitions_keeps_its_zone_and_may_change_its_address() {
    let mut state = founded(&["a", "b", "c"]);
    let mut moved = registration(1, "b");
    let refused = apply(&mut state, Revision(5), ClusterCommand::Register(moved.clone()));
    assert!(matches!(refused, ClusterOutcome::Refused(ClusterRefusal::ZoneInUse { .. })));
    moved = registration(1, "a");
    moved.peer_address = "10.0.0.1:7401".into();
    let done = apply(&mut state, Revision(6), ClusterCommand::Register(moved.clone()));
    assert_eq!(done, ClusterOutcome::Done);
    assert_eq!(state.nodes[&moved.id].registration, moved);
}

#[test]
fn views_go_forward_only_and_within_one_cluster() {
    let old = founded(&["a", "b", "c"]);
    let mut new = old.clone();
    let _ = apply(&mut new, Revision(5), ClusterCommand::Register(registration(9, "a")));
    assert_eq!(check_successor(&old, &new), Ok(true));
    assert_eq!(check_successor(&new, &old), Ok(false));
    assert_eq!(check_successor(&new, &new), Ok(false));

    let mut foreign = new.clone();
    foreign.cluster = ClusterId(78);
    assert!(matches!(check_successor(&old, &foreign), Err(ViewError::OtherCluster { .. })));

    let mut twice = new.clone();
    twice.replicas[0][0] = twice.replicas[1][0];
    assert!(matches!(check_successor(&old, &twice), Err(ViewError::Inconsistent { .. })));
}

#[test]
fn another_ring_of_the_same_epoch_is_a_conflict() {
    let old = founded(&["a", "b", "c"]);
    let mut fork = found(&Founding { now_ms: 2_000, ..founding(&["a", "b", "c"]) }).unwrap();
    fork.revision = Revision(50);
    assert!(matches!(
        check_successor(&old, &fork),
        Err(ViewError::Ring(placement::SnapshotError::EpochConflict { .. }))
    ));
}

#[test]
fn truncation_of_group_0_is_passed_on() {
    let mut state = founded(&["a", "b", "c"]);
    let before = state.clone();
    let command = ClusterCommand::Truncate { through: LogIndex(7) };
    assert_eq!(apply(&mut state, Revision(9), command), ClusterOutcome::Truncate(LogIndex(7)));
    assert_eq!(state, before);
}

struct Ward {
    monitor: HealthMonitor,
    recorded: Health,
    now: Time,
}

const NODE: NodeId = NodeId::from_u128(1);
const INTERVAL: Duration = Duration::from_millis(500);

impl Ward {
    fn new() -> Self {
        let settings = HealthSettings { interval: INTERVAL, suspect_misses: 3, down_misses: 10 };
        Self { monitor: HealthMonitor::new(settings), recorded: Health::Up, now: Time::ZERO }
    }

    /// Lets intervals pass, with or without heartbeats, and returns each change of the record.
    fn pass(&mut self, intervals: u32, beating: bool) -> Vec<Health> {
        let mut seen = Vec::new();
        for _ in 0..intervals {
            self.now = self.now + INTERVAL;
            if beating {
                self.monitor.beat(NODE, true, self.now);
            }
            let recorded = std::iter::once((NODE, self.recorded));
            for (_, health) in self.monitor.judge(recorded, self.now) {
                self.recorded = health;
                seen.push(health);
            }
        }
        seen
    }
}

#[test]
fn a_silent_node_is_suspect_then_down_and_comes_back() {
    let mut ward = Ward::new();
    assert_eq!(ward.pass(20, true), vec![]);
    assert_eq!(ward.pass(2, false), vec![]);
    assert_eq!(ward.pass(20, false), vec![Health::Suspect, Health::Down]);
    assert_eq!(ward.pass(10, true), vec![Health::Up]);
}

#[test]
fn a_flapping_node_must_beat_longer_each_time() {
    let mut ward = Ward::new();
    let mut waits = Vec::new();
    for _ in 0..6 {
        ward.pass(12, false);
        let mut beats = 0;
        while ward.recorded != Health::Up {
            ward.pass(1, true);
            beats += 1;
        }
        waits.push(beats);
    }
    assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
    assert!(waits[5] >= 8 * waits[0], "{waits:?}");
}

#[test]
fn a_node_whose_disk_hangs_is_not_up() {
    let mut ward = Ward::new();
    ward.pass(5, true);
    for _ in 0..12 {
        ward.now = ward.now + INTERVAL;
        ward.monitor.beat(NODE, false, ward.now);
        for (_, health) in ward.monitor.judge(std::iter::once((NODE, ward.recorded)), ward.now) {
            ward.recorded = health;
        }
    }
    assert_eq!(ward.recorded, Health::Down);
}
