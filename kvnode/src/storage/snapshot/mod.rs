//! Snapshots of partitions, as checksummed files in chunks.
//!
//! A snapshot is taken at one point of the store: its records, applied index and configuration
//! agree. It is written to `snapshots/<id>.snap` and lives there until it is dropped, so that a copy
//! goes on after a restart of either side. The taker writes what it receives into table files of its
//! own, keeps them over restarts until they are complete, and hands them to its store, in a generation that nobody reads until the core makes it
//! current. Neither side holds more than a chunk and a table block in memory, however large the
//! partition is; the builder keeps 28 bytes for each chunk.

mod build;
mod chunk;
mod file;
mod install;
mod residue;

pub use build::BuildError;
pub use chunk::ChunkDamage;
pub use file::{ChunkError, PlacedChunk, SnapshotFile, Snapshots};
pub use install::{InstallError, SnapshotInstaller};

pub(super) use file::SnapshotDirectory;
pub(super) use residue::{Header, directory_of, discard, list};
