//! Snapshots: offered by a leader to followers whose place in the log is gone, taken by such a
//! follower into a generation of its own, and put in place of everything in one batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use placement::NodeId;
use raft::eraftpb::{Message, Snapshot, SnapshotMetadata};
use raft::{ProgressState, SnapshotStatus};
use serde::{Deserialize, Serialize};

use super::replica::{Machine, Replica};
use super::turn::Turn;
use crate::cluster::ClusterState;
use crate::codec;
use crate::event::{BuiltSnapshot, Effect};
use crate::ids::{Generation, GroupId, LogIndex, LogPosition, ReplicaId, Term};
use crate::message::{PeerMessage, SnapshotManifest};
use crate::storage::{Configuration, WriteOp};
use crate::time::Time;

/// An offered snapshot that nobody takes is dropped after this many stall times.
const OFFER_STALLS_MAX: u32 = 6;

/// What group 0's snapshot carries: the state itself, it is small.
#[derive(Serialize, Deserialize)]
struct ClusterSnapshot {
    state: ClusterState,
    configuration: Configuration,
}

/// A replica's snapshots, on their way in and out.
#[derive(Debug)]
pub(crate) struct Snapshots {
    generation_max: Generation,
    incoming: Option<Incoming>,
    building: bool,
    offered: Option<SnapshotManifest>,
    offer_used: Time,
    /// When each replica that is taking a snapshot last took a chunk.
    taking: BTreeMap<ReplicaId, Time>,
}

#[derive(Debug)]
struct Incoming {
    offer: Message,
    manifest: SnapshotManifest,
    generation: Generation,
}

impl Snapshots {
    pub fn generation_max(&self) -> Generation {
        self.generation_max
    }

    pub fn new(generation_max: Generation) -> Self {
        Self {
            generation_max,
            incoming: None,
            building: false,
            offered: None,
            offer_used: Time::ZERO,
            taking: BTreeMap::new(),
        }
    }
}

