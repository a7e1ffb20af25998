//! Snapshots on their way in: taken by a follower whose place in the log is gone into a generation
//! of their own, and put in place of everything in one batch. How they are offered is in
//! [`super::offer`], the leader's book of who takes which in [`super::copies`].
//!
//! A copy outlives what interrupts it: the chunks stay on disk until the generation is swept, and
//! the same manifest, offered again by whoever leads, is taken into the same generation.

use std::sync::Arc;

use placement::NodeId;
use raft::eraftpb::{Message, Snapshot};
use serde::{Deserialize, Serialize};

use super::copies::Copies;
use super::offer::Offers;
use super::replica::{Machine, Replica};
use super::turn::Turn;
use crate::cluster::ClusterState;
use crate::codec;
use crate::event::Effect;
use crate::ids::{Generation, LogIndex, LogPosition, ReplicaId, Term};
use crate::message::{CopyFailure, CopyProgress, PeerMessage, SnapshotManifest};
use crate::settings::Settings;
use crate::storage::{Configuration, PartialCopy, WriteOp};
use crate::time::Time;

/// What group 0's snapshot carries: the state itself, it is small.
#[derive(Serialize, Deserialize)]
pub(super) struct ClusterSnapshot {
    pub state: ClusterState,
    pub configuration: Configuration,
}

/// A replica's snapshots, on their way in and out.
#[derive(Debug)]
pub(crate) struct Snapshots {
    generation_max: Generation,
    incoming: Option<Incoming>,
    partial: Option<Partial>,
    pub(super) offers: Offers,
    pub(super) copies: Copies,
}

/// A snapshot that is being taken.
#[derive(Debug)]
struct Incoming {
    offer: Message,
    manifest: SnapshotManifest,
    generation: Generation,
    bytes: u64,
    /// When the leader was last told, and which.
    told: (Time, Option<ReplicaId>),
    /// All of it is here and raft-rs has it: nothing takes its place any more.
    complete: bool,
}

impl Incoming {
    fn index(&self) -> u64 {
        self.offer.get_snapshot().get_metadata().index
    }

    /// Whether an offer of the present leader takes the place of what is being taken. A leader does
    /// not offer to a replica that takes something useful, but for the moment in which it does not
    /// know; an offer that was delayed on its way is older than the one that came before it.
    fn gives_way_to(&self, index: u64, manifest: &SnapshotManifest) -> bool {
        let newer = index > self.index()
            || index == self.index()
                && (manifest.source != self.manifest.source || manifest.id > self.manifest.id);
        !self.complete && newer && *manifest != self.manifest
    }
}

/// A copy that ended early: its chunks are on disk.
#[derive(Debug)]
struct Partial {
    manifest: SnapshotManifest,
    generation: Generation,
    since: Time,
}

impl Snapshots {
    pub fn generation_max(&self) -> Generation {
        self.generation_max
    }

    pub fn new(generation_max: Generation) -> Self {
        Self {
            generation_max,
            incoming: None,
            partial: None,
            offers: Offers::default(),
            copies: Copies::default(),
        }
    }
}

impl<R> Replica<R> {
    /// A copy that was under way when the node stopped.
    pub fn partial_copy_found(&mut self, copy: PartialCopy, now: Time) {
        let PartialCopy { group: _, generation, manifest } = copy;
        self.snapshots.generation_max = self.snapshots.generation_max.max(generation);
        self.snapshots.partial = Some(Partial { manifest, generation, since: now });
    }

