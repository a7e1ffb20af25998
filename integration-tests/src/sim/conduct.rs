//! The invariants of plans: looked at whenever group 0 has committed something, a group has changed
//! its configuration, or a replica has come or gone.

use std::collections::{BTreeMap, BTreeSet};

use kvcore::cluster::{ClusterOutcome, ClusterState};
use kvcore::group::GroupSummary;
use kvcore::storage::Configuration;
use kvcore::{Event, GroupId, LogIndex, ReplicaId, Reply};
use migration::{AbortReason, Member, Move, Phase, Plan, PlanKind, Stage, Step};
use placement::{NodeId, Zone};
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeType, ConfChangeV2, Entry, EntryType};

use super::operator::Errand;
use super::report::{Counters, Violation};
use super::world::World;

/// The replicas that a state names, in any role.
pub(super) fn given_out(
    state: &ClusterState,
) -> impl Iterator<Item = (GroupId, ReplicaId, NodeId)> + '_ {
    let members = state
        .groups()
        .flat_map(|group| state.members(group).iter().map(move |it| (group, it.replica, it.node)));
    let moving = state.plans.iter().flat_map(|plan| &plan.moves).flat_map(|it| {
        let group = GroupId::of_partition(it.partition);
        it.gain.into_iter().chain(it.lose).map(move |member| (group, member.replica, member.node))
    });
    let former = state.group0_former.iter();
    let former = former.map(|member| (GroupId::CLUSTER, member.replica, member.node));
    members.chain(moving).chain(former)
}

impl World {
    /// Group 0 went from one committed state to the next.
    pub(super) fn audit_plans(
        &mut self,
        before: &ClusterState,
        after: &ClusterState,
    ) -> Result<(), Violation> {
        if before == after {
            return Ok(());
        }
        self.given_out.extend(given_out(after));
        self.ever_owned.extend(after.replicas.iter().flatten().map(|member| member.replica));
        count(before, after, &mut self.counters);
        i6_epochs_go_up_by_one(before, after)?;
        for plan in &after.plans {
            let was = before.plan(plan.id);
            if is_published(plan) && !was.is_some_and(is_published) {
                self.i8_an_epoch_is_published_on_verified_copies(after, plan)?;
                i10_what_is_outside_the_difference_stays(before, after, plan)?;
                i11_replicas_are_spread(after)?;
            }
            for (number, it) in plan.moves.iter().enumerate() {
                let was = was.and_then(|was| was.moves.get(number));
                if was.is_none_or(|was| was.stage.step() != it.stage.step()) {
                    self.step_seen(it);
                }
                let retires = |it: &Move| it.stage.step() == Some(Step::Retiring);
                if retires(it) && !was.is_some_and(retires) {
                    self.i9_owners_are_verified_before_a_copy_retires(after, it)?;
                }
            }
        }
        for group in after.groups() {
            if let Some(now) = self.oracle.configuration(group).cloned() {
                i7_voters_are_owners_or_sources(after, &self.ever_owned, group, &now)?;
            }
        }
        Ok(())
    }

    /// A group has a configuration that it never had before.
    pub(super) fn audit_configuration(
        &self,
        summary: &GroupSummary,
        before: Option<&Configuration>,
    ) -> Result<(), Violation> {
        let Some(state) = self.oracle.cluster() else { return Ok(()) };
        let (group, now) = (summary.group, &summary.configuration);
        i7_voters_are_owners_or_sources(state, &self.ever_owned, group, now)?;
        i11_voters_are_on_distinct_nodes(group, now)?;
        for voter in &now.voters {
            if before.is_some_and(|before| !before.is_voter(*voter)) {
                self.i8_only_whole_replicas_are_promoted(state, group, now, *voter)?;
            }
        }
        Ok(())
    }

