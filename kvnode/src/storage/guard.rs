//! The disk guard: refuse writes before the disk is full, since RocksDB stops for good when it is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the disk has room for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// There is room.
    Ok,
    /// Free space is below the reserve: client writes are answered with 507, Raft goes on.
    Full,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this process may still use.
    pub available: u64,
    /// Bytes of the whole file system.
    pub total: u64,
}

/// Watches the file system that holds a data directory.
#[derive(Debug)]
pub struct DiskGuard {
    path: PathBuf,
    reserve: u64,
    full: AtomicBool,
}

impl DiskGuard {
    /// A guard that keeps `reserve` bytes free. The reserve has to cover what goes on although
    /// clients' writes are refused: log, flushes and the largest compaction.
    #[must_use]
    pub fn new(path: &Path, reserve: u64) -> Self {
        Self { path: path.to_owned(), reserve, full: AtomicBool::new(false) }
    }

    /// Bytes to keep free.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    /// The state as of the last check; costs nothing.
    #[must_use]
    pub fn state(&self) -> DiskState {
        match self.full.load(Ordering::Relaxed) {
            true => DiskState::Full,
            false => DiskState::Ok,
        }
    }

    /// Asks the file system. A full disk counts as free again only with an eighth of the reserve to
    /// spare, so that the answer does not flap.
    ///
    /// # Errors
    /// The file system's; the state then stays as it was.
    pub fn check(&self) -> io::Result<DiskState> {
        let available = self.space()?.available;
        let enough = match self.state() {
            DiskState::Ok => self.reserve,
            DiskState::Full => self.reserve.saturating_add(self.reserve / 8),
        };
        self.full.store(available < enough, Ordering::Relaxed);
        metrics::gauge!("ringkv_disk_available_bytes").set(available as f64);
        Ok(self.state())
    }

    /// Whether that many bytes more leave the reserve untouched. Asks the file system.
    ///
    /// # Errors
    /// The file system's.
    pub fn has_room_for(&self, bytes: u64) -> io::Result<bool> {
        let free = self.space()?.available;
        Ok(self.state() == DiskState::Ok && free >= self.reserve.saturating_add(bytes))
    }

    /// Room on the file system now.
    ///
    /// # Errors
    /// The file system's.
    pub fn space(&self) -> io::Result<DiskSpace> {
        let status = rustix::fs::statvfs(&self.path)?;
        Ok(DiskSpace {
            available: status.f_bavail.saturating_mul(status.f_frsize),
            total: status.f_blocks.saturating_mul(status.f_frsize),
        })
    }
}
