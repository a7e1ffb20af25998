//! How RocksDB is set up, with the reason for each choice.
//!
//! Memory is bounded: the block cache (index and filter blocks included) by `block_cache_bytes`, the
//! memtables together by `memtable_bytes`; RocksDB starts flushing at 7/8 of the latter and may pass
//! it for as long as a flush takes, at the very most up to the sum over the column families of
//! memtable size times number. Scans and copies use a few MiB each beyond that.

use std::sync::LazyLock;
use std::time::Duration;

use rand::Rng;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, Options,
    WriteOptions,
};

use super::keys::{self, Family};

/// What an operator may set about the store.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// Bytes of uncompressed blocks, indexes and filters kept in memory.
    pub block_cache_bytes: usize,
    /// Bytes that the memtables of all column families may take together.
    pub memtable_bytes: usize,
    /// Bytes of write-ahead log after which the column family that holds on to the oldest part of
    /// it is flushed; bounds the replay at start, about 2 s per 256 MiB.
    pub wal_bytes_max: u64,
    /// Threads for flushes and compactions.
    pub background_jobs: i32,
    /// Files of the store kept open.
    pub open_files_max: i32,
    /// Bytes after which a chunk of a snapshot is full; one record more may fit in.
    pub snapshot_chunk_bytes: usize,
    /// Bytes after which an installer begins the next file.
    pub install_file_bytes: u64,
    /// Snapshot files older than this are deleted when the node starts.
    pub snapshot_age_max: Duration,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self {
            block_cache_bytes: 256 << 20,
            memtable_bytes: 256 << 20,
            wal_bytes_max: 384 << 20,
            background_jobs: 2,
            open_files_max: 4096,
            snapshot_chunk_bytes: 1 << 20,
            install_file_bytes: 32 << 20,
            snapshot_age_max: Duration::from_secs(24 * 3600),
        }
    }
}

/// Size of the files that compactions write.
const FILE_BYTES: u64 = 32 << 20;

/// Files in level 0 that slow writes down, and that stop them. Both far above RocksDB's defaults:
/// a stalled write stalls every group of the node, heartbeats included.
const LEVEL0_SLOWDOWN: i32 = 40;
const LEVEL0_STOP: i32 = 80;

/// Options of the database as a whole.
///
/// # Errors
/// RocksDB's, when it does not know an option that is set by name.
pub(super) fn database(
    settings: &StorageSettings,
    create: bool,
) -> Result<Options, rocksdb::Error> {
    // A new log file names the size and last sequence number of the one before it, so that a hole
    // between two log files refuses to open. The wrapper has no setter for this one.
    let mut options = Options::default().get_options_from_string("track_and_verify_wals=true")?;
    // Only a directory that was empty gets a database: a missing CURRENT file is damage.
    options.create_if_missing(create);
    options.create_missing_column_families(create);
    // A record that is cut off at the very end of the log was never synced; anything else refuses.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // The manifest lists the synced log files with their sizes: a lost or cut one refuses to open.
    options.set_track_and_verify_wals_in_manifest(true);
    // Stop writing at the first sign of corruption, in flushes and compactions too.
    options.set_paranoid_checks(true);
    // Not atomic_flush: every column family is in the log and closed logs are synced before a flush
    // is recorded, so replay brings all of them to one point; atomic flushes would write `meta` and
    // `data` out each time `log` fills.
    options.set_atomic_flush(false);
    // Two cores, shared with everything else.
    options.set_max_background_jobs(settings.background_jobs);
    options.set_max_subcompactions(1);
    options.set_max_open_files(settings.open_files_max);
    options.set_db_write_buffer_size(settings.memtable_bytes);
    options.set_max_total_wal_size(settings.wal_bytes_max);
    // Dirty pages of table files go out steadily, so that a sync of the log does not queue behind
    // hundreds of MiB of them.
    options.set_bytes_per_sync(1 << 20);
    // Deleting obsolete files is left to background threads, never to a reader's.
    options.set_avoid_unnecessary_blocking_io(true);
    // One thread writes: the machinery for concurrent writers only costs.
    options.set_allow_concurrent_memtable_write(false);
    options.set_enable_write_thread_adaptive_yield(false);
    // Log files of RocksDB's own are kept short, periodic dumps are off: metrics serve that.
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_keep_log_file_num(4);
    options.set_max_log_file_size(8 << 20);
    // A manifest is rewritten well before replaying it takes noticeable time.
    options.set_max_manifest_file_size(16 << 20);
    Ok(options)
}

/// The column families with their options.
///
/// # Errors
/// RocksDB's, when it does not know an option that is set by name.
pub(super) fn families(
    settings: &StorageSettings,
) -> Result<Vec<ColumnFamilyDescriptor>, rocksdb::Error> {
    let cache = Cache::new_lru_cache(settings.block_cache_bytes);
    let memtables = MemtableShare::draw();
    Family::ALL
        .into_iter()
        .map(|family| {
            let options = match family {
                Family::Data => data(&cache, memtables),
                Family::Log => log(&cache, memtables),
                Family::Meta => meta(&cache, memtables),
            };
            Ok(ColumnFamilyDescriptor::new(family.name(), options?))
        })
        .collect()
}

