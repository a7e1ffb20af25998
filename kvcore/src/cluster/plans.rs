//! What commands do to the draft, to plans and to their moves.

use std::collections::BTreeMap;
use std::sync::Arc;

use migration::{
    AbortReason, Advance, Member, Move, MoveId, Phase, Plan, PlanId, PlanKind, ReplicaId, Signals,
    Stage, Step, Transition, may_publish,
};
use placement::{
    CHANGES_MAX, Change, Checksum, Epoch, NodeId, PartitionDiff, PartitionId, Ring, RingDiff,
    RingSnapshot, SnapshotParts, Topology,
};

use super::command::{ClusterOutcome, ClusterRefusal, PlanOrder};
use super::state::{ClusterState, Departure, EpochRecord};
use super::voters::choose_group0;

/// Plans that have ended and stay on record.
const ENDED_PLANS_KEPT: usize = 8;

type Applied = Result<ClusterOutcome, ClusterRefusal>;

/// Adds a change to the draft.
pub(super) fn stage(state: &mut ClusterState, change: Change) -> Applied {
    let named: Vec<NodeId> = state.draft.iter().flat_map(Change::nodes).collect();
    if let Some(node) = change.nodes().find(|node| named.contains(node)) {
        return Err(ClusterRefusal::StagedAlready { node });
    }
    if state.draft.len() >= CHANGES_MAX {
        return Err(ClusterRefusal::DraftFull);
    }
    state.draft.push(change);
    Ok(ClusterOutcome::Done)
}

/// Makes a plan of an order, if base and draft are still those that the order was made from.
pub(super) fn apply_order(state: &mut ClusterState, order: PlanOrder) -> Applied {
    if order.base_epoch != state.epoch() {
        let (base, epoch) = (order.base_epoch, state.epoch());
        return Err(ClusterRefusal::StaleEpoch { base, epoch });
    }
    if matches!(order.kind, PlanKind::Changes) && !is_same_draft(&order.changes, &state.draft) {
        return Err(ClusterRefusal::StaleDraft);
    }
    let repairs = !order.changes.is_empty()
        && order.changes.iter().all(|change| matches!(change, Change::Remove(_)));
    make_room(state, &order, repairs)?;
    check_nodes(state, &order.topology)?;
    let illegal = |reason: String| ClusterRefusal::IllegalRing { reason };
    let target = next_ring(state, &order.topology, &order.tokens, order.at_ms)
        .map_err(|error| illegal(error.to_string()))?;
    let base = Ring::new(Arc::new(state.ring.clone()));
    let diff = RingDiff::between(&base, &Ring::new(Arc::new(target)))
        .map_err(|error| illegal(error.to_string()))?;

    let id = state.next_plan;
    state.next_plan = PlanId(id.get() + 1);
    let restaged = if repairs { supersede_moving(state, id, &order) } else { Vec::new() };
    let mut plan = Plan {
        id,
        kind: order.kind,
        changes: order.changes,
        base_epoch: order.base_epoch,
        digest: order.digest,
        topology: order.topology,
        tokens: order.tokens,
        base: None,
        copies_min: order.copies_min,
        applied_at_ms: order.at_ms,
        phase: Phase::Moving,
        paused: false,
        grace_ended: false,
        moves: Vec::new(),
        signals: None,
    };
    let lost: Vec<NodeId> = plan.lost().collect();
    for partition in &diff.partitions {
        plan.moves.extend(moves_of(state, partition, &lost, order.at_ms));
    }
    for earlier in &mut state.plans {
        earlier.grace_ended = true;
    }
    state.draft = restaged;
    state.plans.push(plan);
    forget_old_plans(state);
    Ok(ClusterOutcome::Planned(id))
}

fn is_same_draft(ordered: &[Change], draft: &[Change]) -> bool {
    ordered.len() == draft.len() && draft.iter().all(|change| ordered.contains(change))
}

