//! The node's store: one RocksDB with the records of all partitions, the logs of all groups, and
//! what the node must remember of itself.
//!
//! Invariants:
//! - A batch of the core is one RocksDB batch. Every column family is in the write-ahead log, so a
//!   crash loses a suffix of the batches since the last completed sync, and nothing else.
//! - What does not open is not mended. What does not decode is an error that names its key; no
//!   value is guessed.
//! - Data of a generation that is not current is visible to nobody, and is swept at the next start.
//!
//! It knows nothing of Raft beyond the bytes of entries, and decides nothing.

mod boot;
pub mod codec;
mod data;
mod database;
mod error;
mod guard;
mod identity;
pub mod keys;
mod log;
mod options;
mod read_point;
pub mod snapshot;
mod stats;
mod store;
mod sweep;
mod sync;
mod trash;
mod wal;

pub use data::{CacheAnswer, Page, PageRequest, PartitionStats};
pub use database::Database;
pub(crate) use error::chain;
pub use error::{Damage, OpenError, StorageError, ValueError};
pub use guard::{DiskGuard, DiskSpace, DiskState};
pub use identity::{AcceptError, DIRECTORY_FORMAT, Identity};
pub use options::StorageSettings;
pub use read_point::ReadPoint;
pub use stats::{Compression, DataTotals};
pub use store::StoreHandle;
pub use sync::SyncThread;
pub use wal::WalDamage;

#[cfg(test)]
mod tests;
