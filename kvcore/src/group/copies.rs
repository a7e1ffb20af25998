//! The leader's book of the copies that replicas of its group take: who takes which snapshot, how
//! far it is, what failed, when it is tried again, and how much log is kept meanwhile.
//!
//! A copy is under way from the offer on; it is caught up once the replica has every entry that the
//! log had when the snapshot was in place. Until then the log is kept for it, up to a bound that
//! doubles each time the copy falls off it. A failure is followed by a pause that doubles too, so
//! that nothing is ever tried in a tight loop. Another leader begins with an empty book and learns
//! from the replicas which snapshots they are taking.

use std::collections::BTreeMap;
use std::time::Duration;

use placement::NodeId;
use raft::{ProgressState, SnapshotStatus};

use super::log::SnapshotWish;
use super::replica::Replica;
use super::turn::Turn;
use crate::ids::{LogIndex, ReplicaId};
use crate::message::{CopyFailure, CopyProgress};
use crate::settings::Settings;
use crate::time::Time;

/// How the copy to one replica stands, as its leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// Bytes of chunks that the replica has.
    pub bytes_done: u64,
    /// Bytes of all chunks; 0 until a snapshot is built.
    pub bytes_total: u64,
    /// Times that it was begun, resumptions included.
    pub attempts: u32,
    /// Why the last attempt that ended did not succeed.
    pub last_failure: Option<CopyFailure>,
    /// When it is tried again; none while an attempt is under way.
    pub next_attempt: Option<Time>,
}

/// The book.
#[derive(Debug, Default)]
pub(super) struct Copies {
    copies: BTreeMap<ReplicaId, Copy>,
}

#[derive(Clone, Debug)]
struct Copy {
    phase: Phase,
    /// Index of the snapshot that was last offered or taken.
    index: LogIndex,
    bytes_done: u64,
    bytes_total: u64,
    attempts: u32,
    /// Attempts that failed since the last one that did not.
    failures: u32,
    last_failure: Option<CopyFailure>,
    /// Bytes of log that are kept for it.
    log_bytes_max: u64,
    /// When something was last heard of it.
    heard: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The replica takes a snapshot.
    Taking,
    /// The snapshot is in place; the replica has the log up to the first index and is caught up at
    /// the second.
    CatchingUp { matched: LogIndex, through: LogIndex },
    /// The last attempt failed; the next one does not begin before this time.
    Waiting { until: Time },
}

/// What raft-rs knows of a replica.
#[derive(Clone, Copy)]
struct Tracked {
    replica: ReplicaId,
    matched: LogIndex,
    /// Index of the snapshot that it was sent, until it is in place.
    pending: Option<LogIndex>,
}

impl Copies {
    /// The floor under truncation for a log of so many bytes.
    pub fn log_floor(&self, bytes: u64) -> Option<LogIndex> {
        let kept = self.copies.values().filter(|copy| bytes <= copy.log_bytes_max);
        kept.map(|copy| match copy.phase {
            Phase::Taking | Phase::Waiting { .. } => copy.index,
            Phase::CatchingUp { matched, .. } => matched,
        })
        .min()
    }

    /// Indexes of the snapshots that replicas take, or may soon go on with.
    pub fn files_wanted(&self, now: Time, keep: Duration) -> Vec<LogIndex> {
        let wanted = self.copies.values().filter(|copy| match copy.phase {
            Phase::Taking => true,
            Phase::Waiting { .. } => now.since(copy.heard) < keep,
            Phase::CatchingUp { .. } => false,
        });
        wanted.map(|copy| copy.index).collect()
    }

    /// What each replica is to be offered, where not simply the newest snapshot.
    pub fn wishes(&self, now: Time) -> BTreeMap<ReplicaId, SnapshotWish> {
        let wishes = self.copies.iter().filter_map(|(replica, copy)| match copy.phase {
            Phase::Taking => Some((*replica, SnapshotWish::None)),
            Phase::Waiting { until } if now < until => Some((*replica, SnapshotWish::None)),
            Phase::Waiting { .. } => Some((*replica, SnapshotWish::At(copy.index))),
            Phase::CatchingUp { .. } => None,
        });
        wishes.collect()
    }

    fn state_of(&self, replica: ReplicaId) -> Option<CopyState> {
        let copy = self.copies.get(&replica)?;
        Some(CopyState {
            bytes_done: copy.bytes_done,
            bytes_total: copy.bytes_total,
            attempts: copy.attempts,
            last_failure: copy.last_failure.clone(),
            next_attempt: match copy.phase {
                Phase::Waiting { until } => Some(until),
                Phase::Taking | Phase::CatchingUp { .. } => None,
            },
        })
    }

