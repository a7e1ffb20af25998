//! Taking snapshots from other nodes.
//!
//! A broken connection costs the chunks that were on it; a source that stays away for too long ends
//! the attempt, and the core says what comes next. What was taken until then is kept.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use kvcore::message::{CopyFailure, SnapshotManifest};
use kvcore::{Event, Generation, GroupId, SnapshotId};
use metrics::{counter, gauge};
use placement::{NodeId, PartitionId};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::limits::{CopyLimits, Slots};
use super::threads::{CopyThreads, Stopping};
use super::throttle::{Direction, Throttle};
use crate::core_thread::CoreHandle;
use crate::storage::snapshot::{InstallError, SnapshotInstaller};
use crate::storage::{Database, DiskGuard, StorageError, chain};
use crate::transport::{PeerAnswer, PeerRefusal, PeerRequest, Peers};

/// Chunks asked for ahead: with chunks of about a megabyte, the memory of a copy.
const WINDOW: usize = 3;
/// Time for one chunk to come.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// An attempt without a new chunk for this long is given up. Time in which this node or the source
/// waits for its budget does not count.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between attempts to get one chunk.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// A chunk that arrives damaged is asked for again this often.
const DAMAGE_RETRIES_MAX: u32 = 3;

/// What a receiver works with.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverParts {
    pub peers: Peers,
    pub database: Database,
    pub core: CoreHandle,
    pub threads: CopyThreads,
    pub disk: Arc<DiskGuard>,
}

/// Starts copies for the core. Lives on the core's thread.
#[derive(Debug)]
pub(crate) struct SnapshotReceiver {
    copier: Copier,
    runtime: Handle,
    running: HashMap<GroupId, (Generation, AbortHandle)>,
}

#[derive(Clone, Debug)]
struct Copier {
    parts: ReceiverParts,
    slots: Slots,
    throttle: Arc<Throttle>,
}

/// One copy.
#[derive(Clone, Debug)]
struct Copy {
    group: GroupId,
    source: NodeId,
    id: SnapshotId,
    /// Bytes of a chunk, on average.
    chunk_bytes: u64,
}

/// Why an attempt was given up.
#[derive(Debug, Error)]
enum CopyError {
    #[error("the source does not have the snapshot any more")]
    Gone,
    #[error("no chunk came for {} s; the last attempt: {last}", PROGRESS_TIMEOUT.as_secs())]
    Stalled { last: String },
    #[error("the disk has no room for it")]
    DiskFull,
    #[error("how much room the disk has cannot be seen")]
    DiskUnknown(#[source] io::Error),
    #[error("the snapshot cannot be installed")]
    Install(#[from] InstallError),
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error("group 0 has no snapshot files")]
    NotAPartition,
}

impl CopyError {
    fn into_failure(self) -> CopyFailure {
        match self {
            Self::Gone => CopyFailure::SourceGone,
            // A node that stops has to do with its copies when it is back.
            Self::Stalled { .. } | Self::Stopping(_) => CopyFailure::Stalled,
            Self::DiskFull => CopyFailure::DiskFull,
            Self::Install(InstallError::Chunk { number, .. }) => {
                CopyFailure::Damaged { chunk: number }
            }
            Self::Install(ref error) if is_out_of_space(error) => CopyFailure::DiskFull,
            Self::Install(_) | Self::DiskUnknown(_) | Self::NotAPartition => {
                CopyFailure::storage(chain(&self))
            }
        }
    }
}

fn is_out_of_space(error: &InstallError) -> bool {
    match error {
        InstallError::Io(error) => error.kind() == io::ErrorKind::StorageFull,
        // RocksDB has the system's words, and no kind for it.
        InstallError::Storage(StorageError::Engine { source, .. }) => {
            source.as_ref().contains("No space left on device")
        }
        InstallError::Storage(StorageError::Value { .. })
        | InstallError::GenerationInUse { .. }
        | InstallError::OutOfOrder { .. }
        | InstallError::Chunk { .. }
        | InstallError::Incomplete { .. }
        | InstallError::Mismatch
        | InstallError::Failed => false,
    }
}

impl SnapshotReceiver {
    /// A receiver without copies. It must be made within a tokio runtime, on which copies run.
    pub fn new(parts: ReceiverParts, limits: watch::Receiver<CopyLimits>) -> Self {
        let throttle = Arc::new(Throttle::new(Direction::In, limits.clone()));
        let copier = Copier { parts, slots: Slots::new(limits), throttle };
        Self { copier, runtime: Handle::current(), running: HashMap::new() }
    }

    /// Starts a copy in place of any other of the same group.
    pub fn receive(&mut self, group: GroupId, manifest: SnapshotManifest, generation: Generation) {
        if let Some((_, earlier)) = self.running.remove(&group) {
            earlier.abort();
        }
        let copier = self.copier.clone();
        let task = self.runtime.spawn(async move {
            let taken = copier.take(group, manifest, generation).await;
            if let Err(error) = &taken {
                tracing::warn!(%group, error = chain(error), "a snapshot could not be taken");
            }
            let outcome = taken.map_err(CopyError::into_failure);
            let event = Event::SnapshotReceived { group, generation, outcome };
            copier.parts.core.deliver(event).await;
        });
        self.running.retain(|_, (_, task)| !task.is_finished());
        self.running.insert(group, (generation, task.abort_handle()));
    }

