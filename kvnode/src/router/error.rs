//! Why a request was not served, and what became of it.

use kvcore::store::Limits;
use placement::{Epoch, NodeId, PartitionId};
use thiserror::Error;

/// What became of a request that was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not applied and will not be.
    NotApplied,
    /// It may have been applied, or may still be.
    Unknown,
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The node knows no cluster yet.
    #[error("the cluster is not initialised")]
    NotInitialised,
    /// The request was to be executed here or not at all, and another node leads.
    #[error("this node does not lead partition {partition}")]
    NotLeader {
        /// The key's partition.
        partition: PartitionId,
        /// The leader that this node knows.
        leader: Option<NodeId>,
        /// The owners, the primary first.
        owners: Vec<NodeId>,
        /// The epoch that names them.
        epoch: Epoch,
    },
    /// No leader with a quorum could be found before the deadline.
    #[error("partition {partition} has no leader that can be reached")]
    NoLeader {
        /// The key's partition.
        partition: PartitionId,
    },
    /// A queue is full.
    #[error("the node is overloaded")]
    Overloaded,
    /// The deadline passed, or the leader or the connection to it was lost, with the write on its way.
    #[error("the outcome of the write cannot be known")]
    OutcomeUnknown,
    /// The key is empty or too long.
    #[error("the key has {bytes} bytes, which is not within 1..={}", Limits::KEY_BYTES_MAX)]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// The value is larger than this node takes.
    #[error("the value has {bytes} bytes, more than the limit of {bytes_max}")]
    ValueTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit in force.
        bytes_max: usize,
    },
    /// The content type is too long.
    #[error(
        "the content type has {bytes} bytes, more than the limit of {}",
        Limits::CONTENT_TYPE_BYTES_MAX
    )]
    ContentTypeTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The disk of the node that should execute the request has no room.
    #[error("the disk has no room for more")]
    DiskFull,
    /// The local store could not be read.
    #[error("the store could not be read: {reason}")]
    Storage {
        /// The store's own words.
        reason: String,
    },
    /// The node is about to stop.
    #[error("the node is shutting down")]
    ShuttingDown,
}

impl RequestError {
    /// What became of the request.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::OutcomeUnknown => Outcome::Unknown,
            Self::NotInitialised
            | Self::NotLeader { .. }
            | Self::NoLeader { .. }
            | Self::Overloaded
            | Self::KeyLength { .. }
            | Self::ValueTooLarge { .. }
            | Self::ContentTypeTooLong { .. }
            | Self::DiskFull
            | Self::Storage { .. }
            | Self::ShuttingDown => Outcome::NotApplied,
        }
    }
}
