//! Where a request is executed: here, on the leader, or nowhere.
//!
//! Invariants
//! * A request that another node sent is executed or refused here, never forwarded again.
//! * A write goes to another node only after an explicit "not applied", or if no byte of it left.
//! * The view chooses whom to ask; whether the asked may answer is Raft's decision.

mod error;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::store::{Command, Record, WriteOutcome};
use placement::{Epoch, NodeId, NodeName, PartitionId, Placement};
use serde::{Deserialize, Serialize};

use crate::view::View;

pub use error::{Outcome, RequestError};

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consistency {
    /// The value is the newest at some moment between request and answer.
    #[default]
    Linearizable,
    /// Any replica's applied state.
    Stale,
}

/// How a request is to be served.
#[derive(Clone, Copy, Debug)]
pub struct RequestOptions {
    /// Execute it here or refuse it, instead of forwarding it.
    pub direct: bool,
    /// When to give up.
    pub deadline: Instant,
}

/// An answer with where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served<T> {
    /// The answer.
    pub value: T,
    /// The key's partition.
    pub partition: PartitionId,
    /// The node that executed the request.
    pub served_by: NodeName,
    /// The epoch in force here when the request was answered.
    pub epoch: Epoch,
    /// For a stale read: milliseconds since the replica that served it last heard from a leader of
    /// its group, 0 on the leader. What was committed later than that may be missing.
    pub staleness_ms: Option<u64>,
}

/// Where a key lives, and who leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The ring's word.
    pub placement: Placement,
    /// The leader, as far as this node knows.
    pub leader: Option<NodeId>,
}

/// Executes requests for keys, on this node or on the one that leads.
#[derive(Debug)]
pub struct Router {}

impl Router {
    /// Executes a command of a client.
    ///
    /// # Errors
    /// [`RequestError`], which knows what became of the command.
    pub async fn write(
        &self,
        command: Command,
        options: RequestOptions,
    ) -> Result<Served<WriteOutcome>, RequestError> {
        let _ = (command, options);
        Err(RequestError::NotInitialised)
    }

    /// Reads a key's record.
    ///
    /// # Errors
    /// [`RequestError`]; a read that fails has changed nothing.
    pub async fn read(
        &self,
        key: Bytes,
        consistency: Consistency,
        options: RequestOptions,
    ) -> Result<Served<Option<Record>>, RequestError> {
        let _ = (key, consistency, options);
        Err(RequestError::NotInitialised)
    }

    /// The view in force; none before the node knows a cluster.
    #[must_use]
    pub fn view(&self) -> Option<Arc<View>> {
        None
    }

    /// The epoch in force; 0 before the node knows a cluster.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::ZERO
    }

    /// Waits for a view of a later epoch than `after`; none if there is none within `timeout`.
    pub async fn wait_for_epoch(&self, after: Epoch, timeout: Duration) -> Option<Arc<View>> {
        let _ = (after, timeout);
        None
    }

    /// Where a key lives; none before the node knows a cluster.
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Option<Located> {
        let _ = key;
        None
    }

    /// Whether the node can serve: initialised, and every local group knows a leader.
    ///
    /// # Errors
    /// The reasons why it cannot.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        Err(vec!["the cluster is not initialised".to_owned()])
    }
}
