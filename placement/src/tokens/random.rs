//! Tokens at pseudo-random places: the textbook ring.

use xxhash_rust::xxh3::xxh3_64;

use super::{TOKENS_MAX, Token};
use crate::error::PlacementError;
use crate::hash::PartitionBits;
use crate::topology::NodeSpec;

/// `vnodes_per_node` x weight tokens for each node, rounded up to the end of their partition.
pub(super) fn allocate(
    nodes: &[&NodeSpec],
    partition_bits: PartitionBits,
    vnodes_per_node: u32,
) -> Result<Vec<Token>, PlacementError> {
    if vnodes_per_node == 0 {
        return Err(PlacementError::NoVnodes);
    }
    let vnodes_of = |node: &NodeSpec| u64::from(vnodes_per_node) * u64::from(node.weight.get());
    let count = nodes.iter().map(|node| vnodes_of(node)).sum::<u64>();
    if count > TOKENS_MAX as u64 {
        return Err(PlacementError::TooManyTokens { count });
    }
    let mut tokens: Vec<Token> = nodes
        .iter()
        .flat_map(|node| {
            let indices = 0..u32::try_from(vnodes_of(node)).expect("bounded by TOKENS_MAX");
            indices.map(|index| token(node, partition_bits, index))
        })
        .collect();
    tokens.sort_unstable();
    Ok(tokens)
}

/// The hash bits that rounding takes off become the rank, so that tokens of one position keep the
/// order that they had before; without this the lowest identity would always come first.
fn token(node: &NodeSpec, partition_bits: PartitionBits, index: u32) -> Token {
    let mut seed_bytes = [0; 20];
    seed_bytes[..16].copy_from_slice(&node.id.as_u128().to_be_bytes());
    seed_bytes[16..].copy_from_slice(&index.to_be_bytes());
    let hash = xxh3_64(&seed_bytes);
    let rank = (hash << partition_bits.get()) >> 48;
    Token {
        position: partition_bits.last_hash(partition_bits.partition_of(hash)),
        rank: u16::try_from(rank).expect("a shift by 48 leaves 16 bits"),
        node: node.id,
        index,
    }
}
