//! Giving chunks of this node's snapshots to others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::{Event, GroupId, SnapshotId};
use metrics::{counter, gauge};
use placement::NodeId;
use tokio::sync::{Semaphore, watch};

use super::limits::CopyLimits;
use super::threads::CopyThreads;
use super::throttle::{Direction, Throttle};
use crate::core_thread::CoreHandle;
use crate::storage::Database;
use crate::storage::snapshot::ChunkError;
use crate::transport::{Answerer, PeerAnswer, PeerRefusal};

/// Chunks that are read and wait to be sent at a time, for all takers: the memory of serving.
const SERVED_MAX: usize = 4;
/// A taker that asked for nothing for this long does not count among the copies at a time.
const TAKER_IDLE_MAX: Duration = Duration::from_secs(10);
/// A request waits this long for the budget before its sender is told that it waits: less than the
/// sender's own patience.
const BUDGET_PATIENCE: Duration = Duration::from_secs(2);

/// A fault of tests: the first so many chunks leave with a flipped bit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkFault(Arc<AtomicU32>);

impl ChunkFault {
    pub fn new(chunks: u32) -> Self {
        Self(Arc::new(AtomicU32::new(chunks)))
    }

    fn apply(&self, bytes: Bytes) -> Bytes {
        let left = |left: u32| left.checked_sub(1);
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
            return bytes;
        }
        let mut damaged = bytes.to_vec();
        let middle = damaged.len() / 2;
        if let Some(byte) = damaged.get_mut(middle) {
            *byte ^= 1;
        }
        damaged.into()
    }
}

/// Gives chunks of this node's snapshots to others. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotSource {
    database: Database,
    core: CoreHandle,
    threads: CopyThreads,
    throttle: Arc<Throttle>,
    limits: watch::Receiver<CopyLimits>,
    reads: Arc<Semaphore>,
    takers: Arc<Mutex<HashMap<(NodeId, GroupId), Instant>>>,
    fault: ChunkFault,
}

impl SnapshotSource {
    pub fn new(
        database: Database,
        core: CoreHandle,
        threads: CopyThreads,
        limits: watch::Receiver<CopyLimits>,
        fault: ChunkFault,
    ) -> Self {
        Self {
            database,
            core,
            threads,
            throttle: Arc::new(Throttle::new(Direction::Out, limits.clone())),
            limits,
            reads: Arc::new(Semaphore::new(SERVED_MAX)),
            takers: Arc::default(),
            fault,
        }
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
        if !self.admit(to, group) {
            answerer.refuse(PeerRefusal::CopyBudget);
            return;
        }
        let budget = async {
            let read = self.reads.acquire().await.expect("the semaphore is never closed");
            self.throttle.acquire(0).await;
            read
        };
        let Ok(_read) = tokio::time::timeout(BUDGET_PATIENCE, budget).await else {
            answerer.refuse(PeerRefusal::CopyBudget);
            return;
        };
        let database = self.database.clone();
        let read = self.threads.run(move || database.snapshots().chunk_at(id, number)).await;
        match read {
            Ok(Ok(chunk)) => {
                let sent = chunk.bytes.len() as u64;
                self.throttle.charge(sent);
                counter!("ringkv_snapshot_bytes_sent_total").increment(sent);
                answerer.answer(PeerAnswer::Chunk(self.fault.apply(chunk.bytes)));
                self.core.hint(Event::SnapshotProgress { group, to, bytes: chunk.end });
            }
            Ok(Err(
                error @ (ChunkError::NoSnapshot(_)
                | ChunkError::NoChunk { .. }
                | ChunkError::Damaged(_)),
            )) => {
                tracing::info!(%group, %to, %error, "a chunk is not served");
                answerer.refuse(PeerRefusal::NoSnapshot);
            }
            Ok(Err(error)) => {
                tracing::warn!(%id, number, %error, "cannot read a chunk of a snapshot");
                answerer.refuse(PeerRefusal::Storage { reason: error.to_string() });
            }
            Err(_stopping) => answerer.refuse(PeerRefusal::ShuttingDown),
        }
    }

    /// Whether this copy is among those that are served at a time.
    fn admit(&self, to: NodeId, group: GroupId) -> bool {
        let allowed = self.limits.borrow().copies_at_a_time as usize;
        let now = Instant::now();
        let mut takers = self.takers.lock().unwrap_or_else(PoisonError::into_inner);
        takers.retain(|_, last| now.duration_since(*last) < TAKER_IDLE_MAX);
        let admitted = takers.contains_key(&(to, group)) || takers.len() < allowed;
        if admitted {
            takers.insert((to, group), now);
        }
        gauge!("ringkv_copies_running", "direction" => "out").set(takers.len() as f64);
        admitted
    }
}
