//! The view, the replicas that follow from it, and who should lead them.

use std::collections::HashMap;
use std::sync::Arc;

use placement::SnapshotError;

use super::core::Core;
use crate::cluster::{ClusterState, FOUNDING_REVISION, ViewError, check_successor};
use crate::event::{Alarm, Effect};
use crate::group::{Birth, Machine, ReadGate, Replica, Turn};
use crate::ids::{Generation, GroupId, ReplicaId};
use crate::storage::{BootReplica, Configuration, WriteOp};

/// Leaderships that may be under way to better places at a time.
const TRANSFERS_MAX: usize = 16;

impl<R> Core<R> {
    /// Takes a view from elsewhere, if it is newer and sound.
    pub(super) fn adopt_view(&mut self, next: Arc<ClusterState>, turn: &mut Turn<'_, R>) {
        let verdict = match &self.view {
            None => next.check().map(|()| true),
            Some(current) => check_successor(current, &next),
        };
        match verdict {
            Ok(true) => self.view_in_force(next, turn),
            Ok(false) => {}
            Err(ViewError::Ring(SnapshotError::EpochConflict { epoch, .. })) => {
                turn.effects.push(Effect::Alarm(Alarm::ForkedEpoch { epoch }));
            }
            Err(error) => {
                let reason = error.to_string();
                turn.effects.push(Effect::Alarm(Alarm::BadView { reason }));
            }
        }
    }

    /// Group 0's own state moved on: it is the newest view there can be.
    pub(super) fn cluster_moved(&mut self, turn: &mut Turn<'_, R>) {
        let Some(replica) = self.replicas.get(&GroupId::CLUSTER) else { return };
        let Machine::Cluster(Some(state)) = &replica.machine else { return };
        let state = Arc::clone(state);
        if state.revision > self.view_revision() {
            self.adopt_view(state, turn);
        }
    }

    fn view_in_force(&mut self, next: Arc<ClusterState>, turn: &mut Turn<'_, R>) {
        turn.write(WriteOp::View { state: Arc::clone(&next) });
        turn.sync_needed = true;
        turn.effects.push(Effect::ViewChanged(Arc::clone(&next)));
        // A node that was there from the beginning starts from the founding view itself, which it
        // accepted durably; a spare's first view is a later one, and its replicas come by snapshot.
        let founding = self.view.is_none() && next.revision == FOUNDING_REVISION;
        self.view = Some(Arc::clone(&next));
        self.follow_view();
        if founding {
            self.found_replicas(&next, turn);
        }
    }

    /// Creates this node's replicas of a founding view, once: they are durable before their first
    /// message, since every message of theirs waits for a sync of this turn.
    fn found_replicas(&mut self, view: &Arc<ClusterState>, turn: &mut Turn<'_, R>) {
        for group in view.groups() {
            let members = view.members(group);
            let Some(rank) = members.iter().position(|member| member.node == self.node) else {
                continue;
            };
            let replica = members[rank].replica;
            let birth = Birth::Founder(Configuration::of_voters(members));
            if group == GroupId::CLUSTER {
                turn.write(WriteOp::Cluster { state: Arc::clone(view) });
            }
            let rank = u8::try_from(rank).expect("a group has a handful of members");
            self.create_replica(group, replica, rank, birth, turn);
        }
    }

    /// Creates a replica that waits for a snapshot.
    pub(super) fn create_later_replica(
        &mut self,
        group: GroupId,
        replica: ReplicaId,
        rank: u8,
        turn: &mut Turn<'_, R>,
    ) {
        self.create_replica(group, replica, rank, Birth::Later, turn);
    }

