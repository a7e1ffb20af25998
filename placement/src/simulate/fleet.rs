//! Nodes that do not exist, and rings over them.

use std::sync::Arc;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::error::{PlacementError, SnapshotError};
use crate::hash::PartitionBits;
use crate::ids::{NodeId, NodeName, Zone};
use crate::ring::Ring;
use crate::snapshot::{RingSnapshot, SnapshotParts};
use crate::tokens::{TokenPolicy, allocate};
use crate::topology::{NodeSpec, NodeState, ReplicationFactor, Topology, Weight};

/// A simulation that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimulateError {
    /// A number, a name or a set of nodes is not legal.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The tokens do not make a ring.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// No zones for the nodes to stand in.
    #[error("there must be at least one zone")]
    NoZones,
    /// Zones without a node of their own.
    #[error("{nodes} nodes cannot stand in {zones} zones: a zone would be empty")]
    EmptyZone {
        /// Nodes asked for.
        nodes: u32,
        /// Zones asked for.
        zones: u32,
    },
    /// No list of weights.
    #[error("there must be at least one weight")]
    NoWeights,
    /// A node that is not there.
    #[error("no node is named {name}")]
    NoSuchNode {
        /// The name asked for.
        name: NodeName,
    },
    /// A zone that is not there.
    #[error("no node stands in zone {zone}")]
    NoSuchZone {
        /// The zone asked for.
        zone: Zone,
    },
    /// The change leaves no node that may own data.
    #[error("the change leaves no node to own the data")]
    NothingLeft,
}

/// Nodes to make up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSpec {
    /// How many nodes.
    pub nodes: u32,
    /// How many zones; nodes are dealt to them in turn.
    pub zones: u32,
    /// Weights, dealt to the nodes of each zone in turn: every zone gets the same mix.
    pub weights: Vec<u32>,
    /// Identities are hashes under this seed: another seed is another draw of random tokens.
    pub seed: u64,
}

impl FleetSpec {
    /// Nodes of weight 1.
    pub fn equal(nodes: u32, zones: u32, seed: u64) -> Self {
        Self { nodes, zones, weights: vec![1], seed }
    }

    /// The nodes, named n1, n2, ... in zones z1, z2, ...
    pub fn topology(&self) -> Result<Topology, SimulateError> {
        let Self { nodes, zones, weights, .. } = self;
        if *nodes == 0 {
            return Err(PlacementError::NoNodes.into());
        }
        match zones {
            0 => return Err(SimulateError::NoZones),
            zones if zones > nodes => {
                return Err(SimulateError::EmptyZone { nodes: *nodes, zones: *zones });
            }
            _ => {}
        }
        if weights.is_empty() {
            return Err(SimulateError::NoWeights);
        }
        // Checked before the nodes are made: a slip of the finger shall not cost the memory.
        if *nodes as usize > crate::topology::NODES_MAX {
            return Err(PlacementError::TooManyNodes { count: *nodes as usize }.into());
        }
        let made: Result<Vec<NodeSpec>, _> = (0..*nodes)
            .map(|index| {
                let weight = weights[(index / zones) as usize % weights.len()];
                self.node(index, index % zones, weight)
            })
            .collect();
        Ok(Topology::new(made?)?)
    }

    /// The node with this index, in a zone and with a weight of the caller's choice.
    pub fn node(&self, index: u32, zone: u32, weight: u32) -> Result<NodeSpec, SimulateError> {
        Ok(NodeSpec {
            id: NodeId::from_u128(xxh3_128_with_seed(&index.to_be_bytes(), self.seed)),
            name: NodeName::parse(&format!("n{}", index + 1))?,
            zone: Zone::parse(&format!("z{}", zone + 1))?,
            weight: Weight::new(weight)?,
            state: NodeState::Active,
        })
    }
}

/// How a ring is made from nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRules {
    /// How finely the hash space is cut.
    pub partition_bits: PartitionBits,
    /// Copies of each partition.
    pub replication_factor: ReplicationFactor,
    /// How tokens are handed out.
    pub policy: TokenPolicy,
    /// Tokens of a node of weight 1 under the random policy.
    pub vnodes_per_node: u32,
}

impl RingRules {
    /// The first ring of these nodes, or the one that follows.
    pub fn ring(&self, nodes: Topology, previous: Option<&Ring>) -> Result<Ring, SimulateError> {
        let previous = previous.map(|ring| &**ring.snapshot());
        let Self { partition_bits, replication_factor, policy, vnodes_per_node } = *self;
        let tokens = allocate(
            &nodes,
            partition_bits,
            replication_factor,
            vnodes_per_node,
            previous,
            policy,
        )?;
        let parts = SnapshotParts {
            partition_bits,
            replication_factor,
            topology: nodes,
            tokens,
            // The checksum of a simulated ring shall not depend on the day.
            activated_at_ms: 0,
        };
        Ok(Ring::new(Arc::new(RingSnapshot::publish(parts, previous)?)))
    }
}
