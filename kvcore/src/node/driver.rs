//! The driver of moves on a partition's leader: every tick it compares each group's configuration
//! with what the view wants and takes the next step. It remembers nothing that a restart would
//! lose, and a leader whose view is older than its group's configuration takes no step at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use migration::{
    Actual, GroupStep, Member, Move, Next, Stage, Step, Wanted, reconcile, verification_wanted,
};
use placement::{NodeId, PartitionId};

use super::core::Core;
use crate::cluster::ClusterState;
use crate::event::Effect;
use crate::faults::Hold;
use crate::group::{ConfigurationChange, RANK_MAX, Replica, Turn};
use crate::ids::{GroupId, LogIndex, ReplicaId};
use crate::message::{GroupReport, PeerMessage};
use crate::time::Time;

/// Orders to destroy, and questions of replicas without a place, are repeated this often: they are
/// answered within a round trip, and nobody waits for them.
const REMINDERS_EVERY_HEARTBEATS: u32 = 1;
/// Comparisons of digests that a node starts at a time: each scans a partition on every owner.
const VERIFICATIONS_MAX: usize = 4;

/// What the driver derives from the view and from answers.
#[derive(Debug, Default)]
pub(super) struct Driver {
    /// The open moves of each partition.
    moves: BTreeMap<PartitionId, Vec<OpenMove>>,
    /// Replicas that this node should hold and may have to create.
    wanted_here: Vec<(GroupId, ReplicaId)>,
    /// Groups whose replica here has no place any more.
    without_place: Vec<GroupId>,
    /// Replicas whose data is destroyed, as their nodes said.
    gone: BTreeMap<GroupId, BTreeSet<ReplicaId>>,
    /// What group 0 was told last of each partition, and when.
    told: BTreeMap<PartitionId, (Actual, Time)>,
    next_reminder: Time,
}

#[derive(Clone, Debug)]
struct OpenMove {
    it: Move,
    /// Nodes that its plan gives up.
    lost: Vec<NodeId>,
}

impl Driver {
    /// Derives everything anew from a view.
    pub fn view_changed(&mut self, view: &ClusterState, node: NodeId) {
        self.moves.clear();
        self.wanted_here.clear();
        for plan in &view.plans {
            let lost: Vec<NodeId> = plan.lost().collect();
            for it in plan.moves.iter().filter(|it| !it.is_over()) {
                let coming = it.followers().find(|member| Some(*member) == it.gain);
                if let Some(gain) = coming.filter(|gain| gain.node == node) {
                    let group = GroupId::of_partition(it.partition);
                    self.wanted_here.push((group, gain.replica));
                }
                let open = OpenMove { it: it.clone(), lost: lost.clone() };
                self.moves.entry(it.partition).or_default().push(open);
            }
        }
        for group in view.groups() {
            let here = view.members(group).iter().find(|member| member.node == node);
            self.wanted_here.extend(here.map(|member| (group, member.replica)));
        }
        let moves = &self.moves;
        self.told.retain(|partition, _| moves.contains_key(partition));
        self.gone.retain(|group, _| group.partition().is_some_and(|it| moves.contains_key(&it)));
    }

    fn moves_of(&self, group: GroupId) -> &[OpenMove] {
        let partition = group.partition();
        partition.and_then(|it| self.moves.get(&it)).map_or(&[], Vec::as_slice)
    }
}

impl<R> Core<R> {
    /// The view changed: replicas get their rank, and what has no place any more is found.
    pub(super) fn follow_view(&mut self) {
        let Some(view) = self.view.clone() else { return };
        self.driver.view_changed(&view, self.node);
        self.driver.without_place.clear();
        for (group, replica) in &mut self.replicas {
            let rank = view.members(*group).iter().position(|it| it.replica == replica.id);
            let rank = rank.and_then(|rank| u8::try_from(rank).ok()).unwrap_or(RANK_MAX);
            replica.set_rank(rank.min(RANK_MAX), &self.settings);
            if !view.has_place(replica.id) {
                self.driver.without_place.push(*group);
            }
        }
    }

