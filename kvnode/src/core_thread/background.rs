//! Threads for the work of the core that may wait for the disk: reading logs on one, snapshots and
//! sweeps on another, digests on a third, so that a follower that lags does not wait behind a copy,
//! nor a verification behind a sweep. All but the first run at low priority.
//!
//! The queues need no bound of their own: the core has at most one fetch, one build and one digest
//! under way for each group, and one sweep for each generation that ends.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use kvcore::event::{Alarm, BuiltSnapshot};
use kvcore::message::SnapshotManifest;
use kvcore::store::PartitionState;
use kvcore::{Event, Generation, GroupId, LogIndex};
use placement::{NodeId, PartitionBits, PartitionId};

use super::effects::Alarms;
use super::handle::CoreHandle;
use crate::fatal::{AbortOnPanic, store_failed};
use crate::migrate::lower_priority;
use crate::storage::{Database, DiskGuard, ReadPoint, chain};

/// Work that may wait for the disk.
#[derive(Debug)]
pub(super) enum Job {
    FetchEntries { group: GroupId, low: LogIndex, high: LogIndex, bytes_max: u64 },
    BuildSnapshot { group: GroupId },
    DropSnapshot { manifest: SnapshotManifest },
    SweepGeneration { partition: PartitionId, generation: Generation },
    ReclaimLog { group: GroupId },
    ComputeDigest(Box<WantedDigest>),
}

/// A digest of a replica's state at one applied index, with the store as it was then.
#[derive(Debug)]
pub(super) struct WantedDigest {
    pub group: GroupId,
    pub index: LogIndex,
    pub partition: PartitionId,
    pub generation: Generation,
    pub state: PartitionState,
    /// None without a view, and then there is no digest.
    pub bits: Option<PartitionBits>,
    pub point: ReadPoint,
}

/// The threads. Dropping it stops what can be stopped and lets them finish the rest.
#[derive(Debug)]
pub(super) struct Background {
    stopping: Arc<AtomicBool>,
    log: Lane,
    bulk: Lane,
    verify: Lane,
}

/// What the threads work with.
#[derive(Clone, Debug)]
pub(super) struct Workshop {
    pub node: NodeId,
    pub database: Database,
    pub core: CoreHandle,
    pub alarms: Alarms,
    pub disk: Arc<DiskGuard>,
    /// A fault of tests: digests say that one sub-range differs.
    pub corrupt_digest: bool,
    pub stopping: Arc<AtomicBool>,
}

/// Deleted data that somebody was still reading is looked at again after this long.
const TIDY_AGAIN: Duration = Duration::from_secs(1);

/// The sub-range in which a corrupted digest differs.
const CORRUPTED_SUB_RANGE: usize = 7;

#[derive(Debug)]
struct Lane {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub fn spawn(workshop: Workshop) -> std::io::Result<Self> {
        let stopping = Arc::clone(&workshop.stopping);
        let readers = workshop.clone();
        let log = Lane::spawn("log-reader", move |jobs| readers.work(jobs))?;
        let verifiers = workshop.clone();
        let verify = Lane::spawn("verify", move |jobs| {
            lower_priority();
            verifiers.work(jobs);
        })?;
        let bulk = Lane::spawn("bulk", move |jobs| {
            lower_priority();
            workshop.work_and_tidy(jobs);
        })?;
        Ok(Self { stopping, log, bulk, verify })
    }

    pub fn start(&self, job: Job) {
        match &job {
            Job::FetchEntries { .. } => self.log.start(job),
            Job::ComputeDigest(_) => self.verify.start(job),
            Job::BuildSnapshot { .. }
            | Job::DropSnapshot { .. }
            | Job::SweepGeneration { .. }
            | Job::ReclaimLog { .. } => self.bulk.start(job),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl Lane {
    fn spawn(
        name: &str,
        work: impl FnOnce(&Receiver<Job>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, receiver) = unbounded();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _abort = AbortOnPanic("a background thread");
            work(&receiver);
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    fn start(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            jobs.send(job).expect("the thread ends after this end of the queue is gone");
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the process.
            let _ = thread.join();
        }
    }
}

impl Workshop {
    fn work(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            if !self.is_stopping() {
                self.carry_out(job);
            }
        }
    }

    /// As [`Workshop::work`]; when there is nothing else to do, gives back the space of what was
    /// deleted, so that many deletions share what that costs and nothing waits for it.
    fn work_and_tidy(&self, jobs: &Receiver<Job>) {
        loop {
            let job = match self.database.has_deleted() {
                true => jobs.recv_timeout(TIDY_AGAIN),
                false => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) if !self.is_stopping() => self.carry_out(job),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.database.reclaim_deleted(|| jobs.is_empty() && !self.is_stopping());
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn carry_out(&self, job: Job) {
        match job {
            Job::FetchEntries { group, low, high, bytes_max } => {
                match self.database.fetch_entries(group, low, high, bytes_max) {
                    Ok(entries) => self.core.tell(Event::EntriesFetched { group, low, entries }),
                    Err(error) => store_failed(&error),
                }
            }
            Job::BuildSnapshot { group } => {
                let snapshot = self.build(group);
                self.core.tell(Event::SnapshotBuilt { group, snapshot });
            }
            Job::DropSnapshot { manifest } => {
                if let Err(error) = self.database.snapshots().discard(manifest.id) {
                    tracing::warn!(id = %manifest.id, %error, "cannot delete a snapshot file");
                }
            }
            Job::ComputeDigest(wanted) => self.digest(&wanted),
            Job::ReclaimLog { group } => self.database.reclaim_log(group),
            Job::SweepGeneration { partition, generation } => {
                if let Err(error) = self.database.delete_generation_first(partition, generation) {
                    tracing::warn!(%partition, %generation, %error, "cannot sweep old data yet");
                }
            }
        }
    }

    /// Damage to the data of one replica ends its verification, not the node: it may be repaired by
    /// a fresh copy.
    fn digest(&self, wanted: &WantedDigest) {
        let WantedDigest { group, index, partition, generation, ref state, bits, ref point } =
            *wanted;
        let digest = bits.and_then(|bits| {
            match point.partition_digest(partition, generation, state, bits) {
                Ok(digest) if self.corrupt_digest => {
                    Some(digest.with_a_difference_in(CORRUPTED_SUB_RANGE))
                }
                Ok(digest) => Some(digest),
                Err(error) => {
                    self.alarms.raise(Alarm::UnreadableData { group, reason: chain(&error) });
                    None
                }
            }
        });
        self.core.tell(Event::DigestComputed { group, index, digest });
    }

    fn build(&self, group: GroupId) -> Option<BuiltSnapshot> {
        if !self.disk.has_room_for(self.bytes_of(group)).unwrap_or(true) {
            tracing::warn!(%group, "the disk has no room for a snapshot");
            return None;
        }
        let mut pace = |_bytes| match self.stopping.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        match self.database.snapshots().build(group, self.node, &mut pace) {
            Ok(built) => Some(built),
            Err(error) => {
                tracing::warn!(%group, %error, "cannot build a snapshot");
                None
            }
        }
    }

    /// Bytes of a replica's data on disk, roughly; 0 if that cannot be seen.
    fn bytes_of(&self, group: GroupId) -> u64 {
        let Some(partition) = group.partition() else { return 0 };
        let Ok(Some((record, _))) = self.database.read_point().replica(group) else { return 0 };
        self.database.partition_stats(partition, record.generation).bytes_on_disk
    }
}
