//! What the ring and placement calls answer: `GET /v1/ring` and `GET /v1/locate/{key}`.
//!
//! The snapshot inside verifies itself when it is parsed. The directory is a view of addresses and
//! health; it decides nothing, and changes without a new epoch.

use placement::{Epoch, NodeId, NodeName, OwnerRole, PartitionId, RingSnapshot, Zone};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer of `GET /v1/ring`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RingDocument {
    /// The published ring; parsing it verifies its checksum.
    #[schema(value_type = Object)]
    pub snapshot: RingSnapshot,
    /// Addresses and health of the nodes.
    pub directory: Directory,
}

/// Addresses and live states of all nodes, members and spares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Directory {
    /// Grows with each change of the directory.
    pub revision: u64,
    /// The nodes, ordered by name.
    pub nodes: Vec<DirectoryNode>,
}

/// One node of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectoryNode {
    /// Identity, made with the data directory.
    #[schema(value_type = String, format = "uuid")]
    pub id: NodeId,
    /// Name, unique among members.
    #[schema(value_type = String)]
    pub name: NodeName,
    /// Failure domain.
    #[schema(value_type = String)]
    pub zone: Zone,
    /// Share of the data relative to other nodes.
    pub weight: u32,
    /// `host:port` of the HTTP API.
    pub client_address: String,
    /// `host:port` where nodes talk to each other.
    pub peer_address: String,
    /// Health as the leader of group 0 sees it.
    pub health: Health,
}

/// Health of a node; it moves no data and grants no authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Heartbeats arrive and its disk syncs.
    Up,
    /// Heartbeats are missing for long.
    Down,
    /// Some heartbeats are missing, or nobody has judged yet.
    #[default]
    #[serde(other)]
    Suspect,
}

/// The answer of `GET /v1/locate/{key}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LocateAnswer {
    /// `xxh3-64` of the raw key bytes.
    pub key_hash: u64,
    /// The key's partition.
    #[schema(value_type = u32)]
    pub partition: PartitionId,
    /// Epoch of the ring that says so.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// The owners in clockwise order, the primary first.
    pub owners: Vec<OwnerHint>,
    /// The leader that the answering node knows, if any.
    pub leader: Option<LeaderHint>,
}

/// An owner of a partition by some node's ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnerHint {
    /// The owner.
    #[schema(value_type = String, format = "uuid")]
    pub node: NodeId,
    /// Its name.
    #[schema(value_type = String)]
    pub name: NodeName,
    /// Its failure domain.
    #[schema(value_type = String)]
    pub zone: Zone,
    /// Primary or further replica.
    #[schema(value_type = String)]
    pub role: OwnerRole,
    /// `host:port` of its HTTP API.
    pub client_address: String,
}

/// The leader that a node knows; a hint, as it may have moved since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderHint {
    /// The leader.
    #[schema(value_type = String, format = "uuid")]
    pub node: NodeId,
    /// Its name.
    #[schema(value_type = String)]
    pub name: NodeName,
    /// `host:port` of its HTTP API.
    pub client_address: String,
}

impl Directory {
    /// The node with this id.
    pub fn by_id(&self, id: NodeId) -> Option<&DirectoryNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The node with this name.
    pub fn by_name(&self, name: &str) -> Option<&DirectoryNode> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }
}

impl DirectoryNode {
    /// This node as the leader of a partition.
    pub fn leader_hint(&self) -> LeaderHint {
        LeaderHint {
            node: self.id,
            name: self.name.clone(),
            client_address: self.client_address.clone(),
        }
    }
}
