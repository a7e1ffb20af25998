//! Who votes in group 0: few nodes, spread over zones, replaced when one leaves the ring.

use placement::{NodeId, Zone};

/// Voters of group 0 in a cluster of three nodes or more; below that, one.
const VOTERS: usize = 3;

/// Chooses the nodes of group 0 among those of the ring: those of `current` that are still there
/// stay as far as they are wanted, then new zones come first, then lower identities.
pub(super) fn group0_nodes(nodes: &[(NodeId, Zone)], current: &[NodeId]) -> Vec<NodeId> {
    let wanted = if nodes.len() < VOTERS { 1.min(nodes.len()) } else { VOTERS };
    let mut chosen: Vec<&(NodeId, Zone)> = Vec::new();
    while chosen.len() < wanted {
        let in_zone = |zone: &Zone| chosen.iter().filter(|(_, other)| other == zone).count();
        let next = nodes
            .iter()
            .filter(|(node, _)| chosen.iter().all(|(other, _)| other != node))
            .min_by_key(|(node, zone)| (in_zone(zone), !current.contains(node), *node))
            .expect("there are at least as many nodes as voters wanted");
        chosen.push(next);
    }
    chosen.into_iter().map(|(node, _)| *node).collect()
}
