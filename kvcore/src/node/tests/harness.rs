//! Three cores over maps in memory, in one thread and without faults: enough to see that the parts
//! fit. The simulator in `integration-tests` is where they are made to fail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use placement::{
    NodeId, NodeName, PartitionBits, PartitionId, ReplicationFactor, TokenPolicy, Weight, Zone,
};
use raft::eraftpb::Entry;

use crate::Faults;
use crate::cluster::{ClusterState, Founding, Registration, found};
use crate::event::{Effect, Event, Reply};
use crate::group::{GroupSummary, ReadGate, Role};
use crate::ids::{ClusterId, Generation, GroupId, LogIndex, ReplicaId, Version};
use crate::message::{CopyFailure, PeerMessage};
use crate::node::{Core, CoreConfig};
use crate::settings::Settings;
use crate::storage::{
    Boot, BootReplica, Progress, ReplicaRecord, Store, StoreError, WriteBatch, WriteOp,
};
use crate::store::Record;
use crate::time::Time;

/// What is on one node's disk.
#[derive(Default)]
pub struct MemoryStore {
    log: BTreeMap<(GroupId, u64), Entry>,
    replicas: BTreeMap<GroupId, ReplicaRecord>,
    progress: BTreeMap<GroupId, Progress>,
    tombstones: BTreeSet<(GroupId, ReplicaId)>,
    records: BTreeMap<(PartitionId, Generation, Bytes), Bytes>,
    cluster: Option<Arc<ClusterState>>,
    view: Option<Arc<ClusterState>>,
}

impl MemoryStore {
    pub fn get(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Option<Record> {
        let key = (partition, generation, Bytes::copy_from_slice(key));
        self.records.get(&key).map(|bytes| Record::decode(bytes.clone()).expect("it was encoded"))
    }

    fn boot(&self) -> Boot {
        let replicas = self.replicas.iter().map(|(&group, record)| {
            let progress = self.progress[&group];
            let after = progress.applied.index.get() + 1;
            BootReplica {
                group,
                record: record.clone(),
                progress,
                tail: self
                    .log
                    .range((group, after)..=(group, u64::MAX))
                    .map(|(_, it)| it.clone())
                    .collect(),
                generation_max: record.generation,
            }
        });
        Boot {
            replicas: replicas.collect(),
            tombstones: self.tombstones.iter().copied().collect(),
            cluster: self.cluster.clone(),
            view: self.view.clone(),
            offers: Vec::new(),
            partial_copies: Vec::new(),
        }
    }
}

impl Store for MemoryStore {
    fn version(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        Ok(self.get(partition, generation, key).map(|record| record.version))
    }

