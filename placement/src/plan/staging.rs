//! From changes to the next topology: every rule that needs no ring to be checked.

use std::collections::{BTreeMap, BTreeSet};

use super::{CHANGES_MAX, Change, PlanRefusal};
use crate::ids::NodeId;
use crate::snapshot::RingSnapshot;
use crate::topology::{NodeSpec, NodeState, Topology};

/// Changes that fit together and fit the members.
pub(super) struct Staged {
    /// In order of the node that each names first.
    pub(super) changes: Vec<Change>,
    /// The members after the changes.
    pub(super) topology: Topology,
    /// Dead members that leave: their copies count for nothing.
    pub(super) removed: BTreeSet<NodeId>,
    /// Who takes the tokens of whom.
    pub(super) replacements: BTreeMap<NodeId, NodeId>,
}

/// Checks the changes one by one and against each other, and applies them to the members.
pub(super) fn stage(base: &RingSnapshot, changes: &[Change]) -> Result<Staged, PlanRefusal> {
    if changes.len() > CHANGES_MAX {
        return Err(PlanRefusal::TooManyChanges { count: changes.len() });
    }
    let mut changes = changes.to_vec();
    changes.sort_by_key(|change| change.nodes().next());
    check_named_once(&changes)?;

    let members = base.topology();
    let mut nodes: BTreeMap<NodeId, NodeSpec> =
        members.nodes().iter().map(|node| (node.id, node.clone())).collect();
    let mut removed = BTreeSet::new();
    let mut replacements = BTreeMap::new();
    for change in &changes {
        match change {
            Change::Join(new) => {
                check_is_new(members, new)?;
                nodes.insert(new.id, activated(new));
            }
            Change::Drain(node) => {
                take(&mut nodes, *node)?;
            }
            Change::Remove(node) => {
                take(&mut nodes, *node)?;
                removed.insert(*node);
            }
            Change::Replace { old, new } => {
                let leaving = take(&mut nodes, *old)?;
                check_is_new(members, new)?;
                if new.zone != leaving.zone {
                    return Err(PlanRefusal::ZoneDiffers {
                        old: *old,
                        old_zone: leaving.zone,
                        new_zone: new.zone.clone(),
                    });
                }
                nodes.insert(new.id, activated(new));
                replacements.insert(*old, new.id);
            }
            Change::Reweight { node, weight } => {
                let member = nodes.get_mut(node).ok_or(PlanRefusal::UnknownNode { node: *node })?;
                member.weight = *weight;
            }
        }
    }
    check_names(members, &changes)?;
    if nodes.is_empty() {
        return Err(PlanRefusal::NoNodesLeft);
    }
    let topology = Topology::new(nodes.into_values().collect())?;
    if topology == *members {
        return Err(PlanRefusal::NothingToDo);
    }
    Ok(Staged { changes, topology, removed, replacements })
}

fn check_named_once(changes: &[Change]) -> Result<(), PlanRefusal> {
    let mut named = BTreeSet::new();
    for node in changes.iter().flat_map(Change::nodes) {
        if !named.insert(node) {
            return Err(PlanRefusal::DuplicateChange { node });
        }
    }
    Ok(())
}

fn check_is_new(members: &Topology, new: &NodeSpec) -> Result<(), PlanRefusal> {
    match members.get(new.id) {
        Some(_) => Err(PlanRefusal::AlreadyMember { node: new.id }),
        None => Ok(()),
    }
}

fn take(nodes: &mut BTreeMap<NodeId, NodeSpec>, node: NodeId) -> Result<NodeSpec, PlanRefusal> {
    nodes.remove(&node).ok_or(PlanRefusal::UnknownNode { node })
}

/// The node as the next ring has it: it owns what it is given.
fn activated(node: &NodeSpec) -> NodeSpec {
    NodeSpec { state: NodeState::Active, ..node.clone() }
}

/// Names stay unique while the data moves, when those who come and those who leave are both there.
fn check_names(members: &Topology, changes: &[Change]) -> Result<(), PlanRefusal> {
    let mut holders: BTreeMap<_, NodeId> =
        members.nodes().iter().map(|node| (&node.name, node.id)).collect();
    for change in changes {
        let (new, replaced) = match change {
            Change::Join(new) => (new, None),
            Change::Replace { old, new } => (new, Some(*old)),
            Change::Drain(_) | Change::Remove(_) | Change::Reweight { .. } => continue,
        };
        let holder = holders.insert(&new.name, new.id);
        if let Some(holder) = holder.filter(|holder| Some(*holder) != replaced) {
            let name = new.name.clone();
            return Err(PlanRefusal::NameTaken { node: new.id, name, holder });
        }
    }
    Ok(())
}
