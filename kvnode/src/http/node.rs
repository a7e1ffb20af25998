//! The HTTP face's view of a running node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvapi::admin::{Alarm, GroupZeroStatus, NodeInfo, NodeStage, ReplicaInfo, ReplicaRole};
use kvcore::GroupId;
use kvcore::cluster::{ClusterCommand, ClusterOutcome};
use kvcore::group::{GroupSummary, Role};
use kvcore::store::{Command, Record, WriteOutcome};
use placement::{Epoch, NodeId, NodeName, PartitionId};

use super::backend::{Backend, ClusterKnowledge, TransferError};
use super::describe::millis;
use super::describe_plans::with_names;
use crate::founding::{Founded, FoundingOptions, InitError};
use crate::node::{self, Node};
use crate::registration::RegistrationState;
use crate::report::NodeReport;
use crate::router::{Consistency, Located, RequestError, RequestOptions, Served};
use crate::storage::DiskState;
use crate::view::View;

/// Time to ask group 0's leader for the newest view: operators wait for it, and without a leader they
/// are answered from what is here.
const NEWEST_VIEW_TIMEOUT: Duration = Duration::from_millis(500);

/// A running node behind the HTTP face.
#[derive(Clone, Debug)]
pub struct NodeBackend {
    node: Arc<Node>,
    name: NodeName,
}

impl NodeBackend {
    /// The backend that is this node.
    #[must_use]
    pub fn new(node: Arc<Node>) -> Self {
        let name = node.info().registration.name;
        Self { node, name }
    }

    fn alarms(&self, info: &node::NodeInfo) -> Vec<Alarm> {
        let alarm = |code: &str, detail| Alarm { code: code.to_owned(), detail };
        let view = self.view();
        let told = |core: &kvcore::event::Alarm| match &view {
            Some(view) => with_names(core, view),
            None => core.to_string(),
        };
        let mut alarms: Vec<_> =
            info.alarms.iter().map(|core| alarm(code_of(core), told(core))).collect();
        if self.node.disk().state() == DiskState::Full {
            let detail = "free space is below the reserve: writes are refused".to_owned();
            alarms.push(alarm("disk-full", detail));
        }
        if let RegistrationState::Refused(refusal) = &info.registration_state {
            alarms.push(alarm("registration-refused", refusal.to_string()));
        }
        for (peer, reason) in &info.unreachable {
            // Nobody misses a node that has left.
            if let Some(name) = view.as_ref().and_then(|view| view.name_of(*peer)) {
                alarms.push(alarm("peer-unreachable", format!("{name}: {reason}")));
            }
        }
        alarms
    }

    fn group0(&self, view: &View) -> GroupZeroStatus {
        let summaries = self.node.summaries();
        let local = summaries.iter().find(|summary| summary.group == GroupId::CLUSTER);
        let leader = self.node.router().known_leader(GroupId::CLUSTER);
        let voters = view.state.group0.iter().filter_map(|member| view.name_of(member.node));
        GroupZeroStatus {
            leader: leader.and_then(|node| view.name_of(node)).cloned(),
            term: local.map_or(0, |summary| summary.term.get()),
            voters: voters.cloned().collect(),
        }
    }
}

impl Backend for NodeBackend {
    fn node_name(&self) -> &NodeName {
        &self.name
    }

    fn epoch(&self) -> Epoch {
        self.node.router().epoch()
    }

    fn view(&self) -> Option<Arc<View>> {
        self.node.router().view()
    }

    fn knowledge(&self) -> ClusterKnowledge {
        let info = self.node.info();
        ClusterKnowledge {
            view_age: info.view_age.unwrap_or_default(),
            group0: self.view().map(|view| self.group0(&view)).unwrap_or_default(),
            alarms: self.alarms(&info),
        }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        self.node.router().ready()
    }

    fn locate(&self, key: &[u8]) -> Option<Located> {
        self.node.router().locate(key)
    }

    async fn write(
        &self,
        command: Command,
        options: RequestOptions,
    ) -> Result<Served<WriteOutcome>, RequestError> {
        self.node.router().write(command, options).await
    }

    async fn read(
        &self,
        key: Bytes,
        consistency: Consistency,
        options: RequestOptions,
    ) -> Result<Served<Option<Record>>, RequestError> {
        self.node.router().read(key, consistency, options).await
    }

    async fn newest_view(&self) -> Option<Arc<View>> {
        self.node.router().refresh_view(NEWEST_VIEW_TIMEOUT).await;
        self.view()
    }

    async fn reports(&self, others: bool, deadline: Instant) -> BTreeMap<NodeId, NodeReport> {
        self.node.reports(others, deadline).await
    }

    async fn cluster(
        &self,
        command: ClusterCommand,
        deadline: Instant,
    ) -> Result<ClusterOutcome, RequestError> {
        self.node.router().cluster(command, deadline).await
    }

    async fn wait_for_epoch(&self, after: Epoch, timeout: Duration) -> Option<Arc<View>> {
        self.node.router().wait_for_epoch(after, timeout).await
    }

