//! Giving back the space of data that will not be read any more.

use std::sync::atomic::Ordering;

use kvcore::{Generation, GroupId};
use placement::PartitionId;
use rocksdb::{BottommostLevelCompaction, CompactOptions};

use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family, KeyRange};
use super::snapshot;

/// A range that was deleted.
#[derive(Clone, Debug)]
pub(super) struct Deleted {
    family: Family,
    range: KeyRange,
    /// Somebody read an older state when it was deleted, so its files are still there.
    files_are_left: bool,
}

impl Database {
    /// Removes the data of one installation of a partition, and what a copy into it kept, and gives
    /// the space back. Blocks for as long as the compaction of what is left at the range's edges
    /// takes; other compactions and all reads and writes go on.
    ///
    /// # Errors
    /// [`StorageError`]; the sweep may be repeated, and is when the node starts.
    pub fn sweep_generation(
        &self,
        partition: PartitionId,
        generation: Generation,
    ) -> Result<(), StorageError> {
        self.delete_generation_first(partition, generation)?;
        self.reclaim_deleted(|| true);
        Ok(())
    }

    /// Gives the space of an ended replica's log back with the next [`Database::reclaim_deleted`].
    pub fn reclaim_log(&self, group: GroupId) {
        let (family, range) = (Family::Log, keys::log_of(group));
        self.reclaim_later(Deleted { family, range, files_are_left: false });
    }

    /// Gives the space back of what was deleted. Blocks for as long as the compaction of what is
    /// left takes. Stops between two ranges when `go_on` says no; the rest waits for the next call.
    pub fn reclaim_deleted(&self, mut go_on: impl FnMut() -> bool) {
        let next = || {
            let mut ranges =
                self.inner.to_reclaim.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            ranges.pop()
        };
        // What a read point still sees stays on disk; it is over soon.
        let is_read = || self.inner.read_points.load(Ordering::SeqCst) > 0;
        while !is_read()
            && go_on()
            && let Some(deleted) = next()
        {
            self.reclaim(deleted);
        }
    }

    fn reclaim(&self, deleted: Deleted) {
        if deleted.files_are_left {
            // They go without being read: a damaged one, which may be why its replica ended, would
            // fail the compaction, and RocksDB takes no write after that. The number of a generation
            // that was swept while the node runs is not used again until it stops.
            match self.delete_data(&deleted.range) {
                Ok(true) => {}
                Ok(false) => return self.reclaim_later(deleted),
                Err(error) => {
                    tracing::warn!(%error, "the space of deleted data cannot be given back");
                    return;
                }
            }
        }
        self.compact(deleted.family, &deleted.range);
    }

    /// Whether there is space to be given back.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        let ranges = self.inner.to_reclaim.lock();
        !ranges.unwrap_or_else(|poisoned| poisoned.into_inner()).is_empty()
    }

    fn compact(&self, family: Family, range: &KeyRange) {
        // Of a log, whole files must not go: a later replica of its group may have written there.
        let mut options = CompactOptions::default();
        // Automatic compactions are not held up by this one.
        options.set_exclusive_manual_compaction(false);
        // The deleted records are in the lowest level too; without this they would stay there.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.inner.db.compact_range_cf_opt(
            self.family(family),
            Some(&range.from),
            Some(&range.to),
            &options,
        );
    }

    /// Removes the data of one installation of a partition, and what a copy into it kept; cheap. The
    /// space is given back by [`Database::reclaim_deleted`].
    ///
    /// # Errors
    /// As [`Database::sweep_generation`].
    pub fn delete_generation_first(
        &self,
        partition: PartitionId,
        generation: Generation,
    ) -> Result<(), StorageError> {
        {
            let _held = self.incoming_lock();
            let directory = snapshot::directory_of(self.path(), partition, generation);
            // What cannot be deleted now is when the node starts.
            if let Err(error) = snapshot::discard(&directory) {
                tracing::warn!(directory = %directory.display(), %error, "incoming files are left");
            }
        }
        let range = keys::data_range(partition, generation);
        let files_are_left = !self.delete_data(&range)?;
        self.reclaim_later(Deleted { family: Family::Data, range, files_are_left });
        Ok(())
    }

    fn reclaim_later(&self, deleted: Deleted) {
        let ranges = self.inner.to_reclaim.lock();
        ranges.unwrap_or_else(|poisoned| poisoned.into_inner()).push(deleted);
    }

    /// Makes the data of an installation unreadable, cheaply: whole files go at once, the rest is
    /// covered by a range deletion. Returns whether the files went.
    fn delete_data(&self, range: &KeyRange) -> Result<bool, StorageError> {
        let KeyRange { from, to } = range;
        let data = self.family(Family::Data);
        // In this order: a file that goes may hold the deletion of records in a lower level, so the
        // range deletion has to be newer than the removal of files.
        // And only while nobody reads an older state: files go without regard to snapshots. A read
        // point that is taken after this look knows that the generation is not current.
        let is_unread = self.inner.read_points.load(Ordering::SeqCst) == 0;
        if is_unread {
            self.inner
                .db
                .delete_file_in_range_cf(data, from, to)
                .map_err(StorageError::engine("removing the files of a generation"))?;
        }
        let mut batch = rocksdb::WriteBatch::default();
        batch.delete_range_cf(data, from, to);
        self.inner
            .db
            .write_opt(batch, &self.inner.write)
            .map_err(StorageError::engine("deleting a generation"))?;
        Ok(is_unread)
    }
}