/// A ring is made of nodes of the directory alone, and never of one that was given up.
fn check_nodes(state: &ClusterState, topology: &Topology) -> Result<(), ClusterRefusal> {
    for node in topology.nodes().iter().map(|spec| spec.id) {
        if state.is_barred(node) {
            return Err(ClusterRefusal::Barred { node });
        }
        if !state.nodes.contains_key(&node) {
            return Err(ClusterRefusal::NoSuchNode { node });
        }
    }
    Ok(())
}

/// Refuses an order while another plan is not serving; a repair goes first.
fn make_room(state: &ClusterState, order: &PlanOrder, repairs: bool) -> Result<(), ClusterRefusal> {
    for plan in &state.plans {
        let done =
            plan.is_over() || plan.is_serving() || matches!(plan.phase, Phase::Aborted { .. });
        if !done && !repairs {
            return Err(ClusterRefusal::PlanUnderWay { plan: plan.id });
        }
    }
    if let PlanKind::Rollback(of) = order.kind {
        let last = state.last_plan().filter(|plan| plan.id == of && plan.is_serving());
        if last.is_none_or(|plan| plan.base.is_none()) {
            let phase = state.plan(of).map_or("unknown", |plan| plan.phase.name()).to_owned();
            return Err(ClusterRefusal::WrongPhase { plan: of, phase });
        }
    }
    Ok(())
}

/// Gives a plan that is not published up for a repair; returns its changes, to be staged again.
fn supersede_moving(state: &mut ClusterState, by: PlanId, order: &PlanOrder) -> Vec<Change> {
    let lost: Vec<NodeId> = order.changes.iter().flat_map(Change::nodes).collect();
    let mut restaged = Vec::new();
    let moving = state.plans.iter().filter(|plan| plan.is_moving()).map(|plan| plan.id);
    for id in moving.collect::<Vec<_>>() {
        abort(state, id, &AbortReason::Superseded(by), order.at_ms);
        let unaffected = |change: &&Change| change.nodes().all(|node| !lost.contains(&node));
        let plan = state.plan(id).expect("it was found above");
        restaged.extend(plan.changes.iter().filter(unaffected).cloned());
    }
    restaged
}

/// The moves of one partition: losses are paired with gains, within a zone first as the ring's
/// difference lists them in the order of the owners.
fn moves_of(
    state: &mut ClusterState,
    partition: &PartitionDiff,
    lost_nodes: &[NodeId],
    now_ms: u64,
) -> Vec<Move> {
    let number = partition.partition;
    let mut lost: Vec<Member> = state
        .replicas_of(number)
        .iter()
        .filter(|member| partition.lost.contains(&member.node))
        .copied()
        .collect();
    let zone = |state: &ClusterState, node: NodeId| {
        state.nodes.get(&node).map(|record| record.registration.zone.clone())
    };
    let mut moves = Vec::new();
    for node in &partition.gained {
        let same_zone = lost.iter().position(|it| zone(state, it.node) == zone(state, *node));
        let lose = same_zone.map(|place| lost.remove(place));
        moves.push(match returning(state, number, *node) {
            Some(gain) => Move::back_to(number, gain, lose, now_ms),
            None => {
                let gain = Member { replica: new_replica(state), node: *node };
                Move::new(number, Some(gain), lose, now_ms)
            }
        });
    }
    for it in moves.iter_mut().filter(|it| it.lose.is_none()) {
        if !lost.is_empty() {
            it.lose = Some(lost.remove(0));
        }
    }
    moves.extend(lost.into_iter().map(|lose| Move::new(number, None, Some(lose), now_ms)));
    for it in &mut moves {
        it.lose_is_dead = it.lose.is_some_and(|lose| lost_nodes.contains(&lose.node));
    }
    moves
}

/// A former owner that still votes or follows: it goes on under its id. The earlier move does not
/// retire it while the new plan is moving, and has nothing to retire once that is published.
fn returning(state: &ClusterState, partition: PartitionId, node: NodeId) -> Option<Member> {
    let mut moves = state.plans.iter().flat_map(|plan| &plan.moves);
    let stays = |it: &&Move| {
        it.partition == partition
            && it.lose.is_some_and(|lose| lose.node == node)
            && matches!(it.stage.step(), Some(Step::Swapping | Step::Serving))
    };
    moves.find(stays)?.lose
}

