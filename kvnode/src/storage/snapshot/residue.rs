//! What a copy that is under way keeps on disk, so that it goes on after whatever interrupts it.
//!
//! `incoming/PARTITION-GENERATION/` holds the table files that are complete, a note that lists them,
//! and a tail with the chunks that came after the last complete file. The note is durable before
//! the tail is cut. The tail needs no sync: its chunks carry their checksums, and one that a power
//! failure damaged is where the copy goes on from.
//!
//! The note is a row of records, `length (4) | bytes | xxh3-128 (16)`: first a [`Header`], then one
//! [`FileNote`] for each file. A record that is cut off ends it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kvcore::message::SnapshotManifest;
use kvcore::{Generation, codec};
use placement::PartitionId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::super::identity::sync_directory;
use super::chunk::{CHECKSUM_BYTES, HEADER_BYTES, chunk_length};

/// Directory, in the data directory, of what copies under way keep.
pub(in super::super) const INCOMING: &str = "incoming";

const NOTE: &str = "NOTE";
const TAIL: &str = "TAIL";

/// No record of a note is longer: 16 bytes for each chunk of one table file, and a key.
const RECORD_BYTES_MAX: u32 = 1 << 24;

/// What is being copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Header {
    pub partition: PartitionId,
    pub generation: Generation,
    pub manifest: SnapshotManifest,
}

/// A table file that is complete and durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileNote {
    /// Its length.
    pub bytes: u64,
    /// The checksums of the chunks in it, in order.
    pub checksums: Vec<[u8; CHECKSUM_BYTES]>,
    /// Bytes of those chunks together.
    pub chunk_bytes: u64,
    /// The last key in it.
    pub last_key: Vec<u8>,
}

/// The directory of one copy, open to be added to.
pub(super) struct Residue {
    path: PathBuf,
    note: File,
    tail: File,
    tail_bytes: u64,
    pub files: Vec<FileNote>,
}

/// The directory of a copy into a generation.
pub(in super::super) fn directory_of(
    root: &Path,
    partition: PartitionId,
    generation: Generation,
) -> PathBuf {
    root.join(INCOMING).join(format!("{partition}-{generation}"))
}

/// Whether the copy is still wanted: it is not once its directory was discarded.
pub(super) fn is_there(directory: &Path) -> bool {
    directory.join(NOTE).exists()
}

/// Deletes what a copy kept; deleting what is not there succeeds.
pub(in super::super) fn discard(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Everything in the directory of copies: the path, and whose it is unless it cannot be read.
pub(in super::super) fn list(root: &Path) -> io::Result<Vec<(PathBuf, Option<Header>)>> {
    let entries = match fs::read_dir(root.join(INCOMING)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let header = match File::open(path.join(NOTE)) {
            Ok(mut note) => read_record(&mut note)?.and_then(|bytes| codec::decode(&bytes).ok()),
            Err(_) => None,
        };
        found.push((path, header));
    }
    Ok(found)
}

/// The next record of a note; none at its end, or where it is cut off or damaged.
fn read_record(note: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let whole = |read: io::Result<()>| match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    };
    let mut length = [0; 4];
    if !whole(note.read_exact(&mut length))? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length);
    if length > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    let mut checksum = [0; CHECKSUM_BYTES];
    if !whole(note.read_exact(&mut bytes))? || !whole(note.read_exact(&mut checksum))? {
        return Ok(None);
    }
    Ok((xxh3_128(&bytes).to_le_bytes() == checksum).then_some(bytes))
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("far below the longest record");
    let mut record = length.to_le_bytes().to_vec();
    record.extend_from_slice(bytes);
    record.extend_from_slice(&xxh3_128(bytes).to_le_bytes());
    record
}

impl Residue {
    /// Begins anew, in place of whatever was there.
    pub fn create(directory: &Path, header: &Header) -> io::Result<Self> {
        discard(directory)?;
        fs::create_dir_all(directory)?;
        let mut note = File::create(directory.join(NOTE))?;
        note.write_all(&framed(&codec::encode(header)))?;
        note.sync_all()?;
        let tail = open_tail(directory)?;
        sync_directory(directory)?;
        Ok(Self { path: directory.to_owned(), note, tail, tail_bytes: 0, files: Vec::new() })
    }

    /// Goes on with a copy of exactly this; none if there is none, or its files are not whole.
    pub fn open(directory: &Path, header: &Header) -> io::Result<Option<Self>> {
        let path = directory.join(NOTE);
        let mut note = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            note => note?,
        };
        let mut whole = 0;
        let mut files = Vec::new();
        while let Some(bytes) = read_record(&mut note)? {
            if whole == 0 {
                if codec::decode::<Header>(&bytes).ok().as_ref() != Some(header) {
                    return Ok(None);
                }
            } else if let Ok(file) = codec::decode::<FileNote>(&bytes) {
                files.push(file);
            } else {
                return Ok(None);
            }
            whole += framed_length(&bytes);
        }
        if whole == 0 {
            return Ok(None);
        }
        note.set_len(whole)?;
        let residue = Self {
            path: directory.to_owned(),
            note,
            tail: open_tail(directory)?,
            tail_bytes: 0,
            files,
        };
        let is_whole = |(number, file): (usize, &FileNote)| {
            fs::metadata(residue.file(number)).is_ok_and(|found| found.len() == file.bytes)
        };
        if !residue.files.iter().enumerate().all(is_whole) {
            return Ok(None);
        }
        // What comes after the files of the note was never complete.
        discard_file(&residue.file(residue.files.len()))?;
        Ok(Some(residue))
    }

    /// Path of a table file.
    pub fn file(&self, number: usize) -> PathBuf {
        self.path.join(format!("{number:06}.sst"))
    }

    /// Where the copy is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next chunk of the tail, as its bytes; none at its end. Nothing is said of its contents.
    pub fn next_of_tail(&mut self) -> io::Result<Option<Vec<u8>>> {
        let rest = self.tail.metadata()?.len() - self.tail_bytes;
        let mut header = [0; HEADER_BYTES];
        if rest < HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.tail.read_exact_at(&mut header, self.tail_bytes)?;
        let length = chunk_length(&header);
        if rest < length {
            return Ok(None);
        }
        let mut chunk = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.tail.read_exact_at(&mut chunk, self.tail_bytes)?;
        self.tail_bytes += length;
        Ok(Some(chunk))
    }

    /// The tail ends before the chunk that [`Residue::next_of_tail`] gave last, if that was bad, or
    /// after it.
    pub fn end_tail(&mut self, bad: Option<&[u8]>) -> io::Result<()> {
        self.tail_bytes -= bad.map_or(0, |chunk| chunk.len() as u64);
        self.tail.set_len(self.tail_bytes)
    }

    /// Keeps a chunk.
    pub fn keep(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.tail.write_all_at(chunk, self.tail_bytes)?;
        self.tail_bytes += chunk.len() as u64;
        Ok(())
    }

    /// A table file is complete and durable: its chunks are in it, and no longer in the tail.
    pub fn file_complete(&mut self, file: FileNote) -> io::Result<()> {
        sync_directory(&self.path)?;
        let end = self.note.metadata()?.len();
        self.note.write_all_at(&framed(&codec::encode(&file)), end)?;
        self.note.sync_all()?;
        self.files.push(file);
        self.tail.set_len(0)?;
        self.tail_bytes = 0;
        Ok(())
    }
}

fn framed_length(bytes: &[u8]) -> u64 {
    (4 + bytes.len() + CHECKSUM_BYTES) as u64
}

fn open_tail(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(directory.join(TAIL))
}

fn discard_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
