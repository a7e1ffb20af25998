//! Tests of the store on real RocksDB.