    fn entry(&mut self, replica: ReplicaId, turn_now: Time, settings: &Settings) -> &mut Copy {
        self.copies.entry(replica).or_insert_with(|| Copy {
            phase: Phase::Waiting { until: Time::ZERO },
            index: LogIndex(0),
            bytes_done: 0,
            bytes_total: 0,
            attempts: 0,
            failures: 0,
            last_failure: None,
            log_bytes_max: settings.log_retain_bytes_max.saturating_mul(2),
            heard: turn_now,
        })
    }
}

/// The pause after a failure that so many failures came before.
pub(super) fn retry_pause(failures: u32, settings: &Settings) -> Duration {
    /// Enough to reach any sensible limit, few enough not to overflow.
    const DOUBLINGS_MAX: u32 = 16;
    let pause = settings.copy_retry_min * (1 << failures.min(DOUBLINGS_MAX));
    pause.min(settings.copy_retry_max)
}

impl Copy {
    /// An attempt began, of which the leader knows that much.
    fn taking(&mut self, progress: CopyProgress, now: Time) {
        if self.phase != Phase::Taking || self.index != progress.index {
            self.attempts = self.attempts.saturating_add(1);
        }
        self.phase = Phase::Taking;
        self.index = progress.index;
        self.bytes_done = progress.bytes_done;
        self.bytes_total = progress.bytes_total;
        self.heard = now;
    }

    fn failed(&mut self, failure: CopyFailure, now: Time, settings: &Settings) {
        let mut pause = retry_pause(self.failures, settings);
        self.failures = self.failures.saturating_add(1);
        if let CopyFailure::FellOffTheLog { .. } = failure {
            if self.log_bytes_max >= settings.log_copy_bytes_max {
                pause = settings.copy_retry_blocked;
            }
            let doubled = self.log_bytes_max.saturating_mul(2);
            // A bound that was above the limit from the beginning is not lowered.
            self.log_bytes_max = doubled.min(settings.log_copy_bytes_max).max(self.log_bytes_max);
        }
        self.last_failure = Some(failure.bounded());
        self.phase = Phase::Waiting { until: now + pause };
        self.heard = now;
    }
}

impl<R> Replica<R> {
    /// How the copy to a replica stands; none if it needs none, or if this replica does not lead.
    #[must_use]
    pub fn copy_of(&self, replica: ReplicaId) -> Option<CopyState> {
        if !self.is_leader() {
            return None;
        }
        self.snapshots.copies.state_of(replica)
    }

    /// How all copies stand; none if this replica does not lead.
    #[must_use]
    pub fn copies(&self) -> Vec<(ReplicaId, CopyState)> {
        let known = self.snapshots.copies.copies.keys();
        known.filter_map(|replica| Some((*replica, self.copy_of(*replica)?))).collect()
    }

    /// Tries the copies that wait for their next attempt at once: what stood in their way may be
    /// gone. Their failures so far stay known.
    pub fn retry_copies(&mut self, now: Time) {
        for copy in self.snapshots.copies.copies.values_mut() {
            if let Phase::Waiting { until } = &mut copy.phase {
                *until = now.min(*until);
                copy.failures = 0;
            }
        }
        self.publish_wishes(now);
    }

    /// A replica took a chunk of a snapshot from this node.
    pub fn snapshot_progress(&mut self, to: NodeId, bytes: u64, now: Time) {
        let members = &self.configuration().members;
        let replica = members.iter().find(|member| member.node == to).map(|it| it.replica);
        let copies = &mut self.snapshots.copies.copies;
        match replica.and_then(|replica| copies.get_mut(&replica)) {
            Some(copy) if copy.phase == Phase::Taking => {
                copy.heard = now;
                copy.bytes_done = bytes.min(copy.bytes_total);
                let index = copy.index;
                self.offer_used(index, now);
            }
            // Not the leader's book, but this node's file: which one is not worth telling.
            Some(_) | None => {
                for snapshot in self.log().offered_snapshots().to_vec() {
                    self.offer_used(LogIndex(snapshot.get_metadata().index), now);
                }
            }
        }
    }

    /// A replica says that it is taking a snapshot, from here or elsewhere.
    pub fn snapshot_taking(
        &mut self,
        replica: ReplicaId,
        progress: CopyProgress,
        turn: &Turn<'_, R>,
    ) {
        let Some(tracked) = self.raw.raft.prs().get(replica.get()) else { return };
        // What the log does not go on from is of no use: another one will be offered.
        let useful = progress.index >= self.log().record.truncated.index
            && progress.index.get() > tracked.matched;
        if !self.is_leader() || !useful {
            return;
        }
        let copy = self.snapshots.copies.entry(replica, turn.now, turn.settings);
        copy.taking(progress, turn.now);
        self.publish_wishes(turn.now);
    }

