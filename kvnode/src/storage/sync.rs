//! The thread that makes writes durable.
//!
//! The core writes batches without waiting and asks for syncs; this thread merges whatever waits
//! into one sync of the write-ahead log and reports the highest id. Read in RocksDB 11
//! (`DBImpl::SyncWalImpl`): the log's mutex is held while the files to sync are noted and when they
//! are marked, not during the fsync itself, and a write without `sync` never waits for a sync under
//! way. Every batch is handed to the operating system before `write` returns, since WAL flushing is
//! automatic; so a sync that begins after a request covers all that was written before it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvcore::SyncId;

use super::database::Database;
use super::error::{StorageError, chain};

/// Handle to the thread. Dropping it finishes what was asked for and joins the thread.
pub struct SyncThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Clone, Copy)]
struct Waiting {
    highest: SyncId,
    since: Instant,
}

#[derive(Default)]
struct State {
    /// Asked for since the last sync began.
    waiting: Option<Waiting>,
    /// Being synced.
    running: Option<Waiting>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl SyncThread {
    /// Starts the thread. `report` is called on it with the highest id that became durable; it must
    /// not block for long, since no sync runs meanwhile. A sync that fails ends the process: what
    /// the disk holds is unknown then, and trying again could report success for lost pages.
    ///
    /// # Errors
    /// When the operating system starts no thread.
    pub fn spawn(
        database: Database,
        report: impl Fn(SyncId) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::spawn_with(move || database.sync(), report)
    }

    /// Like [`SyncThread::spawn`], with the sync itself as an argument.
    ///
    /// # Errors
    /// When the operating system starts no thread.
    pub fn spawn_with(
        sync: impl FnMut() -> Result<(), StorageError> + Send + 'static,
        report: impl Fn(SyncId) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), wake: Condvar::new() });
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn({
            let shared = shared.clone();
            move || run(&shared, sync, report)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Asks for everything written so far to be made durable. Never waits for the disk.
    pub fn request(&self, sync: SyncId) {
        let mut state = self.shared.lock();
        match &mut state.waiting {
            Some(waiting) => waiting.highest = waiting.highest.max(sync),
            None => {
                state.waiting = Some(Waiting { highest: sync, since: Instant::now() });
                drop(state);
                self.shared.wake.notify_one();
            }
        }
    }

    /// For how long the oldest sync that is not complete has been asked for; `None` if all are.
    #[must_use]
    pub fn oldest_waiting(&self) -> Option<Duration> {
        let state = self.shared.lock();
        state.running.or(state.waiting).map(|waiting| waiting.since.elapsed())
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
    }
}

fn run(
    shared: &Shared,
    mut sync: impl FnMut() -> Result<(), StorageError>,
    report: impl Fn(SyncId),
) {
    while let Some(taken) = take(shared) {
        let began = Instant::now();
        if let Err(error) = sync() {
            // Straight to the terminal: a logger's buffer would die with the process.
            eprintln!("kvnode: {}; stopping, since nothing is known of the disk", chain(&error));
            std::process::abort();
        }
        metrics::histogram!("ringkv_disk_sync_seconds").record(began.elapsed().as_secs_f64());
        metrics::counter!("ringkv_disk_syncs_total").increment(1);
        shared.lock().running = None;
        report(taken.highest);
    }
}

/// Waits for something to sync; `None` when the thread is to end.
fn take(shared: &Shared) -> Option<Waiting> {
    let mut state = shared.lock();
    loop {
        if let Some(waiting) = state.waiting.take() {
            state.running = Some(waiting);
            return Some(waiting);
        }
        if state.stopping {
            return None;
        }
        state = shared.wake.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
}
