//! Budgets: how many moves may copy at a time.

use std::collections::BTreeMap;

use placement::NodeId;

use crate::moves::{Move, MoveId};
use crate::plan::Plan;
use crate::stage::{Step, Transition};

/// How many moves may copy at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Per node that takes copies, and per node that gives them.
    pub moves_per_node: u32,
}

/// The pending moves of a plan that may start now, in order, each with its transition. `source`
/// tells which node gives a move's copy; it is asked when the move starts, not later.
pub fn admit(
    plan: &Plan,
    budget: Budget,
    source: impl Fn(&Move) -> Option<NodeId>,
) -> Vec<(MoveId, Transition)> {
    if plan.paused || !plan.is_moving() {
        return Vec::new();
    }
    let mut given: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut taken: BTreeMap<NodeId, u32> = BTreeMap::new();
    let is_copying = |it: &Move| matches!(it.stage.step(), Some(Step::Copying | Step::CatchingUp));
    for it in plan.moves.iter().filter(|it| is_copying(it)) {
        if let Some(from) = source(it) {
            *given.entry(from).or_default() += 1;
        }
        if let Some(gain) = it.gain {
            *taken.entry(gain.node).or_default() += 1;
        }
    }
    let mut admitted = Vec::new();
    let pending = |it: &Move| it.stage.step() == Some(Step::Pending);
    for (id, it) in plan.numbered().filter(|(_, it)| pending(it)) {
        let Some(gain) = it.gain else {
            admitted.push((id, Transition::Skip));
            continue;
        };
        let from = source(it);
        let busy = |counts: &BTreeMap<NodeId, u32>, node: NodeId| {
            counts.get(&node).is_some_and(|count| *count >= budget.moves_per_node)
        };
        if busy(&taken, gain.node) || from.is_some_and(|from| busy(&given, from)) {
            continue;
        }
        *taken.entry(gain.node).or_default() += 1;
        if let Some(from) = from {
            *given.entry(from).or_default() += 1;
        }
        admitted.push((id, Transition::Admit));
    }
    admitted
}