    /// A leader offers a partition's snapshot. Returns whether raft-rs should see the message now:
    /// it should not before the data is here.
    pub fn snapshot_arrived(&mut self, message: &Message, turn: &mut Turn<'_, R>) -> bool {
        let raft = &self.raw.raft;
        let metadata = message.get_snapshot().get_metadata();
        if metadata.index <= raft.raft_log.committed || message.term < raft.term {
            return true;
        }
        let Ok(manifest) = codec::decode::<SnapshotManifest>(&message.get_snapshot().data) else {
            return false;
        };
        // Taking a snapshot may last longer than a leader: hearing of it is a sign of life.
        if raft.term == message.term && raft.leader_id == message.from {
            self.leadership.heard_from_leader(turn.now);
        }
        if let Some(incoming) = &mut self.snapshots.incoming {
            if incoming.manifest == manifest {
                incoming.offer = message.clone();
                self.tell_taking(turn);
                return false;
            }
            if !incoming.gives_way_to(metadata.index, &manifest) {
                self.tell_taking(turn);
                return false;
            }
            let generation = incoming.generation;
            self.snapshots.incoming = None;
            self.sweep(generation, turn);
        }
        self.begin_to_take(message, manifest, turn);
        false
    }

    fn begin_to_take(
        &mut self,
        offer: &Message,
        manifest: SnapshotManifest,
        turn: &mut Turn<'_, R>,
    ) {
        let generation = match self.snapshots.partial.take() {
            Some(partial) if partial.manifest == manifest => partial.generation,
            partial => {
                if let Some(partial) = partial {
                    self.sweep(partial.generation, turn);
                }
                self.snapshots.generation_max = Generation(self.snapshots.generation_max.get() + 1);
                self.snapshots.generation_max
            }
        };
        turn.effects.push(Effect::ReceiveSnapshot {
            group: self.group,
            manifest: manifest.clone(),
            generation,
        });
        self.snapshots.incoming = Some(Incoming {
            offer: offer.clone(),
            manifest,
            generation,
            bytes: 0,
            told: (Time::ZERO, None),
            complete: false,
        });
        self.tell_taking(turn);
        if turn.faults.half_copy_readable {
            self.snapshot_received(generation, Ok(()), turn);
        }
    }

    /// A chunk of the snapshot that is being taken is here.
    pub fn snapshot_taken(&mut self, generation: Generation, bytes: u64) {
        if let Some(incoming) = &mut self.snapshots.incoming
            && incoming.generation == generation
        {
            incoming.bytes = bytes;
        }
    }

    /// Tells the leader that a snapshot is being taken, wherever it comes from.
    fn tell_taking(&mut self, turn: &mut Turn<'_, R>) {
        let leader = self.leader();
        let offerer =
            self.snapshots.incoming.as_ref().map(|incoming| ReplicaId(incoming.offer.from));
        let to: Option<NodeId> = leader.or(offerer).and_then(|replica| self.node_of(replica));
        let (group, replica) = (self.group, self.id);
        let Some(incoming) = &mut self.snapshots.incoming else { return };
        incoming.told = (turn.now, leader);
        if let Some(to) = to {
            let progress = CopyProgress {
                index: LogIndex(incoming.index()),
                bytes_done: incoming.bytes,
                bytes_total: incoming.manifest.bytes,
            };
            let message = PeerMessage::SnapshotTaking { group, replica, progress };
            turn.effects.push(Effect::Send { to, message });
        }
    }

    /// The shell has taken a snapshot, or given up.
    pub fn snapshot_received(
        &mut self,
        generation: Generation,
        outcome: Result<(), CopyFailure>,
        turn: &mut Turn<'_, R>,
    ) {
        let Some(incoming) =
            self.snapshots.incoming.take_if(|incoming| incoming.generation == generation)
        else {
            self.sweep(generation, turn);
            return;
        };
        if let Err(reason) = outcome {
            let offerer = ReplicaId(incoming.offer.from);
            let to = self.leader_node().or_else(|| self.node_of(offerer));
            if let Some(to) = to {
                let (group, replica) = (self.group, self.id);
                let message =
                    PeerMessage::SnapshotFailed { group, replica, reason: reason.clone() };
                turn.effects.push(Effect::Send { to, message });
            }
            if let CopyFailure::Storage(_) = reason {
                // Nothing is known of what is there.
                self.sweep(generation, turn);
                return;
            }
            let manifest = incoming.manifest;
            self.snapshots.partial = Some(Partial { manifest, generation, since: turn.now });
            return;
        }
        let mut offer = incoming.offer.clone();
        self.snapshots.incoming = Some(Incoming { complete: true, ..incoming });
        // What a snapshot holds is committed whoever leads: an offer of an earlier leader is as
        // good as one of the present leader.
        if offer.term < self.raw.raft.term
            && let Some(leader) = self.leader()
        {
            offer.term = self.raw.raft.term;
            offer.from = leader.get();
        }
        self.step_raft(offer, turn);
        // raft-rs hands the snapshot out in its next ready, or has no use for it.
        if self.raw.raft.snap().is_none() {
            self.snapshots.incoming = None;
            self.sweep(generation, turn);
        }
    }

