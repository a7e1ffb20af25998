//! Snapshot files: their layout, their directory, and the reads of chunks.
//!
//! Layout, little-endian: magic (8), the chunks, a table with `offset (8) | length (4) |
//! checksum (16)` for each chunk, the description (through the codec), and a footer: offset of the
//! table (8), number of chunks (4), length of the description (4), xxh3-128 over table, description
//! and these three (16), magic (8). A file without a footer was never finished.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kvcore::message::SnapshotManifest;
use kvcore::{GroupId, LogPosition, SnapshotId, codec};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

use super::super::codec as stored;
use super::super::database::Database;
use super::super::error::{OpenError, StorageError};
use super::super::keys::{self, Family};
use super::super::options;
use super::super::trash;
use super::chunk::{CHECKSUM_BYTES, VerifiedChunk};

const MAGIC: &[u8; 8] = b"rkvsnap1";
const TABLE_ENTRY_BYTES: usize = 28;
const FOOTER_BYTES: usize = 40;
/// Bytes of the footer that its checksum covers.
const FOOTER_COVERED_BYTES: usize = 16;

/// Files kept open for reads of chunks; more copies at a time than this open files anew.
const OPEN_FILES_MAX: usize = 16;

/// No table or description is larger than this; a footer that says so is damaged.
const TAIL_BYTES_MAX: u64 = 1 << 30;

const FINISHED: &str = "snap";
pub(super) const UNFINISHED: &str = "tmp";

/// Bytes after which what was written is pushed to the disk, so that the last sync has little left
/// and syncs of the log do not queue behind it.
const SYNC_BYTES: u64 = 8 << 20;

/// A finished snapshot file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The group whose state it is.
    pub group: GroupId,
    /// The entry whose effects are the last in it.
    pub position: LogPosition,
    /// What a taker is told.
    pub manifest: SnapshotManifest,
}

/// A chunk and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedChunk {
    /// The chunk.
    pub bytes: Bytes,
    /// Bytes of the snapshot's chunks up to the end of this one.
    pub end: u64,
    /// Whether none follows it.
    pub last: bool,
}

/// Why there is no such chunk.
#[derive(Debug, Error)]
pub enum ChunkError {
    /// The snapshot was dropped, or never was here: the taker starts over with another.
    #[error("there is no snapshot {0} here")]
    NoSnapshot(SnapshotId),
    /// The snapshot has fewer chunks.
    #[error("snapshot {id} has no chunk {number}")]
    NoChunk {
        /// The snapshot.
        id: SnapshotId,
        /// The chunk asked for.
        number: u32,
    },
    /// The file is damaged; it has to be built anew.
    #[error("the file of snapshot {0} is damaged")]
    Damaged(SnapshotId),
    /// The file cannot be read.
    #[error("reading a snapshot file")]
    Io(#[from] io::Error),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    pub(super) group: GroupId,
    pub(super) position: LogPosition,
    pub(super) manifest: SnapshotManifest,
}

/// A snapshot file being written.
pub(super) struct Output {
    file: File,
    at: u64,
    synced: u64,
    table: Vec<u8>,
}

impl Output {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(MAGIC)?;
        Ok(Self { file, at: MAGIC.len() as u64, synced: 0, table: Vec::new() })
    }

    pub(super) fn add(&mut self, chunk: &[u8], checksum: [u8; CHECKSUM_BYTES]) -> io::Result<()> {
        self.file.write_all(chunk)?;
        let length = u32::try_from(chunk.len()).expect("a chunk's body is below 4 GiB");
        self.table.extend_from_slice(&self.at.to_le_bytes());
        self.table.extend_from_slice(&length.to_le_bytes());
        self.table.extend_from_slice(&checksum);
        self.at += u64::from(length);
        if self.at - self.synced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.synced = self.at;
        }
        Ok(())
    }

    /// Writes table, description and footer, durably.
    pub(super) fn finish(&mut self, description: &Description) -> io::Result<()> {
        let mut tail = std::mem::take(&mut self.table);
        let chunks = description.manifest.chunks;
        let description = codec::encode(description);
        let length = u32::try_from(description.len()).expect("a configuration has few members");
        tail.extend_from_slice(&description);
        tail.extend_from_slice(&self.at.to_le_bytes());
        tail.extend_from_slice(&chunks.to_le_bytes());
        tail.extend_from_slice(&length.to_le_bytes());
        let mut hasher = Xxh3::new();
        hasher.update(&tail);
        tail.extend_from_slice(&hasher.digest128().to_le_bytes());
        tail.extend_from_slice(MAGIC);
        self.file.write_all(&tail)?;
        self.file.sync_all()
    }
}

