//! The view in the words of the API: documents, hints and status pages for people and clients.
//!
//! Wire types and the core's types are distinct; they meet here and nowhere else.

use std::collections::BTreeMap;

use kvapi::admin::{
    ClusterStatus, InitAnswer, NodeStage, NodeStatus, RedundancyStatus, RingHistory,
    RingHistoryEntry,
};
use kvapi::{Directory, DirectoryNode, Health, LeaderHint, LocateAnswer, OwnerHint, RingDocument};
use kvcore::cluster::{ClusterState, NodeRecord, node_state};
use migration::{Phase, Plan, Stage};
use placement::{Epoch, NodeId, NodeState, OwnerRole, PartitionBits, Redundancy, RingSnapshot};

use super::backend::ClusterKnowledge;
use super::describe_plans;
use crate::founding::Founded;
use crate::router::Located;
use crate::view::View;

/// A node as the leader of something; none if the directory does not have it.
#[must_use]
pub fn leader(view: &View, node: NodeId) -> Option<LeaderHint> {
    let registration = &view.node(node)?.registration;
    Some(LeaderHint {
        node,
        name: registration.name.clone(),
        client_address: registration.client_address.clone(),
    })
}

/// Owners of a partition, the primary first. One that the directory does not have is left out.
#[must_use]
pub fn owners(view: &View, owners: impl IntoIterator<Item = NodeId>) -> Vec<OwnerHint> {
    let hint = |(rank, node)| {
        let registration = &view.node(node)?.registration;
        Some(OwnerHint {
            node,
            name: registration.name.clone(),
            zone: registration.zone.clone(),
            role: OwnerRole::of_rank(rank),
            client_address: registration.client_address.clone(),
        })
    };
    owners.into_iter().enumerate().filter_map(hint).collect()
}

/// The answer of `GET /v1/locate/{key}`.
#[must_use]
pub fn located(view: &View, located: &Located) -> LocateAnswer {
    let placement = &located.placement;
    LocateAnswer {
        key_hash: placement.key_hash,
        partition: placement.partition,
        epoch: placement.epoch,
        owners: owners(view, placement.owners.iter().map(|owner| owner.node)),
        leader: located.leader.and_then(|node| leader(view, node)),
    }
}

/// The answer of `GET /v1/ring`.
#[must_use]
pub fn ring_document(state: &ClusterState, ring: &RingSnapshot) -> RingDocument {
    let mut nodes: Vec<_> = state.nodes.values().map(directory_node).collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let directory = Directory { revision: state.directory_revision, nodes };
    RingDocument { snapshot: ring.clone(), directory }
}

fn directory_node(record: &NodeRecord) -> DirectoryNode {
    let registration = &record.registration;
    DirectoryNode {
        id: registration.id,
        name: registration.name.clone(),
        zone: registration.zone.clone(),
        weight: registration.weight.get(),
        client_address: registration.client_address.clone(),
        peer_address: registration.peer_address.clone(),
        health: health(record.health),
    }
}

fn health(health: kvcore::cluster::Health) -> Health {
    match health {
        kvcore::cluster::Health::Up => Health::Up,
        kvcore::cluster::Health::Suspect => Health::Suspect,
        kvcore::cluster::Health::Down => Health::Down,
    }
}

/// The ring of an epoch, if it is in force or a plan keeps it for a way back.
#[must_use]
pub fn kept_ring(state: &ClusterState, epoch: Epoch) -> Option<&RingSnapshot> {
    let bases = state.plans.iter().filter_map(|plan| plan.base.as_ref());
    bases.chain([&state.ring]).find(|ring| ring.epoch() == epoch)
}

/// The answer of `GET /v1/admin/ring`.
#[must_use]
pub fn ring_history(view: &View) -> RingHistory {
    let state = &view.state;
    let published_by = |epoch: Epoch| {
        state.plans.iter().find(|plan| match plan.phase {
            Phase::Published { epoch: its, .. } | Phase::Finished { epoch: its, .. } => {
                its == epoch
            }
            Phase::Moving | Phase::Aborted { .. } => false,
        })
    };
    let entries = state.history.iter().map(|record| {
        let plan = published_by(record.epoch);
        let kind = match plan {
            Some(plan) => describe_plans::kind(plan),
            None if record.epoch == Epoch::ZERO.next() => "founding".to_owned(),
            None => "unknown".to_owned(),
        };
        let changes = plan.map_or(&[][..], |plan| &plan.changes);
        RingHistoryEntry {
            epoch: record.epoch,
            checksum: record.checksum.to_string(),
            activated_at: record.activated_at_ms,
            plan: plan.map(|plan| plan.id.get()),
            kind,
            changes: changes.iter().map(|it| describe_plans::change(view, it)).collect(),
            kept: kept_ring(state, record.epoch).is_some(),
        }
    });
    RingHistory { entries: entries.collect() }
}

/// The answer of `POST /v1/admin/init`.
#[must_use]
pub fn founded(founded: &Founded) -> InitAnswer {
    InitAnswer {
        cluster_id: founded.cluster.to_string(),
        epoch: founded.epoch,
        nodes: founded.founders.iter().map(|founder| founder.name.clone()).collect(),
        redundancy: redundancy_status(founded.partition_bits, &founded.redundancy),
    }
}