    /// One look at every group, once per tick.
    pub(super) fn tend_groups(&mut self, turn: &mut Turn<'_, R>) {
        let Some(view) = self.view.clone() else { return };
        self.create_wanted(&view, turn);
        let remind = turn.now >= self.driver.next_reminder;
        if remind {
            let pause = self.settings.node_heartbeat * REMINDERS_EVERY_HEARTBEATS;
            self.driver.next_reminder = turn.now + pause;
            self.ask_about_places(&view, turn);
        }
        let led: Vec<GroupId> = self
            .replicas
            .iter()
            .filter(|(group, replica)| {
                replica.is_leader() && replica.may_serve(turn) && self.is_unsettled(&view, **group)
            })
            .map(|(group, _)| *group)
            .collect();
        let mut reports = Vec::new();
        for group in led {
            reports.extend(self.drive_group(&view, group, remind, turn));
        }
        self.report(&view, reports, turn);
    }

    /// Whether a group has moves or another configuration than the view's.
    fn is_unsettled(&self, view: &ClusterState, group: GroupId) -> bool {
        let Some(replica) = self.replicas.get(&group) else { return false };
        let now = replica.configuration();
        let members = view.members(group);
        !self.driver.moves_of(group).is_empty()
            || now.is_joint()
            || !now.learners.is_empty()
            || now.voters.len() != members.len()
            || !members.iter().all(|member| now.voters.contains(&member.replica))
    }

    fn create_wanted(&mut self, view: &ClusterState, turn: &mut Turn<'_, R>) {
        for (group, replica) in self.driver.wanted_here.clone() {
            if !self.replicas.contains_key(&group) {
                let members = view.members(group);
                let rank = members.iter().position(|it| it.replica == replica);
                let rank = rank.and_then(|rank| u8::try_from(rank).ok()).unwrap_or(RANK_MAX);
                self.create_later_replica(group, replica, rank.min(RANK_MAX), turn);
            }
        }
    }

    /// Compares one group with the view, takes a step, and returns what group 0 should know.
    fn drive_group(
        &mut self,
        view: &Arc<ClusterState>,
        group: GroupId,
        remind: bool,
        turn: &mut Turn<'_, R>,
    ) -> Option<GroupReport> {
        let moves: Vec<OpenMove> = self.driver.moves_of(group).to_vec();
        let actual = self.actual(group, turn.now)?;
        let at_leisure = moves.iter().all(|open| is_at_leisure(&open.it));
        let replica = self.replicas.get_mut(&group)?;
        replica.set_leisure(at_leisure, turn);
        let is_current = view.revision >= replica.configuration().revision;
        let term = replica.term();
        if is_current {
            let wanted = view.wanted(group);
            let step = match reconcile(&wanted, &actual) {
                Next::Step(step) => Some(step),
                Next::Wait(_) if turn.faults.publish_unverified => careless_swap(&wanted, &actual),
                Next::Wait(_) | Next::Steady => None,
            };
            if let Some(step) = step.filter(|step| !self.is_held(step, &moves)) {
                self.take_step(group, step, turn);
            }
            self.verify_if_wanted(view, group, &actual, &moves, turn);
            if remind {
                self.order_destruction(view, group, &moves, turn);
            }
        }
        let partition = group.partition()?;
        // Every write moves some position on, which is no news as long as no move waits for it.
        let is_news = self.driver.told.get(&partition).is_none_or(|(told, at)| {
            (!at_leisure && *told != actual) || turn.now.since(*at) >= self.settings.node_heartbeat
        });
        if moves.is_empty() || !is_news {
            return None;
        }
        self.driver.told.insert(partition, (actual.clone(), turn.now));
        Some(GroupReport { partition, term, actual })
    }

    /// The facts of a group that this node leads.
    fn actual(&self, group: GroupId, now: Time) -> Option<Actual> {
        let none = BTreeSet::new();
        let gone = self.driver.gone.get(&group).unwrap_or(&none);
        let replica = self.replicas.get(&group)?;
        Some(replica.actual(|node| node == self.node || self.is_fit(node, now), gone, now))
    }

