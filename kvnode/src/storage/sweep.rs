//! Giving back the space of data that will not be read any more.

use std::sync::atomic::Ordering;

use kvcore::Generation;
use placement::PartitionId;
use rocksdb::{BottommostLevelCompaction, CompactOptions};

use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family, KeyRange};

impl Database {
    /// Removes the data of one installation of a partition and gives its space back. Blocks for as
    /// long as the compaction of what is left at the range's edges takes; other compactions and all
    /// reads and writes go on.
    ///
    /// # Errors
    /// [`StorageError::Engine`]; the sweep may be repeated, and is when the node starts.
    pub fn sweep_generation(
        &self,
        partition: PartitionId,
        generation: Generation,
    ) -> Result<(), StorageError> {
        self.delete_generation(partition, generation)?;
        let KeyRange { from, to } = keys::data_range(partition, generation);
        let mut options = CompactOptions::default();
        // Automatic compactions are not held up by this one.
        options.set_exclusive_manual_compaction(false);
        // The deleted records are in the lowest level too; without this they would stay there.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.inner.db.compact_range_cf_opt(
            self.family(Family::Data),
            Some(from),
            Some(to),
            &options,
        );
        Ok(())
    }

    /// Makes the data of an installation unreadable, cheaply: whole files go at once, the rest is
    /// covered by a range deletion.
    pub(super) fn delete_generation(
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
