//! One key that many ask for. It has one partition and that one leader, whatever the ring looks
//! like.

use super::PartitionLoads;
use crate::ring::Ring;

/// The busiest node's part of all requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Busiest {
    /// Its part when every request goes to the primary.
    pub at_primaries: f64,
    /// Its part when each request goes to any of the owners in turn.
    pub at_all_owners: f64,
    /// One part for each node that has tokens: what is even.
    pub even: f64,
}

/// The busiest node when one key has `hot_share` of all requests and the others share the rest as
/// `loads` says. With a share of 0 this is the load without a hot key.
pub fn busiest(ring: &Ring, loads: &PartitionLoads, hot_hash: u64, hot_share: f64) -> Busiest {
    let total = loads.total().millirequests as f64;
    let hot_partition = ring.partition_bits().partition_of(hot_hash);
    let mut at_primaries = vec![0.0; ring.nodes().len()];
    let mut at_all_owners = at_primaries.clone();
    let mut has_tokens = vec![false; ring.nodes().len()];
    for token in ring.snapshot().packed_tokens() {
        has_tokens[token.node.as_usize()] = true;
    }
    for partition in ring.partition_bits().partitions() {
        let of_others = loads.get(partition).millirequests as f64;
        let of_others = if total > 0.0 { of_others / total * (1.0 - hot_share) } else { 0.0 };
        let requests = of_others + if partition == hot_partition { hot_share } else { 0.0 };
        let owners = ring.owners(partition);
        for (rank, owner) in owners.iter().enumerate() {
            at_all_owners[owner.as_usize()] += requests / owners.len() as f64;
            if rank == 0 {
                at_primaries[owner.as_usize()] += requests;
            }
        }
    }
    let nodes = has_tokens.iter().filter(|has| **has).count();
    let most = |parts: &[f64]| parts.iter().copied().fold(0.0, f64::max);
    Busiest {
        at_primaries: most(&at_primaries),
        at_all_owners: most(&at_all_owners),
        even: 1.0 / nodes as f64,
    }
}
