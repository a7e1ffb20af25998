//! What the HTTP face needs of a node: the operations behind its calls.
//!
//! A running [`Node`](crate::node::Node) implements it ([`super::node`]), and a map in memory in the tests. The face
//! never decides where a request goes nor whether a condition holds; it parses, asks, and says what
//! came back.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvapi::NodeInfo;
use kvapi::admin::{Alarm, GroupZeroStatus};
use kvcore::cluster::{ClusterCommand, ClusterOutcome};
use kvcore::store::{Command, Record, WriteOutcome};
use placement::{Epoch, NodeId, NodeName, PartitionId};
use thiserror::Error;

use crate::founding::{Founded, FoundingOptions, InitError};
use crate::report::NodeReport;
use crate::router::{Consistency, Located, RequestError, RequestOptions, Served};
use crate::view::View;

/// Why a leadership was not moved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransferError {
    /// No node has this name.
    #[error("no node is called {name}")]
    NoSuchNode {
        /// The name.
        name: NodeName,
    },
    /// No partition has this number.
    #[error("there is no partition {partition}")]
    NoSuchPartition {
        /// The number.
        partition: PartitionId,
    },
    /// The node that should lead is no owner of the partition.
    #[error("{name} is no owner of partition {partition}")]
    NotAnOwner {
        /// The node.
        name: NodeName,
        /// The partition.
        partition: PartitionId,
    },
    /// The order did not get through, or its outcome is not known.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// What a node knows of the cluster beside the view: for status pages.
#[derive(Clone, Debug, Default)]
pub struct ClusterKnowledge {
    /// Time since the view was last confirmed.
    pub view_age: Duration,
    /// State of group 0.
    pub group0: GroupZeroStatus,
    /// What an operator should know.
    pub alarms: Vec<Alarm>,
}

/// The node behind the HTTP face.
pub trait Backend: Send + Sync + 'static {
    /// Name of this node.
    fn node_name(&self) -> &NodeName;

    /// Epoch of the ring in force here; 0 before the cluster was founded. Asked for every answer.
    fn epoch(&self) -> Epoch;

    /// The view in force here; none before the cluster was founded.
    fn view(&self) -> Option<Arc<View>>;

    /// The newest view there is, as group 0's leader has it; this node's own if nobody tells in time.
    fn newest_view(&self) -> impl Future<Output = Option<Arc<View>>> + Send;

    /// What this node knows beside the view.
    fn knowledge(&self) -> ClusterKnowledge;

    /// Whether this node serves: founded, and every local group knows a leader.
    ///
    /// # Errors
    /// The reasons why it does not.
    fn ready(&self) -> Result<(), Vec<String>>;

    /// Where a key lives and who leads its partition; none before the cluster was founded.
    fn locate(&self, key: &[u8]) -> Option<Located>;

    /// Executes a command of a client and waits for its outcome, until the deadline at most.
    fn write(
        &self,
        command: Command,
        options: RequestOptions,
    ) -> impl Future<Output = Result<Served<WriteOutcome>, RequestError>> + Send;

    /// Reads a key, until the deadline at most.
    fn read(
        &self,
        key: Bytes,
        consistency: Consistency,
        options: RequestOptions,
    ) -> impl Future<Output = Result<Served<Option<Record>>, RequestError>> + Send;

    /// Waits for a view of a later epoch than `after`; none if there is none in that time.
    fn wait_for_epoch(
        &self,
        after: Epoch,
        timeout: Duration,
    ) -> impl Future<Output = Option<Arc<View>>> + Send;

    /// What this node says about itself; its replicas one by one only if asked for.
    fn node_info(&self, with_replicas: bool) -> impl Future<Output = NodeInfo> + Send;

    /// Founds a cluster of the nodes at these peer addresses.
    fn init(
        &self,
        founders: Vec<String>,
        options: FoundingOptions,
    ) -> impl Future<Output = Result<Founded, InitError>> + Send;

    /// What the nodes that answer until the deadline tell of their disks and replicas; this node
    /// alone unless `others` are to be asked.
    fn reports(
        &self,
        others: bool,
        deadline: Instant,
    ) -> impl Future<Output = BTreeMap<NodeId, NodeReport>> + Send;

    /// Has group 0 execute a command.
    fn cluster(
        &self,
        command: ClusterCommand,
        deadline: Instant,
    ) -> impl Future<Output = Result<ClusterOutcome, RequestError>> + Send;

    /// Moves the leadership of a partition; returns once the node leads.
    fn transfer(
        &self,
        partition: PartitionId,
        to: NodeName,
        deadline: Instant,
    ) -> impl Future<Output = Result<(), TransferError>> + Send;
}