    fn write(&mut self, batch: WriteBatch) -> Result<(), StoreError> {
        for op in batch.ops {
            match op {
                WriteOp::Append { group, entries } => {
                    self.log.extend(entries.into_iter().map(|it| ((group, it.index), it)));
                }
                WriteOp::DropEntries { group, from, to } => {
                    for index in from.get()..to.get() {
                        self.log.remove(&(group, index));
                    }
                }
                WriteOp::Replica { group, record } => {
                    self.replicas.insert(group, record);
                }
                WriteOp::Progress { group, progress } => {
                    self.progress.insert(group, progress);
                }
                WriteOp::Tombstone { group, replica } => {
                    self.replicas.remove(&group);
                    self.progress.remove(&group);
                    self.tombstones.insert((group, replica));
                }
                WriteOp::PutRecord { partition, generation, key, record } => {
                    self.records.insert((partition, generation, key), record);
                }
                WriteOp::DeleteRecord { partition, generation, key } => {
                    self.records.remove(&(partition, generation, key));
                }
                WriteOp::Cluster { state } => self.cluster = Some(state),
                WriteOp::View { state } => self.view = Some(state),
            }
        }
        Ok(())
    }
}

struct Node {
    core: Core<u64>,
    store: MemoryStore,
    gates: BTreeMap<GroupId, Arc<ReadGate>>,
    inbox: Vec<Event<u64>>,
}

/// Three nodes, a partition or two, and a clock.
pub struct Trio {
    nodes: Vec<Node>,
    stopped: BTreeMap<usize, MemoryStore>,
    pub now: Time,
    replies: BTreeMap<u64, Reply>,
    next_request: u64,
    settings: Settings,
}

pub fn node_id(number: usize) -> NodeId {
    NodeId::from_u128(1 + number as u128)
}

pub fn founding_state(bits: u8) -> Arc<ClusterState> {
    let founders = (0..3).map(|number| Registration {
        id: node_id(number),
        name: NodeName::parse(&format!("n{number}")).expect("a legal name"),
        zone: Zone::parse(&format!("z{number}")).expect("a legal zone"),
        weight: Weight::new(1).expect("a legal weight"),
        client_address: format!("n{number}:7400"),
        peer_address: format!("n{number}:7401"),
    });
    let founding = Founding {
        cluster: ClusterId(7),
        founders: founders.collect(),
        partition_bits: PartitionBits::new(bits).expect("few bits"),
        replication_factor: ReplicationFactor::new(3).expect("three copies"),
        vnodes_per_node: 8,
        policy: TokenPolicy::Balanced,
        now_ms: 0,
    };
    Arc::new(found(&founding).expect("three nodes can found a cluster"))
}

impl Trio {
    pub fn found(bits: u8) -> Self {
        let settings = Settings::default();
        let mut trio = Self {
            nodes: Vec::new(),
            stopped: BTreeMap::new(),
            now: Time::from_nanos(1_000_000_000),
            replies: BTreeMap::new(),
            next_request: 1,
            settings,
        };
        let state = founding_state(bits);
        for number in 0..3 {
            let mut node = trio.boot(number, MemoryStore::default());
            node.inbox.push(Event::AdoptView(Arc::clone(&state)));
            trio.nodes.push(node);
        }
        trio
    }

    fn boot(&self, number: usize, store: MemoryStore) -> Node {
        let config = CoreConfig {
            node: node_id(number),
            settings: self.settings.clone(),
            faults: Faults::NONE,
            now: self.now,
        };
        let mut effects = Vec::new();
        let core = Core::boot(config, store.boot(), &mut effects);
        let mut node = Node { core, store, gates: BTreeMap::new(), inbox: Vec::new() };
        for effect in effects {
            if let Effect::ReplicaCreated { group, gate } = effect {
                node.gates.insert(group, gate);
            }
        }
        node
    }

    pub fn restart(&mut self, number: usize) {
        let store = std::mem::take(&mut self.nodes[number].store);
        self.nodes[number] = self.boot(number, store);
    }

    /// Takes a node down; what is sent to it is lost.
    pub fn stop(&mut self, number: usize) {
        let store = std::mem::take(&mut self.nodes[number].store);
        self.stopped.insert(number, store);
    }

    pub fn start(&mut self, number: usize) {
        let store = self.stopped.remove(&number).expect("it was stopped");
        self.nodes[number] = self.boot(number, store);
    }

    /// Ten milliseconds go by.
    pub fn step(&mut self) {
        self.now = self.now + Duration::from_millis(10);
        let mut mail: VecDeque<(usize, Event<u64>)> = VecDeque::new();
        for number in 0..self.nodes.len() {
            if self.stopped.contains_key(&number) {
                self.nodes[number].inbox.clear();
                continue;
            }
            let mut effects = Vec::new();
            let node = &mut self.nodes[number];
            node.core
                .turn(self.now, &mut node.inbox, &mut node.store, &mut effects)
                .expect("memory does not fail");
            for effect in effects {
                self.carry_out(number, effect, &mut mail);
            }
        }
        for (number, event) in mail {
            self.nodes[number].inbox.push(event);
        }
    }

