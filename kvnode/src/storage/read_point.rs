//! A consistent view of the store that outlives the call it was taken in.
//!
//! RocksDB's snapshots borrow the store. A verification takes its snapshot on the core's thread, at
//! exactly one applied index, and reads it on another; so the snapshot has to be owned. This is the
//! one place of the node with `unsafe` code.

use kvcore::GroupId;
use std::sync::atomic::Ordering;

use kvcore::storage::{Progress, ReplicaRecord};
use rocksdb::{DBRawIterator, ReadOptions, Snapshot};

use super::codec;
use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family, KeyRange};

/// The store as it was at one point of its history. Holding one keeps old versions on disk, so it
/// is held for one scan and dropped.
pub struct ReadPoint {
    // Declared before the handle, so that it is released while the store is still open.
    snapshot: Snapshot<'static>,
    database: Database,
}

impl std::fmt::Debug for ReadPoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ReadPoint")
    }
}

impl Drop for ReadPoint {
    fn drop(&mut self) {
        self.database.inner.read_points.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ReadPoint {
    #[expect(unsafe_code, reason = "an owned snapshot needs the lifetime of its store erased")]
    pub(super) fn new(database: &Database) -> Self {
        let snapshot: Snapshot<'_> = database.inner.db.snapshot();
        // SAFETY: the snapshot borrows `Inner::db`, which stays at its address behind the `Arc` that
        // `database` holds. The handle is in the same struct, is never replaced, and is dropped after
        // the snapshot because it is declared after it. The snapshot is private and everything read
        // through it borrows `self`, so that no `'static` borrow leaves this module.
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        database.inner.read_points.fetch_add(1, Ordering::SeqCst);
        Self { snapshot, database: database.clone() }
    }

    /// Record and progress of a group's replica, from the same point; `None` if it is not here.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read or only one of them is there.
    pub fn replica(
        &self,
        group: GroupId,
    ) -> Result<Option<(ReplicaRecord, Progress)>, StorageError> {
        let record_key = keys::replica(group);
        let progress_key = keys::progress(group);
        let record = self.get_meta(&record_key)?;
        let progress = self.get_meta(&progress_key)?;
        match (record, progress) {
            (Some(record), Some(progress)) => Ok(Some((
                codec::decode(&record_key, &record)?,
                codec::decode(&progress_key, &progress)?,
            ))),
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => Err(StorageError::contradiction(
                Family::Meta,
                &record_key,
                "record and progress of a replica are not both there".to_owned(),
            )),
        }
    }

    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.snapshot
            .get_cf(self.database.family(Family::Meta), key)
            .map_err(StorageError::engine("reading a replica's state"))
    }

    /// Walks over a range without filling the block cache with it.
    pub(super) fn scan(&self, family: Family, range: KeyRange) -> DBRawIterator<'_> {
        let mut iterator =
            self.snapshot.raw_iterator_cf_opt(self.database.family(family), scan_options(range));
        iterator.seek_to_first();
        iterator
    }
}

/// Options of a walk over a whole range: bounded, read ahead, past the block cache.
pub(super) fn scan_options(range: KeyRange) -> ReadOptions {
    /// Reads ahead enough for a disk to stream, little enough to hold for each scan.
    const READAHEAD_BYTES: usize = 1 << 20;
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(range.from);
    options.set_iterate_upper_bound(range.to);
    options.fill_cache(false);
    options.set_readahead_size(READAHEAD_BYTES);
    options
}

/// Options of a look at the first record of a range.
pub(super) fn look_options(range: KeyRange) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(range.from);
    options.set_iterate_upper_bound(range.to);
    options.fill_cache(false);
    options
}
