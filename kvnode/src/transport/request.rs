//! What nodes ask of each other and answer, beside the messages of their cores.
//!
//! Both enums are stored on the wire by position: new kinds are added at the end. A node that does
//! not know a kind refuses that one request as malformed and goes on.

use bytes::Bytes;
use kvcore::cluster::{ClusterCommand, ClusterOutcome, ClusterRefusal, ClusterState, Registration};
use kvcore::store::{Command, WriteOutcome};
use kvcore::{ClusterId, GroupId, Revision, SnapshotId};
use placement::{Epoch, NodeId, PartitionId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::report::NodeReport;
use crate::router::Consistency;

/// A request from one node to another. None is ever forwarded by its receiver, but for
/// [`PeerRequest::Register`], which goes to group 0's leader as [`PeerRequest::Cluster`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// A client's command; executed if the receiver leads the partition.
    Write {
        /// The key's partition, as the sender's ring has it.
        partition: PartitionId,
        /// The command.
        command: Command,
    },
    /// A client's read.
    Read {
        /// The key's partition, as the sender's ring has it.
        partition: PartitionId,
        /// The key.
        key: Bytes,
        /// How fresh the value must be.
        consistency: Consistency,
    },
    /// Who the receiver is.
    Identify,
    /// Accept this founding for ever, and found the receiver's replicas.
    AcceptFounding(Box<ClusterState>),
    /// Enter a node into the directory.
    Register(Registration),
    /// A command for group 0; executed if the receiver leads it.
    Cluster(ClusterCommand),
    /// The receiver's view, if it is newer.
    FetchView {
        /// Revision of the sender's view.
        newer_than: Revision,
    },
    /// A piece of a snapshot file that the receiver holds.
    SnapshotChunk {
        /// The snapshot's group.
        group: GroupId,
        /// The file.
        id: SnapshotId,
        /// Which piece, counted from 0.
        number: u32,
    },
    /// Give the leadership of a group away; executed if the receiver leads it.
    TransferLeadership {
        /// The group.
        group: GroupId,
        /// The node to lead it.
        to: NodeId,
    },
    /// The founding that the receiver accepted.
    FetchFounding,
    /// What the receiver tells of its disk and its replicas.
    Report,
}

/// The answer to a [`PeerRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerAnswer {
    /// The command was applied.
    Written(WriteOutcome),
    /// The value that was read.
    Value {
        /// The record as it is stored; none if the key is absent.
        record: Option<Bytes>,
        /// For a stale read: milliseconds since the replica last heard from a leader.
        staleness_ms: Option<u64>,
    },
    /// Who the answering node is.
    Identity(Box<Identity>),
    /// The founding is accepted, durably.
    FoundingAccepted,
    /// The command for group 0 was applied, with this outcome.
    Cluster(ClusterOutcome),
    /// The node stands in the directory; here is the cluster it belongs to now.
    Registered(Box<ClusterState>),
    /// What the answering node knows of the cluster.
    View {
        /// Its view, if newer than what was asked for.
        newer: Option<Box<ClusterState>>,
        /// Whether it leads group 0 or hears from the node that does, so that what it has is new.
        confirmed: bool,
    },
    /// A piece of a snapshot file.
    Chunk(Bytes),
    /// The request was not served.
    Refused(PeerRefusal),
    /// The leadership moved.
    Transferred,
    /// The founding that the answering node accepted; none if it came to its cluster otherwise.
    Founding(Option<Box<ClusterState>>),
    /// The answering node's disk and replicas.
    Report(Box<NodeReport>),
}

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What it says of itself.
    pub registration: Registration,
    /// The cluster that it accepted, for ever.
    pub cluster: Option<ClusterId>,
}

