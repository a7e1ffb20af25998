//! Where a request is executed: here, on the leader, or nowhere.
//!
//! Invariants
//! * A request that another node sent is executed or refused here, never forwarded again.
//! * A write goes to another node only after an explicit "not applied", or if no byte of it left.
//! * The view chooses whom to ask; whether the asked may answer is Raft's decision.

mod error;
mod hints;
mod limits;
mod local;
mod misroutes;
mod route;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::GroupId;
use kvcore::cluster::{ClusterCommand, ClusterOutcome};
use kvcore::store::{Command, Record, WriteOutcome};
use placement::{Epoch, NodeId, NodeName, PartitionId, Placement};
use serde::{Deserialize, Serialize};

use crate::identity::LocalNode;
use crate::transport::{PeerAnswer, PeerRequest, Peers};
use crate::view::View;

use hints::LeaderHints;
use limits::{check_command, check_key};
use misroutes::RouteCounts;

pub use error::{Outcome, RequestError};
pub(crate) use local::{LocalStore, ReadCounters};

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
pub struct Router {
    node: LocalNode,
    store: LocalStore,
    peers: Peers,
    hints: LeaderHints,
    routed: RouteCounts,
}

impl Router {
    pub(crate) fn new(node: LocalNode, store: LocalStore, peers: Peers) -> Self {
        Self { node, store, peers, hints: LeaderHints::default(), routed: RouteCounts::default() }
    }

    /// Executes a command of a client.
    ///
    /// # Errors
    /// [`RequestError`], which knows what became of the command.
    pub async fn write(
        &self,
        command: Command,
        options: RequestOptions,
    ) -> Result<Served<WriteOutcome>, RequestError> {
        let key = check_command(&command, self.store.value_bytes_max)?
            .ok_or(RequestError::KeyLength { bytes: 0 })?;
        let partition = self.partition_of(key)?;
        let group = GroupId::of_partition(partition);
        let request = PeerRequest::Write { partition, command };
        let (answer, node) = self.route(group, request, options).await?;
        match answer {
            PeerAnswer::Written(outcome) => Ok(self.served(outcome, partition, node, None)),
            // The answer is to something else, so nothing is known of this command.
            _ => Err(RequestError::OutcomeUnknown),
        }
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
        check_key(&key)?;
        let partition = self.partition_of(&key)?;
        let (answer, node) = match self.read_here(partition, &key, consistency, options).await {
            Some(answer) => (answer, self.node.id()),
            None => {
                let request = PeerRequest::Read { partition, key, consistency };
                self.route(GroupId::of_partition(partition), request, options).await?
            }
        };
        let PeerAnswer::Value { record, staleness_ms } = answer else {
            return Err(RequestError::Storage { reason: "an answer to something else".to_owned() });
        };
        let record = record.map(Record::decode).transpose();
        let record = record.map_err(|error| RequestError::Storage { reason: error.to_string() })?;
        Ok(self.served(record, partition, node, staleness_ms))
    }

    /// Executes a command for group 0, wherever its leader is.
    pub(crate) async fn cluster(
        &self,
        command: ClusterCommand,
        deadline: Instant,
    ) -> Result<ClusterOutcome, RequestError> {
        let request = PeerRequest::Cluster(command);
        let options = RequestOptions { direct: false, deadline };
        match self.route(GroupId::CLUSTER, request, options).await? {
            (PeerAnswer::Cluster(outcome), _) => Ok(outcome),
            _ => Err(RequestError::OutcomeUnknown),
        }
    }

    /// Moves the leadership of a partition to another of its nodes; returns when it has moved.
    ///
    /// # Errors
    /// [`RequestError::NoLeader`] if nobody could be made to move it in time; it may still move after
    /// [`RequestError::OutcomeUnknown`].
    pub async fn transfer(
        &self,
        partition: PartitionId,
        to: NodeId,
        deadline: Instant,
    ) -> Result<(), RequestError> {
        let group = GroupId::of_partition(partition);
        if self.known_leader(group) == Some(to) {
            return Ok(());
        }
        let request = PeerRequest::TransferLeadership { group, to };
        let options = RequestOptions { direct: false, deadline };
        match self.route(group, request, options).await? {
            (PeerAnswer::Transferred, _) => Ok(()),
            _ => Err(RequestError::OutcomeUnknown),
        }
    }

