//! What nodes say to each other.

use std::sync::Arc;

use raft::eraftpb::Message;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::ClusterState;
use crate::ids::{GroupId, LogIndex, ReplicaId, Revision, SnapshotId};
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
        /// Why.
        reason: CopyFailure,
    },
    /// A replica is taking a snapshot, though it may be waiting for its budget. Said at once when it
    /// begins and from time to time until it ends, to whoever leads.
    SnapshotTaking {
        /// The group.
        group: GroupId,
        /// The replica that takes it.
        replica: ReplicaId,
        /// How far it is.
        progress: CopyProgress,
    },
}

/// How far the copy of a snapshot is, wherever it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// The snapshot's index: the log is needed from the entry after it.
    pub index: LogIndex,
    /// Bytes of chunks that are here, those of earlier attempts included.
    pub bytes_done: u64,
    /// Bytes of all chunks together.
    pub bytes_total: u64,
}

/// Why a copy of a partition did not succeed. Every one is tried again, later and later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum CopyFailure {
    /// The receiver's disk guard says that there is no room; nothing was written.
    #[error("the receiver's disk has no room")]
    DiskFull,
    /// A chunk did not match its checksum, however often it was asked for.
    #[error("chunk {chunk} arrived damaged every time")]
    Damaged {
        /// The chunk, counted from 0.
        chunk: u32,
    },
    /// The source does not have the snapshot any more, or its file is damaged.
    #[error("the source does not have the snapshot any more")]
    SourceGone,
    /// Nothing was heard of the copy for too long, although it was not waiting for its budget.
    #[error("nothing came for too long")]
    Stalled,
    /// The log grew past what may be kept for the copy before the copy was done.
    #[error(
        "the log grew past the {kept_bytes} bytes kept for the copy: it is slower than the writes"
    )]
    FellOffTheLog {
        /// Bytes of log that were kept for it.
        kept_bytes: u64,
    },
    /// The receiver's store or disk failed.
    #[error("the receiver's store failed: {0}")]
    Storage(String),
}

impl CopyFailure {
    /// The longest text that travels with a failure.
    pub const REASON_BYTES_MAX: usize = 256;

    /// A failure of the receiver's store, in the store's own words, cut to a bounded length.
    #[must_use]
    pub fn storage(reason: impl Into<String>) -> Self {
        Self::Storage(reason.into()).bounded()
    }

    /// The failure with its text cut to [`CopyFailure::REASON_BYTES_MAX`].
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Self::Storage(reason) = &mut self {
            let end = (0..=Self::REASON_BYTES_MAX).rev().find(|at| reason.is_char_boundary(*at));
            reason.truncate(end.unwrap_or(0));
        }
        self
    }
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