    fn create_replica(
        &mut self,
        group: GroupId,
        id: ReplicaId,
        rank: u8,
        birth: Birth,
        turn: &mut Turn<'_, R>,
    ) {
        if self.replicas.contains_key(&group) || self.tombstones.contains(&(group, id)) {
            return;
        }
        let founder = matches!(birth, Birth::Founder(_));
        let used = self.generations.get(&group).map_or(0, |used| used.get());
        let generation = Generation(used + 1);
        let (record, progress) = birth.records(id, rank, generation);
        turn.write(WriteOp::Replica { group, record: record.clone() });
        turn.write(WriteOp::Progress { group, progress });
        turn.sync_needed = true;
        let machine = match (group == GroupId::CLUSTER, founder) {
            (true, true) => Machine::Cluster(self.view.clone()),
            (true, false) => Machine::Cluster(None),
            (false, _) => Machine::Partition { written: HashMap::new() },
        };
        let boot =
            BootReplica { group, record, progress, tail: Vec::new(), generation_max: generation };
        let gate = ReadGate::new(self.faults.no_lease_check);
        let mut replica = Replica::boot(boot, machine, gate, turn.now, turn.settings);
        replica.hold_until(turn.sync);
        let gate = Arc::clone(&replica.gate);
        turn.effects.push(Effect::ReplicaCreated { group, gate });
        self.replicas.insert(group, replica);
        self.dirty.insert(group);
    }

    /// A replica was removed, whether or not it knows, and whether or not it was ever here.
    pub(super) fn bar_replica(
        &mut self,
        group: GroupId,
        replica: ReplicaId,
        turn: &mut Turn<'_, R>,
    ) {
        match self.replicas.get(&group) {
            Some(here) if here.id == replica => self.end_replica(group, turn),
            // Its successor is here, and no other replica can be created beside that one.
            Some(_) => {}
            None => {
                if self.tombstones.insert((group, replica)) {
                    turn.write(WriteOp::Tombstone { group, replica });
                }
            }
        }
    }

    /// A replica applied its own removal: nothing of it acts any more, for good.
    pub(super) fn end_replica(&mut self, group: GroupId, turn: &mut Turn<'_, R>) {
        let Some(mut replica) = self.replicas.remove(&group) else { return };
        replica.abandon(turn);
        self.tombstones.insert((group, replica.id));
        self.generations.insert(group, replica.generation_max());
        turn.write(WriteOp::Tombstone { group, replica: replica.id });
        if let Some(partition) = group.partition() {
            let generation = replica.log().record.generation;
            turn.after_sync.push(Effect::SweepGeneration { partition, generation });
        }
        turn.effects.push(Effect::ReplicaRemoved { group });
    }

    /// Hands on leaderships that should be elsewhere: all of them when the node is about to stop or
    /// its disk hangs, those of a leader outside its configuration, and those that belong to a
    /// primary that is well.
    pub(super) fn tend_leaderships(&mut self, turn: &mut Turn<'_, R>) {
        let disk_hangs = self.disk.waiting(turn.now) >= self.settings.disk_stall;
        let leave_all = self.handing_over || disk_hangs;
        let mut under_way =
            self.replicas.values().filter(|it| it.leadership.is_transferring()).count();
        let mut moves = Vec::new();
        for (group, replica) in &self.replicas {
            if !replica.is_leader() || replica.leadership.is_transferring() {
                continue;
            }
            let fit =
                |id: ReplicaId| replica.node_of(id).is_some_and(|node| self.is_fit(node, turn.now));
            let outside = !replica.configuration().is_staying_voter(replica.id)
                && !replica.configuration().is_joint();
            if leave_all || (outside && !turn.faults.leader_outside_serves) {
                moves.extend(replica.successor(fit).map(|to| (*group, to)));
            } else if under_way < TRANSFERS_MAX
                && let Some(primary) = self.better_leader(*group, replica, turn)
            {
                under_way += 1;
                moves.push((*group, primary));
            }
        }
        for (group, to) in moves {
            if let Some(replica) = self.touch(group) {
                replica.transfer(to, None, turn);
            }
        }
    }

    /// The primary of a group, if it is not this leader and could lead at once.
    fn better_leader(
        &self,
        group: GroupId,
        replica: &Replica<R>,
        turn: &Turn<'_, R>,
    ) -> Option<ReplicaId> {
        let primary = self.view.as_ref()?.members(group).first()?;
        let wanted = primary.replica != replica.id
            && replica.leadership.settled(turn.now, turn.settings)
            && replica.configuration().is_staying_voter(primary.replica)
            && replica.is_caught_up(primary.replica)
            && self.is_fit(primary.node, turn.now);
        wanted.then_some(primary.replica)
    }
}
