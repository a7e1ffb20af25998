//! What nodes say to each other.

use std::sync::Arc;

use raft::eraftpb::Message;
use serde::{Deserialize, Serialize};

use crate::cluster::ClusterState;
use crate::ids::{GroupId, ReplicaId, Revision, SnapshotId};
use crate::storage::Configuration;
use crate::store::PartitionState;

/// A message from one node's core to another's. The frame around it names cluster, sender and the
/// sender's epoch.
#[derive(Clone, Debug)]
pub enum PeerMessage {
    /// A Raft message of a group; sender and receiver are replica ids.
    Raft {
        /// The group.
        group: GroupId,
        /// The message.
        message: Message,
    },
    /// The sender lives.
    Heartbeat(NodeHeartbeat),
    /// A newer view of the cluster state.
    View(Arc<ClusterState>),
    /// The sender wants a view newer than the one it has.
    ViewRequest {
        /// Revision of the sender's view.
        known: Revision,
    },
    /// A replica could not take the snapshot that it was offered.
    SnapshotFailed {
        /// The group.
        group: GroupId,
        /// The replica that gave up.
        replica: ReplicaId,
    },
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHeartbeat {
    /// Revision of the sender's view.
    pub revision: Revision,
    /// Whether the sender's disk completed its last sync in time.
    pub disk_ok: bool,
}

/// What a partition's Raft snapshot carries: not the data, but where to take it from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotManifest {
    /// Names the file on its source.
    pub id: SnapshotId,
    /// The node that holds the file.
    pub source: placement::NodeId,
    /// Configuration at the snapshot's index.
    pub configuration: Configuration,
    /// State beside the records at the snapshot's index.
    pub state: PartitionState,
    /// Number of chunks.
    pub chunks: u32,
    /// Bytes of all chunks together.
    pub bytes: u64,
    /// xxh3-128 over the checksums of the chunks, in order.
    pub checksum: u128,
}