/// A finished file, open for reads.
struct OpenFile {
    file: File,
    table_at: u64,
    description: Description,
}

impl OpenFile {
    /// Opens and checks a file; `None` if it is not a whole snapshot.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let Some(footer_at) = size.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, footer_at)?;
        let (covered, rest) = footer.split_at(FOOTER_COVERED_BYTES);
        let (checksum, magic) = rest.split_at(CHECKSUM_BYTES);
        let (table_at, counts) = covered.split_at(8);
        let number = |at: usize| {
            u32::from_le_bytes([counts[at], counts[at + 1], counts[at + 2], counts[at + 3]])
        };
        let table_at = table_at.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let (chunks, description_bytes) = (number(0), number(4));
        let table_bytes = u64::from(chunks) * TABLE_ENTRY_BYTES as u64;
        let tail_bytes = table_bytes + u64::from(description_bytes);
        if magic != MAGIC
            || tail_bytes > TAIL_BYTES_MAX
            || table_at.checked_add(tail_bytes) != Some(footer_at)
        {
            return Ok(None);
        }
        let mut hasher = Xxh3::new();
        hash_range(&file, table_at, table_bytes, &mut hasher)?;
        let mut description = vec![0; description_bytes as usize];
        file.read_exact_at(&mut description, table_at + table_bytes)?;
        hasher.update(&description);
        hasher.update(covered);
        if hasher.digest128().to_le_bytes() != *checksum {
            return Ok(None);
        }
        let description = codec::decode::<Description>(&description).ok();
        Ok(description
            .filter(|description| description.manifest.chunks == chunks)
            .map(|description| Self { file, table_at, description }))
    }

    fn chunk(&self, number: u32) -> Result<PlacedChunk, ChunkError> {
        let id = self.description.manifest.id;
        if number >= self.description.manifest.chunks {
            return Err(ChunkError::NoChunk { id, number });
        }
        let mut entry = [0; TABLE_ENTRY_BYTES];
        let entry_at = self.table_at + u64::from(number) * TABLE_ENTRY_BYTES as u64;
        self.file.read_exact_at(&mut entry, entry_at)?;
        let (place, checksum) = entry.split_at(TABLE_ENTRY_BYTES - CHECKSUM_BYTES);
        let little =
            |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        let (offset, length) = (little(&place[..8]), little(&place[8..]));
        if offset.checked_add(length).is_none_or(|end| end > self.table_at) {
            return Err(ChunkError::Damaged(id));
        }
        let length = usize::try_from(length).map_err(|_| ChunkError::Damaged(id))?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        match VerifiedChunk::parse(&bytes) {
            Ok(chunk) if chunk.checksum == *checksum && chunk.number == number => {
                let end = offset + length as u64 - MAGIC.len() as u64;
                let last = number + 1 == self.description.manifest.chunks;
                Ok(PlacedChunk { bytes: Bytes::from(bytes), end, last })
            }
            Ok(_) | Err(_) => Err(ChunkError::Damaged(id)),
        }
    }
}

fn hash_range(file: &File, from: u64, length: u64, hasher: &mut Xxh3) -> io::Result<()> {
    const STEP_BYTES: u64 = 64 << 10;
    let mut buffer = vec![0; STEP_BYTES.min(length) as usize];
    let mut at = from;
    let end = from + length;
    while at < end {
        let step = &mut buffer[..STEP_BYTES.min(end - at) as usize];
        file.read_exact_at(step, at)?;
        hasher.update(step);
        at += step.len() as u64;
    }
    Ok(())
}

/// The directory of snapshot files.
pub(in super::super) struct SnapshotDirectory {
    path: PathBuf,
    open: Mutex<HashMap<SnapshotId, Arc<OpenFile>>>,
    /// Held while an id is given out.
    last_id: Mutex<()>,
}

impl SnapshotDirectory {
    /// Makes the directory if need be and clears it of what is unfinished, damaged or old.
    pub(in super::super) fn open(root: &Path, age_max: Duration) -> Result<Self, OpenError> {
        let path = root.join("snapshots");
        let io = |what| {
            let path = path.clone();
            move |source| OpenError::Io { what, path, source }
        };
        fs::create_dir_all(&path).map_err(io("creating"))?;
        let directory =
            Self { path: path.clone(), open: Mutex::new(HashMap::new()), last_id: Mutex::new(()) };
        directory.clear(age_max).map_err(io("clearing"))?;
        Ok(directory)
    }

