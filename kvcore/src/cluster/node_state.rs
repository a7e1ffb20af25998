//! What a node is in the cluster, derived from the ring and the moves: nothing keeps it beside them.

use migration::{Phase, Plan, Step};
use placement::{NodeId, NodeState};

use super::state::ClusterState;

/// The state of a node.
///
/// ```text
/// spare -> joining -> copying -> catching_up -> active -> draining -> removed
/// ```
///
/// A member is active also while it gains more copies. A node that has left the ring is draining
/// until its last copy is destroyed.
#[must_use]
pub fn node_state(state: &ClusterState, node: NodeId) -> NodeState {
    if !state.nodes.contains_key(&node) || state.departed.get(&node).is_some_and(|it| it.is_lost) {
        return NodeState::Removed;
    }
    let moving = state.plans.iter().find(|plan| matches!(plan.phase, Phase::Moving));
    let is_wanted = |plan: &&Plan| plan.topology.get(node).is_some();
    if state.ring.topology().get(node).is_some() {
        return match moving {
            Some(plan) if !is_wanted(&plan) => NodeState::Draining,
            Some(_) | None => NodeState::Active,
        };
    }
    if let Some(plan) = moving.filter(is_wanted) {
        return arriving(plan, node);
    }
    let is_here = |member: Option<migration::Member>| member.is_some_and(|it| it.node == node);
    match state.open_moves().any(|it| is_here(it.lose) || is_here(it.residue)) {
        true => NodeState::Draining,
        false => NodeState::Spare,
    }
}

/// How far a node is that a plan brings into the ring.
fn arriving(plan: &Plan, node: NodeId) -> NodeState {
    let gains = plan.moves.iter().filter(|it| it.gain.is_some_and(|gain| gain.node == node));
    let steps: Vec<Option<Step>> = gains.map(|it| it.stage.step()).collect();
    let has = |step: Step| steps.contains(&Some(step));
    if steps.iter().all(|step| *step == Some(Step::Pending)) && !steps.is_empty() {
        NodeState::Joining
    } else if has(Step::Pending) || has(Step::Copying) {
        NodeState::Copying
    } else {
        NodeState::CatchingUp
    }
}

#[cfg(test)]
mod tests;
