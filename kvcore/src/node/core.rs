//! The turn: events in, one batch, effects out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use placement::NodeId;

use super::control::Control;
use super::disk::DiskWatch;
use super::driver::Driver;
use super::peers::Peers;
use crate::cluster::{ClusterState, HealthMonitor};
use crate::event::{Effect, Event, Refusal, Reply};
use crate::faults::{Faults, Hold};
use crate::group::Work;
use crate::group::{CopyState, GroupSummary, LearnerMail, Machine, ReadGate, Replica, Turn};
use crate::ids::{Generation, GroupId, LogIndex, ReplicaId, SyncId};
use crate::message::PeerMessage;
use crate::settings::Settings;
use crate::storage::{Boot, Store, StoreError, WriteBatch};
use crate::time::Time;

/// Turns in which a group may be driven again before its rest waits for the next event.
const DRIVE_ROUNDS_MAX: usize = 4;

/// What a core is made with.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The node's identity.
    pub node: NodeId,
    /// Times and limits.
    pub settings: Settings,
    /// Deliberate faults; [`Faults::NONE`] but in tests.
    pub faults: Faults,
    /// The time of the start.
    pub now: Time,
    /// The same time by the wall clock, in unix milliseconds.
    pub unix_ms: u64,
}

/// The core of one node. `R` is the shell's handle for an answer.
pub struct Core<R> {
    pub(super) node: NodeId,
    pub(super) settings: Settings,
    pub(super) faults: Faults,
    pub(super) replicas: BTreeMap<GroupId, Replica<R>>,
    pub(super) tombstones: BTreeSet<(GroupId, ReplicaId)>,
    pub(super) view: Option<Arc<ClusterState>>,
    pub(super) peers: Peers,
    pub(super) health: Option<HealthMonitor>,
    pub(super) disk: DiskWatch<R>,
    pub(super) dirty: BTreeSet<GroupId>,
    pub(super) next_tick: Time,
    pub(super) handing_over: bool,
    leaders: BTreeMap<GroupId, Option<NodeId>>,
    transferring: BTreeSet<GroupId>,
    /// The highest generation ever current in a group while this process runs, so that a replica
    /// created after another has ended never meets its data.
    pub(super) generations: BTreeMap<GroupId, Generation>,
    pub(super) driver: Driver,
    pub(super) control: Control,
    /// Where a test holds plans back.
    pub(super) hold: Option<Hold>,
    pub(super) misrouted_per_mille: u32,
    learner_mail: LearnerMail,
    started: Time,
    started_unix_ms: u64,
}

impl<R> Core<R> {
    /// A core from what is on disk. The effects tell the shell of the replicas and the view found.
    pub fn boot(config: CoreConfig, boot: Boot, effects: &mut Vec<Effect<R>>) -> Self {
        let CoreConfig { node, settings, faults, now, unix_ms } = config;
        let mut core = Self {
            node,
            next_tick: now + settings.tick,
            settings,
            faults,
            replicas: BTreeMap::new(),
            tombstones: boot.tombstones.into_iter().collect(),
            view: None,
            peers: Peers::new(now),
            health: None,
            disk: DiskWatch::new(),
            dirty: BTreeSet::new(),
            handing_over: false,
            leaders: BTreeMap::new(),
            transferring: BTreeSet::new(),
            generations: BTreeMap::new(),
            driver: Driver::default(),
            control: Control::default(),
            hold: None,
            misrouted_per_mille: 0,
            learner_mail: LearnerMail::default(),
            started: now,
            started_unix_ms: unix_ms,
        };
        for replica in boot.replicas {
            let group = replica.group;
            let machine = if group == GroupId::CLUSTER {
                Machine::Cluster(boot.cluster.clone())
            } else {
                Machine::Partition { written: std::collections::HashMap::new() }
            };
            let gate = ReadGate::new(faults.no_lease_check);
            let replica = Replica::boot(replica, machine, gate, now, &core.settings);
            let gate = Arc::clone(&replica.gate);
            effects.push(Effect::ReplicaCreated { group, gate });
            core.replicas.insert(group, replica);
            core.dirty.insert(group);
        }
        for (group, built) in boot.offers {
            if let Some(replica) = core.replicas.get_mut(&group) {
                replica.offer_found(built, now);
            }
        }
        for copy in boot.partial_copies {
            if let Some(replica) = core.replicas.get_mut(&copy.group) {
                replica.partial_copy_found(copy, now);
            }
        }
        if let Some(view) = boot.view {
            effects.push(Effect::ViewChanged(Arc::clone(&view)));
            core.view = Some(view);
            core.follow_view();
        }
        core
    }