    async fn node_info(&self, with_replicas: bool) -> NodeInfo {
        let info = self.node.info();
        let view = self.view();
        let summaries = match with_replicas {
            true => Arc::new(self.node.fresh_summaries().await),
            false => self.node.summaries(),
        };
        let registration = &info.registration;
        let space = self.node.disk().space().ok();
        let replicas = || {
            partitions(&summaries)
                .map(|(partition, summary)| replica(partition, summary, view.as_deref()))
        };
        NodeInfo {
            cluster_id: info.cluster.map(|cluster| cluster.to_string()),
            id: registration.id,
            name: registration.name.clone(),
            zone: registration.zone.clone(),
            weight: registration.weight.get(),
            client_address: registration.client_address.clone(),
            peer_address: registration.peer_address.clone(),
            stage: stage(&info, view.as_deref()),
            epoch: self.epoch(),
            view_revision: self.node.view().revision().get(),
            view_age_ms: millis(info.view_age.unwrap_or_default()),
            partitions: count(partitions(&summaries).count()),
            leaders: count(
                partitions(&summaries).filter(|(_, summary)| summary.role == Role::Leader).count(),
            ),
            replicas: with_replicas.then(|| replicas().collect()),
            log_bytes: summaries.iter().map(|summary| summary.log_bytes).sum(),
            data_bytes: data_bytes(&self.node, &summaries).await,
            disk_available: space.map_or(0, |space| space.available),
            disk_total: space.map_or(0, |space| space.total),
            disk_ok: self.node.disk().state() == DiskState::Ok,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: crate::clock::wall_ms(),
            alarms: self.alarms(&info),
        }
    }

    async fn init(
        &self,
        founders: Vec<String>,
        options: FoundingOptions,
    ) -> Result<Founded, InitError> {
        self.node.init(founders, options).await
    }

    async fn transfer(
        &self,
        partition: PartitionId,
        to: NodeName,
        deadline: Instant,
    ) -> Result<(), TransferError> {
        let view = self.view().ok_or(RequestError::NotInitialised)?;
        let node = node_called(&view, &to).ok_or(TransferError::NoSuchNode { name: to.clone() })?;
        let members = view.state.replicas_of(partition);
        if members.is_empty() {
            return Err(TransferError::NoSuchPartition { partition });
        }
        if members.iter().all(|member| member.node != node) {
            return Err(TransferError::NotAnOwner { name: to, partition });
        }
        Ok(self.node.router().transfer(partition, node, deadline).await?)
    }
}

fn node_called(view: &View, name: &NodeName) -> Option<NodeId> {
    let registrations = view.state.nodes.values().map(|record| &record.registration);
    registrations.into_iter().find(|node| node.name == *name).map(|node| node.id)
}

fn stage(info: &node::NodeInfo, view: Option<&View>) -> NodeStage {
    let id = info.registration.id;
    let owns = view.is_some_and(|view| view.ring.node_index(id).is_some());
    match &info.registration_state {
        _ if owns => NodeStage::Member,
        RegistrationState::Registered { epoch: _ } => NodeStage::Spare,
        RegistrationState::Waiting if info.cluster.is_none() => NodeStage::Uninitialised,
        RegistrationState::Waiting
        | RegistrationState::Asking
        | RegistrationState::Departed { .. }
        | RegistrationState::Refused(_) => NodeStage::Registering,
    }
}

fn partitions(
    summaries: &[GroupSummary],
) -> impl Iterator<Item = (PartitionId, &GroupSummary)> + Clone {
    summaries.iter().filter_map(|summary| Some((summary.group.partition()?, summary)))
}

fn replica(partition: PartitionId, summary: &GroupSummary, view: Option<&View>) -> ReplicaInfo {
    ReplicaInfo {
        partition,
        role: match summary.role {
            Role::Leader => ReplicaRole::Leader,
            Role::Follower => ReplicaRole::Follower,
            Role::Learner => ReplicaRole::Learner,
            Role::Candidate => ReplicaRole::Candidate,
        },
        leader: summary.leader.and_then(|leader| view?.name_of(leader)).cloned(),
        term: summary.term.get(),
        commit_index: summary.commit.get(),
        applied_index: summary.applied.get(),
        generation: summary.generation.get(),
    }
}

/// Bytes of the replicas' records on disk. The store may have to read for that.
async fn data_bytes(node: &Node, summaries: &[GroupSummary]) -> u64 {
    let database = node.database().clone();
    let installed: Vec<_> =
        partitions(summaries).map(|(partition, summary)| (partition, summary.generation)).collect();
    let sum = move || {
        let stats = installed
            .into_iter()
            .map(|(partition, generation)| database.partition_stats(partition, generation));
        stats.map(|stats| stats.bytes_on_disk).sum()
    };
    // Interrupted only when the runtime ends, and the answer with it.
    tokio::task::spawn_blocking(sum).await.unwrap_or(0)
}

fn code_of(alarm: &kvcore::event::Alarm) -> &'static str {
    match alarm {
        kvcore::event::Alarm::ForkedEpoch { epoch: _ } => "forked-epoch",
        kvcore::event::Alarm::BadView { reason: _ } => "bad-view",
        kvcore::event::Alarm::UnreadableData { .. } => "unreadable-data",
        kvcore::event::Alarm::ReplicasDiffer { .. } => "replicas-differ",
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