/// How much of a memtable's full size this process uses. The replicas of a partition are written
/// alike: with memtables of the same size all of them would flush in the same moment, and no quorum
/// would be left that does not.
#[derive(Clone, Copy)]
struct MemtableShare {
    percent: usize,
}

impl MemtableShare {
    const PERCENT: std::ops::RangeInclusive<usize> = 60..=100;

    fn draw() -> Self {
        Self { percent: rand::rng().random_range(Self::PERCENT) }
    }

    fn of(self, bytes: usize) -> usize {
        bytes / 100 * self.percent
    }
}

fn data(cache: &Cache, memtables: MemtableShare) -> Result<Options, rocksdb::Error> {
    // Neighbours are keys of one partition's generation.
    let mut options = common(&table(Some(cache), true), Some(keys::DATA_PREFIX_BYTES))?;
    // Below level 0 no file holds records of two installations: one that is swept goes with its
    // files, and a copy finds its place in the lowest level; otherwise either would have files of
    // its neighbours rewritten.
    options = options.get_options_from_string(format!(
        "sst_partitioner_factory={{id=SstPartitionerFixedPrefixFactory;length={}}}",
        keys::DATA_PREFIX_BYTES
    ))?;
    options.set_write_buffer_size(memtables.of(64 << 20));
    options.set_max_write_buffer_number(4);
    // lz4 costs less than the reads it saves.
    options.set_compression_type(DBCompressionType::Lz4);
    // No prefix extractor: (partition, generation) is in every file that a read of it looks at, so
    // a filter on it would say yes always; scans bound their iterators instead.
    Ok(options)
}

fn log(cache: &Cache, memtables: MemtableShare) -> Result<Options, rocksdb::Error> {
    // Neighbours are entries of one group.
    let mut options = common(&table(Some(cache), false), Some(keys::LOG_GROUP_BYTES))?;
    // Entries die young: with two memtables merged per flush, most are gone before they reach disk.
    options.set_write_buffer_size(memtables.of(32 << 20));
    options.set_min_write_buffer_number_to_merge(2);
    options.set_max_write_buffer_number(6);
    // Level, not FIFO: FIFO drops files by size, whether their entries are still needed or not.
    // Not compressed: what lives for seconds is not worth the work.
    options.set_compression_type(DBCompressionType::None);
    Ok(options)
}

fn meta(cache: &Cache, memtables: MemtableShare) -> Result<Options, rocksdb::Error> {
    // Neighbours are the versions of one key.
    let mut options = common(&table(Some(cache), false), Some(keys::META_GROUP_KEY_BYTES))?;
    // A few keys per group, overwritten at every turn: a flush writes one of each.
    options.set_write_buffer_size(memtables.of(16 << 20));
    options.set_max_write_buffer_number(4);
    options.set_compression_type(DBCompressionType::None);
    Ok(options)
}

/// Options of every column family. Keys that begin with the same `neighbours` bytes are often
/// written one after another: the memtable remembers for each such prefix where the last one went,
/// which saves most of the search for the next one's place. The wrapper has no setter for this.
fn common(table: &BlockBasedOptions, neighbours: Option<usize>) -> Result<Options, rocksdb::Error> {
    let mut options = Options::default();
    if let Some(bytes) = neighbours {
        options = options.get_options_from_string(format!(
            "memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.{bytes}"
        ))?;
    }
    options.set_block_based_table_factory(table);
    options.set_target_file_size_base(FILE_BYTES);
    options.set_max_bytes_for_level_base(8 * FILE_BYTES);
    // Keeps the waste of obsolete versions near a tenth of the live data.
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_level_zero_file_num_compaction_trigger(4);
    options.set_level_zero_slowdown_writes_trigger(LEVEL0_SLOWDOWN);
    options.set_level_zero_stop_writes_trigger(LEVEL0_STOP);
    Ok(options)
}

fn table(cache: Option<&Cache>, filter: bool) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    // A point read decompresses one block; 16 KiB balances that against the size of the index.
    table.set_block_size(16 << 10);
    table.set_format_version(6);
    if filter {
        // One in a hundred reads of an absent key looks into a file.
        table.set_bloom_filter(10.0, false);
    }
    if let Some(cache) = cache {
        table.set_block_cache(cache);
        // Indexes and filters count against the cache: memory does not grow with the data.
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    }
    table
}

/// Options of the files that an installer writes; they become files of `data` as they are.
pub(super) static INSTALL_FILE: LazyLock<Options> = LazyLock::new(|| {
    let mut options = common(&table(None, true), None).expect("no option is set by name");
    options.set_compression_type(DBCompressionType::Lz4);
    options
});

/// Every batch goes into the log and waits for nothing; [`super::sync`] makes it durable.
pub(super) fn write() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(false);
    options.disable_wal(false);
    options
}

/// For the few writes that are waited for one by one.
pub(super) fn write_durably() -> WriteOptions {
    let mut options = write();
    options.set_sync(true);
    options
}