    /// A replica gave up taking a snapshot: it will be offered one again.
    pub fn snapshot_failed(
        &mut self,
        replica: ReplicaId,
        reason: CopyFailure,
        turn: &mut Turn<'_, R>,
    ) {
        if !self.is_leader() || self.raw.raft.prs().get(replica.get()).is_none() {
            return;
        }
        let copy = self.snapshots.copies.entry(replica, turn.now, turn.settings);
        let index = copy.index;
        let file_is_bad = match &reason {
            CopyFailure::Damaged { .. } | CopyFailure::SourceGone => true,
            CopyFailure::DiskFull
            | CopyFailure::Stalled
            | CopyFailure::FellOffTheLog { .. }
            | CopyFailure::Storage(_) => false,
        };
        copy.failed(reason, turn.now, turn.settings);
        if file_is_bad {
            self.drop_offer_at(index, turn);
        }
        self.raw.report_snapshot(replica.get(), SnapshotStatus::Failure);
        self.publish_wishes(turn.now);
    }

    /// Brings the book up to date with what raft-rs knows.
    pub(super) fn tend_copies(&mut self, turn: &mut Turn<'_, R>) {
        if !self.is_leader() {
            self.snapshots.copies.copies.clear();
            self.snapshots.offers.leads_since = None;
            self.publish_wishes(turn.now);
            return;
        }
        self.snapshots.offers.leads_since.get_or_insert(turn.now);
        let tracked: Vec<Tracked> = self.tracked();
        let known = |replica: &ReplicaId| tracked.iter().any(|it| it.replica == *replica);
        self.snapshots.copies.copies.retain(|replica, _| known(replica));
        for tracked in tracked {
            if let Some(failure) = self.tend_copy(tracked, turn) {
                self.snapshot_failed(tracked.replica, failure, turn);
            }
        }
        self.publish_wishes(turn.now);
    }

    fn tracked(&self) -> Vec<Tracked> {
        let followers = self.raw.raft.prs().iter().filter(|(id, _)| **id != self.id.get());
        followers
            .map(|(id, progress)| Tracked {
                replica: ReplicaId(*id),
                matched: LogIndex(progress.matched),
                pending: (progress.state == ProgressState::Snapshot)
                    .then_some(LogIndex(progress.pending_snapshot)),
            })
            .collect()
    }

    /// Brings the book up to date for one replica; returns why its copy has failed, if it has.
    fn tend_copy(&mut self, tracked: Tracked, turn: &Turn<'_, R>) -> Option<CopyFailure> {
        let Tracked { replica, matched, pending } = tracked;
        let truncated = self.log().record.truncated.index;
        let last = self.log().last();
        let offered = pending.map(|index| CopyProgress {
            index,
            bytes_done: 0,
            bytes_total: self.offered_bytes(index).unwrap_or(0),
        });
        let copies = &mut self.snapshots.copies;
        if let Some(offered) = offered {
            let copy = copies.entry(replica, turn.now, turn.settings);
            match copy.phase {
                Phase::Taking => {}
                Phase::Waiting { .. } => {
                    let bytes_done = if copy.index == offered.index { copy.bytes_done } else { 0 };
                    copy.taking(CopyProgress { bytes_done, ..offered }, turn.now);
                }
                Phase::CatchingUp { .. } => {
                    copy.taking(offered, turn.now);
                    return Some(CopyFailure::FellOffTheLog { kept_bytes: copy.log_bytes_max });
                }
            }
        }
        let copy = copies.copies.get_mut(&replica)?;
        match copy.phase {
            Phase::Taking if matched >= copy.index => {
                copy.bytes_done = copy.bytes_total;
                copy.phase = Phase::CatchingUp { matched, through: last };
                if pending.is_some_and(|pending| pending > matched) {
                    // It took another snapshot than raft-rs has sent, which goes on from here.
                    self.raw.report_snapshot(replica.get(), SnapshotStatus::Failure);
                }
            }
            Phase::Taking if copy.index < truncated => {
                return Some(CopyFailure::FellOffTheLog { kept_bytes: copy.log_bytes_max });
            }
            Phase::Taking if turn.now.since(copy.heard) >= turn.settings.snapshot_stall => {
                return Some(CopyFailure::Stalled);
            }
            Phase::Taking => {}
            Phase::CatchingUp { through, .. } if matched >= through => {
                copies.copies.remove(&replica);
            }
            Phase::CatchingUp { through, .. } => {
                copy.phase = Phase::CatchingUp { matched, through };
            }
            // It caught up through the log after all.
            Phase::Waiting { .. } if matched >= last => {
                copies.copies.remove(&replica);
            }
            Phase::Waiting { .. } => {}
        }
        None
    }
}