/// Gives a plan up that is not published. What came back to it is answered for by the earlier move.
fn abort(state: &mut ClusterState, id: PlanId, reason: &AbortReason, at_ms: u64) {
    let others = state.plans.iter().filter(|plan| plan.id != id).flat_map(|plan| &plan.moves);
    let sources: Vec<Member> =
        others.filter(|it| !it.stage.is_ended()).filter_map(|it| it.lose).collect();
    if let Some(plan) = state.plans.iter_mut().find(|plan| plan.id == id) {
        plan.abort(reason, at_ms);
        for it in &mut plan.moves {
            it.residue = it.residue.filter(|residue| !sources.contains(residue));
        }
    }
}

pub(super) fn new_replica(state: &mut ClusterState) -> ReplicaId {
    let replica = state.next_replica;
    state.next_replica = ReplicaId(replica.get() + 1);
    replica
}

fn next_ring(
    state: &ClusterState,
    topology: &Topology,
    tokens: &[placement::Token],
    activated_at_ms: u64,
) -> Result<RingSnapshot, placement::SnapshotError> {
    let parts = SnapshotParts {
        partition_bits: state.ring.partition_bits(),
        replication_factor: state.ring.replication_factor(),
        topology: topology.clone(),
        tokens: tokens.to_vec(),
        activated_at_ms,
    };
    RingSnapshot::publish(parts, Some(&state.ring))
}

/// Takes moves on, each only from the step that it is expected in. A move that aborts takes its plan
/// with it.
pub(super) fn advance(
    state: &mut ClusterState,
    moves: Vec<(MoveId, Option<Step>, Advance)>,
    at_ms: u64,
) -> bool {
    let mut changed = false;
    for (id, from, advance) in moves {
        let retires = advance.transition == Some(Transition::Retire);
        let lose = state.plan(id.plan).and_then(|plan| plan.moves.get(id.number as usize)?.lose);
        if retires && lose.is_some_and(|lose| state.comes_back(lose)) {
            continue;
        }
        let Some(plan) = state.plans.iter_mut().find(|plan| plan.id == id.plan) else { continue };
        let Some(it) = plan.move_mut(id.number) else { continue };
        if it.stage.step() != from || it.advance(&advance, at_ms).is_err() {
            continue;
        }
        changed = true;
        if let Stage::Aborted(reason) = it.stage.clone()
            && plan.is_moving()
        {
            abort(state, id.plan, &reason, at_ms);
        }
    }
    changed
}

/// Puts a plan's ring in force.
pub(super) fn publish(
    state: &mut ClusterState,
    id: PlanId,
    base_epoch: Epoch,
    at_ms: u64,
) -> Applied {
    if base_epoch != state.epoch() {
        return Err(ClusterRefusal::StaleEpoch { base: base_epoch, epoch: state.epoch() });
    }
    let plan = state.plan(id).ok_or(ClusterRefusal::NoSuchPlan { plan: id })?;
    if plan.base_epoch != base_epoch {
        return Err(ClusterRefusal::StaleEpoch { base: plan.base_epoch, epoch: base_epoch });
    }
    may_publish(plan)
        .map_err(|bar| ClusterRefusal::NotReady { plan: id, reason: bar.to_string() })?;
    let illegal = |reason: String| ClusterRefusal::IllegalRing { reason };
    let ring = next_ring(state, &plan.topology, &plan.tokens, at_ms)
        .map_err(|error| illegal(error.to_string()))?;
    let replicas = next_replicas(state, plan, &ring)
        .ok_or_else(|| illegal("an owner has no replica".to_owned()))?;

    state.replicas = replicas;
    state.history.push(EpochRecord {
        epoch: ring.epoch(),
        checksum: ring.checksum(),
        activated_at_ms: ring.activated_at_ms(),
    });
    let base = std::mem::replace(&mut state.ring, ring);
    let epoch = state.epoch();
    let plan = state.plans.iter_mut().find(|plan| plan.id == id).expect("it was found above");
    plan.base = Some(base);
    plan.phase = Phase::Published { epoch, at_ms };
    for it in &mut plan.moves {
        it.advance(&Advance::to(Transition::Published), at_ms)
            .expect("all moves are verified, and published follows verified");
    }
    let gains: Vec<Member> = plan.moves.iter().filter_map(|it| it.gain).collect();
    for earlier in state.plans.iter_mut().filter(|plan| plan.id != id) {
        for it in &mut earlier.moves {
            it.lose = it.lose.filter(|lose| it.stage.is_ended() || !gains.contains(lose));
        }
    }
    bar_lost(state, id, epoch);
    choose_group0(state);
    Ok(ClusterOutcome::Done)
}

