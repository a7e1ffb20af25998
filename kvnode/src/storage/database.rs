//! The open store and the handle to it.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kvcore::storage::Boot;
use rocksdb::{ColumnFamily, DB, ErrorKind, ReadOptions, ReadTier, WriteOptions};

use super::boot;
use super::error::{Damage, OpenError, StorageError};
use super::identity::{self, Directory, Identity};
use super::keys::Family;
use super::options::{self, StorageSettings};
use super::read_point::ReadPoint;
use super::snapshot::SnapshotDirectory;
use super::sweep::Deleted;
use super::trash::{self, Trash};
use super::wal;

/// Handle to the node's store. Clones share one store, which closes with the last of them.
#[derive(Clone)]
pub struct Database {
    pub(super) inner: Arc<Inner>,
}

/// What the handles share. Fields drop in order: the store closes before its lock is given back.
pub(super) struct Inner {
    pub(super) db: DB,
    pub(super) trash: Trash,
    pub(super) identity: Mutex<Identity>,
    pub(super) settings: StorageSettings,
    pub(super) write: WriteOptions,
    pub(super) read: ReadOptions,
    pub(super) read_cached: ReadOptions,
    /// How many [`ReadPoint`]s there are.
    pub(super) read_points: AtomicUsize,
    pub(super) snapshots: SnapshotDirectory,
    /// Held while a copy becomes data, or stops to be wanted.
    pub(super) incoming: Mutex<()>,
    /// Ranges that were deleted and whose space is still to be given back.
    pub(super) to_reclaim: Mutex<Vec<Deleted>>,
    pub(super) directory: Directory,
}

impl Database {
    /// Opens the store in a data directory, or makes one in an empty directory.
    ///
    /// On return all that [`Boot`] tells is durable, files that no replica here has use for are gone,
    /// and the data of generations that are not current is deleted;
    /// [`Database::reclaim_deleted`] gives its space back.
    ///
    /// # Errors
    /// [`OpenError`] says in one line why the node cannot start from this directory and what to do.
    pub fn open(
        path: &Path,
        settings: StorageSettings,
    ) -> Result<(Self, Boot, Identity), OpenError> {
        let directory = Directory::claim(path)?;
        let damaged = |source| OpenError::Damaged { path: path.to_owned(), source };
        let damaged_value = |error| damaged(Damage::Value(error));

        if !directory.fresh {
            if !directory.store().join("CURRENT").exists() {
                return Err(OpenError::Unfinished { path: path.to_owned() });
            }
            wal::check(&directory.store()).map_err(|error| match error {
                wal::WalError::Damage(source) => damaged(Damage::Wal(source)),
                wal::WalError::Io(source) => OpenError::Io {
                    what: "reading the write-ahead log of data directory",
                    path: path.to_owned(),
                    source,
                },
            })?;
        }
        let db = options::database(&settings, directory.fresh)
            .and_then(|mut options| {
                trash::postpone_deletions(&mut options)?;
                let families = options::families(&settings)?;
                DB::open_cf_descriptors(&options, directory.store(), families)
            })
            .map_err(|source| match is_in_the_data(&source) {
                true => damaged(Damage::Engine(source)),
                false => OpenError::Unavailable { path: path.to_owned(), source },
            })?;
        let identity = match identity::load(&db).map_err(damaged_value)? {
            Some(identity) => identity,
            None if directory.fresh => identity::create(&db).map_err(damaged_value)?,
            None => return Err(OpenError::Unfinished { path: path.to_owned() }),
        };
        let snapshots = SnapshotDirectory::open(path, settings.snapshot_age_max)?;
        let trash =
            Trash::spawn([directory.store(), snapshots.path().to_owned()]).map_err(|source| {
                OpenError::Io {
                    what: "starting the thread that deletes files of data directory",
                    path: path.to_owned(),
                    source,
                }
            })?;

        let mut read_cached = ReadOptions::default();
        read_cached.set_read_tier(ReadTier::BlockCache);
        let database = Self {
            inner: Arc::new(Inner {
                db,
                trash,
                identity: Mutex::new(identity.clone()),
                settings,
                write: options::write(),
                read: ReadOptions::default(),
                read_cached,
                read_points: AtomicUsize::new(0),
                snapshots,
                incoming: Mutex::new(()),
                to_reclaim: Mutex::default(),
                directory,
            }),
        };
        let mut boot = boot::collect(&database).map_err(damaged_value)?;
        boot::collect_copies(&database, &mut boot).map_err(|source| OpenError::Io {
            what: "clearing the copies in data directory",
            path: path.to_owned(),
            source,
        })?;
        database.sync().map_err(damaged_value)?;
        Ok((database, boot, identity))
    }

    /// The data directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.directory.path
    }

    /// What the store was opened with.
    #[must_use]
    pub fn settings(&self) -> &StorageSettings {
        &self.inner.settings
    }

    /// Makes everything written so far durable, in the calling thread; writes go on meanwhile.
    ///
    /// # Errors
    /// [`StorageError::Engine`]: nothing is known of what is durable, the node must stop.
    pub fn sync(&self) -> Result<(), StorageError> {
        self.inner.db.flush_wal(true).map_err(StorageError::engine("syncing the write-ahead log"))
    }

    /// Waits until this is the last handle and closes the store; gives up after `patience`, since a
    /// handle may be held by somebody who outlives the node. Returns whether the store is closed.
    #[must_use]
    pub fn close(self, patience: Duration) -> bool {
        const PAUSE: Duration = Duration::from_millis(2);
        let give_up = Instant::now() + patience;
        while Arc::strong_count(&self.inner) > 1 {
            if Instant::now() >= give_up {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// The store's state now, to be read later or elsewhere; cheap.
    #[must_use]
    pub fn read_point(&self) -> ReadPoint {
        ReadPoint::new(self)
    }

    pub(super) fn incoming_lock(&self) -> MutexGuard<'_, ()> {
        self.inner.incoming.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn family(&self, family: Family) -> &ColumnFamily {
        self.inner.db.cf_handle(family.name()).expect("opened with every column family")
    }
}

/// Whether RocksDB refuses because of what it found: damage, or a file that is gone. All other errors
/// of the operating system say nothing of the data.
fn is_in_the_data(error: &rocksdb::Error) -> bool {
    error.kind() != ErrorKind::IOError || error.as_ref().contains("No such file")
}

impl std::fmt::Debug for Database {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Database").field(&self.path()).finish()
    }
}
