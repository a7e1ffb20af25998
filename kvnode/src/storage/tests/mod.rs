//! Tests of the store on real RocksDB, in temporary directories.

mod copies;
mod damage;
mod identity;
mod layout;
mod reads;
mod restart;
mod snapshots;
mod space;
mod support;
mod sync;
