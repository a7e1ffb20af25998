//! Taking snapshots from other nodes, and giving chunks of this node's to them.
//!
//! The taker pulls: it asks for a few chunks ahead and holds no more than those in memory. A broken
//! connection costs the chunks that were on it; a source that stays away for too long ends the
//! copy, and the core says what comes next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use kvcore::message::{CopyFailure, SnapshotManifest};
use kvcore::{Event, Generation, GroupId, SnapshotId};
use metrics::counter;
use placement::{NodeId, PartitionId};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError};

use crate::core_thread::CoreHandle;
use crate::storage::Database;
use crate::storage::snapshot::{ChunkError, InstallError, SnapshotInstaller};
use crate::transport::{Answerer, CallError, PeerAnswer, PeerRefusal, PeerRequest, Peers};

/// Snapshots taken at a time.
const RECEIVED_MAX: usize = 2;
/// Chunks asked for ahead: with chunks of about a megabyte, the memory of a copy.
const WINDOW: usize = 3;
/// Time for one chunk to come.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// A copy without a new chunk for this long is given up.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between attempts to get one chunk.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// A chunk that arrives damaged is asked for again this often.
const DAMAGE_RETRIES_MAX: u32 = 3;
/// Chunks read from this node's disk at a time, for all takers.
const SERVED_MAX: usize = 4;

/// Starts copies for the core. Lives on the core's thread.
#[derive(Debug)]
pub(crate) struct SnapshotReceiver {
    copy: Copier,
    runtime: Handle,
    running: HashMap<GroupId, AbortHandle>,
}

#[derive(Clone, Debug)]
struct Copier {
    peers: Peers,
    database: Database,
    core: CoreHandle,
    slots: Arc<Semaphore>,
}

