//! How evenly a ring spreads its load, for people and for tests. Nothing is decided by it.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, NodeName, Zone};
use crate::ring::Ring;
use crate::topology::Weight;

/// The load of every node that has tokens, and how far the busiest is above the mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// One entry per node with tokens, in order of identity.
    pub nodes: Vec<NodeLoad>,
    /// Copies per weight of the busiest node over those of all nodes together; 1 is even.
    ///
    /// Where a zone with little weight has to hold as many copies as the others, 1 is out of reach.
    pub copies_max_over_mean: f64,
    /// Primaries per weight of the busiest node over those of all nodes together; 1 is even.
    pub primaries_max_over_mean: f64,
}

/// What a ring gives to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Its identity.
    pub id: NodeId,
    /// Its name.
    pub name: NodeName,
    /// Its zone.
    pub zone: Zone,
    /// Its weight.
    pub weight: Weight,
    /// Tokens on the ring.
    pub tokens: u32,
    /// Partitions that it owns.
    pub copies: u32,
    /// Partitions of which it is the primary.
    pub primaries: u32,
}

impl Balance {
    /// Counts the load of every node with tokens.
    pub fn of(ring: &Ring) -> Self {
        let load = |node: &crate::NodeSpec| NodeLoad {
            id: node.id,
            name: node.name.clone(),
            zone: node.zone.clone(),
            weight: node.weight,
            tokens: 0,
            copies: 0,
            primaries: 0,
        };
        let mut nodes: Vec<NodeLoad> = ring.nodes().iter().map(load).collect();
        for token in ring.snapshot().packed_tokens() {
            nodes[token.node.as_usize()].tokens += 1;
        }
        for partition in ring.partition_bits().partitions() {
            for (rank, owner) in ring.owners(partition).iter().enumerate() {
                nodes[owner.as_usize()].copies += 1;
                nodes[owner.as_usize()].primaries += u32::from(rank == 0);
            }
        }
        nodes.retain(|node| node.tokens > 0);
        Self {
            copies_max_over_mean: max_over_mean(&nodes, |node| node.copies),
            primaries_max_over_mean: max_over_mean(&nodes, |node| node.primaries),
            nodes,
        }
    }
}

fn max_over_mean(nodes: &[NodeLoad], load: impl Fn(&NodeLoad) -> u32) -> f64 {
    let weight = |node: &NodeLoad| f64::from(node.weight.get());
    let total: f64 = nodes.iter().map(|node| f64::from(load(node))).sum();
    let mean = total / nodes.iter().map(weight).sum::<f64>();
    nodes.iter().map(|node| f64::from(load(node)) / weight(node) / mean).fold(0.0, f64::max)
}
