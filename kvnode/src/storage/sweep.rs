//! Giving back the space of data that will not be read any more.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

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
/// How long a node that has left waits for its files to go.
const TRASH_PATIENCE: Duration = Duration::from_secs(60);

/// First and last key of a table file.
type Span = (Vec<u8>, Vec<u8>);

/// A range that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deleted {
    family: Family,
    range: KeyRange,
    /// Somebody read an older state when it was deleted, so its files are still there.
    has_files: bool,
}

/// Deleted ranges that are compacted as one.
#[derive(Debug, PartialEq, Eq)]
struct Joined {
    family: Family,
    /// From the first to the last of them, with what lies in between and was not deleted.
    span: KeyRange,
    ranges: Vec<Deleted>,
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
        self.reclaim_later(Deleted { family, range, has_files: false });
    }

    /// Gives the space back of what was deleted. Blocks for as long as the compaction of what is
    /// left takes. Stops between two compactions when `go_on` says no; the rest waits for the next
    /// call.
    pub fn reclaim_deleted(&self, mut go_on: impl FnMut() -> bool) {
        // What a read point still sees stays on disk; it is over soon.
        if self.is_read() {
            return;
        }
        let mut taken = std::mem::take(&mut *self.to_reclaim());
        for deleted in taken.iter_mut().filter(|deleted| deleted.has_files) {
            self.drop_files(deleted);
        }
        taken.retain(|deleted| self.bytes_in_files(deleted) > LEFTOVER_BYTES_MAX);
        for joined in self.joined(taken) {
            match !self.is_read() && go_on() {
                true => self.compact(&joined),
                // As they were deleted: what lies between joined ranges was not.
                false => self.to_reclaim().extend(joined.ranges),
            }
        }
    }

    /// Gives back all the space that there is to be had, also that of the write-ahead log, as a node
    /// does that has left: nothing else would do it while the node is not running.
    pub fn give_all_space_back(&self) {
        self.reclaim_deleted(|| true);
        for family in Family::ALL {
            let handle = self.family(family);
            if let Err(error) = self.inner.db.flush_cf(handle) {
                tracing::warn!(%family, %error, "what is in memory cannot be written out");
            }
            // Little is left there, in the files of level 0.
            self.inner.db.compact_range_cf(handle, None::<&[u8]>, None::<&[u8]>);
        }
        self.inner.trash.empty(TRASH_PATIENCE);
    }

    fn is_read(&self) -> bool {
        self.inner.read_points.load(Ordering::SeqCst) > 0
    }

    /// Deletes the files of a generation that somebody still read when it was deleted. They go without
    /// being read: a damaged one, which may be why its replica ended, would fail the compaction, and
    /// RocksDB takes no write after that. The number of a generation that was swept while the node
    /// runs is not used again until it stops.
    fn drop_files(&self, deleted: &mut Deleted) {
        match self.delete_data(&deleted.range) {
            Ok(files_went) => deleted.has_files = !files_went,
            Err(error) => tracing::warn!(%error, "the files of deleted data cannot be removed"),
        }
    }

    fn bytes_in_files(&self, deleted: &Deleted) -> u64 {
        let range = Range::new(&deleted.range.from, &deleted.range.to);
        let sizes = self.inner.db.get_approximate_sizes_cf(self.family(deleted.family), &[range]);
        sizes.first().copied().unwrap_or(0)
    }

    /// What to compact, so that no table file is rewritten twice.
    fn joined(&self, deleted: Vec<Deleted>) -> Vec<Joined> {
        let files = self.inner.db.live_files().unwrap_or_else(|error| {
            tracing::debug!(%error, "the table files cannot be listed");
            Vec::new()
        });
        let mut joined = Vec::new();
        for family in Family::ALL {
            let of_family = deleted.iter().filter(|deleted| deleted.family == family);
            // The first compaction takes all of level 0 down with it.
            let spans: Vec<Span> = files
                .iter()
                .filter(|file| file.column_family_name == family.name() && file.level > 0)
                .filter_map(|file| Some((file.start_key.clone()?, file.end_key.clone()?)))
                .collect();
            joined.extend(join(of_family.cloned().collect(), &spans));
        }
        joined
    }

    fn to_reclaim(&self) -> MutexGuard<'_, Vec<Deleted>> {
        self.inner.to_reclaim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is space to be given back.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        !self.to_reclaim().is_empty()
    }

    fn compact(&self, joined: &Joined) {
        // Of a log, whole files must not go: a later replica of its group may have written there.
        let mut options = CompactOptions::default();
        // Automatic compactions are not held up by this one.
        options.set_exclusive_manual_compaction(false);
        // The deleted records are in the lowest level too; without this they would stay there.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.inner.db.compact_range_cf_opt(
            self.family(joined.family),
            Some(&joined.span.from),
            Some(&joined.span.to),
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
            let has_files = !self.delete_data(&range)?;
            self.reclaim_later(Deleted { family: Family::Data, range, has_files });
        }
        Ok(())
    }

    fn reclaim_later(&self, deleted: Deleted) {
        self.to_reclaim().push(deleted);
    }

    /// Whether there is a record, or damage where the first one should be.
    fn has_records(&self, range: &KeyRange) -> bool {
        let options = look_options(range.clone());
        let mut iterator = self.inner.db.raw_iterator_cf_opt(self.family(Family::Data), options);
        iterator.seek_to_first();
        iterator.valid() || iterator.status().is_err()
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
        let is_unread = !self.is_read();
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

/// Joins neighbouring ranges of a family that have part in the same file: compacted one by one, each of
/// them would rewrite it.
fn join(mut ranges: Vec<Deleted>, files: &[Span]) -> Vec<Joined> {
    ranges.sort_by(|one, other| one.range.from.cmp(&other.range.from));
    let mut joined: Vec<Joined> = Vec::new();
    for deleted in ranges {
        let KeyRange { from, to } = &deleted.range;
        let shares_a_file = |before: &KeyRange| {
            files.iter().any(|(first, last)| *first < before.to && last >= from)
        };
        match joined.last_mut() {
            Some(before) if *from <= before.span.to || shares_a_file(&before.span) => {
                before.span.to = std::mem::take(&mut before.span.to).max(to.clone());
                before.ranges.push(deleted);
            }
            _ => joined.push(Joined {
                family: deleted.family,
                span: deleted.range.clone(),
                ranges: vec![deleted],
            }),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deleted(from: u8, to: u8) -> Deleted {
        let range = KeyRange { from: vec![from], to: vec![to] };
        Deleted { family: Family::Data, range, has_files: false }
    }

    fn spans(joined: &[Joined]) -> Vec<(u8, u8, usize)> {
        let span = |it: &Joined| (it.span.from[0], it.span.to[0], it.ranges.len());
        joined.iter().map(span).collect()
    }

    #[test]
    fn ranges_with_part_in_the_same_file_are_compacted_as_one() {
        let files = [(vec![0], vec![25]), (vec![26], vec![49]), (vec![50], vec![99])];
        let ranges = vec![deleted(60, 70), deleted(10, 12), deleted(30, 32), deleted(20, 22)];
        let joined = join(ranges, &files);
        assert_eq!(spans(&joined), [(10, 22, 2), (30, 32, 1), (60, 70, 1)]);
        assert_eq!(joined[0].ranges, [deleted(10, 12), deleted(20, 22)]);
    }

    #[test]
    fn ranges_that_touch_or_repeat_are_one_and_others_stay() {
        let ranges = vec![deleted(1, 2), deleted(2, 3), deleted(2, 3), deleted(4, 5)];
        assert_eq!(spans(&join(ranges, &[])), [(1, 3, 3), (4, 5, 1)]);
        assert_eq!(join(Vec::new(), &[]), []);
    }
}