    /// The number of the node with an identity.
    #[must_use]
    pub fn number_of(&self, id: NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Whether a replica has durably applied, or at least durably has, the entry at an index; a
    /// disk that is lost says nothing against it.
    fn has_durably(&self, group: GroupId, member: Member, index: LogIndex) -> bool {
        let Some(number) = self.number_of(member.node) else { return true };
        let node = &self.nodes[number];
        let tables = node.disk.durable();
        node.lost
            || tables.replicas.get(&group).is_some_and(|table| {
                table.record.replica == member.replica
                    && (table.progress.applied.index >= index
                        || table.progress.applied.index.get() > 0
                            && tables.log.contains_key(&(group, index.get())))
            })
    }

    /// I8: a half copied replica is never counted: an epoch is published only when every copy was
    /// compared with the voters that stay, and is still there.
    fn i8_an_epoch_is_published_on_verified_copies(
        &self,
        state: &ClusterState,
        plan: &Plan,
    ) -> Result<(), Violation> {
        for it in &plan.moves {
            let Some(gain) = it.gain else { continue };
            let group = GroupId::of_partition(it.partition);
            let gate = it.gate.map(|gate| gate.index);
            if gate.is_some_and(|index| self.has_durably(group, gain, index)) {
                continue;
            }
            let epoch = state.epoch();
            let seen = format!("epoch {epoch} rests on an unverified copy: {it:?}");
            return Err(Violation::new("I8", seen));
        }
        Ok(())
    }

    /// I8: a replica votes only once it has all that was compared before its promotion.
    fn i8_only_whole_replicas_are_promoted(
        &self,
        state: &ClusterState,
        group: GroupId,
        now: &Configuration,
        voter: ReplicaId,
    ) -> Result<(), Violation> {
        let moves = state.plans.iter().flat_map(|plan| &plan.moves);
        let gates = moves.filter(|it| it.gain.is_some_and(|gain| gain.replica == voter));
        let gate = gates.filter_map(|it| it.gate).map(|gate| gate.index).max();
        let Some(node) = now.node_of(voter) else {
            let seen = format!("group {group}: nobody knows where voter {voter} is");
            return Err(Violation::new("I8", seen));
        };
        let member = Member { replica: voter, node };
        if self.has_durably(group, member, gate.unwrap_or(LogIndex(1))) {
            return Ok(());
        }
        let seen = format!(
            "group {group}: {member:?} votes without what was compared at {gate:?}: {}",
            self.picture()
        );
        Err(Violation::new("I8", seen))
    }

    /// I9: an old copy goes only once all owners vote, and agreed after the change of voters.
    fn i9_owners_are_verified_before_a_copy_retires(
        &self,
        state: &ClusterState,
        it: &Move,
    ) -> Result<(), Violation> {
        let group = GroupId::of_partition(it.partition);
        let owners = state.members(group);
        let holds = self.oracle.configuration(group).is_some_and(|now| {
            !now.is_joint()
                && now.voters.len() == owners.len()
                && owners.iter().all(|owner| now.voters.contains(&owner.replica))
        });
        let verified = it.after_swap.is_some_and(|gate| {
            owners.iter().all(|owner| self.has_durably(group, *owner, gate.index))
        });
        if holds && verified {
            return Ok(());
        }
        let seen = format!(
            "group {group}: {owners:?} are not verified voters ({holds}, {verified}), yet {it:?} retires; {:?}",
            self.oracle.configuration(group)
        );
        Err(Violation::new("I9", seen))
    }

    /// I9: a replica is destroyed only when it is in no committed configuration, is no owner, and
    /// no move needs it.
    pub(super) fn i9_only_what_has_no_place_is_destroyed(
        &self,
        number: usize,
        group: GroupId,
        replica: ReplicaId,
    ) -> Result<(), Violation> {
        let Some(state) = self.oracle.cluster() else { return Ok(()) };
        let last = self.oracle.configuration(group);
        let is_member = last.is_some_and(|last| last.contains(replica))
            && !self.removal_is_committed(group, replica);
        let is_owner = state.members(group).iter().any(|it| it.replica == replica);
        let needed = state.open_moves().find(|it| {
            let named = |member: Option<Member>| member.is_some_and(|it| it.replica == replica);
            it.stage.step().is_some_and(|step| {
                (step.is_before_publication() && named(it.gain))
                    || (step != Step::Retiring && named(it.lose))
            })
        });
        if !is_member && !is_owner && needed.is_none() {
            return Ok(());
        }
        let seen = format!(
            "n{number} destroys replica {replica} of group {group}, which is needed: member \
             {is_member}, owner {is_owner}, move {needed:?}; {last:?}, {:?}",
            state.plans.iter().flat_map(|plan| &plan.moves).collect::<Vec<_>>()
        );
        Err(Violation::new("I9", seen))
    }

    /// Whether a replica's removal is committed, though nobody who is left has applied it: a leader
    /// may tell of it before its own log is durable.
    fn removal_is_committed(&self, group: GroupId, replica: ReplicaId) -> bool {
        self.nodes.iter().any(|node| {
            let tables = node.disk.visible();
            let process = node.process.as_ref().and_then(|process| process.seen.get(&group));
            let commit = process.map(|seen| seen.commit.get());
            let log = tables.log.range((group, 0)..=(group, commit.unwrap_or(0)));
            log.map(|(_, entry)| entry).any(|entry| removes(entry, replica))
        })
    }

    /// I10: a replica comes into being only where group 0 has given it out.
    pub(super) fn i10_replicas_come_by_moves_alone(
        &self,
        number: usize,
        group: GroupId,
        replica: ReplicaId,
    ) -> Result<(), Violation> {
        if self.given_out.contains(&(group, replica, self.nodes[number].id)) {
            return Ok(());
        }
        let seen = format!("n{number} holds replica {replica} of group {group}, which nobody gave");
        Err(Violation::new("I10", seen))
    }

    /// Takes note of an answer to the operator.
    pub(super) fn errand_done(&mut self, errand: Errand, reply: &Reply) -> Result<(), Violation> {
        let Reply::Cluster(outcome) = reply else { return Ok(()) };
        if let ClusterOutcome::Refused(_) = outcome {
            self.counters.orders_refused += 1;
        }
        match (errand, outcome) {
            (Errand::Register(number), ClusterOutcome::Done) => {
                self.counters.registrations += 1;
                if let Some(view) = self.oracle.cluster().cloned() {
                    self.tell(number, Event::AdoptView(view));
                }
            }
            (Errand::Duel(duel), ClusterOutcome::Planned(plan)) => {
                if !self.duels_won.insert(duel) {
                    let seen = format!("both plans of a pair were applied, the second as {plan}");
                    return Err(Violation::new("orders", seen));
                }
                self.counters.duels_decided += 1;
            }
            (Errand::Register(_) | Errand::Apply | Errand::Duel(_) | Errand::Other, _) => {}
        }
        Ok(())
    }
}

fn removes(entry: &Entry, replica: ReplicaId) -> bool {
    let mut change = ConfChangeV2::default();
    entry.get_entry_type() == EntryType::EntryConfChangeV2
        && change.merge_from_bytes(&entry.data).is_ok()
        && change.get_changes().iter().any(|single| {
            single.get_change_type() == ConfChangeType::RemoveNode
                && single.node_id == replica.get()
        })
}

/// A plan and what is left of it, for a person to read.
pub(super) fn describe(plan: &Plan) -> String {
    let moves: Vec<_> = plan.moves.iter().filter(|it| !it.is_over()).collect();
    let (id, phase, paused, signals) = (plan.id, plan.phase.name(), plan.paused, plan.signals);
    format!(
        "plan {id} {phase}, paused {paused}, signals {signals:?}, {:?}, {moves:?}",
        plan.changes
    )
}

fn is_published(plan: &Plan) -> bool {
    matches!(plan.phase, Phase::Published { .. } | Phase::Finished { .. })
}

/// I6: epochs go up by one, with one checksum each.
fn i6_epochs_go_up_by_one(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    let gone_up = after.epoch().get() - before.epoch().get();
    let known = after.history.starts_with(&before.history);
    let added = after.history.len() - before.history.len();
    if known && added as u64 == gone_up && gone_up <= 1 && after.check().is_ok() {
        return Ok(());
    }
    let check = after.check();
    let seen = format!("{check:?}, from {:?} to {:?}", before.history, after.history);
    Err(Violation::new("I6", seen))
}

/// I7: the voters of a group are owners of the published epoch or sources of unfinished moves. A
/// source that is to be an owner again stays what it is.
fn i7_voters_are_owners_or_sources(
    state: &ClusterState,
    ever_owned: &BTreeSet<ReplicaId>,
    group: GroupId,
    now: &Configuration,
) -> Result<(), Violation> {
    let Some(partition) = group.partition() else { return Ok(()) };
    let owners = state.members(group).iter().copied();
    let moves = state.plans.iter().flat_map(|plan| &plan.moves);
    let open = moves.filter(|it| it.partition == partition && !it.stage.is_ended());
    let members = open.flat_map(|it| {
        let back = it.gain.filter(|gain| ever_owned.contains(&gain.replica));
        it.lose.into_iter().chain(back)
    });
    let allowed: Vec<ReplicaId> = owners.chain(members).map(|member| member.replica).collect();
    let voters = now.voters.iter().chain(&now.voters_outgoing);
    match voters.into_iter().find(|voter| !allowed.contains(voter)) {
        None => Ok(()),
        Some(voter) => {
            let moves = state.plans.iter().flat_map(|plan| &plan.moves);
            let moves: Vec<&Move> = moves.filter(|it| it.partition == partition).collect();
            let seen = format!(
                "replica {voter} votes in group {group}: {now:?}; owners {:?}, moves {moves:?}",
                state.members(group)
            );
            Err(Violation::new("I7", seen))
        }
    }
}

/// I10: partitions outside the ring's difference keep their replicas.
fn i10_what_is_outside_the_difference_stays(
    before: &ClusterState,
    after: &ClusterState,
    plan: &Plan,
) -> Result<(), Violation> {
    let moved: BTreeSet<_> = plan.moves.iter().map(|it| it.partition).collect();
    for partition in after.ring.partition_bits().partitions() {
        let (was, is) = (before.replicas_of(partition), after.replicas_of(partition));
        let same = was.len() == is.len() && was.iter().all(|member| is.contains(member));
        let kept = |member: &Member| {
            is.contains(member) || plan.moves.iter().any(|it| it.lose == Some(*member))
        };
        if (moved.contains(&partition) && was.iter().all(kept)) || same {
            continue;
        }
        let seen = format!("partition {partition} went from {was:?} to {is:?} with {plan:?}");
        return Err(Violation::new("I10", seen));
    }
    Ok(())
}

/// I11: replicas of a partition sit on distinct nodes, and in distinct zones where the topology
/// allows.
fn i11_replicas_are_spread(state: &ClusterState) -> Result<(), Violation> {
    let zones: BTreeMap<NodeId, &Zone> =
        state.ring.nodes().iter().map(|node| (node.id, &node.zone)).collect();
    let all: BTreeSet<&Zone> = zones.values().copied().collect();
    let wanted = usize::from(state.ring.replication_factor().get());
    for partition in state.ring.partition_bits().partitions() {
        let members = state.replicas_of(partition);
        let nodes: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
        let covered: BTreeSet<&Zone> =
            nodes.iter().filter_map(|node| zones.get(node).copied()).collect();
        if nodes.len() != wanted.min(zones.len()) || covered.len() != wanted.min(all.len()) {
            let seen = format!("partition {partition} is held by {members:?}");
            return Err(Violation::new("I11", seen));
        }
    }
    Ok(())
}

/// I11: no two voters of a group sit on one node.
fn i11_voters_are_on_distinct_nodes(group: GroupId, now: &Configuration) -> Result<(), Violation> {
    for half in [&now.voters, &now.voters_outgoing] {
        let nodes: BTreeSet<_> = half.iter().map(|voter| now.node_of(*voter)).collect();
        if nodes.len() != half.len() {
            let seen = format!("two voters of group {group} on one node: {now:?}");
            return Err(Violation::new("I11", seen));
        }
    }
    Ok(())
}

/// What of interest happened to plans between two states.
fn count(before: &ClusterState, after: &ClusterState, counters: &mut Counters) {
    if before.group0 != after.group0 {
        counters.group0_replacements += 1;
    }
    for plan in &after.plans {
        let Some(was) = before.plan(plan.id) else {
            counters.plans_applied += 1;
            counters.plans_rolling_back += u64::from(matches!(plan.kind, PlanKind::Rollback(_)));
            counters.moves += plan.moves.len() as u64;
            continue;
        };
        if was.phase.name() != plan.phase.name() {
            match &plan.phase {
                Phase::Moving => {}
                Phase::Published { .. } => counters.plans_published += 1,
                Phase::Finished { .. } => counters.plans_finished += 1,
                Phase::Aborted { reason: AbortReason::Superseded(_), .. } => {
                    counters.plans_superseded += 1;
                }
                Phase::Aborted { .. } => counters.plans_aborted += 1,
            }
        }
        for (was, is) in was.moves.iter().zip(&plan.moves) {
            if was.stage == is.stage {
                continue;
            }
            match &is.stage {
                Stage::Running(Step::Verified) => {
                    counters.verifications += u64::from(was.gate.is_none() && is.gate.is_some());
                }
                Stage::Running(Step::Serving) => {
                    counters.swaps += u64::from(was.stage.step() == Some(Step::Swapping));
                }
                Stage::Running(Step::Retiring) => counters.retirements += 1,
                Stage::Blocked { .. } => counters.blocks += 1,
                Stage::Running(_) | Stage::Done | Stage::Aborted(_) => {}
            }
        }
    }
}