    /// The wall clock, in unix milliseconds, as it went on from the node's start.
    pub(super) fn unix_ms(&self, now: Time) -> u64 {
        let since = u64::try_from(now.since(self.started).as_millis()).unwrap_or(u64::MAX);
        self.started_unix_ms.saturating_add(since)
    }

    /// When [`Core::turn`] wants to be called even if nothing happens.
    #[must_use]
    pub fn next_wake(&self) -> Time {
        if !self.dirty.is_empty() {
            return self.peers.last_turn;
        }
        if !self.transferring.is_empty() {
            // A transfer is given up after less than a tick.
            return self.next_tick.min(self.peers.last_turn + self.settings.transfer_patience);
        }
        self.next_tick
    }

    /// The replicas here at a glance.
    #[must_use]
    pub fn summaries(&self) -> Vec<GroupSummary> {
        self.replicas.values().map(Replica::summary).collect()
    }

    /// How the copy to a replica stands; none if it needs none, or if its group is not led here.
    #[must_use]
    pub fn copy_of(&self, group: GroupId, replica: ReplicaId) -> Option<CopyState> {
        self.replicas.get(&group)?.copy_of(replica)
    }

    /// The copies to replicas of groups that are led here, under way or failed.
    #[must_use]
    pub fn copies(&self) -> Vec<(GroupId, ReplicaId, CopyState)> {
        let of = |(group, replica): (&GroupId, &Replica<R>)| {
            let group = *group;
            replica.copies().into_iter().map(move |(to, state)| (group, to, state))
        };
        self.replicas.iter().flat_map(of).collect()
    }

