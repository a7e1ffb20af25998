//! What the tests share: a store with small buffers, and the batches of an imaginary core.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::cluster::{ClusterState, Founding, Registration, found};
use kvcore::storage::{
    Boot, Configuration, Member, Progress, ReplicaRecord, Store, WriteBatch, WriteOp,
};
use kvcore::store::{PartitionState, Record};
use kvcore::{ClusterId, Generation, GroupId, LogIndex, LogPosition, ReplicaId, Term, Version};
use placement::{
    NodeId, NodeName, PartitionBits, PartitionId, ReplicationFactor, TokenPolicy, Weight, Zone,
};
use raft::eraftpb::Entry;
use tempfile::TempDir;

use crate::storage::{Database, Identity, OpenError, StorageSettings, StoreHandle};

pub const PARTITION: PartitionId = PartitionId::new(7);

pub fn group() -> GroupId {
    GroupId::of_partition(PARTITION)
}

pub fn settings() -> StorageSettings {
    StorageSettings {
        block_cache_bytes: 8 << 20,
        memtable_bytes: 64 << 20,
        wal_bytes_max: 64 << 20,
        open_files_max: 64,
        ..StorageSettings::default()
    }
}

pub fn try_open(path: &Path) -> Result<(Database, Boot, Identity), OpenError> {
    Database::open(path, settings())
}

pub fn open(path: &Path) -> (Database, Boot) {
    match try_open(path) {
        Ok((database, boot, _)) => (database, boot),
        Err(error) => panic!("{}", crate::storage::error::chain(&error)),
    }
}

/// A store in a directory of its own.
pub struct Fixture {
    pub store: StoreHandle,
    pub database: Database,
    pub directory: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (database, _) = open(directory.path());
        Self { store: StoreHandle::new(database.clone()), database, directory }
    }

    /// A store in which the test partition's replica exists with this generation.
    pub fn with_replica(generation: u64) -> Self {
        let mut fixture = Self::new();
        fixture.write(vec![
            WriteOp::Replica { group: group(), record: replica_record(generation) },
            WriteOp::Progress { group: group(), progress: progress(10) },
        ]);
        fixture
    }

    pub fn write(&mut self, ops: Vec<WriteOp>) {
        self.store.write(WriteBatch { ops }).unwrap();
    }

    pub fn put(&mut self, generation: u64, key: &[u8], record: Bytes) {
        self.write(vec![put(generation, key, record)]);
    }

    pub fn flush(&self) {
        for family in crate::storage::keys::Family::ALL {
            self.database.inner.db.flush_cf(self.database.family(family)).unwrap();
        }
    }

    /// Closes the store and opens it again.
    pub fn reopen(self) -> (Self, Boot) {
        let Self { store, database, directory } = self;
        drop(store);
        drop(database);
        let (database, boot) = open(directory.path());
        (Self { store: StoreHandle::new(database.clone()), database, directory }, boot)
    }

    /// What a killed process would leave: the files as they are now, without a clean close.
    pub fn crash(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        self.database.inner.db.disable_file_deletions().unwrap();
        copy_directory(self.directory.path(), copy.path());
        self.database.inner.db.enable_file_deletions().unwrap();
        copy
    }
}

/// Waits until the thread that deletes has emptied a directory.
pub fn wait_until_empty(directory: &Path) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while fs::read_dir(directory).unwrap().count() > 0 {
        assert!(Instant::now() < give_up, "something is left in {}", directory.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            // A file whose deletion was under way already is not part of the store any more.
            match fs::copy(entry.path(), target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

pub fn put(generation: u64, key: &[u8], record: Bytes) -> WriteOp {
    WriteOp::PutRecord {
        partition: PARTITION,
        generation: Generation(generation),
        key: Bytes::copy_from_slice(key),
        record,
    }
}

pub fn record(version: u64, value: &[u8]) -> Bytes {
    Record {
        version: Version(version),
        expires_at_ms: None,
        content_type: Some("text/plain".to_owned()),
        value: Bytes::copy_from_slice(value),
    }
    .encode()
}

pub fn replica_record(generation: u64) -> ReplicaRecord {
    let member = |replica, node| Member { replica: ReplicaId(replica), node: node_id(node) };
    ReplicaRecord {
        replica: ReplicaId(1),
        rank: 0,
        generation: Generation(generation),
        truncated: LogPosition { index: LogIndex(10), term: Term(1) },
        terms: Vec::new(),
        configuration: Configuration::of_voters(&[member(1, 1), member(2, 2), member(3, 3)]),
    }
}

pub fn progress(applied: u64) -> Progress {
    Progress {
        term: Term(1),
        vote: ReplicaId(1),
        commit: LogIndex(applied),
        applied: LogPosition { index: LogIndex(applied), term: Term(1) },
        state: PartitionState { version: Version(applied), clock_ms: 99 },
        log_bytes: 0,
    }
}

pub fn node_id(number: u128) -> NodeId {
    NodeId::from_u128(number)
}

pub fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    let mut entry = Entry::default();
    entry.set_index(index);
    entry.set_term(term);
    entry.set_data(Bytes::copy_from_slice(data));
    entry
}

pub fn append(entries: Vec<Entry>) -> WriteOp {
    WriteOp::Append { group: group(), entries }
}

/// A founding view of one node.
pub fn view(cluster: u128) -> Arc<ClusterState> {
    let founder = Registration {
        id: node_id(1),
        name: NodeName::parse("n1").unwrap(),
        zone: Zone::parse("a").unwrap(),
        weight: Weight::new(1).unwrap(),
        client_address: "127.0.0.1:7400".to_owned(),
        peer_address: "127.0.0.1:7401".to_owned(),
    };
    let founding = Founding {
        cluster: ClusterId(cluster),
        founders: vec![founder],
        partition_bits: PartitionBits::new(2).unwrap(),
        replication_factor: ReplicationFactor::new(3).unwrap(),
        vnodes_per_node: 4,
        policy: TokenPolicy::Random,
        now_ms: 1,
    };
    Arc::new(found(&founding).unwrap())
}

/// The files of a store with this extension, in order of their names.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// A generator that is the same each time; the tests need variety, not chance.
pub fn varied_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