    /// The view in force; none before the node knows a cluster.
    #[must_use]
    pub fn view(&self) -> Option<Arc<View>> {
        self.node.view().load()
    }

    /// The epoch in force; 0 before the node knows a cluster.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.node.view().epoch()
    }

    /// Waits for a view of a later epoch than `after`; none if there is none within `timeout`.
    pub async fn wait_for_epoch(&self, after: Epoch, timeout: Duration) -> Option<Arc<View>> {
        let later = self.node.view().wait_until(|view| view.epoch() > after);
        tokio::time::timeout(timeout, later).await.ok()
    }

    /// Where a key lives; none before the node knows a cluster.
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Option<Located> {
        let placement = self.node.view().with(|view| view.map(|view| view.ring.locate(key)))?;
        let leader = self.known_leader(GroupId::of_partition(placement.partition));
        Some(Located { placement, leader })
    }

    /// The node that leads a group, as far as this node knows.
    #[must_use]
    pub fn known_leader(&self, group: GroupId) -> Option<NodeId> {
        let groups = self.store.groups.load();
        match groups.get(group) {
            Some(known) if known.replica.is_some() => known.leader,
            _ => self.hints.get(group),
        }
    }

    /// Whether the node can serve: initialised, and every local group knows a leader.
    ///
    /// # Errors
    /// The reasons why it cannot.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        /// More reasons than this help nobody.
        const REASONS_MAX: usize = 8;
        let Some(view) = self.view() else {
            return Err(vec!["the cluster is not initialised".to_owned()]);
        };
        let groups = self.store.groups.load();
        let mine = |group: &GroupId| {
            view.state.members(*group).iter().any(|member| member.node == self.node.id())
        };
        let mut reasons = Vec::new();
        let mut more = 0;
        let missing = view.state.groups().filter(mine).filter_map(|group| {
            let known = groups.get(group).filter(|known| known.replica.is_some());
            match known {
                None => Some(format!("{} has no replica here yet", describe(group))),
                Some(known) if known.leader.is_none() => {
                    Some(format!("{} knows no leader", describe(group)))
                }
                Some(_) => None,
            }
        });
        for reason in missing {
            if reasons.len() < REASONS_MAX {
                reasons.push(reason);
            } else {
                more += 1;
            }
        }
        if more > 0 {
            reasons.push(format!("{more} more groups"));
        }
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    /// How the requests that were routed since the last call found their way.
    pub(crate) fn take_misrouted_per_mille(&self) -> u32 {
        self.routed.take_per_mille()
    }

    /// Executes nothing here any more; requests still go to other nodes.
    pub(crate) fn close(&self) {
        self.store.closing.store(true, Ordering::Release);
    }

    pub(crate) fn store(&self) -> &LocalStore {
        &self.store
    }

    fn partition_of(&self, key: &[u8]) -> Result<PartitionId, RequestError> {
        self.node
            .view()
            .with(|view| view.map(|view| view.ring.partition_of(key)))
            .ok_or(RequestError::NotInitialised)
    }

    /// A read that this node can answer by itself: of what it leads under a lease, or stale.
    async fn read_here(
        &self,
        partition: PartitionId,
        key: &Bytes,
        consistency: Consistency,
        options: RequestOptions,
    ) -> Option<PeerAnswer> {
        let answer = match (self.store.read_quickly(partition, key, consistency), consistency) {
            (Some(answer), _) => answer,
            // Only the disk knows: still nearer than any other node.
            (None, Consistency::Stale) => {
                self.store.read(partition, key, consistency, options.deadline).await
            }
            (None, Consistency::Linearizable) => return None,
        };
        match answer {
            PeerAnswer::Refused(_) => None,
            answer => Some(answer),
        }
    }

    fn served<T>(
        &self,
        value: T,
        partition: PartitionId,
        node: NodeId,
        staleness_ms: Option<u64>,
    ) -> Served<T> {
        let own = &self.node.registration().name;
        self.node.view().with(|view| {
            let name = match view {
                Some(view) if node != self.node.id() => view.name_of(node).unwrap_or(own),
                Some(_) | None => own,
            };
            let epoch = view.map_or(Epoch::ZERO, View::epoch);
            Served { value, partition, served_by: name.clone(), epoch, staleness_ms }
        })
    }
}

fn describe(group: GroupId) -> String {
    match group.partition() {
        Some(partition) => format!("partition {partition}"),
        None => "the cluster's own group".to_owned(),
    }
}
