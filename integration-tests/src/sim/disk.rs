//! A node's disk in memory: what the process sees, and what a power failure would leave.
//!
//! Batches take effect at once for the process and become durable, in order, with the next
//! completed sync. A power failure keeps the durable state and a random prefix of the batches that
//! came after it: the suffix that is lost never has a hole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use kvcore::cluster::ClusterState;
use kvcore::event::BuiltSnapshot;
use kvcore::message::SnapshotManifest;
use kvcore::storage::{
    Boot, BootReplica, PartialCopy, Progress, ReplicaRecord, Store, StoreError, WriteBatch, WriteOp,
};
use kvcore::store::{
    Digest, DigestBuilder, PartitionDigest, PartitionDigestBuilder, PartitionState, Record,
};
use kvcore::{Generation, GroupId, LogIndex, ReplicaId, SnapshotId, Version};
use placement::{PartitionBits, PartitionId};
use raft::eraftpb::Entry;

use super::node::File;

/// Records of one installation of a partition, in key order.
pub type Records = BTreeMap<Bytes, Bytes>;

/// One replica on disk.
#[derive(Clone, Debug)]
pub struct ReplicaTable {
    /// What changes seldom.
    pub record: ReplicaRecord,
    /// What changes with every entry.
    pub progress: Progress,
}

/// Everything a disk holds at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The replicas.
    pub replicas: BTreeMap<GroupId, ReplicaTable>,
    /// The logs.
    pub log: BTreeMap<(GroupId, u64), Entry>,
    /// The data.
    pub data: BTreeMap<(PartitionId, Generation), Records>,
    /// Replicas that ended here.
    pub tombstones: BTreeSet<(GroupId, ReplicaId)>,
    /// Group 0's state machine.
    pub cluster: Option<Arc<ClusterState>>,
    /// The last verified view.
    pub view: Option<Arc<ClusterState>>,
    /// Progress written before its record, within one batch.
    early: BTreeMap<GroupId, Progress>,
}

impl Tables {
    fn apply(&mut self, op: &WriteOp, dropped: &mut Vec<(GroupId, Entry)>) {
        match op {
            WriteOp::Append { group, entries } => {
                for entry in entries {
                    self.log.insert((*group, entry.index), entry.clone());
                }
            }
            WriteOp::DropEntries { group, from, to } => {
                for index in from.get()..to.get() {
                    dropped.extend(self.log.remove(&(*group, index)).map(|it| (*group, it)));
                }
            }
            WriteOp::Replica { group, record } => {
                let progress = self.early.remove(group);
                let table = self.replicas.entry(*group).or_insert_with(|| ReplicaTable {
                    record: record.clone(),
                    progress: progress.unwrap_or_default(),
                });
                table.record = record.clone();
            }
            WriteOp::Progress { group, progress } => match self.replicas.get_mut(group) {
                Some(table) => table.progress = *progress,
                None => {
                    self.early.insert(*group, *progress);
                }
            },
            WriteOp::Tombstone { group, replica } => {
                self.replicas.remove(group);
                self.early.remove(group);
                self.log.retain(|(of, _), _| of != group);
                if *group == GroupId::CLUSTER {
                    self.cluster = None;
                }
                self.tombstones.insert((*group, *replica));
            }
            WriteOp::PutRecord { partition, generation, key, record } => {
                let records = self.data.entry((*partition, *generation)).or_default();
                records.insert(key.clone(), record.clone());
            }
            WriteOp::DeleteRecord { partition, generation, key } => {
                if let Some(records) = self.data.get_mut(&(*partition, *generation)) {
                    records.remove(key);
                }
            }
            WriteOp::Cluster { state } => self.cluster = Some(Arc::clone(state)),
            WriteOp::View { state } => self.view = Some(Arc::clone(state)),
        }
    }

    /// The records that are current in a partition; `None` without a replica of it.
    #[must_use]
    pub fn current(&self, partition: PartitionId) -> Option<(Generation, Records)> {
        let table = self.replicas.get(&GroupId::of_partition(partition))?;
        let generation = table.record.generation;
        Some((generation, self.data.get(&(partition, generation)).cloned().unwrap_or_default()))
    }

