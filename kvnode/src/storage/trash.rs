//! How files of the store are deleted: in small pieces, a few at a time.
//!
//! Where the file system passes freed blocks on to the device (mount option `discard`), the deletion
//! of a file of 64 MiB keeps the device busy for up to a tenth of a second, and every sync of the log
//! waits for that. A flush or a compaction leaves several such files behind at once. RocksDB can
//! rename them to `*.trash` and delete them slowly ("slow deletion"), but in pieces of 64 MiB, and
//! nothing in its C interface changes that. So it is told a rate at which it never gets to it, and the
//! thread here cuts the files down.
//!
//! A crash loses nothing: such a file is in no version of the store, and RocksDB renames whatever it
//! finds to be obsolete when it opens.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, Env, Options};

/// Bytes freed at a time: a sync waits a millisecond or two for that.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes freed per second; more than compactions leave behind in the long run, or the disk would fill
/// with what is gone.
const BYTES_PER_SECOND: f64 = (128 << 20) as f64;
/// How often the thread looks for files.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The end of the names that RocksDB gives to files to be deleted (`DeleteScheduler`).
const EXTENSION: &str = "trash";

/// The thread that deletes. Dropping it leaves the rest to the next start.
pub(super) struct Trash {
    directories: [PathBuf; 2],
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Trash {
    /// Starts the thread for the directories of a store that was opened with options that
    /// [`postpone_deletions`] has seen, and of its snapshot files.
    ///
    /// # Errors
    /// When the operating system starts no thread.
    pub fn spawn(directories: [PathBuf; 2]) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let thread = std::thread::Builder::new().name("trash".to_owned()).spawn({
            let directories = directories.clone();
            move || {
                while pause(&stopped, LOOK_EVERY) {
                    delete_all(&directories, |started, bytes| {
                        let pace = Duration::from_secs(1).mul_f64(bytes as f64 / BYTES_PER_SECOND);
                        pause(&stopped, pace.saturating_sub(started.elapsed()))
                    });
                }
            }
        })?;
        Ok(Self { directories, stop: Some(stop), thread: Some(thread) })
    }

    /// Deletes what there is at once, and what is added until there is no more for a while, as long
    /// as that does not take longer than `patience`.
    pub fn empty(&self, patience: Duration) {
        let give_up = Instant::now() + patience;
        let mut clean_looks = 0;
        while clean_looks < 2 && Instant::now() < give_up {
            clean_looks = match delete_all(&self.directories, |_, _| true) {
                0 => clean_looks + 1,
                _ => 0,
            };
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It ends the process if it panics.
            let _ = thread.join();
        }
    }
}

/// Waits; returns whether to go on.
fn pause(stopped: &Receiver<()>, pause: Duration) -> bool {
    matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
}

/// Deletes the files that wait for it, and returns how many there were. `go_on` is asked after each
/// piece, with the time at which that was begun and its bytes: small files go by the hundred.
fn delete_all(directories: &[PathBuf], mut go_on: impl FnMut(Instant, u64) -> bool) -> usize {
    let mut files = Vec::new();
    for directory in directories {
        if let Err(error) = list_into(&mut files, directory) {
            tracing::warn!(%error, directory = %directory.display(), "files to delete are not listed");
        }
    }
    for file in &files {
        match delete(file, &mut go_on) {
            Ok(true) => {}
            Ok(false) => break,
            // Somebody was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, file = %file.display(), "it cannot be deleted"),
        }
    }
    files.len()
}

fn list_into(files: &mut Vec<PathBuf>, directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            files.push(path);
        }
    }
    Ok(())
}

/// Leaves a file to the thread that deletes, as RocksDB does with its own; it is gone under its name.
///
/// # Errors
/// When it cannot be renamed.
pub(super) fn discard(file: &Path) -> io::Result<()> {
    fs::rename(file, file.with_added_extension(EXTENSION))
}

/// Deletes a file piece by piece from its end; whole if it has another name, under which somebody
/// keeps it. Returns whether it is gone.
fn delete(file: &Path, go_on: &mut impl FnMut(Instant, u64) -> bool) -> io::Result<bool> {
    let opened = File::options().write(true).open(file)?;
    let found = opened.metadata()?;
    let mut bytes = if found.nlink() == 1 { found.len() } else { 0 };
    while bytes > PIECE_BYTES {
        let started = Instant::now();
        bytes -= PIECE_BYTES;
        opened.set_len(bytes)?;
        if !go_on(started, PIECE_BYTES) {
            return Ok(false);
        }
    }
    let started = Instant::now();
    fs::remove_file(file)?;
    drop(opened);
    Ok(go_on(started, bytes))
}

/// Makes a store that is opened with these options rename its obsolete files, and leave them.
///
/// # Errors
/// RocksDB's, when it has no environment.
#[expect(unsafe_code, reason = "the wrapper has no setter for this")]
pub(super) fn postpone_deletions(options: &mut Options) -> Result<(), rocksdb::Error> {
    /// Bytes per second: it deletes its first file at once and waits for a year or so after that.
    const NEVER: i64 = 1;
    /// It deletes at once when more than so many times the bytes of the store wait.
    const NO_LIMIT: f64 = 1e9;
    let env = Env::new()?;
    // SAFETY: the pointers are live during the calls. The manager refers to RocksDB's default
    // environment, which is never destroyed. The options share the ownership of the manager, so that
    // its handle may go.
    unsafe {
        let manager = ffi::rocksdb_sst_file_manager_create(env.as_raw_ptr());
        ffi::rocksdb_sst_file_manager_set_delete_rate_bytes_per_second(manager, NEVER);
        ffi::rocksdb_sst_file_manager_set_max_trash_db_ratio(manager, NO_LIMIT);
        ffi::rocksdb_options_set_sst_file_manager(options.as_raw_ptr(), manager);
        ffi::rocksdb_sst_file_manager_destroy(manager);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(directory: &Path, name: &str, bytes: u64) -> PathBuf {
        let path = directory.join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    #[test]
    fn files_go_in_pieces_and_only_those_that_are_to_be_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let kept = file(directory.path(), "000001.sst", 10);
        let large = file(directory.path(), "000002.sst.trash", 2 * PIECE_BYTES + 1);
        let mut sizes = Vec::new();
        let deleted = delete_all(&[directory.path().to_owned()], |_, _| {
            sizes.push(fs::metadata(&large).map(|found| found.len()).ok());
            true
        });
        assert_eq!(deleted, 1);
        assert_eq!(sizes, [Some(PIECE_BYTES + 1), Some(1), None]);
        assert!(kept.exists());
    }

    #[test]
    fn a_file_with_another_name_keeps_its_content_there() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = 3 * PIECE_BYTES;
        let waiting = file(directory.path(), "000003.log.trash", bytes);
        let backup = directory.path().join("backup");
        fs::hard_link(&waiting, &backup).unwrap();
        delete_all(&[directory.path().to_owned()], |_, _| true);
        assert!(!waiting.exists());
        assert_eq!(fs::metadata(backup).unwrap().len(), bytes);
    }

    #[test]
    fn one_that_is_told_to_stop_leaves_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let waiting = file(directory.path(), "000004.sst.trash", 3 * PIECE_BYTES);
        delete_all(&[directory.path().to_owned()], |_, _| false);
        assert_eq!(fs::metadata(&waiting).unwrap().len(), 2 * PIECE_BYTES);
        delete_all(&[directory.path().to_owned()], |_, _| true);
        assert!(!waiting.exists());
    }
}
