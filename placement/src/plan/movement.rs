//! What moves, seen from the nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::staging::Staged;
use crate::diff::{PartitionDiff, RingDiff};
use crate::ids::{NodeId, Zone};
use crate::ring::Ring;
use crate::topology::NodeSpec;

/// What a plan does to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMovement {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub zone: Zone,
    /// Copies that it owns now.
    pub copies_before: u32,
    /// Copies that it will own.
    pub copies_after: u32,
    /// Copies that it receives.
    pub copies_gained: u32,
    /// Copies that it gives up.
    pub copies_lost: u32,
    /// Partitions of which it is the primary now.
    pub primaries_before: u32,
    /// Partitions of which it will be the primary.
    pub primaries_after: u32,
}

impl NodeMovement {
    fn of(node: &NodeSpec) -> Self {
        Self {
            node: node.id,
            zone: node.zone.clone(),
            copies_before: 0,
            copies_after: 0,
            copies_gained: 0,
            copies_lost: 0,
            primaries_before: 0,
            primaries_after: 0,
        }
    }

    fn is_untouched(&self) -> bool {
        self.copies_gained == 0
            && self.copies_lost == 0
            && self.primaries_before == self.primaries_after
    }
}

/// Copies that one node receives from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFlow {
    /// Who is expected to be read from: an owner that gives the copy up, if it can, in the zone of
    /// the target, if there is one. Any other owner may take its place while the plan runs.
    pub source: NodeId,
    /// Who receives.
    pub target: NodeId,
    /// How many copies.
    pub copies: u32,
}

/// What each node gains and loses, in order of identity.
pub(super) fn by_node(base: &Ring, target: &Ring, diff: &RingDiff) -> Vec<NodeMovement> {
    let mut nodes: BTreeMap<NodeId, NodeMovement> = base
        .nodes()
        .iter()
        .chain(target.nodes())
        .map(|node| (node.id, NodeMovement::of(node)))
        .collect();
    let mut of = |node: NodeId, count: fn(&mut NodeMovement)| {
        count(nodes.get_mut(&node).expect("owners are members of their ring"));
    };
    for partition in base.partition_bits().partitions() {
        for node in base.owner_ids(partition) {
            of(node, |movement| movement.copies_before += 1);
        }
        for node in target.owner_ids(partition) {
            of(node, |movement| movement.copies_after += 1);
        }
        if let Some(node) = base.primary(partition) {
            of(node, |movement| movement.primaries_before += 1);
        }
        if let Some(node) = target.primary(partition) {
            of(node, |movement| movement.primaries_after += 1);
        }
    }
    for change in &diff.partitions {
        change.gained.iter().for_each(|node| of(*node, |movement| movement.copies_gained += 1));
        change.lost.iter().for_each(|node| of(*node, |movement| movement.copies_lost += 1));
    }
    nodes.into_values().filter(|movement| !movement.is_untouched()).collect()
}

/// The copies by source and target.
pub(super) fn flows(base: &Ring, target: &Ring, diff: &RingDiff, staged: &Staged) -> Vec<CopyFlow> {
    let mut flows: BTreeMap<(NodeId, NodeId), u32> = BTreeMap::new();
    for change in &diff.partitions {
        for gained in &change.gained {
            let zone = &target.snapshot().topology().get(*gained).expect("owners are members").zone;
            let source = source(base, change, zone, staged);
            *flows.entry((source, *gained)).or_default() += 1;
        }
    }
    flows
        .into_iter()
        .map(|((source, target), copies)| CopyFlow { source, target, copies })
        .collect()
}

/// The owner to copy from: never one that is dead, one that is being replaced only if need be.
fn source(base: &Ring, change: &PartitionDiff, zone: &Zone, staged: &Staged) -> NodeId {
    let owners = base.owners(change.partition).iter().map(|index| base.node(*index));
    let alive = owners.filter(|owner| !staged.removed.contains(&owner.id));
    let source = alive.min_by_key(|owner| {
        let is_replaced = staged.replacements.contains_key(&owner.id);
        (is_replaced, owner.zone != *zone, !change.lost.contains(&owner.id))
    });
    source.expect("partitions keep a majority of their owners").id
}
