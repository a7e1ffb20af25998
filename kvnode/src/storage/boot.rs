//! What the node finds on its disk, and what it clears away, when it starts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kvcore::cluster::ClusterState;
use kvcore::event::BuiltSnapshot;
use kvcore::storage::{Boot, BootReplica, PartialCopy, Progress, ReplicaRecord};
use kvcore::{Generation, GroupId, LogIndex, ReplicaId};
use placement::PartitionId;
use raft::eraftpb::Entry;
use rocksdb::{IteratorMode, ReadOptions};

use super::codec;
use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family, MetaKey};
use super::read_point::scan_options;
use super::snapshot::{self, Header, SnapshotFile};

#[derive(Default)]
struct Meta {
    records: BTreeMap<GroupId, ReplicaRecord>,
    progress: BTreeMap<GroupId, Progress>,
    tombstones: Vec<(GroupId, ReplicaId)>,
    cluster: Option<Arc<ClusterState>>,
    view: Option<Arc<ClusterState>>,
}

/// Reads everything first and sweeps afterwards, so that a directory with a bad value stays as it is.
pub(super) fn collect(database: &Database) -> Result<Boot, StorageError> {
    let mut meta = read_meta(database)?;
    let generations = generations(database)?;
    let mut boot = Boot {
        replicas: Vec::with_capacity(meta.records.len()),
        tombstones: meta.tombstones,
        cluster: meta.cluster,
        view: meta.view,
        offers: Vec::new(),
        partial_copies: Vec::new(),
    };
    let mut current = BTreeMap::new();
    for (group, record) in meta.records {
        let Some(progress) = meta.progress.remove(&group) else {
            return Err(contradiction(group, "the replica has no progress"));
        };
        if boot.tombstones.contains(&(group, record.replica)) {
            return Err(contradiction(group, "the replica ended here and yet has a record"));
        }
        let mut generation_max = record.generation;
        if let Some(partition) = group.partition() {
            current.insert(partition, record.generation);
            let found = generations.get(&partition).and_then(|list| list.last());
            generation_max = generation_max.max(found.copied().unwrap_or_default());
        }
        let tail = read_tail(database, group, &record, &progress)?;
        boot.replicas.push(BootReplica { group, record, progress, tail, generation_max });
    }
    if let Some(&group) = meta.progress.keys().next() {
        return Err(contradiction(group, "there is progress of a replica without a record"));
    }

    for (partition, list) in generations {
        for generation in list {
            if current.get(&partition) != Some(&generation) {
                tracing::info!(%partition, %generation, "sweeping data that is not current");
                database.delete_generation_first(partition, generation)?;
            }
        }
    }
    for (group, _) in &boot.tombstones {
        if !boot.replicas.iter().any(|replica| replica.group == *group) {
            database.reclaim_log(*group);
        }
    }
    Ok(boot)
}

/// Finds the files of copies that go on, in either direction, and deletes all others.
pub(super) fn collect_copies(database: &Database, boot: &mut Boot) -> io::Result<()> {
    boot.offers = collect_offers(database, &boot.replicas)?;
    boot.partial_copies = collect_partial(database, &boot.replicas)?;
    Ok(())
}

fn replica_of(replicas: &[BootReplica], group: GroupId) -> Option<&BootReplica> {
    replicas.iter().find(|replica| replica.group == group)
}

/// The newest snapshot file of each replica here whose log goes on from it.
fn collect_offers(
    database: &Database,
    replicas: &[BootReplica],
) -> io::Result<Vec<(GroupId, BuiltSnapshot)>> {
    let mut offers: BTreeMap<GroupId, BuiltSnapshot> = BTreeMap::new();
    let mut useless = Vec::new();
    // In order of their ids, so that a later file takes the place of an earlier one.
    for SnapshotFile { group, position, manifest } in database.snapshots().list()? {
        let covered = replica_of(replicas, group)
            .is_some_and(|replica| position.index >= replica.record.truncated.index);
        if covered {
            let earlier = offers.insert(group, BuiltSnapshot { position, manifest });
            useless.extend(earlier.map(|it| it.manifest.id));
        } else {
            useless.push(manifest.id);
        }
    }
    for id in useless {
        tracing::info!(%id, "deleting a snapshot file that nobody needs");
        database.snapshots().discard(id)?;
    }
    Ok(offers.into_iter().collect())
}