    /// Digest of a partition's whole replicated state; `None` without a replica of it.
    #[must_use]
    pub fn digest(&self, partition: PartitionId) -> Option<Digest> {
        let table = self.replicas.get(&GroupId::of_partition(partition))?;
        let mut digest = DigestBuilder::default();
        if let Some(records) = self.data.get(&(partition, table.record.generation)) {
            for (key, record) in records {
                digest.add(key, record);
            }
        }
        Some(digest.finish(&table.progress.state))
    }

    /// Whether a replica holds the entry at a place in the log, or has gone beyond it.
    #[must_use]
    pub fn holds(&self, group: GroupId, replica: ReplicaId, index: u64, term: u64) -> bool {
        let Some(table) = self.replicas.get(&group) else { return false };
        table.record.replica == replica
            && (table.progress.applied.index.get() >= index
                || table.record.truncated.index.get() >= index
                || self.log.get(&(group, index)).is_some_and(|entry| entry.term == term))
    }
}

/// A node's disk.
#[derive(Debug, Default)]
pub struct Disk {
    visible: Tables,
    durable: Tables,
    pending: VecDeque<WriteBatch>,
    durable_batches: u64,
    /// Snapshot files; durable from the moment they are whole.
    pub files: BTreeMap<SnapshotId, File>,
    /// Copies that are under way into generations of their own, each with the number of chunks that
    /// are here; a chunk is durable when it is counted.
    pub partial: BTreeMap<(GroupId, Generation), (SnapshotManifest, u32)>,
    /// Entries dropped since the last look, the latest for each place.
    attic: BTreeMap<(GroupId, u64), Entry>,
}

impl Disk {
    /// What the process sees.
    #[must_use]
    pub fn visible(&self) -> &Tables {
        &self.visible
    }

    /// What a power failure leaves for certain.
    #[must_use]
    pub fn durable(&self) -> &Tables {
        &self.durable
    }

