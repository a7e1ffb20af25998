//! Reads of Raft logs.

use kvcore::{GroupId, LogIndex};
use raft::eraftpb::Entry;

use super::boot::parse_index;
use super::codec;
use super::database::Database;
use super::error::StorageError;
use super::keys::{self, Family};
use super::read_point::scan_options;

impl Database {
    /// The entries `low..high` of a group, up to `bytes_max` bytes but at least one. Empty if the
    /// log does not reach back to `low` any more. May wait for the disk.
    ///
    /// # Errors
    /// [`StorageError`] when an entry cannot be read, or the log has a hole.
    pub fn fetch_entries(
        &self,
        group: GroupId,
        low: LogIndex,
        high: LogIndex,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        let mut entries = Vec::new();
        if low >= high {
            return Ok(entries);
        }
        let options = scan_options(keys::log_range(group, low, high));
        let family = self.family(Family::Log);
        let mut iterator = self.inner.db.raw_iterator_cf_opt(family, options);
        iterator.seek_to_first();
        let mut expected = low;
        let mut bytes = 0_u64;
        while let Some((key, value)) = iterator.item() {
            let index = parse_index(key)?;
            if index != expected {
                if entries.is_empty() {
                    return Ok(entries);
                }
                let what = format!("the log has a hole at index {expected}");
                return Err(StorageError::contradiction(Family::Log, key, what));
            }
            bytes = bytes.saturating_add(value.len() as u64);
            if bytes > bytes_max && !entries.is_empty() {
                return Ok(entries);
            }
            entries.push(codec::decode_entry(group, index, value)?);
            expected = index.next();
            iterator.next();
        }
        iterator.status().map_err(StorageError::engine("reading the log"))?;
        Ok(entries)
    }
}
