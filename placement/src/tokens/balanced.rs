//! placeholder
use super::Token;
use crate::hash::PartitionBits;
use crate::snapshot::RingSnapshot;
use crate::topology::{NodeSpec, ReplicationFactor};

pub(super) fn allocate(
    nodes: &[&NodeSpec],
    partition_bits: PartitionBits,
    replication_factor: ReplicationFactor,
    _previous: Option<&RingSnapshot>,
) -> Vec<Token> {
    let mut zones: std::collections::BTreeMap<_, Vec<&NodeSpec>> = Default::default();
    for node in nodes {
        zones.entry(node.zone.clone()).or_default().push(node);
    }
    let mut tokens = Vec::new();
    let mut next_index = std::collections::BTreeMap::new();
    let owners = replication_factor.as_usize().min(nodes.len());
    for partition in partition_bits.partitions() {
        let p = partition.as_usize();
        let mut chosen: Vec<&NodeSpec> = Vec::new();
        let mut depth = 0;
        while chosen.len() < owners {
            for step in 0..zones.len() {
                let zone = zones
                    .values()
                    .nth((p + step) % zones.len())
                    .expect("in range");
                if depth < zone.len() && chosen.len() < owners {
                    chosen.push(zone[(p / zones.len() + depth) % zone.len()]);
                }
            }
            depth += 1;
        }
        for (rank, node) in chosen.into_iter().enumerate() {
            let index = next_index.entry(node.id).or_insert(0);
            tokens.push(Token {
                position: partition_bits.last_hash(partition),
                rank: rank as u16,
                node: node.id,
                index: *index,
            });
            *index += 1;
        }
    }
    tokens
}