/// Why a node did not serve a request. Only [`PeerRefusal::OutcomeUnknown`] leaves anything open:
/// every other one means that nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum PeerRefusal {
    /// It knows no cluster yet.
    #[error("the node knows no cluster yet")]
    NotInitialised,
    /// It does not lead the group.
    #[error("the node does not lead the group")]
    NotLeader {
        /// The leader that it knows.
        leader: Option<NodeId>,
        /// Its epoch.
        epoch: Epoch,
    },
    /// It holds no replica of the group.
    #[error("the node holds no replica of the group")]
    NoReplica {
        /// Its epoch.
        epoch: Epoch,
    },
    /// A queue is full.
    #[error("the node is overloaded")]
    Overloaded,
    /// Another leader's entry took the command's place.
    #[error("another leader's entry took the place of the command")]
    Overwritten,
    /// The command was proposed, and what became of it cannot be known.
    #[error("the outcome cannot be known")]
    OutcomeUnknown,
    /// The deadline had passed when the request arrived.
    #[error("the deadline had passed when the request arrived")]
    Expired,
    /// It belongs to another cluster.
    #[error("the node belongs to cluster {cluster}")]
    OtherCluster {
        /// Its cluster.
        cluster: ClusterId,
    },
    /// The founding is not one that it can accept.
    #[error("the founding is not acceptable: {reason}")]
    BadFounding {
        /// Why.
        reason: String,
    },
    /// Group 0 refused the command.
    #[error("the cluster refused: {0}")]
    Cluster(ClusterRefusal),
    /// It does not have the snapshot, or not this piece.
    #[error("the node does not have the snapshot")]
    NoSnapshot,
    /// A part of the command exceeds a limit.
    #[error("a part of the request exceeds a limit of the node")]
    OutOfLimits,
    /// Its disk has no room.
    #[error("the node's disk has no room")]
    DiskFull,
    /// Its store could not be read or written.
    #[error("the node's store failed: {reason}")]
    Storage {
        /// The store's own words.
        reason: String,
    },
    /// It does not understand the request.
    #[error("the node does not understand the request")]
    Malformed,
    /// It is about to stop.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The state of the group does not allow it now; it may soon.
    #[error("the state of the group does not allow it now")]
    NotNow,
    /// Its budget for copies is used up for the moment, or copies are paused: ask again.
    #[error("the node's budget for copies is used up for the moment")]
    CopyBudget,
}

impl PeerRequest {
    /// Bytes that the request takes in memory and in a frame, roughly; used for limits only.
    #[must_use]
    pub fn size(&self) -> usize {
        const OVERHEAD: usize = 64;
        OVERHEAD
            + match self {
                Self::Write { partition: _, command } => command.size(),
                Self::Read { partition: _, key, consistency: _ } => key.len(),
                Self::AcceptFounding(state) => state_size(state),
                Self::Identify
                | Self::Register(_)
                | Self::Cluster(_)
                | Self::FetchView { .. }
                | Self::SnapshotChunk { .. }
                | Self::TransferLeadership { .. }
                | Self::FetchFounding
                | Self::Report => 512,
            }
    }
}

impl PeerAnswer {
    /// Bytes that the answer takes in memory and in a frame, roughly; used for limits only.
    #[must_use]
    pub fn size(&self) -> usize {
        const OVERHEAD: usize = 64;
        OVERHEAD
            + match self {
                Self::Value { record, staleness_ms: _ } => record.as_ref().map_or(0, Bytes::len),
                Self::Chunk(bytes) => bytes.len(),
                Self::Registered(state)
                | Self::View { newer: Some(state), .. }
                | Self::Founding(Some(state)) => state_size(state),
                Self::Report(report) => 64 + 48 * report.replicas.len(),
                Self::Written(_)
                | Self::Identity(_)
                | Self::FoundingAccepted
                | Self::Cluster(_)
                | Self::View { newer: None, .. }
                | Self::Refused(_)
                | Self::Transferred
                | Self::Founding(None) => 128,
            }
    }
}

/// Bytes of a cluster state on the wire, roughly.
pub(super) fn state_size(state: &ClusterState) -> usize {
    let members: usize = state.replicas.iter().map(|replicas| 8 + 24 * replicas.len()).sum();
    members + 48 * state.history.len() + 512 * state.nodes.len() + 16 * state.ring.tokens().len()
}