    /// The view in force.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<ClusterState>> {
        self.view.as_ref()
    }

    /// Makes one turn, in this order: handle the events, drive the groups they touched, write one
    /// batch, and leave effects that are to be carried out in order. Only a sync that the effects
    /// ask for makes the batch durable, and what depends on it is held until then.
    ///
    /// # Errors
    /// The store's error: the node must stop.
    pub fn turn<S: Store>(
        &mut self,
        now: Time,
        events: &mut Vec<Event<R>>,
        store: &mut S,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<(), StoreError> {
        self.peers.last_turn = now;
        let settings = self.settings.clone();
        let mut batch = WriteBatch::default();
        let mut learner_mail = std::mem::take(&mut self.learner_mail);
        let mut turn = Turn {
            now,
            settings: &settings,
            faults: self.faults,
            batch: &mut batch,
            effects,
            learner_mail: &mut learner_mail,
            sync: self.disk.next_sync(),
            sync_needed: false,
            after_sync: Vec::new(),
            muted: self.disk.waiting(now) >= settings.disk_stall * 2,
        };

        // 1. Handle what happened.
        for event in events.drain(..) {
            self.handle(event, &mut turn);
        }
        self.tick_if_due(&mut turn);

        // 2. Drive the groups that were touched.
        let mut touched = BTreeSet::new();
        for _ in 0..DRIVE_ROUNDS_MAX {
            let dirty = std::mem::take(&mut self.dirty);
            if dirty.is_empty() {
                break;
            }
            for group in dirty {
                let Some(replica) = self.replicas.get_mut(&group) else { continue };
                if replica.drive(&mut turn, store)? {
                    self.dirty.insert(group);
                }
                touched.insert(group);
            }
        }
        self.after_drive(&touched, &mut turn);

        // 3. Write the batch; ask for the sync that makes it durable if something rests on it.
        for group in &touched {
            if let Some(replica) = self.replicas.get_mut(group) {
                replica.end_turn(&mut turn);
            }
        }
        let Turn { sync, sync_needed, after_sync, .. } = turn;
        self.learner_mail = learner_mail;
        self.write(batch, store)?;
        for group in &touched {
            if let Some(replica) = self.replicas.get(group) {
                replica.show_applied();
            }
        }
        if sync_needed || !after_sync.is_empty() {
            let waits = |group: &GroupId| {
                let held = self.replicas.get(group).and_then(|replica| replica.held.back());
                held.is_some_and(|held| held.sync == sync)
            };
            let groups = touched.iter().copied().filter(waits).collect();
            self.disk.requested(sync, now, groups, after_sync);
            effects.push(Effect::Sync { sync });
        }
        for group in touched {
            let transferring = self
                .replicas
                .get(&group)
                .is_some_and(|replica| replica.leadership.is_transferring());
            if transferring {
                self.transferring.insert(group);
            } else {
                self.transferring.remove(&group);
            }
        }
        Ok(())
    }

    fn write<S: Store>(&mut self, batch: WriteBatch, store: &mut S) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        if !self.faults.applied_index_apart {
            return store.write(batch);
        }
        let (progress, rest): (Vec<_>, Vec<_>) = batch
            .ops
            .into_iter()
            .partition(|op| matches!(op, crate::storage::WriteOp::Progress { .. }));
        store.write(WriteBatch { ops: rest })?;
        store.write(WriteBatch { ops: progress })
    }

    fn handle(&mut self, event: Event<R>, turn: &mut Turn<'_, R>) {
        match event {
            Event::Peer { from, messages } => {
                for message in messages {
                    self.peer_message(from, message, turn);
                }
            }
            Event::Write { partition, command, reply } => {
                let work = Work::Partition(command);
                self.submit(GroupId::of_partition(partition), work, reply, turn);
            }
            Event::Cluster { command, reply } => {
                self.submit(GroupId::CLUSTER, Work::Cluster(command), reply, turn);
            }
            Event::Read { partition, reply } => {
                match self.touch(GroupId::of_partition(partition)) {
                    Some(replica) => replica.read(reply, turn),
                    None => turn.reply(reply, Reply::Refused(Refusal::NoReplica)),
                }
            }
            Event::RenewLease { partition } => {
                if let Some(replica) = self.touch(GroupId::of_partition(partition)) {
                    replica.renew_lease();
                }
            }
            Event::Synced { sync } => self.synced(sync, turn),
            Event::EntriesFetched { group, low, entries } => {
                if let Some(replica) = self.touch(group) {
                    replica.fetched(low, entries);
                }
            }
            Event::SnapshotBuilt { group, snapshot } => {
                if let Some(replica) = self.touch(group) {
                    replica.snapshot_built(snapshot, turn);
                }
            }
            Event::SnapshotProgress { group, to, bytes } => {
                if let Some(replica) = self.touch(group) {
                    replica.snapshot_progress(to, bytes, turn.now);
                }
            }
            Event::SnapshotTaken { group, generation, bytes } => {
                if let Some(replica) = self.touch(group) {
                    replica.snapshot_taken(generation, bytes);
                }
            }
            Event::SnapshotReceived { group, generation, outcome } => {
                if let Some(replica) = self.touch(group) {
                    replica.snapshot_received(generation, outcome, turn);
                }
            }
            Event::RetryCopies => {
                for replica in self.replicas.values_mut() {
                    replica.retry_copies(turn.now);
                }
            }
            Event::DigestComputed { group, index, digest } => {
                self.digest_computed(group, index, digest, turn);
            }
            Event::AdoptView(state) => self.adopt_view(state, turn),
            Event::TransferLeadership { group, to, reply } => match self.touch(group) {
                Some(replica) => {
                    let member = replica.configuration().members.iter().find(|it| it.node == to);
                    match member.map(|member| member.replica) {
                        Some(to) => replica.transfer(to, Some(reply), turn),
                        None => turn.reply(reply, Reply::Refused(Refusal::NotNow)),
                    }
                }
                None => turn.reply(reply, Reply::Refused(Refusal::NoReplica)),
            },
            Event::HandOver => self.handing_over = true,
            Event::Misrouted { per_mille } => self.misrouted_per_mille = per_mille,
            Event::Hold(hold) => self.hold = hold,
        }
    }

    fn submit(&mut self, group: GroupId, work: Work, reply: R, turn: &mut Turn<'_, R>) {
        match self.touch(group) {
            Some(replica) => replica.submit(work, Some(reply), turn),
            None => turn.reply(reply, Reply::Refused(Refusal::NoReplica)),
        }
    }

    fn peer_message(&mut self, from: NodeId, message: PeerMessage, turn: &mut Turn<'_, R>) {
        match message {
            PeerMessage::Raft { group, message } => {
                // A message for a replica that is not here creates nothing.
                if let Some(replica) = self.touch(group) {
                    replica.step(from, message, turn);
                }
            }
            PeerMessage::Heartbeat(heartbeat) => self.heartbeat(from, heartbeat, turn),
            PeerMessage::View(state) => self.adopt_view(state, turn),
            PeerMessage::ViewRequest { known } => self.view_requested(from, known, turn),
            PeerMessage::Report(reports) => self.note_reports(reports, turn.now),
            PeerMessage::Digest { group, replica, index, digest } => {
                if let Some(it) = self.touch(group) {
                    it.digest_arrived(replica, index, digest.map(|digest| *digest), turn);
                }
            }
            PeerMessage::Destroy { group, replica, .. } => self.destroy(from, group, replica, turn),
            PeerMessage::Destroyed { group, replica } => self.replica_destroyed(group, replica),
            PeerMessage::Orphan { group, replica } => self.orphan(from, group, replica, turn),
            PeerMessage::SnapshotFailed { group, replica, reason } => {
                if let Some(it) = self.touch(group) {
                    it.snapshot_failed(replica, reason, turn);
                }
            }
            PeerMessage::SnapshotTaking { group, replica, progress } => {
                if let Some(it) = self.touch(group) {
                    it.snapshot_taking(replica, progress, turn);
                }
            }
        }
    }

    pub(super) fn touch(&mut self, group: GroupId) -> Option<&mut Replica<R>> {
        let replica = self.replicas.get_mut(&group)?;
        self.dirty.insert(group);
        Some(replica)
    }

    fn synced(&mut self, sync: SyncId, turn: &mut Turn<'_, R>) {
        let completed = self.disk.completed(sync);
        turn.effects.extend(completed.effects);
        for group in completed.groups {
            if let Some(replica) = self.touch(group) {
                replica.synced(sync, turn);
            }
        }
    }

    /// Ticks come once each, at least a tick apart: after a stall the missed ones are not made up.
    fn tick_if_due(&mut self, turn: &mut Turn<'_, R>) {
        if turn.now < self.next_tick {
            for group in self.transferring.clone() {
                if let Some(replica) = self.touch(group) {
                    replica.end_overdue_transfer(turn);
                }
            }
            return;
        }
        let missed = turn.now.since(self.next_tick).as_nanos() / self.settings.tick.as_nanos();
        let ticks = if turn.faults.tick_bursts { 1 + missed } else { 1 };
        self.next_tick = turn.now + self.settings.tick;
        for _ in 0..ticks {
            for (group, replica) in &mut self.replicas {
                replica.tick(turn);
                if replica.raw.has_ready() {
                    self.dirty.insert(*group);
                }
            }
        }
        if turn.muted {
            turn.learner_mail.clear();
        }
        turn.learner_mail.note_commits(|group, term| {
            let leader = self.replicas.get(&group).filter(|it| it.is_leader() && it.term() == term);
            leader.map(|it| LogIndex(it.raw.raft.raft_log.committed))
        });
        turn.learner_mail.release_due(turn.now, turn.effects);
        for (group, replica) in &mut self.replicas {
            replica.tend_snapshots(turn);
            replica.tend_verification(turn);
            replica.propose_truncation(turn);
            if !replica.waiting.is_empty() || replica.raw.has_ready() {
                self.dirty.insert(*group);
            }
        }
        self.tend_leaderships(turn);
        self.tend_groups(turn);
        self.tend_plans(turn);
        self.tend_peers(turn);
    }

    /// What follows from the groups' turns for the node: replicas that ended, leaders that changed,
    /// and a cluster state that moved on.
    fn after_drive(&mut self, touched: &BTreeSet<GroupId>, turn: &mut Turn<'_, R>) {
        for group in touched {
            if self.replicas.get(group).is_some_and(|replica| replica.ended) {
                self.end_replica(*group, turn);
                continue;
            }
            let Some(replica) = self.replicas.get(group) else { continue };
            let leader = replica.leader_node();
            if self.leaders.get(group) != Some(&leader) {
                self.leaders.insert(*group, leader);
                let here = replica.is_leader();
                turn.effects.push(Effect::LeaderChanged { group: *group, leader, here });
            }
        }
        if touched.contains(&GroupId::CLUSTER) {
            self.cluster_moved(turn);
        }
    }
}
