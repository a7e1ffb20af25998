//! The store as the core sees it.

use kvcore::storage::{Store, StoreError, WriteBatch, WriteOp};
use kvcore::{Generation, GroupId, LogIndex, Version, codec};
use placement::PartitionId;

use super::codec as stored;
use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family};

/// Up to this many entries are dropped one by one: a range deletion slows every later read of the
/// log down a little, until a compaction has taken it to the bottom.
const SINGLE_DELETES_MAX: u64 = 16;

/// The core's handle: one turn is one RocksDB batch, written without waiting for the disk.
pub struct StoreHandle {
    database: Database,
    /// Memory of the key and the value being added, used again for each.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl StoreHandle {
    /// A handle for the thread of the core.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, key: Vec::new(), value: Vec::new() }
    }

    fn add(&mut self, batch: &mut rocksdb::WriteBatch, op: WriteOp) {
        let data = self.database.family(Family::Data);
        let log = self.database.family(Family::Log);
        let meta = self.database.family(Family::Meta);
        match op {
            WriteOp::Append { group, entries } => {
                for entry in &entries {
                    stored::encode_entry_into(&mut self.value, entry);
                    let key = keys::log(group, LogIndex(entry.get_index()));
                    batch.put_cf(log, key, &self.value);
                }
            }
            WriteOp::DropEntries { group, from, to } => {
                if to.get().saturating_sub(from.get()) <= SINGLE_DELETES_MAX {
                    for index in from.get()..to.get() {
                        batch.delete_cf(log, keys::log(group, LogIndex(index)));
                    }
                } else {
                    let range = keys::log_range(group, from, to);
                    batch.delete_range_cf(log, range.from, range.to);
                }
            }
            WriteOp::Replica { group, record } => {
                batch.put_cf(meta, keys::replica(group), codec::encode(&record));
            }
            WriteOp::Progress { group, progress } => {
                batch.put_cf(meta, keys::progress(group), codec::encode(&progress));
            }
            WriteOp::Tombstone { group, replica } => {
                batch.delete_cf(meta, keys::replica(group));
                batch.delete_cf(meta, keys::progress(group));
                batch.put_cf(meta, keys::tombstone(group, replica), codec::encode(&()));
                if group == GroupId::CLUSTER {
                    batch.delete_cf(meta, keys::CLUSTER);
                }
                // What is left of the log must not become the tail of a later replica.
                let range = keys::log_of(group);
                batch.delete_range_cf(log, range.from, range.to);
            }
            WriteOp::PutRecord { partition, generation, key, record } => {
                keys::data_into(&mut self.key, partition, generation, &key);
                batch.put_cf(data, &self.key, &record);
            }
            WriteOp::DeleteRecord { partition, generation, key } => {
                keys::data_into(&mut self.key, partition, generation, &key);
                batch.delete_cf(data, &self.key);
            }
            WriteOp::Cluster { state } => {
                batch.put_cf(meta, keys::CLUSTER, codec::encode(&*state));
            }
            WriteOp::View { state } => {
                batch.put_cf(meta, keys::VIEW, codec::encode(&*state));
            }
        }
    }
}

impl Store for StoreHandle {
    fn version(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        let key = keys::data(partition, generation, key);
        self.database
            .get_record(&key)
            .and_then(|record| {
                let Some(record) = record else { return Ok(None) };
                stored::record_version(&record)
                    .map(Some)
                    .map_err(|source| StorageError::value(Family::Data, &key, source))
            })
            .map_err(|error| error.into_store_error("reading the version of a key"))
    }

    fn write(&mut self, batch: WriteBatch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut raw = rocksdb::WriteBatch::default();
        for op in batch.ops {
            self.add(&mut raw, op);
        }
        self.database.inner.db.write_opt(raw, &self.database.inner.write).map_err(|source| {
            StorageError::engine("writing a batch")(source).into_store_error("writing a batch")
        })
    }
}