/// Why a copy was given up.
#[derive(Debug, Error)]
enum CopyError {
    #[error("the source does not have the snapshot any more")]
    Gone,
    #[error("no chunk came for {} s; the last attempt: {last}", PROGRESS_TIMEOUT.as_secs())]
    Stalled { last: String },
    #[error("the snapshot cannot be installed: {0}")]
    Install(#[from] InstallError),
    #[error("the installation was interrupted: {0}")]
    Interrupted(#[from] JoinError),
    #[error("group 0 has no snapshot files")]
    NotAPartition,
}

impl CopyError {
    fn into_failure(self) -> CopyFailure {
        match self {
            Self::Gone => CopyFailure::SourceGone,
            Self::Stalled { .. } => CopyFailure::Stalled,
            Self::Install(InstallError::Chunk { number, .. }) => {
                CopyFailure::Damaged { chunk: number }
            }
            Self::Install(error) => CopyFailure::storage(error.to_string()),
            Self::Interrupted(error) => CopyFailure::storage(error.to_string()),
            Self::NotAPartition => CopyFailure::storage(self.to_string()),
        }
    }
}

impl SnapshotReceiver {
    /// A receiver without copies. It must be made within a tokio runtime, on which copies run.
    pub fn new(peers: Peers, database: Database, core: CoreHandle) -> Self {
        let slots = Arc::new(Semaphore::new(RECEIVED_MAX));
        let copy = Copier { peers, database, core, slots };
        Self { copy, runtime: Handle::current(), running: HashMap::new() }
    }

    /// Starts a copy in place of any other of the same group.
    pub fn receive(&mut self, group: GroupId, manifest: SnapshotManifest, generation: Generation) {
        let copy = self.copy.clone();
        let task = self.runtime.spawn(async move {
            let taken = copy.take(group, manifest, generation).await;
            if let Err(error) = &taken {
                tracing::warn!(%group, %error, "a snapshot could not be taken");
            }
            let outcome = taken.map_err(CopyError::into_failure);
            copy.core.deliver(Event::SnapshotReceived { group, generation, outcome }).await;
        });
        self.running.retain(|_, task| !task.is_finished());
        if let Some(earlier) = self.running.insert(group, task.abort_handle()) {
            earlier.abort();
        }
    }
}

impl Drop for SnapshotReceiver {
    fn drop(&mut self) {
        for task in self.running.values() {
            task.abort();
        }
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
        let _slot = self.slots.acquire().await.expect("the semaphore is never closed");
        let (source, id, chunks) = (manifest.source, manifest.id, manifest.chunks);
        tracing::info!(%group, %source, bytes = manifest.bytes, "taking a snapshot");
        let database = self.database.clone();
        let mut installer =
            blocking(move || SnapshotInstaller::begin(&database, manifest, partition, generation))
                .await??;
        let mut fetched = futures_util::stream::iter(0..chunks)
            .map(|number| self.fetch(source, group, id, number))
            .buffered(WINDOW);
        let mut number = 0;
        while let Some(chunk) = fetched.next().await {
            let mut chunk = chunk?;
            let mut attempts = 0;
            loop {
                let added;
                (installer, added) = blocking(move || {
                    let added = installer.add_chunk(number, &chunk);
                    (installer, added)
                })
                .await?;
                match added {
                    Ok(()) => break,
                    Err(InstallError::Chunk { .. }) if attempts < DAMAGE_RETRIES_MAX => {
                        attempts += 1;
                        chunk = self.fetch(source, group, id, number).await?;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            number += 1;
        }
        drop(fetched);
        blocking(move || installer.finish()).await??;
        tracing::info!(%group, %source, chunks, "took a snapshot");
        Ok(())
    }

    /// Gets one chunk, over as many connections as it takes.
    async fn fetch(
        &self,
        source: NodeId,
        group: GroupId,
        id: SnapshotId,
        number: u32,
    ) -> Result<Bytes, CopyError> {
        let give_up = Instant::now() + PROGRESS_TIMEOUT;
        loop {
            let request = PeerRequest::SnapshotChunk { group, id, number };
            let deadline = Instant::now() + CHUNK_TIMEOUT;
            let last = match self.peers.call(source, request, deadline).await {
                Ok(PeerAnswer::Chunk(bytes)) => {
                    let received = bytes.len() as u64;
                    counter!("ringkv_snapshot_bytes_received_total").increment(received);
                    return Ok(bytes);
                }
                Ok(PeerAnswer::Refused(PeerRefusal::NoSnapshot)) => return Err(CopyError::Gone),
                Ok(PeerAnswer::Refused(refusal)) => refusal.to_string(),
                Ok(_) => "an answer to another request".to_owned(),
                Err(error @ (CallError::NotSent(_) | CallError::Lost | CallError::Deadline)) => {
                    error.to_string()
                }
            };
            if Instant::now() >= give_up {
                return Err(CopyError::Stalled { last });
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// Runs what may wait for the disk where it may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(work).await
}

/// Gives chunks of this node's snapshots to others.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotSource {
    database: Database,
    core: CoreHandle,
    slots: Arc<Semaphore>,
}

impl SnapshotSource {
    pub fn new(database: Database, core: CoreHandle) -> Self {
        Self { database, core, slots: Arc::new(Semaphore::new(SERVED_MAX)) }
    }

    /// Answers with a chunk, and tells the core that the copy goes on.
    pub async fn serve(
        self,
        to: NodeId,
        group: GroupId,
        id: SnapshotId,
        number: u32,
        answerer: Answerer,
    ) {
        let _slot = self.slots.acquire().await.expect("the semaphore is never closed");
        let database = self.database.clone();
        let read = blocking(move || database.snapshots().chunk(id, number)).await;
        match read {
            Ok(Ok(bytes)) => {
                counter!("ringkv_snapshot_bytes_sent_total").increment(bytes.len() as u64);
                answerer.answer(PeerAnswer::Chunk(bytes));
                self.core.hint(Event::SnapshotProgress { group, to, bytes: 0 });
            }
            Ok(Err(
                ChunkError::NoSnapshot(_) | ChunkError::NoChunk { .. } | ChunkError::Damaged(_),
            )) => {
                answerer.refuse(PeerRefusal::NoSnapshot);
            }
            Ok(Err(error)) => {
                tracing::warn!(%id, number, %error, "cannot read a chunk of a snapshot");
                answerer.refuse(PeerRefusal::Storage { reason: error.to_string() });
            }
            Err(interrupted) => {
                answerer.refuse(PeerRefusal::Storage { reason: interrupted.to_string() });
            }
        }
    }
}