/// The answer of `GET /v1/admin/status`.
#[must_use]
pub fn status(view: &View, knowledge: ClusterKnowledge) -> ClusterStatus {
    let state = &view.state;
    let loads = loads(view);
    let mut nodes: Vec<_> = state
        .nodes
        .values()
        .map(|record| {
            let id = record.registration.id;
            node_status(record, node_state(state, id), loads.get(&id))
        })
        .collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let redundancy = view.ring.redundancy();
    let staged: Vec<String> =
        state.draft.iter().map(|it| describe_plans::change(view, it)).collect();
    let plan = state.plans.iter().rev().find(|plan| !plan.is_over());
    let hint = plan_step(plan).or_else(|| next_step(&nodes, &redundancy, !staged.is_empty()));
    ClusterStatus {
        cluster_id: state.cluster.to_string(),
        epoch: view.epoch(),
        revision: state.revision.get(),
        view_age_ms: millis(knowledge.view_age),
        partitions: state.ring.partition_bits().count(),
        replication_factor: state.ring.replication_factor().get(),
        group0: knowledge.group0,
        nodes,
        staged,
        plan: plan.map(|plan| describe_plans::summary(view, plan)),
        redundancy: redundancy_status(state.ring.partition_bits(), &redundancy),
        alarms: knowledge.alarms,
        hint,
    }
}

/// Whole milliseconds of a time.
#[must_use]
pub fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What the ring gives to a node.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    primaries: u32,
    copies: u32,
}

fn loads(view: &View) -> BTreeMap<NodeId, Load> {
    let mut loads: BTreeMap<NodeId, Load> = BTreeMap::new();
    for partition in view.ring.partition_bits().partitions() {
        for (rank, node) in view.owners(partition).enumerate() {
            let load = loads.entry(node).or_default();
            load.copies += 1;
            load.primaries += u32::from(rank == 0);
        }
    }
    loads
}

fn node_status(record: &NodeRecord, state: NodeState, load: Option<&Load>) -> NodeStatus {
    let node = directory_node(record);
    let load = load.copied();
    let Load { primaries, copies } = load.unwrap_or_default();
    NodeStatus {
        id: node.id,
        name: node.name,
        zone: node.zone,
        weight: node.weight,
        client_address: node.client_address,
        peer_address: node.peer_address,
        health: node.health,
        stage: if load.is_some() { NodeStage::Member } else { NodeStage::Spare },
        state,
        primaries,
        replicas: copies,
    }
}

fn redundancy_status(bits: PartitionBits, redundancy: &Redundancy) -> RedundancyStatus {
    let partitions = bits.count();
    let factor = u32::from(redundancy.replication_factor);
    RedundancyStatus {
        zones_achieved_min: u32::from(redundancy.zones_covered_min),
        zones_possible: redundancy.zones_total.min(factor),
        under_replicated_partitions: if redundancy.under_replicated { partitions } else { 0 },
        detail: redundancy_sentence(redundancy),
    }
}

fn redundancy_sentence(redundancy: &Redundancy) -> String {
    let copies = redundancy.owners_per_partition;
    let survives = match (redundancy.survives_zone_loss, redundancy.survives_node_loss) {
        (true, _) => "the loss of any one zone stops nothing",
        (false, true) => "the loss of any one node stops nothing, the loss of a zone may",
        (false, false) => "the loss of any one node stops the partitions it holds",
    };
    format!(
        "{copies} of {} copies over at least {} zones: {survives}",
        redundancy.replication_factor, redundancy.zones_covered_min
    )
}

/// What to do about a plan that has not ended, if anything.
fn plan_step(plan: Option<&Plan>) -> Option<String> {
    let plan = plan?;
    let blocked = plan.moves.iter().any(|it| matches!(it.stage, Stage::Blocked { .. }));
    let id = plan.id;
    match plan.phase {
        _ if blocked => Some(format!("moves of plan {id} are blocked: `kvctl migrate why`")),
        Phase::Moving | Phase::Published { .. } if plan.paused => {
            Some(format!("plan {id} is paused: `kvctl migrate resume`"))
        }
        Phase::Moving => Some(format!("plan {id} is under way: `kvctl migrate watch`")),
        Phase::Published { .. } if plan.is_serving() && !plan.grace_ended => Some(format!(
            "plan {id} serves: `kvctl migrate finish` ends its grace, `kvctl migrate rollback` goes back"
        )),
        Phase::Published { .. } => {
            Some(format!("plan {id} is published and not finished: `kvctl migrate watch --wait`"))
        }
        Phase::Finished { .. } | Phase::Aborted { .. } => None,
    }
}

fn next_step(nodes: &[NodeStatus], redundancy: &Redundancy, is_staged: bool) -> Option<String> {
    let is_member = |node: &&NodeStatus| node.stage == NodeStage::Member;
    let down = nodes.iter().filter(is_member).find(|node| node.health == Health::Down);
    if let Some(NodeStatus { name, .. }) = down {
        return Some(format!(
            "{name} is down: start it again; if it is lost, `kvctl replace {name} SPARE` or `kvctl remove {name}`"
        ));
    }
    if is_staged {
        return Some("changes are staged: `kvctl plan show`, then `kvctl plan apply`".to_owned());
    }
    let is_spare = |node: &&NodeStatus| node.state == NodeState::Spare && node.health == Health::Up;
    let spare = match nodes.iter().filter(is_spare).collect::<Vec<_>>().as_slice() {
        [] => None,
        [node] => Some(format!("{} holds nothing yet: `kvctl join {}`", node.name, node.name)),
        spares => {
            Some(format!("{} nodes hold nothing yet: `kvctl join --all-spares`", spares.len()))
        }
    };
    if redundancy.under_replicated {
        let factor = redundancy.replication_factor;
        let start = || format!("{factor} copies are wanted: start more nodes, then `kvctl join`");
        return Some(spare.unwrap_or_else(start));
    }
    if redundancy.fewer_zones_than_replicas {
        let start = || {
            "some zone holds several copies of a partition: start nodes in another zone".to_owned()
        };
        return Some(spare.unwrap_or_else(start));
    }
    spare
}
