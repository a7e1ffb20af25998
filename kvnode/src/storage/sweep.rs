//! Giving back the space of data that will not be read any more.

use std::sync::atomic::Ordering;

use kvcore::{Generation, GroupId};
use placement::PartitionId;
use rocksdb::{BottommostLevelCompaction, CompactOptions};

use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family, KeyRange};
use super::snapshot;

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
        {
            let _held = self.incoming_lock();
            let directory = snapshot::directory_of(self.path(), partition, generation);
            // What cannot be deleted now is when the node starts.
            if let Err(error) = snapshot::discard(&directory) {
                tracing::warn!(directory = %directory.display(), %error, "incoming files are left");
            }
        }
        self.delete_generation(partition, generation)?;
        self.compact(Family::Data, &keys::data_range(partition, generation));
        Ok(())
    }

    /// Gives the space of an ended replica's log back. Blocks as [`Database::sweep_generation`].
    pub fn reclaim_log(&self, group: GroupId) {
        // Not by removing whole files: a later replica of the group may have written there already.
        self.compact(Family::Log, &keys::log_of(group));
    }

    /// Gives the space back of what was found to be of no use when the store was opened. Stops
    /// between two ranges when `go_on` says no; what is left is reclaimed by later compactions.
    pub fn reclaim_deleted(&self, mut go_on: impl FnMut() -> bool) {
        let next = || {
            let mut ranges =
                self.inner.to_compact.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            ranges.pop()
        };
        while go_on()
            && let Some((family, range)) = next()
        {
            self.compact(family, &range);
        }
    }

    fn compact(&self, family: Family, range: &KeyRange) {
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

    /// As [`Database::delete_generation`]; the space is given back by [`Database::reclaim_deleted`].
    pub(super) fn delete_generation_first(
        &self,
        partition: PartitionId,
        generation: Generation,
    ) -> Result<(), StorageError> {
        self.delete_generation(partition, generation)?;
        self.reclaim_later(Family::Data, keys::data_range(partition, generation));
        Ok(())
    }

    pub(super) fn reclaim_later(&self, family: Family, range: KeyRange) {
        let ranges = self.inner.to_compact.lock();
        ranges.unwrap_or_else(|poisoned| poisoned.into_inner()).push((family, range));
    }

    /// Makes the data of an installation unreadable, cheaply: whole files go at once, the rest is
    /// covered by a range deletion.
    fn delete_generation(
        &self,
        partition: PartitionId,
        generation: Generation,
    ) -> Result<(), StorageError> {
        let KeyRange { from, to } = keys::data_range(partition, generation);
        let data = self.family(Family::Data);
        // In this order: a file that goes may hold the deletion of records in a lower level, so the
        // range deletion has to be newer than the removal of files.
        // And only while nobody reads an older state: files go without regard to snapshots. A read
        // point that is taken after this look knows that the generation is not current.
        if self.inner.read_points.load(Ordering::SeqCst) == 0 {
            self.inner
                .db
                .delete_file_in_range_cf(data, &from, &to)
                .map_err(StorageError::engine("removing the files of a generation"))?;
        }
        let mut batch = rocksdb::WriteBatch::default();
        batch.delete_range_cf(data, from, to);
        self.inner
            .db
            .write_opt(batch, &self.inner.write)
            .map_err(StorageError::engine("deleting a generation"))
    }
}
