//! Who a data directory belongs to: the mark and the lock around the store, and the identity in it.
//!
//! A directory becomes a node's when it was empty: first `FORMAT` is written, then the store, then
//! the identity in it, each durable before the next. A directory in which that did not finish, or
//! from which a part is missing, is refused; it never becomes a new node by accident.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kvcore::cluster::ClusterState;
use kvcore::{ClusterId, codec};
use placement::NodeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::codec as stored;
use super::database::Database;
use super::error::{OpenError, StorageError};
use super::keys::{self, Family};
use super::options;

/// The newest format of a data directory that this binary reads, and the one that it writes.
pub const DIRECTORY_FORMAT: u32 = 1;

const LOCK_FILE: &str = "LOCK";
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_FILE_UNFINISHED: &str = "FORMAT.tmp";
const FORMAT_TEXT: &str = "ringkv data directory, format ";

/// Who this node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The node's id, drawn at random when the directory was made.
    pub node: NodeId,
    /// When that was, in unix milliseconds by this machine's clock.
    pub created_at_ms: u64,
    /// The cluster that the node belongs to, once it has accepted one.
    pub cluster: Option<ClusterId>,
}

impl Identity {
    fn draw() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The version and variant bits are those of a random UUID (RFC 9562, version 4).
        let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        Self {
            node: NodeId::from(uuid),
            created_at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            cluster: None,
        }
    }
}

/// Why a cluster was not accepted; nothing has changed.
#[derive(Debug, Error)]
pub enum AcceptError {
    /// The node belongs to another cluster, for ever.
    #[error("this node belongs to cluster {ours} and cannot join {offered}")]
    OtherCluster {
        /// Its cluster.
        ours: ClusterId,
        /// The one offered.
        offered: ClusterId,
    },
    /// The view is not of the cluster offered.
    #[error("the view offered with cluster {offered} is of cluster {of}")]
    ForeignView {
        /// The cluster offered.
        offered: ClusterId,
        /// The cluster of the view.
        of: ClusterId,
    },
    /// The store failed; the node must stop.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Database {
    /// The node's identity.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.inner.identity.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Accepts a cluster, once for ever, together with the view it came with; durable on return.
    /// Accepting the same cluster again changes nothing.
    ///
    /// # Errors
    /// [`AcceptError`]; the node then belongs to the cluster that it belonged to before.
    pub fn accept_cluster(
        &self,
        cluster: ClusterId,
        view: &Arc<ClusterState>,
    ) -> Result<Identity, AcceptError> {
        if view.cluster != cluster {
            return Err(AcceptError::ForeignView { offered: cluster, of: view.cluster });
        }
        let mut identity =
            self.inner.identity.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match identity.cluster {
            Some(ours) if ours == cluster => return Ok(identity.clone()),
            Some(ours) => return Err(AcceptError::OtherCluster { ours, offered: cluster }),
            None => {}
        }
        let accepted = Identity { cluster: Some(cluster), ..identity.clone() };
        let mut batch = rocksdb::WriteBatch::default();
        batch.put_cf(self.family(Family::Meta), keys::IDENTITY, codec::encode(&accepted));
        // Not under the key of the view in force: the core makes its replicas in the same batch as
        // it stores its first view, and has to do so although the node stopped in between.
        batch.put_cf(self.family(Family::Meta), keys::ACCEPTED_VIEW, codec::encode(&**view));
        self.inner
            .db
            .write_opt(batch, &options::write_durably())
            .map_err(StorageError::engine("accepting a cluster"))?;
        *identity = accepted.clone();
        Ok(accepted)
    }