    fn take_step(&mut self, group: GroupId, step: GroupStep, turn: &mut Turn<'_, R>) {
        let revision = self.view_revision();
        let Some(replica) = self.touch(group) else { return };
        let change = match step {
            GroupStep::AddLearner(member) => ConfigurationChange::AddLearner(member),
            GroupStep::Swap { promote, demote } => ConfigurationChange::Swap { promote, demote },
            GroupStep::LeaveJoint => ConfigurationChange::LeaveJoint,
            GroupStep::Remove(replica) => ConfigurationChange::Remove(replica),
            GroupStep::HandOver(to) => {
                replica.transfer(to, None, turn);
                return;
            }
        };
        replica.propose_change(&change, revision, turn);
    }

    /// Whether a test holds this step back.
    fn is_held(&self, step: &GroupStep, moves: &[OpenMove]) -> bool {
        let at = |wanted: Step| moves.iter().any(|open| open.it.stage.step() == Some(wanted));
        match (self.hold, step) {
            (Some(Hold::At(Step::Swapping)), GroupStep::Swap { .. }) => true,
            (Some(Hold::Joint), GroupStep::LeaveJoint | GroupStep::HandOver(_)) => true,
            (Some(Hold::At(Step::Retiring)), GroupStep::Remove(_)) => at(Step::Retiring),
            (Some(Hold::At(_) | Hold::Joint) | None, _) => false,
        }
    }

    fn verify_if_wanted(
        &mut self,
        view: &ClusterState,
        group: GroupId,
        actual: &Actual,
        moves: &[OpenMove],
        turn: &mut Turn<'_, R>,
    ) {
        if group == GroupId::CLUSTER {
            return;
        }
        let owners = view.members(group);
        let wanted = moves.iter().any(|open| {
            let staying = staying(owners, moves, &open.lost);
            verification_wanted(&open.it, actual, owners, &staying)
        });
        let busy = self.replicas.values().filter(|it| it.verifier.is_busy()).count();
        if !wanted || busy >= VERIFICATIONS_MAX {
            return;
        }
        let Some(replica) = self.touch(group) else { return };
        let close = |member: &&Member| {
            member.replica != actual.leader && actual.is_close(member.replica, migration::LAG_MAX)
        };
        let asked = replica.configuration().members.iter().filter(close).copied().collect();
        replica.start_verification(asked, turn);
    }

    /// Tells the holders of condemned replicas to destroy them, again and again until they have.
    fn order_destruction(
        &mut self,
        view: &ClusterState,
        group: GroupId,
        moves: &[OpenMove],
        turn: &mut Turn<'_, R>,
    ) {
        let condemned = moves.iter().filter_map(|open| open.it.condemned());
        for member in condemned.filter(|member| !view.is_barred(member.node)) {
            let gone =
                self.driver.gone.get(&group).is_some_and(|gone| gone.contains(&member.replica));
            if gone {
                continue;
            }
            if let Some(index) = self.proof_of_removal(view, group, member.replica) {
                self.order(group, member.node, member.replica, index, turn);
            }
        }
    }

    fn order(
        &mut self,
        group: GroupId,
        node: NodeId,
        replica: ReplicaId,
        index: LogIndex,
        turn: &mut Turn<'_, R>,
    ) {
        if node == self.node {
            self.bar_replica(group, replica, turn);
            self.replica_destroyed(group, replica);
        } else {
            let message = PeerMessage::Destroy { group, replica, index };
            turn.effects.push(Effect::Send { to: node, message });
        }
    }

    /// The index of the committed configuration that shows that a replica has no part in its group
    /// and never will: this leader has committed in its own term, its view is not older than the
    /// configuration, and neither names the replica.
    fn proof_of_removal(
        &self,
        view: &ClusterState,
        group: GroupId,
        subject: ReplicaId,
    ) -> Option<LogIndex> {
        let replica = self.replicas.get(&group)?;
        let now = replica.configuration();
        let proven = replica.is_leader()
            && replica.raw.raft.commit_to_current_term()
            && view.revision >= now.revision
            && !now.is_joint()
            && !now.contains(subject)
            && !view.has_place(subject);
        proven.then_some(now.changed_at)
    }