    /// Batches written over the disk's whole life: what a sync that starts now makes durable.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.durable_batches + self.pending.len() as u64
    }

    /// A sync is complete that covers this many batches.
    pub fn synced(&mut self, through: u64) {
        while self.durable_batches < through {
            let Some(batch) = self.pending.pop_front() else { break };
            self.make_durable(&batch);
        }
    }

    fn make_durable(&mut self, batch: &WriteBatch) {
        let mut dropped = Vec::new();
        for op in &batch.ops {
            self.durable.apply(op, &mut dropped);
        }
        self.durable_batches += 1;
    }

    /// Batches that a power failure could lose.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// The process ended. `kept` of the batches that were not durable survive; all of them unless
    /// the power failed. Returns whether anything was lost.
    pub fn crash(&mut self, kept: usize) -> bool {
        let kept = kept.min(self.pending.len());
        let kept_batches: Vec<WriteBatch> = self.pending.drain(..kept).collect();
        for batch in &kept_batches {
            self.make_durable(batch);
        }
        let lost = !self.pending.is_empty();
        // The lost batches count as written, so that marks of old syncs stay in the past.
        self.durable_batches += self.pending.len() as u64;
        self.pending.clear();
        self.attic.clear();
        self.visible = self.durable.clone();
        lost
    }

    /// The disk is lost.
    pub fn wipe(&mut self) {
        *self = Self::default();
    }

    /// What a node finds when it starts. Generations that are neither current nor being copied into
    /// are swept first, as a real node does before it opens its groups, and files of replicas that
    /// ended go.
    pub fn boot(&mut self) -> Boot {
        let replicas = &self.visible.replicas;
        self.files.retain(|_, file| replicas.contains_key(&file.group));
        self.partial.retain(|(group, generation), _| {
            replicas.get(group).is_some_and(|it| *generation > it.record.generation)
        });
        let partial = &self.partial;
        for tables in [&mut self.visible, &mut self.durable] {
            let Tables { replicas, data, .. } = tables;
            data.retain(|(partition, generation), _| {
                let table = replicas.get(&GroupId::of_partition(*partition));
                table.is_some_and(|it| it.record.generation == *generation)
                    || partial.contains_key(&(GroupId::of_partition(*partition), *generation))
            });
        }
        let tables = &self.visible;
        let replicas = tables.replicas.iter().map(|(group, table)| {
            let after = table.progress.applied.index.get() + 1;
            let tail = tables.log.range((*group, after)..=(*group, u64::MAX));
            BootReplica {
                group: *group,
                record: table.record.clone(),
                progress: table.progress,
                tail: tail.map(|(_, entry)| entry.clone()).collect(),
                generation_max: table.record.generation,
            }
        });
        Boot {
            replicas: replicas.collect(),
            tombstones: tables.tombstones.iter().copied().collect(),
            cluster: tables.cluster.clone(),
            view: tables.view.clone(),
            offers: self.files.values().map(offer).collect(),
            partial_copies: self.partial.iter().map(partial_copy).collect(),
        }
    }

    /// Puts a file of records into a generation; it is durable at once, like an ingested file.
    pub fn ingest(&mut self, partition: PartitionId, generation: Generation, file: &Records) {
        for tables in [&mut self.visible, &mut self.durable] {
            let records = tables.data.entry((partition, generation)).or_default();
            records.extend(file.iter().map(|(key, record)| (key.clone(), record.clone())));
        }
    }

    /// Removes a generation. Returns false if it is in use, now or after a power failure.
    pub fn sweep(&mut self, partition: PartitionId, generation: Generation) -> bool {
        let group = GroupId::of_partition(partition);
        let used = |tables: &Tables| {
            tables.replicas.get(&group).is_some_and(|it| it.record.generation == generation)
        };
        if used(&self.visible) || used(&self.durable) {
            return false;
        }
        self.partial.remove(&(group, generation));
        self.visible.data.remove(&(partition, generation));
        self.durable.data.remove(&(partition, generation));
        true
    }

    /// Digest of one installation of a partition, as the process sees it now.
    #[must_use]
    pub fn partition_digest(
        &self,
        partition: PartitionId,
        generation: Generation,
        state: &PartitionState,
        bits: PartitionBits,
    ) -> PartitionDigest {
        let mut digest = PartitionDigestBuilder::new(partition, bits);
        for (key, record) in self.visible.data.get(&(partition, generation)).into_iter().flatten() {
            digest.add(key, record);
        }
        digest.finish(state)
    }

    /// Entries of a log.
    #[must_use]
    pub fn entries(
        &self,
        group: GroupId,
        low: LogIndex,
        high: LogIndex,
        bytes_max: u64,
    ) -> Vec<Entry> {
        let mut bytes = 0;
        let mut taken = Vec::new();
        for (place, (_, entry)) in
            self.visible.log.range((group, low.get())..(group, high.get())).enumerate()
        {
            bytes += entry.data.len() as u64;
            if entry.index != low.get() + place as u64 || (bytes > bytes_max && place > 0) {
                break;
            }
            taken.push(entry.clone());
        }
        taken
    }

    /// An entry of the log, even if it was dropped since [`Disk::clear_attic`].
    #[must_use]
    pub fn entry(&self, group: GroupId, index: u64) -> Option<&Entry> {
        self.visible.log.get(&(group, index)).or_else(|| self.attic.get(&(group, index)))
    }

    /// Forgets the entries that were dropped.
    pub fn clear_attic(&mut self) {
        self.attic.clear();
    }
}

fn offer(file: &File) -> (GroupId, BuiltSnapshot) {
    (file.group, BuiltSnapshot { position: file.position, manifest: file.manifest.clone() })
}

fn partial_copy(
    ((group, generation), (manifest, _)): (&(GroupId, Generation), &(SnapshotManifest, u32)),
) -> PartialCopy {
    PartialCopy { group: *group, generation: *generation, manifest: manifest.clone() }
}

impl Store for Disk {
    fn version(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        let records = self.visible.data.get(&(partition, generation));
        let Some(bytes) = records.and_then(|records| records.get(key)) else { return Ok(None) };
        Record::decode(bytes.clone())
            .map(|record| Some(record.version))
            .map_err(|error| StoreError { what: "reading a record", reason: error.to_string() })
    }

    fn write(&mut self, batch: WriteBatch) -> Result<(), StoreError> {
        let mut dropped = Vec::new();
        for op in &batch.ops {
            self.visible.apply(op, &mut dropped);
        }
        self.attic.extend(dropped.into_iter().map(|(group, it)| ((group, it.index), it)));
        self.pending.push_back(batch);
        Ok(())
    }
}
