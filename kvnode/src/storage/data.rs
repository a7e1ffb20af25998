//! Reads of records: single keys for requests, whole partitions for digests and pages.

use bytes::Bytes;
use kvcore::Generation;
use kvcore::store::{
    Digest, DigestBuilder, PartitionDigest, PartitionDigestBuilder, PartitionState,
};
use placement::{PartitionBits, PartitionId};
use rocksdb::{DBPinnableSlice, ErrorKind, Range};

use super::database::Database;
use super::error::StorageError;
use super::keys::{self, DATA_PREFIX_BYTES, Family, KeyRange};
use super::read_point::{ReadPoint, scan_options};

/// Answer of a read that does not touch the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheAnswer {
    /// The key's stored record, or `None` if the key is absent.
    Hit(Option<Bytes>),
    /// Only the disk knows: ask again with [`Database::get`], off the async threads.
    NotInMemory,
}

/// A page of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys in order, each with its stored record.
    pub records: Vec<(Bytes, Bytes)>,
    /// Whether there may be more after the last one.
    pub more: bool,
}

/// What a page is to hold.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// Only keys that begin with this.
    pub prefix: &'a [u8],
    /// Only keys after this one.
    pub after: Option<&'a [u8]>,
    /// At most so many records.
    pub records_max: usize,
    /// No further record once keys and records have so many bytes.
    pub bytes_max: usize,
}

/// How much there is of an installation of a partition, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Bytes in files on disk; what is still in memtables is not counted.
    pub bytes_on_disk: u64,
}

impl Database {
    /// A key's stored record, if memory alone can tell: takes about a microsecond, never blocks.
    ///
    /// # Errors
    /// [`StorageError`] when the store is damaged.
    pub fn get_cached(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Result<CacheAnswer, StorageError> {
        let key = keys::data(partition, generation, key);
        let data = self.family(Family::Data);
        match self.inner.db.get_pinned_cf_opt(data, key, &self.inner.read_cached) {
            Ok(record) => {
                Ok(CacheAnswer::Hit(record.map(|record| Bytes::copy_from_slice(&record))))
            }
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(CacheAnswer::NotInMemory),
            Err(error) => Err(StorageError::engine("reading a record")(error)),
        }
    }

    /// A key's stored record. May wait for the disk.
    ///
    /// # Errors
    /// [`StorageError`] when the record cannot be read; never a wrong value.
    pub fn get(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Result<Option<Bytes>, StorageError> {
        let record = self.get_record(&keys::data(partition, generation, key))?;
        Ok(record.map(|record| Bytes::copy_from_slice(&record)))
    }

    pub(super) fn get_record(
        &self,
        stored_key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StorageError> {
        self.inner
            .db
            .get_pinned_cf_opt(self.family(Family::Data), stored_key, &self.inner.read)
            .map_err(StorageError::engine("reading a record"))
    }

    /// Records of one installation in key order, from `after` on. May wait for the disk.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    pub fn page(
        &self,
        partition: PartitionId,
        generation: Generation,
        request: PageRequest<'_>,
    ) -> Result<Page, StorageError> {
        let range = page_range(partition, generation, request.prefix, request.after);
        if range.from >= range.to {
            return Ok(Page::default());
        }
        let family = self.family(Family::Data);
        let mut options = scan_options(range);
        options.fill_cache(true);
        let mut iterator = self.inner.db.raw_iterator_cf_opt(family, options);
        iterator.seek_to_first();
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some((key, record)) = iterator.item() {
            if page.records.len() >= request.records_max || bytes >= request.bytes_max {
                page.more = true;
                return Ok(page);
            }
            bytes += key.len() + record.len();
            let key = Bytes::copy_from_slice(&key[DATA_PREFIX_BYTES..]);
            page.records.push((key, Bytes::copy_from_slice(record)));
            iterator.next();
        }
        iterator.status().map_err(StorageError::engine("reading a page of records"))?;
        Ok(page)
    }

    /// How much there is of one installation of a partition.
    #[must_use]
    pub fn partition_stats(
        &self,
        partition: PartitionId,
        generation: Generation,
    ) -> PartitionStats {
        let range = keys::data_range(partition, generation);
        let sizes = self.inner.db.get_approximate_sizes_cf(
            self.family(Family::Data),
            &[Range::new(&range.from, &range.to)],
        );
        PartitionStats { bytes_on_disk: sizes.first().copied().unwrap_or(0) }
    }
}

fn page_range(
    partition: PartitionId,
    generation: Generation,
    prefix: &[u8],
    after: Option<&[u8]>,
) -> KeyRange {
    let mut range = keys::data_range(partition, generation);
    range.from.extend_from_slice(prefix);
    if let Some(after) = after {
        // The first key after `after` is `after` with a zero byte.
        let mut next = keys::data(partition, generation, after);
        next.push(0);
        range.from = range.from.max(next);
    }
    if let Some(last) = prefix.iter().rposition(|&byte| byte != u8::MAX) {
        range.to = keys::data(partition, generation, &prefix[..=last]);
        if let Some(byte) = range.to.last_mut() {
            *byte += 1;
        }
    }
    range
}

impl ReadPoint {
    /// The digest of one installation of a partition with the state beside its records, which the
    /// caller took at the same point. Reads the whole partition in bounded memory.
    ///
    /// # Errors
    /// [`StorageError`] when a record cannot be read: there is no digest then.
    pub fn digest(
        &self,
        partition: PartitionId,
        generation: Generation,
        state: &PartitionState,
    ) -> Result<Digest, StorageError> {
        let mut digest = DigestBuilder::default();
        let mut iterator = self.scan(Family::Data, keys::data_range(partition, generation));
        while let Some((key, record)) = iterator.item() {
            digest.add(&key[DATA_PREFIX_BYTES..], record);
            iterator.next();
        }
        iterator.status().map_err(StorageError::engine("computing a digest"))?;
        Ok(digest.finish(state))
    }

    /// As [`ReadPoint::digest`], with the sums of the partition's sub-ranges; `bits` are those of
    /// the ring.
    ///
    /// # Errors
    /// [`StorageError`] when a record cannot be read: there is no digest then.
    pub fn partition_digest(
        &self,
        partition: PartitionId,
        generation: Generation,
        state: &PartitionState,
        bits: PartitionBits,
    ) -> Result<PartitionDigest, StorageError> {
        let mut digest = PartitionDigestBuilder::new(partition, bits);
        let mut iterator = self.scan(Family::Data, keys::data_range(partition, generation));
        while let Some((key, record)) = iterator.item() {
            digest.add(&key[DATA_PREFIX_BYTES..], record);
            iterator.next();
        }
        iterator.status().map_err(StorageError::engine("computing a digest"))?;
        Ok(digest.finish(state))
    }
}