/// The replicas of each partition in the order of the next ring's owners.
fn next_replicas(
    state: &ClusterState,
    plan: &Plan,
    ring: &RingSnapshot,
) -> Option<Vec<Vec<Member>>> {
    let mut gains: BTreeMap<(PartitionId, NodeId), Member> = BTreeMap::new();
    for it in &plan.moves {
        if let Some(gain) = it.gain {
            gains.insert((it.partition, gain.node), gain);
        }
    }
    let table = Ring::new(Arc::new(ring.clone()));
    let member = |partition: PartitionId, node: NodeId| {
        let known = state.replicas_of(partition).iter().find(|member| member.node == node);
        gains.get(&(partition, node)).or(known).copied()
    };
    let partitions = ring.partition_bits().partitions();
    partitions.map(|it| table.owner_ids(it).map(|node| member(it, node)).collect()).collect()
}

/// Identities that were given up may not come back.
fn bar_lost(state: &mut ClusterState, id: PlanId, epoch: Epoch) {
    let lost: Vec<NodeId> = state.plan(id).map(|plan| plan.lost().collect()).unwrap_or_default();
    for node in lost {
        if let Some(record) = state.nodes.get(&node) {
            let name = record.registration.name.clone();
            state.departed.insert(node, Departure { name, is_lost: true, epoch });
        }
    }
}

/// Gives a plan up before its ring is published.
pub(super) fn cancel(state: &mut ClusterState, id: PlanId, at_ms: u64) -> Applied {
    let plan = plan_mut(state, id)?;
    if !plan.is_moving() {
        let phase = plan.phase.name().to_owned();
        return Err(ClusterRefusal::WrongPhase { plan: id, phase });
    }
    abort(state, id, &AbortReason::Cancelled, at_ms);
    Ok(ClusterOutcome::Done)
}

/// Stops a plan where it is, or lets it go on.
pub(super) fn pause(state: &mut ClusterState, id: PlanId, paused: bool) -> Applied {
    let plan = plan_mut(state, id)?;
    if plan.is_over() {
        let phase = plan.phase.name().to_owned();
        return Err(ClusterRefusal::WrongPhase { plan: id, phase });
    }
    plan.paused = paused;
    Ok(ClusterOutcome::Done)
}

/// Ends a plan's grace before its time.
pub(super) fn end_grace(state: &mut ClusterState, id: PlanId) -> Applied {
    let plan = plan_mut(state, id)?;
    match plan.phase {
        Phase::Published { .. } => {
            plan.grace_ended = true;
            Ok(ClusterOutcome::Done)
        }
        Phase::Moving | Phase::Finished { .. } | Phase::Aborted { .. } => {
            let phase = plan.phase.name().to_owned();
            Err(ClusterRefusal::WrongPhase { plan: id, phase })
        }
    }
}

fn plan_mut(state: &mut ClusterState, id: PlanId) -> Result<&mut Plan, ClusterRefusal> {
    let found = state.plans.iter_mut().find(|plan| plan.id == id);
    found.ok_or(ClusterRefusal::NoSuchPlan { plan: id })
}