    /// The view that came with the cluster. If the node starts with a cluster but without a view in
    /// force, it stopped before the core took this one, and the core has to be given it again.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    pub fn accepted_view(&self) -> Result<Option<Arc<ClusterState>>, StorageError> {
        let bytes = self
            .inner
            .db
            .get_pinned_cf(self.family(Family::Meta), keys::ACCEPTED_VIEW)
            .map_err(StorageError::engine("reading the accepted view"))?;
        let view = bytes.map(|bytes| stored::decode(keys::ACCEPTED_VIEW, &bytes)).transpose()?;
        Ok(view.map(Arc::new))
    }
}

/// Makes an identity and stores it durably.
pub(super) fn create(db: &rocksdb::DB) -> Result<Identity, StorageError> {
    let identity = Identity::draw();
    let meta = db.cf_handle(Family::Meta.name()).expect("opened with every column family");
    db.put_cf_opt(meta, keys::IDENTITY, codec::encode(&identity), &options::write_durably())
        .map_err(StorageError::engine("storing the identity"))?;
    Ok(identity)
}

/// Reads the identity; `None` if there is none.
pub(super) fn load(db: &rocksdb::DB) -> Result<Option<Identity>, StorageError> {
    let meta = db.cf_handle(Family::Meta.name()).expect("opened with every column family");
    let bytes = db
        .get_pinned_cf(meta, keys::IDENTITY)
        .map_err(StorageError::engine("reading the identity"))?;
    bytes.map(|bytes| stored::decode(keys::IDENTITY, &bytes)).transpose()
}

/// A data directory that this process has locked.
pub(super) struct Directory {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Whether it was empty: nobody's until now.
    pub(super) fresh: bool,
    /// Held for as long as the directory is in use.
    pub(super) _lock: File,
}

impl Directory {
    /// Makes the directory if need be, locks it and looks at its mark.
    pub(super) fn claim(path: &Path) -> Result<Self, OpenError> {
        let io = |what| move |source| OpenError::Io { what, path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(io("creating data directory"))?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK_FILE))
            .map_err(io("opening the lock of data directory"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::Locked { path: path.to_owned() },
            TryLockError::Error(source) => io("locking data directory")(source),
        })?;
        let fresh = match fs::read(path.join(FORMAT_FILE)) {
            Ok(mark) => {
                check_mark(path, &mark)?;
                false
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_foreign_files(path)?;
                write_mark(path).map_err(io("marking data directory"))?;
                true
            }
            Err(source) => return Err(io("reading the mark of data directory")(source)),
        };
        Ok(Self { path: path.to_owned(), fresh, _lock: lock })
    }

    /// RocksDB's own directory.
    pub(super) fn store(&self) -> PathBuf {
        self.path.join("db")
    }
}

fn check_mark(path: &Path, mark: &[u8]) -> Result<(), OpenError> {
    let format = std::str::from_utf8(mark)
        .ok()
        .and_then(|text| text.strip_prefix(FORMAT_TEXT))
        .and_then(|rest| rest.trim_end().parse::<u32>().ok());
    match format {
        Some(found) if found > DIRECTORY_FORMAT => {
            Err(OpenError::NewerFormat { path: path.to_owned(), found, newest: DIRECTORY_FORMAT })
        }
        Some(_) => Ok(()),
        None => Err(OpenError::Foreign { path: path.to_owned(), found: FORMAT_FILE.to_owned() }),
    }
}

fn refuse_foreign_files(path: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { what: "listing data directory", path: path.into(), source };
    for entry in fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if name != LOCK_FILE && name != FORMAT_FILE_UNFINISHED {
            let found = name.to_string_lossy().into_owned();
            return Err(OpenError::Foreign { path: path.to_owned(), found });
        }
    }
    Ok(())
}

fn write_mark(path: &Path) -> io::Result<()> {
    let unfinished = path.join(FORMAT_FILE_UNFINISHED);
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{FORMAT_TEXT}{DIRECTORY_FORMAT}")?;
    file.sync_all()?;
    fs::rename(&unfinished, path.join(FORMAT_FILE))?;
    sync_directory(path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        _ => Ok(()),
    }
}

/// Makes the creation, renaming and removal of files in a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