/// The latest copy that each replica here had begun to take.
fn collect_partial(database: &Database, replicas: &[BootReplica]) -> io::Result<Vec<PartialCopy>> {
    let mut partial: BTreeMap<GroupId, (PathBuf, PartialCopy)> = BTreeMap::new();
    let mut useless = Vec::new();
    for (path, header) in snapshot::list(database.path())? {
        let Some(Header { partition, generation, manifest }) = header else {
            useless.push(path);
            continue;
        };
        let group = GroupId::of_partition(partition);
        // A generation of which there was data is complete: it was swept, or it is current.
        let goes_on =
            replica_of(replicas, group).is_some_and(|replica| generation > replica.generation_max);
        let earlier = partial.get(&group).is_some_and(|(_, it)| it.generation > generation);
        if goes_on && !earlier {
            let copy = PartialCopy { group, generation, manifest };
            useless.extend(partial.insert(group, (path, copy)).map(|(path, _)| path));
        } else {
            useless.push(path);
        }
    }
    for path in useless {
        tracing::info!(path = %path.display(), "deleting a copy that will not go on");
        snapshot::discard(&path)?;
    }
    Ok(partial.into_values().map(|(_, copy)| copy).collect())
}

fn contradiction(group: GroupId, what: &str) -> StorageError {
    StorageError::contradiction(Family::Meta, &keys::replica(group), what.to_owned())
}

fn read_meta(database: &Database) -> Result<Meta, StorageError> {
    let mut meta = Meta::default();
    let iterator =
        database.inner.db.iterator_cf(database.family(Family::Meta), IteratorMode::Start);
    for item in iterator {
        let (key, value) = item.map_err(StorageError::engine("reading the node's state"))?;
        let parsed = keys::parse_meta(&key).ok_or_else(|| {
            StorageError::contradiction(Family::Meta, &key, "the key is unknown".to_owned())
        })?;
        match parsed {
            MetaKey::Identity | MetaKey::SnapshotId | MetaKey::AcceptedView => {}
            MetaKey::Cluster => meta.cluster = Some(Arc::new(codec::decode(&key, &value)?)),
            MetaKey::View => meta.view = Some(Arc::new(codec::decode(&key, &value)?)),
            MetaKey::Replica(group) => {
                meta.records.insert(group, codec::decode(&key, &value)?);
            }
            MetaKey::Progress(group) => {
                meta.progress.insert(group, codec::decode(&key, &value)?);
            }
            MetaKey::Tombstone(group, replica) => meta.tombstones.push((group, replica)),
        }
    }
    Ok(meta)
}

/// The entries after the applied one. The log has no hole: raft-rs would panic on one, or worse.
fn read_tail(
    database: &Database,
    group: GroupId,
    record: &ReplicaRecord,
    progress: &Progress,
) -> Result<Vec<Entry>, StorageError> {
    if progress.commit < progress.applied.index || progress.applied.index < record.truncated.index {
        return Err(contradiction(
            group,
            "truncated, applied and committed index are out of order",
        ));
    }
    let first = progress.applied.index.next();
    let range = keys::log_range(group, first, LogIndex(u64::MAX));
    let mut iterator =
        database.inner.db.raw_iterator_cf_opt(database.family(Family::Log), scan_options(range));
    iterator.seek_to_first();
    let mut tail: Vec<Entry> = Vec::new();
    let mut expected = first;
    let mut term = progress.applied.term.get();
    while let Some((key, value)) = iterator.item() {
        let index = parse_index(key)?;
        let entry = codec::decode_entry(group, index, value)?;
        if index != expected || entry.get_term() < term {
            let what = format!(
                "the log goes on with index {index}, term {} after index {}, term {term}",
                entry.get_term(),
                expected.get() - 1,
            );
            return Err(StorageError::contradiction(Family::Log, key, what));
        }
        term = entry.get_term();
        expected = index.next();
        tail.push(entry);
        iterator.next();
    }
    iterator.status().map_err(StorageError::engine("reading the log"))?;
    if expected <= progress.commit {
        let what = format!("the log ends before the committed index {}", progress.commit);
        return Err(StorageError::contradiction(Family::Log, &keys::log(group, expected), what));
    }
    Ok(tail)
}

pub(super) fn parse_index(key: &[u8]) -> Result<LogIndex, StorageError> {
    keys::parse_log(key).map(|(_, index)| index).ok_or_else(|| {
        StorageError::contradiction(Family::Log, key, "the key is none of a log".to_owned())
    })
}

/// The generations of which there is data, in order, found by one seek for each.
fn generations(
    database: &Database,
) -> Result<BTreeMap<PartitionId, Vec<Generation>>, StorageError> {
    let mut found: BTreeMap<PartitionId, Vec<Generation>> = BTreeMap::new();
    let family = database.family(Family::Data);
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    let mut iterator = database.inner.db.raw_iterator_cf_opt(family, options);
    iterator.seek_to_first();
    while let Some(key) = iterator.key() {
        let Some((partition, generation, _)) = keys::parse_data(key) else {
            let what = "the key is none of a record".to_owned();
            return Err(StorageError::contradiction(Family::Data, key, what));
        };
        found.entry(partition).or_default().push(generation);
        iterator.seek(keys::data_successor(partition, generation));
    }
    iterator.status().map_err(StorageError::engine("listing the data"))?;
    Ok(found)
}
