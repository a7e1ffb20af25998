//! Small clusters for tests.

use std::sync::Arc;

use crate::{
    NodeId, NodeName, NodeSpec, NodeState, PartitionBits, ReplicationFactor, Ring, RingSnapshot,
    SnapshotParts, Token, TokenPolicy, Topology, Weight, Zone, allocate,
};

/// An active node. Its identity is a hash of its number, so that the order of identities says
/// nothing of zones.
pub(crate) fn node(number: u32, zone: usize, weight: u32) -> NodeSpec {
    let id = xxhash_rust::xxh3::xxh3_128(&number.to_be_bytes());
    NodeSpec {
        id: NodeId::from_u128(id),
        name: NodeName::parse(&format!("n{number}")).unwrap(),
        zone: Zone::parse(&format!("zone-{zone}")).unwrap(),
        weight: Weight::new(weight).unwrap(),
        state: NodeState::Active,
    }
}

/// Nodes of weight 1, dealt to the zones in turn.
pub(crate) fn equal_nodes(count: u32, zones: usize) -> Vec<NodeSpec> {
    (0..count).map(|number| node(number, number as usize % zones, 1)).collect()
}

/// How a ring is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) bits: u8,
    pub(crate) replicas: u8,
    pub(crate) vnodes: u32,
    pub(crate) policy: TokenPolicy,
}

impl Plan {
    pub(crate) fn balanced(bits: u8, replicas: u8) -> Self {
        Self { bits, replicas, vnodes: 0, policy: TokenPolicy::Balanced }
    }

    pub(crate) fn random(bits: u8, replicas: u8, vnodes: u32) -> Self {
        Self { bits, replicas, vnodes, policy: TokenPolicy::Random }
    }

    pub(crate) fn tokens(&self, nodes: &[NodeSpec], previous: Option<&Ring>) -> Vec<Token> {
        allocate(
            &Topology::new(nodes.to_vec()).unwrap(),
            PartitionBits::new(self.bits).unwrap(),
            ReplicationFactor::new(self.replicas).unwrap(),
            self.vnodes,
            previous.map(|ring| &**ring.snapshot()),
            self.policy,
        )
        .unwrap()
    }

    /// The first ring of these nodes, or the one that follows.
    pub(crate) fn ring(&self, nodes: &[NodeSpec], previous: Option<&Ring>) -> Ring {
        let parts = SnapshotParts {
            partition_bits: PartitionBits::new(self.bits).unwrap(),
            replication_factor: ReplicationFactor::new(self.replicas).unwrap(),
            topology: Topology::new(nodes.to_vec()).unwrap(),
            tokens: self.tokens(nodes, previous),
            activated_at_ms: 1_700_000_000_000,
        };
        let previous = previous.map(|ring| &**ring.snapshot());
        Ring::new(Arc::new(RingSnapshot::publish(parts, previous).unwrap()))
    }
}
