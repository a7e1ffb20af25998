//! What nodes say to each other.

use std::sync::Arc;

use migration::Actual;
use placement::{Epoch, PartitionId};
use raft::eraftpb::Message;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::ClusterState;
use crate::ids::{GroupId, LogIndex, ReplicaId, Revision, SnapshotId, Term};
use crate::storage::Configuration;
use crate::store::{PartitionDigest, PartitionState};

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
    /// Facts of groups that the sender leads, for group 0's leader.
    Report(Vec<GroupReport>),
    /// The digest of a replica, for the leader that asked for it.
    Digest {
        /// The group.
        group: GroupId,
        /// The replica.
        replica: ReplicaId,
        /// The applied index whose state it is of.
        index: LogIndex,
        /// The digest; none if the data cannot be read.
        digest: Option<Box<PartitionDigest>>,
    },
    /// A replica that the receiver holds was removed by a committed change: its data goes.
    Destroy {
        /// The group.
        group: GroupId,
        /// The replica.
        replica: ReplicaId,
        /// Index of the configuration that shows it.
        index: LogIndex,
    },
    /// The sender's replica is barred for good and its data destroyed, or was never there.
    Destroyed {
        /// The group.
        group: GroupId,
        /// The replica.
        replica: ReplicaId,
    },
    /// The sender holds a replica that its view gives no place: was it removed?
    Orphan {
        /// The group.
        group: GroupId,
        /// The replica.
        replica: ReplicaId,
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

/// What a partition's leader tells group 0 of its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The partition.
    pub partition: PartitionId,
    /// The leader's term: a report of a later one counts.
    pub term: Term,
    /// The facts.
    pub actual: Actual,
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHeartbeat {
    /// Revision of the sender's view.
    pub revision: Revision,
    /// Whether the sender's disk completed its last sync in time.
    pub disk_ok: bool,
    /// Epoch of the sender's view.
    pub epoch: Epoch,
    /// How the partitions do that the sender leads.
    pub led: LedPartitions,
    /// Share of the requests that reached the sender by an outdated route, per mille.
    pub misrouted_per_mille: u32,
}

/// How the partitions do that a node leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedPartitions {
    /// How many there are.
    pub count: u32,
    /// Those of which a voter is down or behind, or that have fewer voters than owners.
    pub under_replicated: u32,
    /// Log entries that their voters lack.
    pub backlog: u64,
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
