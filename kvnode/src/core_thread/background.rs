//! Threads for the work of the core that may wait for the disk: reading logs on one, snapshots and
//! sweeps on another, so that a follower that lags does not wait behind a copy.
//!
//! The queues need no bound of their own: the core has at most one fetch and one build under way for
//! each group, and one sweep for each generation that ends.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use kvcore::event::{Alarm, BuiltSnapshot};
use kvcore::message::SnapshotManifest;
use kvcore::store::PartitionState;
use kvcore::{Event, Generation, GroupId, LogIndex};
use placement::{NodeId, PartitionBits, PartitionId};

use super::effects::Alarms;
use super::handle::CoreHandle;
use crate::fatal::{AbortOnPanic, store_failed};
use crate::storage::{Database, ReadPoint, chain};

/// Work that may wait for the disk.
#[derive(Debug)]
pub(super) enum Job {
    FetchEntries { group: GroupId, low: LogIndex, high: LogIndex, bytes_max: u64 },
    BuildSnapshot { group: GroupId },
    DropSnapshot { manifest: SnapshotManifest },
    SweepGeneration { partition: PartitionId, generation: Generation },
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
    pub bits: PartitionBits,
    pub point: ReadPoint,
}

/// The threads. Dropping it stops what can be stopped and lets them finish the rest.
#[derive(Debug)]
pub(super) struct Background {
    stopping: Arc<AtomicBool>,
    log: Lane,
    bulk: Lane,
}

/// What the threads work with.
#[derive(Clone)]
struct Workshop {
    node: NodeId,
    database: Database,
    core: CoreHandle,
    alarms: Alarms,
    stopping: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Lane {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub fn spawn(
        node: NodeId,
        database: &Database,
        core: &CoreHandle,
        alarms: &Alarms,
    ) -> std::io::Result<Self> {
        let stopping = Arc::<AtomicBool>::default();
        let workshop = Workshop {
            node,
            database: database.clone(),
            core: core.clone(),
            alarms: alarms.clone(),
            stopping: Arc::clone(&stopping),
        };
        let log = Lane::spawn("log-reader", workshop.clone())?;
        let bulk = Lane::spawn("bulk", workshop)?;
        Ok(Self { stopping, log, bulk })
    }

    pub fn start(&self, job: Job) {
        match &job {
            Job::FetchEntries { .. } => self.log.start(job),
            Job::BuildSnapshot { .. }
            | Job::DropSnapshot { .. }
            | Job::SweepGeneration { .. }
            | Job::ComputeDigest(_) => {
                self.bulk.start(job);
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl Lane {
    fn spawn(name: &str, workshop: Workshop) -> std::io::Result<Self> {
        let (jobs, receiver) = unbounded();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || workshop.work(&receiver))?;
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
        let _abort = AbortOnPanic("a background thread");
        for job in jobs {
            if self.stopping.load(Ordering::Relaxed) {
                continue;
            }
            self.carry_out(job);
        }
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
            Job::SweepGeneration { partition, generation } => {
                if let Err(error) = self.database.sweep_generation(partition, generation) {
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
        let digest = match point.partition_digest(partition, generation, state, bits) {
            Ok(digest) => Some(digest),
            Err(error) => {
                self.alarms.raise(Alarm::UnreadableData { group, reason: chain(&error) });
                None
            }
        };
        self.core.tell(Event::DigestComputed { group, index, digest });
    }

    fn build(&self, group: GroupId) -> Option<BuiltSnapshot> {
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
}
