//! A node that keeps everything in a map, and fails as its keys say.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvapi::admin::{GroupZeroStatus, NodeInfo, NodeStage};
use kvcore::cluster::{self, ClusterCommand, ClusterOutcome};
use kvcore::cluster::{Founder, Founding, found};
use kvcore::store::{Command, PartitionState, Record, Records, WriteOutcome, apply};
use kvcore::{ClusterId, Version};
use placement::{
    Epoch, NodeId, NodeName, PartitionBits, PartitionId, ReplicationFactor, TokenPolicy, Weight,
    Zone,
};
use tokio::sync::watch;

use crate::founding::{Founded, FoundingOptions, FoundingStart, InitError};
use crate::http::{Backend, ClusterKnowledge, TransferError};
use crate::report::NodeReport;
use crate::router::{Consistency, Located, RequestError, RequestOptions, Served};
use crate::view::View;

/// Keys with this prefix are led by n2; this node is n1.
pub const REMOTE: &[u8] = b"remote";

/// The fake node, n1 of three.
#[derive(Debug)]
pub struct Fake {
    name: NodeName,
    view: watch::Sender<Option<Arc<View>>>,
    store: Mutex<Store>,
    /// Writes that reached the node.
    pub writes: AtomicUsize,
    /// What the nodes tell of their disks and replicas.
    pub reports: Mutex<BTreeMap<NodeId, NodeReport>>,
    /// Calls wait while this holds true.
    pub held: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Store {
    state: PartitionState,
    records: Map,
}

#[derive(Debug, Default)]
struct Map(BTreeMap<Bytes, Record>);

impl Records for Map {
    type Error = std::convert::Infallible;

    fn version(&self, key: &[u8]) -> Result<Option<Version>, Self::Error> {
        Ok(self.0.get(key).map(|record| record.version))
    }

    fn put(&mut self, key: Bytes, record: Record) {
        self.0.insert(key, record);
    }

    fn delete(&mut self, key: Bytes) {
        self.0.remove(&key);
    }
}

impl Fake {
    /// A node that was started and not yet founded.
    pub fn uninitialised() -> Self {
        Self {
            name: name("n1"),
            view: watch::Sender::new(None),
            store: Mutex::default(),
            writes: AtomicUsize::new(0),
            reports: Mutex::default(),
            held: watch::Sender::new(false),
        }
    }

    /// A node of a cluster of three in three zones.
    pub fn founded() -> Self {
        let fake = Self::uninitialised();
        fake.publish();
        fake
    }

    /// Puts the first ring in force.
    pub fn publish(&self) {
        self.view.send_replace(Some(Arc::new(first_view())));
    }

    /// The stored record of a key.
    pub fn record(&self, key: &[u8]) -> Option<Record> {
        self.store.lock().unwrap().records.0.get(key).cloned()
    }

    fn partition(&self, key: &[u8]) -> Result<PartitionId, RequestError> {
        let view = self.view().ok_or(RequestError::NotInitialised)?;
        Ok(view.ring.partition_of(key))
    }

    /// The error that a key asks for.
    fn fail(&self, key: &[u8], options: RequestOptions) -> Result<(), RequestError> {
        let partition = self.partition(key)?;
        Err(match key {
            b"!no-leader" => RequestError::NoLeader { partition },
            b"!overloaded" => RequestError::Overloaded,
            b"!unknown" => RequestError::OutcomeUnknown,
            b"!disk-full" => RequestError::DiskFull,
            b"!storage" => RequestError::Storage { reason: "bad block".to_owned() },
            b"!stopping" => RequestError::ShuttingDown,
            key if key.starts_with(REMOTE) && options.direct => RequestError::NotLeader {
                partition,
                leader: Some(NodeId::from_u128(2)),
                owners: (1..=3).map(NodeId::from_u128).collect(),
                epoch: self.epoch(),
            },
            _ => return Ok(()),
        })
    }

    fn served<T>(&self, key: &[u8], value: T) -> Result<Served<T>, RequestError> {
        let leader = if key.starts_with(REMOTE) { name("n2") } else { self.name.clone() };
        Ok(Served {
            value,
            partition: self.partition(key)?,
            served_by: leader,
            epoch: self.epoch(),
            staleness_ms: None,
        })
    }
}

impl Backend for Fake {
    fn node_name(&self) -> &NodeName {
        &self.name
    }

    fn epoch(&self) -> Epoch {
        self.view.borrow().as_ref().map_or(Epoch::ZERO, |view| view.epoch())
    }

    fn view(&self) -> Option<Arc<View>> {
        self.view.borrow().clone()
    }

    fn knowledge(&self) -> ClusterKnowledge {
        let group0 = GroupZeroStatus {
            leader: Some(name("n2")),
            term: 3,
            voters: ["n1", "n2", "n3"].map(name).to_vec(),
        };
        ClusterKnowledge { view_age: Duration::from_millis(20), group0, alarms: Vec::new() }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        if self.view().is_none() {
            return Err(vec!["the cluster is not initialised".to_owned()]);
        }
        let reasons = ["partition 3 knows no leader", "partition 4 knows no leader"];
        match self.record(b"not ready") {
            None => Ok(()),
            Some(_) => Err(reasons.map(str::to_owned).to_vec()),
        }
    }

    fn locate(&self, key: &[u8]) -> Option<Located> {
        let placement = self.view()?.ring.locate(key);
        Some(Located { placement, leader: Some(NodeId::from_u128(2)) })
    }

