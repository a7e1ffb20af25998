//! What RocksDB tells of itself, as metrics.

use super::database::Database;
use super::keys::Family;

/// Gauges that are properties of one column family, by RocksDB's name and ours.
const OF_A_FAMILY: [(&str, &str); 5] = [
    ("rocksdb.cur-size-all-mem-tables", "ringkv_store_memtable_bytes"),
    ("rocksdb.live-sst-files-size", "ringkv_store_file_bytes"),
    ("rocksdb.num-files-at-level0", "ringkv_store_level0_files"),
    ("rocksdb.estimate-pending-compaction-bytes", "ringkv_store_pending_compaction_bytes"),
    ("rocksdb.estimate-num-keys", "ringkv_store_keys_estimate"),
];

/// Gauges of the store as a whole.
const OF_THE_STORE: [(&str, &str); 4] = [
    ("rocksdb.block-cache-usage", "ringkv_store_block_cache_bytes"),
    ("rocksdb.is-write-stopped", "ringkv_store_writes_stopped"),
    ("rocksdb.actual-delayed-write-rate", "ringkv_store_delayed_write_bytes_per_second"),
    ("rocksdb.background-errors", "ringkv_store_background_errors"),
];

/// What RocksDB knows of all records together, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataTotals {
    /// Number of keys.
    pub keys: u64,
    /// Bytes that are in memory and in no file yet.
    pub memory_bytes: u64,
}

impl Database {
    /// What there is of all records together; cheap. What RocksDB does not answer for counts as 0.
    #[must_use]
    pub fn data_totals(&self) -> DataTotals {
        let data = self.family(Family::Data);
        let value = |property: &str| {
            self.inner.db.property_int_value_cf(data, property).ok().flatten().unwrap_or(0)
        };
        DataTotals {
            keys: value("rocksdb.estimate-num-keys"),
            memory_bytes: value("rocksdb.cur-size-all-mem-tables"),
        }
    }

    /// Sets the gauges of the store; cheap enough for every second. A property that RocksDB does not
    /// answer for leaves its gauge as it was.
    pub fn publish_stats(&self) {
        for family in Family::ALL {
            let handle = self.family(family);
            for (property, gauge) in OF_A_FAMILY {
                if let Ok(Some(value)) = self.inner.db.property_int_value_cf(handle, property) {
                    metrics::gauge!(gauge, "family" => family.name()).set(value as f64);
                }
            }
        }
        let data = self.family(Family::Data);
        for (property, gauge) in OF_THE_STORE {
            if let Ok(Some(value)) = self.inner.db.property_int_value_cf(data, property) {
                metrics::gauge!(gauge).set(value as f64);
            }
        }
    }

    /// Whether RocksDB answers for every property that is published.
    #[cfg(test)]
    pub(super) fn unanswered_properties(&self) -> Vec<&'static str> {
        let data = self.family(Family::Data);
        let answered = |property: &str| {
            matches!(self.inner.db.property_int_value_cf(data, property), Ok(Some(_)))
        };
        OF_A_FAMILY
            .into_iter()
            .chain(OF_THE_STORE)
            .map(|(property, _)| property)
            .filter(|property| !answered(property))
            .collect()
    }
}
