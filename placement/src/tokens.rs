//! Tokens, and the policies that hand them out.
//!
//! A token is a claim of a node on the ring. It sits on the last hash of a partition, so that a new
//! token never cuts a partition in two. Equal positions are legal: the rank, then the node's
//! identity, then the vnode index decide who comes first.
//!
//! The data plane reads tokens and knows nothing of policies; only the planner calls [`allocate`].

mod balanced;
pub(crate) mod quota;
mod random;

use serde::{Deserialize, Serialize};

use crate::error::PlacementError;
use crate::hash::PartitionBits;
use crate::ids::NodeId;
use crate::snapshot::RingSnapshot;
use crate::topology::{NodeSpec, ReplicationFactor, Topology};

/// Most tokens of one ring: enough for 7 copies of 65536 partitions, and for 8738 random vnodes on
/// each of 120 nodes. Bounds what a program allocates for a document that it has not verified yet.
pub const TOKENS_MAX: usize = 1 << 20;

/// A claim of a node on the ring.
///
/// The derived order is the ring order: `(position, rank, node, index)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The last hash of some partition. A 64-bit number: readers of JSON need exact integers.
    pub position: u64,
    /// Order among tokens of one position, lowest first.
    pub rank: u16,
    /// The node that owns the token.
    pub node: NodeId,
    /// The number of this token among its node's.
    pub index: u32,
}

/// How tokens are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPolicy {
    /// From a hash of the node's identity and the vnode index: `vnodes_per_node` x weight tokens.
    /// A node's tokens depend on nothing but itself. Kept for comparison and for imported rings.
    Random,
    /// One token per owner at each partition's end, chosen so that first the copies per weight, then
    /// the primaries per weight are even, moving the fewest copies. Ignores `vnodes_per_node`.
    #[default]
    Balanced,
}

/// Hands out the tokens of a ring over the nodes that may receive any (see
/// [`crate::NodeState::receives_tokens`]), in ring order.
///
/// `previous` is the ring that is in force. `Balanced` changes as little of it as it can, whatever
/// policy made it; `Random` does not need it. Equal arguments give equal tokens, on every machine.
pub fn allocate(
    topology: &Topology,
    partition_bits: PartitionBits,
    replication_factor: ReplicationFactor,
    vnodes_per_node: u32,
    previous: Option<&RingSnapshot>,
    policy: TokenPolicy,
) -> Result<Vec<Token>, PlacementError> {
    if let Some(previous) = previous
        && previous.partition_bits() != partition_bits
    {
        return Err(PlacementError::PartitionBitsChanged {
            previous: previous.partition_bits().get(),
            asked: partition_bits.get(),
        });
    }
    let nodes: Vec<&NodeSpec> =
        topology.nodes().iter().filter(|node| node.state.receives_tokens()).collect();
    if nodes.is_empty() {
        return Err(PlacementError::NoNodes);
    }
    match policy {
        TokenPolicy::Random => random::allocate(&nodes, partition_bits, vnodes_per_node),
        TokenPolicy::Balanced => {
            Ok(balanced::allocate(&nodes, partition_bits, replication_factor, previous))
        }
    }
}
