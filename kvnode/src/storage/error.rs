//! Why the store could not answer, and why it did not open.

use std::io;
use std::path::PathBuf;

use kvcore::codec::DecodeError;
use kvcore::storage::StoreError;
use kvcore::store::RecordError;
use thiserror::Error;

use super::keys::{self, Family};
use super::wal::WalDamage;

/// Why stored bytes are not what their key says.
#[derive(Debug, Error)]
pub enum ValueError {
    /// They do not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// They are no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// They decode, but contradict what else is stored.
    #[error("{0}")]
    Contradiction(String),
}

/// A read or write of the store failed. Nothing is guessed: the caller gets this, never a wrong value.
#[derive(Debug, Error)]
pub enum StorageError {
    /// RocksDB failed; a checksum that does not match is one of its errors.
    #[error("{what}: the storage engine failed")]
    Engine {
        /// What was being done.
        what: &'static str,
        /// RocksDB's own words.
        #[source]
        source: rocksdb::Error,
    },
    /// The stored bytes are damaged, or were written by a newer binary.
    #[error("bad value in column family {family} under key {key}")]
    Value {
        /// The column family.
        family: Family,
        /// The key, in hexadecimal.
        key: String,
        /// What is wrong with the value.
        #[source]
        source: ValueError,
    },
}

impl StorageError {
    /// An error of RocksDB's while doing `what`.
    pub(super) fn engine(what: &'static str) -> impl FnOnce(rocksdb::Error) -> Self {
        move |source| Self::Engine { what, source }
    }

    /// A bad value under a key.
    pub(super) fn value(family: Family, key: &[u8], source: impl Into<ValueError>) -> Self {
        Self::Value { family, key: keys::hex(key), source: source.into() }
    }

    /// A value that contradicts what else is stored.
    pub(super) fn contradiction(family: Family, key: &[u8], what: String) -> Self {
        Self::value(family, key, ValueError::Contradiction(what))
    }

    /// The error as the core knows it.
    pub(super) fn into_store_error(self, what: &'static str) -> StoreError {
        StoreError { what, reason: chain(&self) }
    }
}

/// An error and its sources, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// What is damaged in a data directory.
#[derive(Debug, Error)]
pub enum Damage {
    /// RocksDB refuses to open.
    #[error("RocksDB does not open it")]
    Engine(#[source] rocksdb::Error),
    /// The write-ahead log is broken before its end.
    #[error("the write-ahead log is broken before its end")]
    Wal(#[source] WalDamage),
    /// A value is bad.
    #[error(transparent)]
    Value(StorageError),
}

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process, or this one, has it open.
    #[error("data directory {path} is in use by another process")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There are files in it that are not a node's.
    #[error(
        "data directory {path} is not empty and is not a ringkv data directory (it holds `{found}`): \
         give the node an empty directory, or its own"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// It is a node's, but without an identity.
    #[error(
        "data directory {path} holds no node identity: its first start was cut short, or files are \
         missing. If no node ever ran from it, empty it and start again; otherwise give the node a new \
         directory and replace the old node with `kvctl replace`"
    )]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// A newer binary wrote it.
    #[error(
        "data directory {path} has format {found}, this binary reads formats up to {newest}: \
         start it with the newer binary that wrote it"
    )]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this binary knows.
        newest: u32,
    },
    /// It does not open, and is not mended: what was promised from it may be gone.
    #[error(
        "data directory {path} is damaged and is not repaired in place, since promises made from it \
         may be lost: start the node with a new, empty directory (it gets a new identity) and replace \
         the old one with `kvctl replace`"
    )]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is damaged.
        #[source]
        source: Damage,
    },
    /// RocksDB could not open it for a reason that is not in the data: no room, no permission, no
    /// file descriptors. Starting again may succeed.
    #[error("the store in data directory {path} could not be opened; its data was not touched")]
    Unavailable {
        /// The directory.
        path: PathBuf,
        /// RocksDB's own words.
        #[source]
        source: rocksdb::Error,
    },
    /// The operating system refused.
    #[error("{what} {path}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}