impl<R> Replica<R> {
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
            }
            return false;
        }
        self.snapshots.generation_max = Generation(self.snapshots.generation_max.get() + 1);
        let generation = self.snapshots.generation_max;
        turn.effects.push(Effect::ReceiveSnapshot {
            group: self.group,
            manifest: manifest.clone(),
            generation,
        });
        self.snapshots.incoming = Some(Incoming { offer: message.clone(), manifest, generation });
        false
    }

    /// The shell has taken a snapshot, or given up.
    pub fn snapshot_received(
        &mut self,
        generation: Generation,
        complete: bool,
        turn: &mut Turn<'_, R>,
    ) {
        let known = self.snapshots.incoming.as_ref().is_some_and(|it| it.generation == generation);
        if !known {
            self.sweep(generation, turn);
            return;
        }
        if !complete {
            self.snapshots.incoming = None;
            self.sweep(generation, turn);
            if let Some(to) = self.leader_node() {
                let message = PeerMessage::SnapshotFailed { group: self.group, replica: self.id };
                turn.effects.push(Effect::Send { to, message });
            }
            return;
        }
        let incoming = self.snapshots.incoming.as_ref().expect("it was found above");
        let mut offer = incoming.offer.clone();
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
        if from < to {
            turn.write(WriteOp::DropEntries { group, from, to });
        }
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
        self.record_dirty = true;
        self.progress_dirty = true;
        self.truncating = None;
        self.proposals.forget_through(position.index, turn);
    }

    fn sweep(&self, generation: Generation, turn: &mut Turn<'_, R>) {
        if let Some(partition) = self.group.partition() {
            turn.effects.push(Effect::SweepGeneration { partition, generation });
        }
    }

    /// Starts to build a snapshot if raft-rs wants one to offer.
    pub fn build_wanted(&mut self, turn: &mut Turn<'_, R>) {
        if !self.log().take_wanted_snapshot() || self.snapshots.building {
            return;
        }
        match &self.machine {
            Machine::Cluster(Some(state)) => {
                let data = codec::encode(&ClusterSnapshot {
                    state: ClusterState::clone(state),
                    configuration: self.configuration().clone(),
                });
                let position = self.log().progress.applied;
                self.snapshots.offer_used = turn.now;
                self.offer(position, &self.configuration().clone(), data.into());
            }
            Machine::Cluster(None) => {}
            Machine::Partition { .. } => {
                self.snapshots.building = true;
                turn.effects.push(Effect::BuildSnapshot { group: self.group });
            }
        }
    }

    /// A snapshot is built: raft-rs will ask again and find it.
    pub fn snapshot_built(&mut self, built: Option<BuiltSnapshot>, turn: &mut Turn<'_, R>) {
        self.snapshots.building = false;
        let Some(built) = built else { return };
        self.drop_offer(turn);
        self.snapshots.offer_used = turn.now;
        self.snapshots.offered = Some(built.manifest.clone());
        let data = codec::encode(&built.manifest);
        self.offer(built.position, &built.manifest.configuration, data.into());
    }

    fn offer(&mut self, position: LogPosition, configuration: &Configuration, data: Bytes) {
        let mut metadata = SnapshotMetadata {
            index: position.index.get(),
            term: position.term.get(),
            ..SnapshotMetadata::default()
        };
        metadata.set_conf_state(configuration.to_conf_state());
        let mut snapshot = Snapshot { data, ..Snapshot::default() };
        snapshot.set_metadata(metadata);
        self.raw.mut_store().offer_snapshot(Some(snapshot));
    }

    fn drop_offer(&mut self, turn: &mut Turn<'_, R>) {
        self.raw.mut_store().offer_snapshot(None);
        if let Some(manifest) = self.snapshots.offered.take() {
            turn.effects.push(Effect::DropSnapshot { group: self.group, manifest });
        }
    }

    /// A replica took a chunk of the offered snapshot.
    pub fn snapshot_progress(&mut self, to: NodeId, now: Time) {
        self.snapshots.offer_used = now;
        let replica = self
            .configuration()
            .members
            .iter()
            .find(|member| member.node == to)
            .map(|member| member.replica);
        if let Some(taken) = replica.and_then(|id| self.snapshots.taking.get_mut(&id)) {
            *taken = now;
        }
    }

    /// A replica gave up taking a snapshot: it will be offered one again.
    pub fn snapshot_failed(&mut self, replica: ReplicaId) {
        self.snapshots.taking.remove(&replica);
        if self.is_leader() {
            self.raw.report_snapshot(replica.get(), SnapshotStatus::Failure);
        }
    }

    /// Offers a snapshot again where nothing has moved for too long, and drops one nobody takes.
    pub fn tend_snapshots(&mut self, turn: &mut Turn<'_, R>) {
        let stall = turn.settings.snapshot_stall;
        let taking: Vec<ReplicaId> = if self.is_leader() {
            let tracked = self.raw.raft.prs().iter();
            tracked
                .filter(|(_, progress)| progress.state == ProgressState::Snapshot)
                .map(|(id, _)| ReplicaId(*id))
                .collect()
        } else {
            Vec::new()
        };
        self.snapshots.taking.retain(|id, _| taking.contains(id));
        for replica in &taking {
            let since = *self.snapshots.taking.entry(*replica).or_insert(turn.now);
            if turn.now.since(since) >= stall {
                self.snapshot_failed(*replica);
            }
        }
        if !taking.is_empty() {
            self.snapshots.offer_used = turn.now;
        }
        let unused = turn.now.since(self.snapshots.offer_used);
        if self.snapshots.offered.is_some() && unused >= stall * OFFER_STALLS_MAX {
            self.drop_offer(turn);
        }
        // It was built for the next answer of a follower, which is more than a tick away.
        if self.group == GroupId::CLUSTER && unused >= stall {
            self.raw.mut_store().offer_snapshot(None);
        }
    }

    /// The log must be kept from here on for a replica that is taking a snapshot.
    pub fn snapshot_floor(&self) -> Option<LogIndex> {
        let tracked = self.raw.raft.prs().iter();
        tracked
            .filter(|(_, progress)| progress.state == ProgressState::Snapshot)
            .map(|(_, progress)| LogIndex(progress.pending_snapshot))
            .min()
    }
}

/// Checks the data of a group 0 snapshot as it comes from the network.
#[must_use]
pub fn is_cluster_snapshot(data: &[u8]) -> bool {
    codec::decode::<ClusterSnapshot>(data).is_ok_and(|carried| carried.state.check().is_ok())
}
