//! The ring rule on small rings that can be checked by eye.

use std::sync::Arc;

use super::{OwnerRole, Ring};
use crate::tests::support::{Plan, equal_nodes, node};
use crate::{
    NodeSpec, PartitionBits, PartitionId, ReplicationFactor, RingSnapshot, SnapshotParts, Token,
    Topology,
};

/// Four partitions; tokens as (partition, rank, node).
fn ring(nodes: &[NodeSpec], replicas: u8, tokens: &[(u32, u16, usize)]) -> Ring {
    let partition_bits = PartitionBits::new(2).unwrap();
    let token = |(index, (partition, rank, node)): (usize, &(u32, u16, usize))| Token {
        position: partition_bits.last_hash(PartitionId::new(*partition)),
        rank: *rank,
        node: nodes[*node].id,
        index: index as u32,
    };
    let parts = SnapshotParts {
        partition_bits,
        replication_factor: ReplicationFactor::new(replicas).unwrap(),
        topology: Topology::new(nodes.to_vec()).unwrap(),
        tokens: tokens.iter().enumerate().map(token).collect(),
        activated_at_ms: 0,
    };
    Ring::new(Arc::new(RingSnapshot::publish(parts, None).unwrap()))
}

/// The names of the owners of each partition.
fn table(ring: &Ring) -> Vec<String> {
    let names = |partition| {
        let owners = ring.owners(partition).iter().map(|owner| ring.node(*owner).name.as_str());
        owners.collect::<Vec<_>>().join(" ")
    };
    ring.partition_bits().partitions().map(names).collect()
}

#[test]
fn a_walk_past_the_last_token_goes_on_at_the_first() {
    let nodes = [node(0, 0, 1), node(1, 1, 1), node(2, 2, 1)];
    let ring = ring(&nodes, 2, &[(0, 0, 0), (1, 0, 1), (2, 0, 2)]);
    assert_eq!(table(&ring), ["n0 n1", "n1 n2", "n2 n0", "n0 n1"]);
}

#[test]
fn one_token_owns_the_whole_ring() {
    let ring = ring(&[node(7, 0, 1)], 3, &[(1, 0, 0)]);
    assert_eq!(table(&ring), ["n7"; 4]);
    assert_eq!(ring.owners_per_partition(), 1);
}

#[test]
fn rank_decides_among_tokens_of_one_position() {
    let nodes = [node(0, 0, 1), node(1, 1, 1), node(2, 2, 1)];
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let tokens: Vec<_> = (0..3).map(|rank| (3, rank as u16, order[rank])).collect();
        let expected = order.map(|node| format!("n{node}")).join(" ");
        assert_eq!(table(&ring(&nodes, 3, &tokens)), [&*expected; 4]);
    }
}

#[test]
fn a_zone_gives_a_second_owner_only_when_no_other_zone_is_left() {
    let nodes = [node(0, 0, 1), node(1, 0, 1), node(2, 0, 1), node(3, 1, 1)];
    let tokens = [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3)];
    assert_eq!(table(&ring(&nodes, 2, &tokens)), ["n0 n3", "n1 n3", "n2 n3", "n3 n0"]);
    // Clockwise order, although the first round already finds n3.
    assert_eq!(table(&ring(&nodes, 3, &tokens)), ["n0 n1 n3", "n1 n2 n3", "n2 n3 n0", "n3 n0 n1"]);
}

#[test]
fn nodes_without_tokens_own_nothing_and_hold_nothing_up() {
    let nodes = [node(0, 0, 1), node(1, 1, 1), node(2, 2, 1)];
    let ring = ring(&nodes, 3, &[(0, 0, 0), (2, 0, 1)]);
    assert_eq!(table(&ring), ["n0 n1", "n1 n0", "n1 n0", "n0 n1"]);
    let redundancy = ring.redundancy();
    assert!(redundancy.under_replicated && redundancy.fewer_zones_than_replicas);
    assert_eq!(ring.partitions_of(nodes[2].id).count(), 0);
}

#[test]
fn locate_says_all_about_a_key() {
    let nodes = equal_nodes(3, 3);
    let ring = Plan::balanced(4, 3).ring(&nodes, None);
    let placement = ring.locate(b"key");
    assert_eq!(placement.key_hash, crate::key_hash(b"key"));
    assert_eq!(placement.partition, ring.partition_of(b"key"));
    assert_eq!(placement.epoch, ring.epoch());
    assert_eq!(Some(placement.owners[0].node), ring.primary(placement.partition));
    assert_eq!(placement.owners.len(), 3);
    for (rank, owner) in placement.owners.iter().enumerate() {
        assert_eq!(owner.role, OwnerRole::of_rank(rank));
        assert_eq!(ring.role(placement.partition, owner.node), Some(owner.role));
        let index = ring.node_index(owner.node).unwrap();
        assert_eq!(ring.node(index).zone, owner.zone);
    }
    let json = serde_json::to_value(&placement).unwrap();
    assert_eq!(json["owners"][0]["role"], "primary");
    assert_eq!(json["owners"][1]["role"], "replica");
    assert_eq!(json["key_hash"], placement.key_hash);
    assert_eq!(serde_json::from_value::<super::Placement>(json).unwrap(), placement);
}

#[test]
fn a_partition_of_another_ring_has_no_owners() {
    let ring = Plan::balanced(4, 3).ring(&equal_nodes(3, 3), None);
    for number in [16, u32::MAX] {
        let partition = PartitionId::new(number);
        assert!(ring.owners(partition).is_empty());
        assert_eq!(ring.primary(partition), None);
        assert_eq!(ring.zones_covered(partition), 0);
    }
}
