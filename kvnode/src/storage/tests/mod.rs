//! Tests of the store on real RocksDB, in temporary directories.

mod damage;
mod identity;
mod layout;
mod reads;
mod restart;
mod snapshots;
mod support;
mod sync;