    fn clear(&self, age_max: Duration) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let whole = path.extension().is_some_and(|extension| extension == FINISHED)
                && OpenFile::open(&path)?.is_some();
            if !whole || is_older(&path, age_max)? {
                tracing::info!(file = %path.display(), "deleting an unfinished or old snapshot file");
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, id: SnapshotId) -> PathBuf {
        self.path.join(format!("{id}.{FINISHED}"))
    }

    fn open_files(&self) -> MutexGuard<'_, HashMap<SnapshotId, Arc<OpenFile>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn file(&self, id: SnapshotId) -> Result<Arc<OpenFile>, ChunkError> {
        let mut open = self.open_files();
        if let Some(file) = open.get(&id) {
            return Ok(file.clone());
        }
        let file = match OpenFile::open(&self.path_of(id)) {
            Ok(Some(file)) if file.description.manifest.id == id => Arc::new(file),
            Ok(_) => return Err(ChunkError::Damaged(id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ChunkError::NoSnapshot(id));
            }
            Err(error) => return Err(error.into()),
        };
        if open.len() >= OPEN_FILES_MAX {
            open.clear();
        }
        open.insert(id, file.clone());
        Ok(file)
    }
}

fn is_older(path: &Path, age_max: Duration) -> io::Result<bool> {
    let modified = fs::metadata(path)?.modified()?;
    // A file from the future has no age: the clock was set back.
    Ok(SystemTime::now().duration_since(modified).is_ok_and(|age| age > age_max))
}

/// Handle to the node's snapshot files.
#[derive(Clone, Debug)]
pub struct Snapshots {
    pub(super) database: Database,
}

impl Database {
    /// The node's snapshot files.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots {
        Snapshots { database: self.clone() }
    }
}

impl Snapshots {
    pub(super) fn directory(&self) -> &SnapshotDirectory {
        &self.database.inner.snapshots
    }

    /// A chunk of a snapshot file, verified. May wait for the disk.
    ///
    /// # Errors
    /// [`ChunkError`].
    pub fn chunk(&self, id: SnapshotId, number: u32) -> Result<Bytes, ChunkError> {
        self.chunk_at(id, number).map(|chunk| chunk.bytes)
    }

    /// As [`Snapshots::chunk`], with the place of the chunk in the snapshot.
    ///
    /// # Errors
    /// [`ChunkError`].
    pub fn chunk_at(&self, id: SnapshotId, number: u32) -> Result<PlacedChunk, ChunkError> {
        self.directory().file(id)?.chunk(number)
    }

    /// The finished snapshot files, in order of their ids.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<SnapshotFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.directory().path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == FINISHED)
                && let Some(file) = OpenFile::open(&path)?
            {
                let Description { group, position, manifest } = file.description;
                files.push(SnapshotFile { group, position, manifest });
            }
        }
        files.sort_by_key(|file| file.manifest.id);
        Ok(files)
    }

    /// Deletes a snapshot file; deleting one that is not there succeeds.
    ///
    /// # Errors
    /// When the file cannot be deleted.
    pub fn discard(&self, id: SnapshotId) -> io::Result<()> {
        self.directory().open_files().remove(&id);
        match trash::discard(&self.directory().path_of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Deletes the snapshot files that were finished longer ago than `age`; returns which.
    ///
    /// # Errors
    /// When the directory cannot be read or a file not deleted.
    pub fn discard_older_than(&self, age: Duration) -> io::Result<Vec<SnapshotId>> {
        let mut discarded = Vec::new();
        for file in self.list()? {
            let id = file.manifest.id;
            if is_older(&self.directory().path_of(id), age)? {
                self.discard(id)?;
                discarded.push(id);
            }
        }
        Ok(discarded)
    }

    /// Gives out an id that this node never gave out before; durable on return.
    pub(super) fn next_id(&self) -> Result<SnapshotId, StorageError> {
        let _held =
            self.directory().last_id.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let db = &self.database.inner.db;
        let meta = self.database.family(Family::Meta);
        let last = db
            .get_pinned_cf(meta, keys::SNAPSHOT_ID)
            .map_err(StorageError::engine("reading the last snapshot id"))?;
        let last: SnapshotId = match last {
            Some(bytes) => stored::decode(keys::SNAPSHOT_ID, &bytes)?,
            None => SnapshotId(0),
        };
        let next = SnapshotId(last.get() + 1);
        db.put_cf_opt(meta, keys::SNAPSHOT_ID, codec::encode(&next), &options::write_durably())
            .map_err(StorageError::engine("storing a snapshot id"))?;
        Ok(next)
    }
}
