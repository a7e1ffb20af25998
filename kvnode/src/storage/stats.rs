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

/// How well the records in files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Bytes of keys and values before.
    pub before: u64,
    /// Bytes of blocks after.
    pub after: u64,
}

impl Compression {
    /// The bytes before compression of so many after it.
    #[must_use]
    pub fn expand(&self, bytes: u64) -> u64 {
        match self.after {
            0 => bytes,
            after => {
                let expanded = u128::from(bytes) * u128::from(self.before) / u128::from(after);
                u64::try_from(expanded).unwrap_or(u64::MAX)
            }
        }
    }

    /// From RocksDB's words on all files of a family: `...; raw key size=9; raw value size=4; ...`.
    fn parse(text: &str) -> Self {
        let number = |name: &str| {
            let mut fields = text.split(';').filter_map(|field| field.trim().split_once('='));
            let value = fields.find(|(key, _)| *key == name).map(|(_, value)| value);
            value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
        };
        Self {
            before: number("raw key size").saturating_add(number("raw value size")),
            after: number("data block size"),
        }
    }
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

    /// How well all records in files are compressed. It looks at every file: not for every second.
    #[must_use]
    pub fn compression(&self) -> Compression {
        let data = self.family(Family::Data);
        let told = self.inner.db.property_value_cf(data, "rocksdb.aggregated-table-properties");
        told.ok().flatten().map(|text| Compression::parse(&text)).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_read_from_rocksdb_s_words() {
        let told = "# data blocks=2; # entries=9; raw key size=300; raw average key size=3.5; \
                    raw value size=700; data block size=500; index block size=1; ";
        let compression = Compression::parse(told);
        assert_eq!(compression, Compression { before: 1000, after: 500 });
        assert_eq!(compression.expand(40), 80);
        assert_eq!(Compression::parse("nonsense").expand(40), 40);
    }
}