    /// A replica here that the view gives no place asks its group whether it was removed.
    fn ask_about_places(&mut self, view: &ClusterState, turn: &mut Turn<'_, R>) {
        for group in self.driver.without_place.clone() {
            let Some(replica) = self.replicas.get(&group).map(|it| it.id) else { continue };
            let others = view.participants(group).into_iter().filter(|it| it.node != self.node);
            for member in others {
                let message = PeerMessage::Orphan { group, replica };
                turn.effects.push(Effect::Send { to: member.node, message });
            }
        }
    }

    /// A replica elsewhere asks whether it was removed.
    pub(super) fn orphan(
        &mut self,
        from: NodeId,
        group: GroupId,
        replica: ReplicaId,
        turn: &mut Turn<'_, R>,
    ) {
        let Some(view) = self.view.clone().filter(|view| !view.is_barred(from)) else { return };
        if let Some(index) = self.proof_of_removal(&view, group, replica) {
            self.order(group, from, replica, index, turn);
        }
    }

    /// A leader orders a replica here to be destroyed, on the proof of a committed change.
    pub(super) fn destroy(
        &mut self,
        from: NodeId,
        group: GroupId,
        replica: ReplicaId,
        turn: &mut Turn<'_, R>,
    ) {
        self.bar_replica(group, replica, turn);
        turn.sync_needed = true;
        let message = PeerMessage::Destroyed { group, replica };
        turn.after_sync.push(Effect::Send { to: from, message });
    }

    /// A replica's node says that it is barred and its data destroyed.
    pub(super) fn replica_destroyed(&mut self, group: GroupId, replica: ReplicaId) {
        self.driver.gone.entry(group).or_default().insert(replica);
    }

    fn report(&mut self, view: &ClusterState, reports: Vec<GroupReport>, turn: &mut Turn<'_, R>) {
        if reports.is_empty() {
            return;
        }
        for member in view.participants(GroupId::CLUSTER) {
            if member.node == self.node {
                self.note_reports(reports.clone(), turn.now);
            } else {
                let message = PeerMessage::Report(reports.clone());
                turn.effects.push(Effect::Send { to: member.node, message });
            }
        }
    }
}

/// Whether nothing of a move depends on what its replicas have just now: it waits for the others of
/// its plan, or for the end of the grace.
fn is_at_leisure(it: &Move) -> bool {
    match it.stage {
        Stage::Running(Step::Verified) => true,
        Stage::Running(Step::Serving) => it.after_swap.is_some(),
        _ => false,
    }
}

/// The swap that a careful leader would not make yet.
fn careless_swap(wanted: &Wanted, actual: &Actual) -> Option<GroupStep> {
    let promote = wanted.voters.iter().map(|it| it.replica);
    let promote = promote.filter(|it| actual.learners.contains(it)).collect();
    let stays = |id: &ReplicaId| wanted.voters.iter().any(|it| it.replica == *id);
    let demote = actual.voters.iter().copied().filter(|id| !stays(id)).collect();
    (!actual.is_joint()).then_some(GroupStep::Swap { promote, demote })
}

/// The owners that stay when the moves of a partition are done.
pub(super) fn staying_owners(
    owners: &[Member],
    loses: impl Fn(&Member) -> bool,
    lost: &[NodeId],
) -> Vec<Member> {
    owners.iter().filter(|owner| !loses(owner) && !lost.contains(&owner.node)).copied().collect()
}

fn staying(owners: &[Member], moves: &[OpenMove], lost: &[NodeId]) -> Vec<Member> {
    staying_owners(owners, |owner| moves.iter().any(|open| open.it.lose == Some(*owner)), lost)
}

impl<R> Replica<R> {
    /// Takes another place among the owners.
    pub fn set_rank(&mut self, rank: u8, settings: &crate::Settings) {
        if self.leadership.rank != rank {
            self.leadership.rank = rank;
            self.pin_election_timeout(settings);
        }
    }
}