    /// Ends the copy into a generation: nobody wants it any more.
    pub fn cancel(&mut self, group: GroupId, generation: Generation) {
        if self.running.get(&group).is_some_and(|(of, _)| *of == generation)
            && let Some((_, task)) = self.running.remove(&group)
        {
            task.abort();
        }
    }
}

impl Drop for SnapshotReceiver {
    fn drop(&mut self) {
        for (_, task) in self.running.values() {
            task.abort();
        }
    }
}

/// Counts a copy among those that run, until it is dropped.
struct Running;

impl Running {
    fn new() -> Self {
        gauge!("ringkv_copies_running", "direction" => "in").increment(1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        gauge!("ringkv_copies_running", "direction" => "in").decrement(1);
    }
}

impl Copier {
    async fn take(
        &self,
        group: GroupId,
        manifest: SnapshotManifest,
        generation: Generation,
    ) -> Result<(), CopyError> {
        let partition: PartitionId = group.partition().ok_or(CopyError::NotAPartition)?;
        let _slot = self.slots.take().await;
        let _running = Running::new();
        let (chunks, bytes) = (manifest.chunks, manifest.bytes);
        let chunk_bytes = bytes.div_ceil(u64::from(chunks.max(1)));
        let copy = Copy { group, source: manifest.source, id: manifest.id, chunk_bytes };
        let (database, disk) = (self.parts.database.clone(), Arc::clone(&self.parts.disk));
        let begin = move || {
            // Before anything is written.
            refuse_full_disk(&disk, 0)?;
            let installer = SnapshotInstaller::begin(&database, manifest, partition, generation)?;
            refuse_full_disk(&disk, bytes.saturating_sub(installer.bytes()))?;
            Ok::<_, CopyError>(installer)
        };
        let mut installer = self.parts.threads.run(begin).await??;
        let first = installer.resume_point();
        tracing::info!(%group, source = %copy.source, bytes, chunks, first, "taking a snapshot");
        self.tell_taken(&copy, generation, &installer);
        let mut fetched = futures_util::stream::iter(first..chunks)
            .map(|number| self.fetch(&copy, number))
            .buffered(WINDOW);
        let mut number = first;
        while let Some(chunk) = fetched.next().await {
            installer = self.add(&copy, installer, number, chunk?).await?;
            self.tell_taken(&copy, generation, &installer);
            number += 1;
        }
        drop(fetched);
        self.parts.threads.run(move || installer.finish()).await??;
        tracing::info!(%group, source = %copy.source, chunks, "took a snapshot");
        Ok(())
    }

    fn tell_taken(&self, copy: &Copy, generation: Generation, installer: &SnapshotInstaller) {
        let bytes = installer.bytes();
        self.parts.core.hint(Event::SnapshotTaken { group: copy.group, generation, bytes });
    }

    /// Adds a chunk, and asks for it again if it is damaged.
    async fn add(
        &self,
        copy: &Copy,
        mut installer: SnapshotInstaller,
        number: u32,
        mut chunk: Bytes,
    ) -> Result<SnapshotInstaller, CopyError> {
        let mut attempts = 0;
        loop {
            let disk = Arc::clone(&self.parts.disk);
            let added;
            (installer, added) = self
                .parts
                .threads
                .run(move || {
                    let added = refuse_full_disk(&disk, 0).and_then(|()| {
                        installer.add_chunk(number, &chunk).map_err(CopyError::from)
                    });
                    (installer, added)
                })
                .await?;
            match added {
                Ok(()) => return Ok(installer),
                Err(CopyError::Install(InstallError::Chunk { source, .. }))
                    if attempts < DAMAGE_RETRIES_MAX =>
                {
                    tracing::warn!(group = %copy.group, number, %source, "a chunk came damaged");
                    counter!("ringkv_copy_damaged_chunks_total").increment(1);
                    attempts += 1;
                    chunk = self.fetch(copy, number).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gets one chunk, over as many connections as it takes.
    async fn fetch(&self, copy: &Copy, number: u32) -> Result<Bytes, CopyError> {
        let Copy { group, source, id, chunk_bytes } = *copy;
        let mut silent = Duration::ZERO;
        loop {
            self.throttle.acquire(chunk_bytes).await;
            let request = PeerRequest::SnapshotChunk { group, id, number };
            let asked = Instant::now();
            let answer = self.parts.peers.call(source, request, asked + CHUNK_TIMEOUT).await;
            let last = match answer {
                Ok(PeerAnswer::Chunk(bytes)) => {
                    let received = bytes.len() as u64;
                    self.throttle.charge(received.saturating_sub(chunk_bytes));
                    self.throttle.refund(chunk_bytes.saturating_sub(received));
                    counter!("ringkv_snapshot_bytes_received_total").increment(received);
                    return Ok(bytes);
                }
                Ok(PeerAnswer::Refused(PeerRefusal::NoSnapshot)) => return Err(CopyError::Gone),
                Ok(PeerAnswer::Refused(refusal)) => {
                    if refusal == PeerRefusal::CopyBudget {
                        // It lives, and will serve.
                        silent = Duration::ZERO;
                    }
                    refusal.to_string()
                }
                Ok(_) => "an answer to another request".to_owned(),
                Err(error) => error.to_string(),
            };
            self.throttle.refund(chunk_bytes);
            tokio::time::sleep(RETRY_PAUSE).await;
            silent += asked.elapsed();
            if silent >= PROGRESS_TIMEOUT {
                return Err(CopyError::Stalled { last });
            }
        }
    }
}

/// Refuses if the disk guard says that there is no room, now or after so many bytes more.
fn refuse_full_disk(disk: &DiskGuard, bytes: u64) -> Result<(), CopyError> {
    match disk.has_room_for(bytes).map_err(CopyError::DiskUnknown)? {
        true => Ok(()),
        false => Err(CopyError::DiskFull),
    }
}