    fn carry_out(
        &mut self,
        number: usize,
        effect: Effect<u64>,
        mail: &mut VecDeque<(usize, Event<u64>)>,
    ) {
        let node = &mut self.nodes[number];
        match effect {
            Effect::Send { to, message } => {
                let to = usize::try_from(to.as_u128() - 1).expect("a small number");
                let from = node_id(number);
                mail.push_back((to, Event::Peer { from, messages: vec![message] }));
            }
            Effect::Reply { to, reply } => {
                let twice = self.replies.insert(to, reply);
                assert!(twice.is_none(), "request {to} was answered twice: {twice:?}");
            }
            Effect::Sync { sync } => mail.push_back((number, Event::Synced { sync })),
            Effect::FetchEntries { group, low, high, .. } => {
                let range = (group, low.get())..(group, high.get());
                let entries = node.store.log.range(range).map(|(_, it)| it.clone()).collect();
                mail.push_back((number, Event::EntriesFetched { group, low, entries }));
            }
            Effect::BuildSnapshot { group } => {
                mail.push_back((number, Event::SnapshotBuilt { group, snapshot: None }));
            }
            Effect::ReceiveSnapshot { group, generation, .. } => {
                let outcome = Err(CopyFailure::SourceGone);
                let event = Event::SnapshotReceived { group, generation, outcome };
                mail.push_back((number, event));
            }
            Effect::ReplicaCreated { group, gate } => {
                node.gates.insert(group, gate);
            }
            Effect::ReplicaRemoved { group } => {
                node.gates.remove(&group);
            }
            Effect::ComputeDigest { group, index, .. } => {
                mail.push_back((number, Event::DigestComputed { group, index, digest: None }));
            }
            Effect::Alarm(alarm) => panic!("{alarm}"),
            Effect::DropSnapshot { .. }
            | Effect::SweepGeneration { .. }
            | Effect::LeaderChanged { .. }
            | Effect::ViewChanged(_) => {}
        }
    }

    /// Lets time go by until something holds.
    pub fn run_until<T>(&mut self, what: &str, mut find: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = self.now + Duration::from_secs(10);
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            assert!(self.now < deadline, "{what} did not happen: {:#?}", self.summaries());
            self.step();
        }
    }

    fn summaries(&self) -> Vec<Vec<GroupSummary>> {
        self.nodes.iter().map(|node| node.core.summaries()).collect()
    }

    pub fn summary(&self, number: usize, group: GroupId) -> Option<GroupSummary> {
        if self.stopped.contains_key(&number) {
            return None;
        }
        self.nodes[number].core.summaries().into_iter().find(|it| it.group == group)
    }

    pub fn leader(&self, group: GroupId) -> Option<usize> {
        (0..3).find(|&number| {
            self.summary(number, group)
                .is_some_and(|it| it.role == Role::Leader && it.applied == it.last)
        })
    }

    pub fn applied(&self, number: usize, group: GroupId) -> LogIndex {
        self.summary(number, group).map_or(LogIndex(0), |it| it.applied)
    }

    pub fn gate(&self, number: usize, group: GroupId) -> &ReadGate {
        &self.nodes[number].gates[&group]
    }

    pub fn value(&self, number: usize, partition: PartitionId, key: &[u8]) -> Option<Record> {
        let gate = self.gate(number, GroupId::of_partition(partition));
        self.nodes[number].store.get(partition, gate.generation(), key)
    }

    pub fn send(&mut self, number: usize, event: impl FnOnce(u64) -> Event<u64>) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.nodes[number].inbox.push(event(request));
        request
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, number: usize, event: impl FnOnce(u64) -> Event<u64>) -> Reply {
        let request = self.send(number, event);
        self.run_until("an answer", |trio| trio.replies.get(&request).cloned())
    }

    /// Delivers a message as if it had come from a node.
    pub fn deliver(&mut self, number: usize, from: usize, message: PeerMessage) {
        let event = Event::Peer { from: node_id(from), messages: vec![message] };
        self.nodes[number].inbox.push(event);
    }
}