    /// Puts a snapshot in place of everything this replica had.
    pub fn install(&mut self, snapshot: &Snapshot, turn: &mut Turn<'_, R>) {
        let metadata = snapshot.get_metadata();
        let position = LogPosition { index: LogIndex(metadata.index), term: Term(metadata.term) };
        let group = self.group;
        let (from, to) = self.raw.mut_store().restore(position);
        turn.write(WriteOp::DropEntries { group, from, to });
        match &mut self.machine {
            Machine::Cluster(state) => {
                let carried: ClusterSnapshot = codec::decode(&snapshot.data)
                    .expect("group 0's snapshots are checked when their frame is read");
                let carried_state = Arc::new(carried.state);
                turn.write(WriteOp::Cluster { state: Arc::clone(&carried_state) });
                *state = Some(carried_state);
                self.raw.mut_store().record.configuration = carried.configuration;
            }
            Machine::Partition { written } => {
                written.clear();
                let incoming = self
                    .snapshots
                    .incoming
                    .take()
                    .expect("raft-rs sees a partition's snapshot only when its data is here");
                let log = self.raw.mut_store();
                let old = log.record.generation;
                log.record.generation = incoming.generation;
                log.record.configuration = incoming.manifest.configuration;
                log.progress.state = incoming.manifest.state;
                let partition = group.partition().expect("group 0 has the other machine");
                turn.after_sync.push(Effect::SweepGeneration { partition, generation: old });
            }
        }
        self.drop_offers(turn);
        self.record_dirty = true;
        self.progress_dirty = true;
        self.truncating = None;
        self.proposals.forget_through(position.index, turn);
    }

    pub(super) fn sweep(&self, generation: Generation, turn: &mut Turn<'_, R>) {
        if let Some(partition) = self.group.partition() {
            turn.effects.push(Effect::SweepGeneration { partition, generation });
        }
    }

    /// What is due from time to time for copies in both directions.
    pub fn tend_snapshots(&mut self, turn: &mut Turn<'_, R>) {
        let leader = self.leader();
        let due = self.snapshots.incoming.as_ref().is_some_and(|incoming| {
            let (at, told) = incoming.told;
            told != leader || turn.now.since(at) >= sign_of_life(turn.settings)
        });
        if due {
            self.tell_taking(turn);
        }
        let keep = turn.settings.copy_keep;
        let old = self.snapshots.partial.take_if(|partial| turn.now.since(partial.since) >= keep);
        if let Some(partial) = old {
            self.sweep(partial.generation, turn);
        }
        self.tend_copies(turn);
        self.tend_offers(turn);
    }

    /// The replica ends: nothing of its copies is needed any more.
    pub fn abandon_copies(&mut self, turn: &mut Turn<'_, R>) {
        let incoming = self.snapshots.incoming.take().map(|it| it.generation);
        let partial = self.snapshots.partial.take().map(|it| it.generation);
        for generation in incoming.into_iter().chain(partial) {
            self.sweep(generation, turn);
        }
        self.drop_offers(turn);
    }
}

/// How often a replica says that it is taking a snapshot: often enough that a few lost messages
/// are not taken for a stall.
fn sign_of_life(settings: &Settings) -> std::time::Duration {
    settings.snapshot_stall / 4
}

/// Checks the data of a group 0 snapshot as it comes from the network.
#[must_use]
pub fn is_cluster_snapshot(data: &[u8]) -> bool {
    codec::decode::<ClusterSnapshot>(data).is_ok_and(|carried| carried.state.check().is_ok())
}