/// Records a published plan's signals, and finishes it when all pass and no move is left.
pub(super) fn note_signals(
    state: &mut ClusterState,
    id: PlanId,
    signals: Signals,
    at_ms: u64,
) -> Applied {
    let partitions = state.ring.partition_bits().count();
    // Who is lost will not say that its copies are destroyed, and is not asked to.
    let cleared = state.plan(id).is_some_and(|plan| {
        let asked = |node: &NodeId| plan.lost().all(|lost| lost != *node);
        plan.leaving().filter(asked).all(|node| !state.open_moves().any(|it| it.is_on(node)))
    });
    let plan = plan_mut(state, id)?;
    let Phase::Published { epoch, .. } = plan.phase else {
        let phase = plan.phase.name().to_owned();
        return Err(ClusterRefusal::WrongPhase { plan: id, phase });
    };
    plan.signals = Some(signals);
    if signals.pass(partitions) && cleared && plan.moves.iter().all(Move::is_over) {
        plan.phase = Phase::Finished { epoch, at_ms };
        plan.base = None;
        let left: Vec<(NodeId, bool)> = {
            let lost: Vec<NodeId> = plan.lost().collect();
            plan.leaving().map(|node| (node, lost.contains(&node))).collect()
        };
        for (node, is_lost) in left {
            depart(state, node, is_lost, epoch);
        }
    }
    Ok(ClusterOutcome::Done)
}

/// Gives up a node that is in no ring.
pub(super) fn give_up(state: &mut ClusterState, node: NodeId) -> Applied {
    if !state.nodes.contains_key(&node) {
        return Err(ClusterRefusal::NoSuchNode { node });
    }
    if state.is_needed(node) {
        return Err(ClusterRefusal::InRing { node });
    }
    let epoch = state.epoch();
    depart(state, node, true, epoch);
    Ok(ClusterOutcome::Done)
}

/// Takes a node that owns nothing any more out of the directory.
fn depart(state: &mut ClusterState, node: NodeId, is_lost: bool, epoch: Epoch) {
    if state.is_needed(node) {
        return;
    }
    if is_lost {
        wait_no_more(state, node);
    }
    if let Some(record) = state.nodes.remove(&node) {
        let name = record.registration.name;
        state.departed.insert(node, Departure { name, is_lost, epoch });
        state.directory_revision += 1;
    }
}

/// A node that is lost will not say that its copies are destroyed.
fn wait_no_more(state: &mut ClusterState, node: NodeId) {
    for it in state.plans.iter_mut().flat_map(|plan| &mut plan.moves) {
        it.lose_is_dead |= it.lose.is_some_and(|lose| lose.node == node);
        it.residue = it.residue.filter(|residue| residue.node != node);
    }
}

/// Drops the oldest plans that have ended, and what only a running one needs.
fn forget_old_plans(state: &mut ClusterState) {
    let ended = state.plans.iter().filter(|plan| plan.is_over()).count();
    let mut surplus = ended.saturating_sub(ENDED_PLANS_KEPT);
    state.plans.retain(|plan| {
        let goes = surplus > 0 && plan.is_over();
        surplus -= usize::from(goes);
        !goes
    });
    for plan in state.plans.iter_mut().filter(|plan| plan.is_over()) {
        plan.tokens = Vec::new();
        plan.base = None;
    }
}

/// The order that leads back to the ring before a plan.
///
/// # Errors
/// [`ClusterRefusal`] when the plan is not the last one, does not serve, or is finished.
pub fn rollback_order(
    state: &ClusterState,
    of: PlanId,
    at_ms: u64,
) -> Result<PlanOrder, ClusterRefusal> {
    let plan = state.plan(of).ok_or(ClusterRefusal::NoSuchPlan { plan: of })?;
    let Some(base) = &plan.base else {
        let phase = plan.phase.name().to_owned();
        return Err(ClusterRefusal::WrongPhase { plan: of, phase });
    };
    check_nodes(state, base.topology())?;
    let named = [state.ring.checksum(), base.checksum()].map(|it| it.as_u128().to_be_bytes());
    Ok(PlanOrder {
        kind: PlanKind::Rollback(of),
        base_epoch: state.epoch(),
        digest: Checksum::of(&named.concat()),
        changes: Vec::new(),
        topology: base.topology().clone(),
        tokens: base.tokens().collect(),
        copies_min: 0,
        at_ms,
    })
}