    async fn write(
        &self,
        command: Command,
        options: RequestOptions,
    ) -> Result<Served<WriteOutcome>, RequestError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.subscribe();
        held.wait_for(|held| !held).await.expect("the fake lives");
        let key = match &command {
            Command::Put { key, .. } | Command::Delete { key, .. } => key.clone(),
            Command::Truncate { .. } | Command::Verify => Bytes::new(),
        };
        self.fail(&key, options)?;
        let outcome = {
            let mut store = self.store.lock().unwrap();
            let Store { state, records } = &mut *store;
            let Ok(outcome) = apply(state, records, command);
            outcome
        };
        self.served(&key, outcome)
    }

    async fn read(
        &self,
        key: Bytes,
        consistency: Consistency,
        options: RequestOptions,
    ) -> Result<Served<Option<Record>>, RequestError> {
        self.fail(&key, options)?;
        let mut served = self.served(&key, self.record(&key))?;
        served.staleness_ms = (consistency == Consistency::Stale).then_some(40);
        Ok(served)
    }

    async fn newest_view(&self) -> Option<Arc<View>> {
        self.view()
    }

    async fn reports(&self, others: bool, _: Instant) -> BTreeMap<NodeId, NodeReport> {
        let mut reports = self.reports.lock().unwrap().clone();
        reports.retain(|node, _| others || *node == NodeId::from_u128(1));
        reports
    }

    async fn cluster(
        &self,
        command: ClusterCommand,
        _deadline: Instant,
    ) -> Result<ClusterOutcome, RequestError> {
        let view = self.view().ok_or(RequestError::NotInitialised)?;
        let mut state = (*view.state).clone();
        let revision = kvcore::Revision(state.revision.get() + 1);
        let outcome = cluster::apply(&mut state, revision, command);
        self.view.send_replace(Some(Arc::new(View::new(Arc::new(state)))));
        Ok(outcome)
    }

    async fn wait_for_epoch(&self, after: Epoch, timeout: Duration) -> Option<Arc<View>> {
        let mut views = self.view.subscribe();
        let is_newer =
            |view: &Option<Arc<View>>| view.as_ref().is_some_and(|view| view.epoch() > after);
        let view = tokio::time::timeout(timeout, views.wait_for(is_newer)).await.ok()?;
        view.expect("the fake lives").clone()
    }

    async fn node_info(&self, with_replicas: bool) -> NodeInfo {
        NodeInfo {
            cluster_id: None,
            id: NodeId::from_u128(1),
            name: self.name.clone(),
            zone: Zone::parse("z1").unwrap(),
            weight: 1,
            client_address: "127.0.0.1:7400".to_owned(),
            peer_address: "127.0.0.1:7401".to_owned(),
            stage: NodeStage::Member,
            epoch: self.epoch(),
            view_revision: 1,
            view_age_ms: 20,
            partitions: 16,
            leaders: 5,
            replicas: with_replicas.then(Vec::new),
            log_bytes: 0,
            data_bytes: 0,
            disk_available: 0,
            disk_total: 0,
            disk_ok: true,
            version: "0.0.0".to_owned(),
            unix_ms: 0,
            alarms: Vec::new(),
        }
    }

    async fn init(&self, founders: Vec<String>, _: FoundingOptions) -> Result<Founded, InitError> {
        if let Some(address) = founders.iter().find(|address| address.contains("away")) {
            let reason = "connection refused".to_owned();
            return Err(InitError::Unreachable { address: address.clone(), reason });
        }
        let start = match self.view() {
            None => FoundingStart::Fresh,
            Some(_) => FoundingStart::Complete,
        };
        self.publish();
        let view = self.view().unwrap();
        Ok(Founded {
            cluster: view.state.cluster,
            epoch: view.epoch(),
            founders: self
                .view()
                .unwrap()
                .state
                .nodes
                .values()
                .map(|node| node.registration.clone())
                .collect(),
            zones: BTreeMap::new(),
            redundancy: view.ring.redundancy(),
            partition_bits: view.ring.partition_bits(),
            start,
        })
    }

    async fn transfer(
        &self,
        partition: PartitionId,
        to: NodeName,
        _: Instant,
    ) -> Result<(), TransferError> {
        let view = self.view().ok_or(RequestError::NotInitialised)?;
        if !view.state.nodes.values().any(|node| node.registration.name == to) {
            return Err(TransferError::NoSuchNode { name: to });
        }
        if view.state.replicas_of(partition).is_empty() {
            return Err(TransferError::NoSuchPartition { partition });
        }
        Ok(())
    }
}

/// A legal name.
pub fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

/// The view of a cluster of three nodes in three zones, in epoch 1.
pub fn first_view() -> View {
    let founder = |number: u16| Founder {
        id: NodeId::from_u128(u128::from(number)),
        name: name(&format!("n{number}")),
        zone: Zone::parse(&format!("z{number}")).unwrap(),
        weight: Weight::ONE,
        client_address: format!("127.0.0.1:{}", 7390 + 10 * number),
        peer_address: format!("127.0.0.1:{}", 7391 + 10 * number),
    };
    let founding = Founding {
        cluster: ClusterId(0xc1),
        founders: (1..=3).map(founder).collect(),
        partition_bits: PartitionBits::new(4).unwrap(),
        replication_factor: ReplicationFactor::DEFAULT,
        vnodes_per_node: 16,
        policy: TokenPolicy::Balanced,
        now_ms: 1_700_000_000_000,
    };
    View::new(Arc::new(found(&founding).unwrap()))
}
