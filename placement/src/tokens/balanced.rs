//! Tokens that spell out an even assignment.
//!
//! With one token per owner at each partition's end, ordered by rank, the ring rule finds exactly
//! these owners and never walks past the partition. So any assignment can be written as a ring,
//! and finding a good ring is finding a good assignment:
//!
//! 1. How many copies each node should have follows from the weights, the zones and the number of
//!    partitions ([`layout`]).
//! 2. The copies start where they are. What may stay stays, what is missing is added, and then
//!    single copies are handed on until every node has its number ([`copies`]).
//! 3. The primaries likewise, among the owners of each partition ([`primaries`]).
//!
//! Handing on is a search for the shortest chain of nodes from one that has too much to one that
//! has too little ([`level`]), and then for circles of nodes that save moves ([`economy`]). Ties are
//! broken by a hash of partition and node, so that the nodes that share partitions with a given one
//! are many, and share its load when it fails.

mod copies;
mod economy;
mod layout;
mod level;
mod primaries;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use xxhash_rust::xxh3::xxh3_64;

use super::Token;
use crate::hash::PartitionBits;
use crate::ring::partition_table;
use crate::snapshot::RingSnapshot;
use crate::topology::{NodeSpec, ReplicationFactor};
use layout::Layout;

/// The place of a node among those that take part.
type Node = usize;
/// The owners of each partition.
type Rows = Vec<Vec<Node>>;

/// Tokens of the assignment that is as even as possible, as near to the previous one as possible.
pub(super) fn allocate(
    nodes: &[&NodeSpec],
    partition_bits: PartitionBits,
    replication_factor: ReplicationFactor,
    previous: Option<&RingSnapshot>,
) -> Vec<Token> {
    let partitions = partition_bits.count() as usize;
    let before = match previous {
        Some(previous) => owners_before(nodes, previous),
        None => vec![Vec::new(); partitions],
    };
    let layout = Layout::new(nodes, partitions, replication_factor, &before);
    let mut rows = copies::assign(&layout, &before);
    primaries::assign(&layout, &mut rows, &before);

    let mut tokens = Vec::with_capacity(partitions * layout.owners_per_partition);
    for (partition, row) in partition_bits.partitions().zip(rows) {
        for (rank, node) in row.into_iter().enumerate() {
            tokens.push(Token {
                position: partition_bits.last_hash(partition),
                rank: u16::try_from(rank).expect("bounded by the replication factor"),
                node: nodes[node].id,
                // A node has at most one token in a partition, and keeps its number with it.
                index: partition.get(),
            });
        }
    }
    tokens
}

/// The owners in the previous ring that still take part, primary first.
fn owners_before(nodes: &[&NodeSpec], previous: &RingSnapshot) -> Rows {
    let place: Vec<Option<Node>> = previous
        .nodes()
        .iter()
        .map(|old| nodes.binary_search_by_key(&old.id, |node| node.id).ok())
        .collect();
    let (table, row) = partition_table(previous);
    table
        .chunks_exact(row)
        .map(|owners| owners.iter().filter_map(|index| place[index.as_usize()]).collect())
        .collect()
}

/// A number that stands for a node, whatever other nodes there are.
fn node_seed(node: &NodeSpec) -> u64 {
    xxh3_64(&node.id.as_u128().to_be_bytes())
}

/// A pseudo-random order of nodes per partition and of partitions per node (the finalizer of
/// SplitMix64 over both).
fn tie_break(seed: u64, partition: usize) -> u64 {
    let mut x = seed ^ (partition as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
