//! Giving back the space of data that will not be read any more.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use kvcore::{Generation, GroupId};
use placement::PartitionId;
use rocksdb::{BottommostLevelCompaction, CompactOptions, Range};

use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family, KeyRange};
use super::read_point::look_options;
use super::snapshot;

/// What is left of a deleted range and not worth a compaction of its own: it goes with the next
/// ordinary one.
const LEFTOVER_BYTES_MAX: u64 = 1 << 20;

/// First and last key of a table file.
type Span = (Vec<u8>, Vec<u8>);

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
        self.reclaim_later(Family::Log, keys::log_of(group));
    }

    /// Gives the space back of what was deleted. Blocks for as long as the compaction of what is
    /// left takes. Stops between two compactions when `go_on` says no; the rest waits for the next
    /// call.
    pub fn reclaim_deleted(&self, mut go_on: impl FnMut() -> bool) {
        // What a read point still sees stays on disk; it is over soon.
        if self.is_read() {
            return;
        }
        let taken = std::mem::take(&mut *self.to_reclaim());
        let is_worth_it = |(family, range): &(Family, KeyRange)| {
            if *family == Family::Data {
                self.drop_files(range);
            }
            self.bytes_in_files(*family, range) > LEFTOVER_BYTES_MAX
        };
        let taken = taken.into_iter().filter(is_worth_it).collect();
        let mut left = Vec::new();
        for (family, range) in self.joined(taken) {
            match !self.is_read() && go_on() {
                true => self.compact(family, &range),
                false => left.push((family, range)),
            }
        }
        self.to_reclaim().extend(left);
    }

    /// Gives back all the space that there is to be had, also that of the write-ahead log, as a node
    /// does that has left: nothing else would do it while the node is not running.
    pub fn give_all_space_back(&self) {
        for family in Family::ALL {
            if let Err(error) = self.inner.db.flush_cf(self.family(family)) {
                tracing::warn!(%family, %error, "what is in memory cannot be written out");
            }
        }
        self.reclaim_deleted(|| true);
    }

    fn is_read(&self) -> bool {
        self.inner.read_points.load(Ordering::SeqCst) > 0
    }

    /// Deletes the files of a generation that somebody still read when it was deleted. They go without
    /// being read: a damaged one, which may be why its replica ended, would fail the compaction, and
    /// RocksDB takes no write after that. The number of a generation that was swept while the node
    /// runs is not used again until it stops.
    fn drop_files(&self, range: &KeyRange) {
        if self.bytes_in_files(Family::Data, range) > 0
            && let Err(error) = self.delete_data(range)
        {
            tracing::warn!(%error, "the space of deleted data cannot be given back yet");
        }
    }

    fn bytes_in_files(&self, family: Family, range: &KeyRange) -> u64 {
        let range = Range::new(&range.from, &range.to);
        let sizes = self.inner.db.get_approximate_sizes_cf(self.family(family), &[range]);
        sizes.first().copied().unwrap_or(0)
    }

    /// The ranges to compact, so that each table file is rewritten at most once.
    fn joined(&self, ranges: Vec<(Family, KeyRange)>) -> Vec<(Family, KeyRange)> {
        let files = self.inner.db.live_files().unwrap_or_else(|error| {
            tracing::debug!(%error, "the table files cannot be listed");
            Vec::new()
        });
        let mut joined = Vec::new();
        for family in Family::ALL {
            let of_family = ranges.iter().filter(|(of, _)| *of == family);
            let of_family: Vec<KeyRange> = of_family.map(|(_, range)| range.clone()).collect();
            let spans: Vec<Span> = files
                .iter()
                .filter(|file| file.column_family_name == family.name())
                .filter_map(|file| Some((file.start_key.clone()?, file.end_key.clone()?)))
                .collect();
            joined.extend(join(of_family, &spans).into_iter().map(|range| (family, range)));
        }
        joined
    }

    fn to_reclaim(&self) -> MutexGuard<'_, Vec<(Family, KeyRange)>> {
        self.inner.to_reclaim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is space to be given back.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        !self.to_reclaim().is_empty()
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
        // Most installations follow one that never held a record.
        if self.has_records(&range) {
            self.delete_data(&range)?;
            self.reclaim_later(Family::Data, range);
        }
        Ok(())
    }

    fn reclaim_later(&self, family: Family, range: KeyRange) {
        self.to_reclaim().push((family, range));
    }

    /// Whether there is a record, or damage where the first one should be.
    fn has_records(&self, range: &KeyRange) -> bool {
        let options = look_options(range.clone());
        let mut iterator = self.inner.db.raw_iterator_cf_opt(self.family(Family::Data), options);
        iterator.seek_to_first();
        iterator.valid() || iterator.status().is_err()
    }

    /// Makes the data of an installation unreadable, cheaply: whole files go at once, the rest is
    /// covered by a range deletion.
    fn delete_data(&self, range: &KeyRange) -> Result<(), StorageError> {
        let KeyRange { from, to } = range;
        let data = self.family(Family::Data);
        // In this order: a file that goes may hold the deletion of records in a lower level, so the
        // range deletion has to be newer than the removal of files.
        // And only while nobody reads an older state: files go without regard to snapshots. A read
        // point that is taken after this look knows that the generation is not current.
        if !self.is_read() {
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
            .map_err(StorageError::engine("deleting a generation"))
    }
}

/// Joins neighbouring ranges that have part in the same file: compacted one by one, each of them
/// would rewrite it. What lies between two ranges that are joined is in that file as well.
fn join(mut ranges: Vec<KeyRange>, files: &[Span]) -> Vec<KeyRange> {
    ranges.sort_by(|one, other| one.from.cmp(&other.from));
    let mut joined: Vec<KeyRange> = Vec::new();
    for range in ranges {
        let shares_a_file = |before: &KeyRange| {
            files.iter().any(|(first, last)| *first < before.to && *last >= range.from)
        };
        match joined.last_mut() {
            Some(before) if range.from <= before.to || shares_a_file(before) => {
                before.to = range.to.max(std::mem::take(&mut before.to));
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u8, to: u8) -> KeyRange {
        KeyRange { from: vec![from], to: vec![to] }
    }

    #[test]
    fn ranges_with_part_in_the_same_file_are_compacted_as_one() {
        let files = [(vec![0], vec![25]), (vec![26], vec![49]), (vec![50], vec![99])];
        let ranges = vec![range(60, 70), range(10, 12), range(30, 32), range(20, 22)];
        let expected = vec![range(10, 22), range(30, 32), range(60, 70)];
        assert_eq!(join(ranges, &files), expected);
    }

    #[test]
    fn ranges_that_touch_or_repeat_are_one_and_others_stay() {
        let ranges = vec![range(1, 2), range(2, 3), range(2, 3), range(4, 5)];
        assert_eq!(join(ranges, &[]), vec![range(1, 3), range(4, 5)]);
        assert_eq!(join(Vec::new(), &[]), Vec::new());
    }
}
