//! Who votes in group 0: few nodes, spread over zones, replaced when one leaves the ring.

use migration::Member;
use placement::{Epoch, NodeId, Zone};

use super::command::{ClusterOutcome, ClusterRefusal};
use super::plans::new_replica;
use super::state::ClusterState;

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

/// Group 0's voters follow the ring: those that left it are replaced.
pub(super) fn choose_group0(state: &mut ClusterState) {
    let nodes: Vec<_> =
        state.ring.nodes().iter().map(|node| (node.id, node.zone.clone())).collect();
    let current: Vec<NodeId> = state.group0.iter().map(|member| member.node).collect();
    let chosen = group0_nodes(&nodes, &current);
    let mut known = std::mem::take(&mut state.group0);
    known.append(&mut state.group0_former);
    for node in chosen {
        // Who still follows goes on under its id: a node holds one replica of a group at a time.
        let member = match known.iter().position(|member| member.node == node) {
            Some(place) => known.remove(place),
            None => Member { replica: new_replica(state), node },
        };
        state.group0.push(member);
    }
    state.group0_former = known;
}

/// Group 0's new voters vote: the former ones may go, and never come back under their ids.
pub(super) fn retire_group0(
    state: &mut ClusterState,
    epoch: Epoch,
) -> Result<ClusterOutcome, ClusterRefusal> {
    if epoch != state.epoch() {
        return Err(ClusterRefusal::StaleEpoch { base: epoch, epoch: state.epoch() });
    }
    state.group0_former.clear();
    Ok(ClusterOutcome::Done)
}
