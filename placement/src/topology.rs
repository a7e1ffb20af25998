//! The nodes of a ring as placement sees them: identity, zone, weight and state.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::error::PlacementError;
use crate::ids::{NodeId, NodeName, Zone};

/// Most nodes of one ring. Node indices are 16 bits wide; the largest size planned for is 120.
pub const NODES_MAX: usize = 4096;

/// How many copies a partition should have, from 1 to [`ReplicationFactor::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct ReplicationFactor(u8);

impl ReplicationFactor {
    /// Most copies: a Raft group of seven survives three losses, and nobody asks for more.
    pub const MAX: u8 = 7;

    /// Three copies, one for each of three zones.
    pub const DEFAULT: Self = Self(3);

    /// Checks that the factor is in range.
    pub const fn new(factor: u8) -> Result<Self, PlacementError> {
        if factor == 0 || factor > Self::MAX {
            return Err(PlacementError::InvalidReplicationFactor { factor });
        }
        Ok(Self(factor))
    }

    /// The number of copies.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number of copies, for counting.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl TryFrom<u8> for ReplicationFactor {
    type Error = PlacementError;

    fn try_from(factor: u8) -> Result<Self, Self::Error> {
        Self::new(factor)
    }
}

impl From<ReplicationFactor> for u8 {
    fn from(factor: ReplicationFactor) -> Self {
        factor.0
    }
}

impl fmt::Display for ReplicationFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node's share relative to the others'. Only ratios count: 1, 2, 4 and 10, 20, 40 are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(NonZeroU32);

impl Weight {
    /// The weight of a node for which nobody asked for another.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// Checks that the weight is not zero; a node without a share is a spare, not a light node.
    pub const fn new(weight: u32) -> Result<Self, PlacementError> {
        match NonZeroU32::new(weight) {
            Some(weight) => Ok(Self(weight)),
            None => Err(PlacementError::ZeroWeight),
        }
    }

    /// The weight as a number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl From<NonZeroU32> for Weight {
    fn from(weight: NonZeroU32) -> Self {
        Self(weight)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node's state at the moment a ring was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Registered, owns nothing.
    Spare,
    /// About to receive its first partitions.
    Joining,
    /// Receiving copies.
    Copying,
    /// Applying the log behind its copies.
    CatchingUp,
    /// Owns partitions and serves them.
    Active,
    /// Giving its partitions away.
    Draining,
    /// Gave all its partitions away.
    Removed,
}

impl NodeState {
    /// All states, in the order of a node's life.
    pub const ALL: [Self; 7] = [
        Self::Spare,
        Self::Joining,
        Self::Copying,
        Self::CatchingUp,
        Self::Active,
        Self::Draining,
        Self::Removed,
    ];

    /// Whether the allocator gives tokens to a node in this state.
    pub const fn receives_tokens(self) -> bool {
        match self {
            Self::Joining | Self::Copying | Self::CatchingUp | Self::Active => true,
            Self::Spare | Self::Draining | Self::Removed => false,
        }
    }

    /// Whether a snapshot may hold tokens of a node in this state: all but those that own nothing.
    pub const fn may_hold_tokens(self) -> bool {
        match self {
            Self::Joining | Self::Copying | Self::CatchingUp | Self::Active | Self::Draining => {
                true
            }
            Self::Spare | Self::Removed => false,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Spare => "spare",
            Self::Joining => "joining",
            Self::Copying => "copying",
            Self::CatchingUp => "catching_up",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Removed => "removed",
        })
    }
}

/// All that placement knows of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its identity.
    pub id: NodeId,
    /// Its name, unique among the members.
    pub name: NodeName,
    /// The failure domain that it stands in.
    pub zone: Zone,
    /// Its share relative to the others'.
    pub weight: Weight,
    /// Its state when the ring was published.
    pub state: NodeState,
}

/// A set of nodes with distinct identities and distinct names, ordered by identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<NodeSpec>", into = "Vec<NodeSpec>")]
pub struct Topology {
    nodes: Vec<NodeSpec>,
}

impl Topology {
    /// Checks that identities and names are unique and the count is within [`NODES_MAX`].
    pub fn new(mut nodes: Vec<NodeSpec>) -> Result<Self, PlacementError> {
        if nodes.len() > NODES_MAX {
            return Err(PlacementError::TooManyNodes { count: nodes.len() });
        }
        nodes.sort_by_key(|node| node.id);
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(PlacementError::DuplicateNodeId { id: pair[0].id });
        }
        let mut names = BTreeSet::new();
        for node in &nodes {
            if !names.insert(&node.name) {
                return Err(PlacementError::DuplicateNodeName { name: node.name.clone() });
            }
        }
        Ok(Self { nodes })
    }

    /// The nodes in order of their identity.
    pub fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    /// The node with this identity.
    pub fn get(&self, id: NodeId) -> Option<&NodeSpec> {
        self.position(id).map(|index| &self.nodes[index])
    }

    /// Where in [`Topology::nodes`] the node with this identity stands.
    pub fn position(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl TryFrom<Vec<NodeSpec>> for Topology {
    type Error = PlacementError;

    fn try_from(nodes: Vec<NodeSpec>) -> Result<Self, Self::Error> {
        Self::new(nodes)
    }
}

impl From<Topology> for Vec<NodeSpec> {
    fn from(topology: Topology) -> Self {
        topology.nodes
    }
}
