//! Threads for the work of the core that may wait for the disk: reading logs on one, snapshots and
//! sweeps on another, digests on a third, so that a follower that lags does not wait behind a copy,
//! nor a verification behind a sweep. All but the first run at low priority.
//!
//! The queues need no bound of their own: the core has at most one fetch and one build under way for
//! each group, one sweep for each generation that ends, and of digests only each group's newest counts.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    newest_digests: NewestDigests,
}

/// The index of the last digest asked for in each group: nobody waits for those before any more.
type NewestDigests = Arc<Mutex<HashMap<GroupId, LogIndex>>>;

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
    pub newest_digests: NewestDigests,
}

/// The space of deleted data is given back when nothing was deleted, nor anything else to do, for this
/// long: partitions that leave one after the other share table files, and each is rewritten once.
const TIDY_AFTER: Duration = Duration::from_secs(2);
/// It waits at the most this long.
const TIDY_WITHIN: Duration = Duration::from_secs(30);

/// Snapshots and sweeps take what others leave. Somebody waits for digests, with a patience that ends.
const BULK_NICENESS: i32 = 19;
const VERIFY_NICENESS: i32 = 5;

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
        let newest_digests = Arc::clone(&workshop.newest_digests);
        let readers = workshop.clone();
        let log = Lane::spawn("log-reader", move |jobs| readers.work(jobs))?;
        let verifiers = workshop.clone();
        let verify = Lane::spawn("verify", move |jobs| {
            lower_priority(VERIFY_NICENESS);
            verifiers.work(jobs);
        })?;
        let bulk = Lane::spawn("bulk", move |jobs| {
            lower_priority(BULK_NICENESS);
            workshop.work_and_tidy(jobs);
        })?;
        Ok(Self { stopping, log, bulk, verify, newest_digests })
    }

    pub fn start(&self, job: Job) {
        match &job {
            Job::FetchEntries { .. } => self.log.start(job),
            Job::ComputeDigest(wanted) => {
                let mut newest = lock(&self.newest_digests);
                newest.insert(wanted.group, wanted.index);
                drop(newest);
                self.verify.start(job);
            }
            Job::BuildSnapshot { .. }
            | Job::DropSnapshot { .. }
            | Job::SweepGeneration { .. }
            | Job::ReclaimLog { .. } => self.bulk.start(job),
        }
    }
}

fn lock(newest: &NewestDigests) -> MutexGuard<'_, HashMap<GroupId, LogIndex>> {
    newest.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// As [`Workshop::work`], and gives back the space of what was deleted.
    fn work_and_tidy(&self, jobs: &Receiver<Job>) {
        let mut deleted_at = None;
        loop {
            if self.database.has_deleted() {
                deleted_at.get_or_insert_with(Instant::now);
            }
            let job = match deleted_at {
                Some(_) => jobs.recv_timeout(TIDY_AFTER),
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let is_quiet = matches!(job, Err(RecvTimeoutError::Timeout));
            match job {
                Ok(job) if !self.is_stopping() => self.carry_out(job),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if deleted_at.is_some_and(|at: Instant| is_quiet || at.elapsed() >= TIDY_WITHIN) {
                deleted_at = None;
                let mut is_first = true;
                self.database.reclaim_deleted(|| {
                    let has_turn = std::mem::take(&mut is_first) || jobs.is_empty();
                    has_turn && !self.is_stopping()
                });
            }
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
            Job::ComputeDigest(wanted) => {
                let newest = lock(&self.newest_digests).get(&wanted.group).copied();
                if newest == Some(wanted.index) {
                    self.digest(&wanted);
                }
            }
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
