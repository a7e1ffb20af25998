//! Founding a cluster: from a list of started nodes to the first cluster state.

use std::collections::BTreeMap;

use migration::PlanId;
use placement::{
    NodeId, NodeSpec, NodeState, PartitionBits, PlacementError, ReplicationFactor, Ring,
    RingSnapshot, SnapshotError, SnapshotParts, TokenPolicy, Topology, Zone,
};
use thiserror::Error;

use super::settings::ClusterSettings;
use super::state::{ClusterState, EpochRecord, Health, NodeRecord, Registration};
use super::voters::group0_nodes;
use crate::ids::{ClusterId, ReplicaId, Revision};
use crate::storage::Member;

/// Revision of a founding state: the index at which group 0's log begins.
pub const FOUNDING_REVISION: Revision = Revision(1);

/// A node that takes part in the founding.
pub type Founder = Registration;

/// What a cluster is founded with.
#[derive(Clone, Debug)]
pub struct Founding {
    /// Id of the new cluster.
    pub cluster: ClusterId,
    /// Its nodes.
    pub founders: Vec<Founder>,
    /// Number of partitions, as a power of two.
    pub partition_bits: PartitionBits,
    /// Copies of each partition.
    pub replication_factor: ReplicationFactor,
    /// Tokens per unit of weight.
    pub vnodes_per_node: u32,
    /// How tokens are placed.
    pub policy: TokenPolicy,
    /// Now, in unix milliseconds.
    pub now_ms: u64,
}

/// Why a cluster cannot be founded.
#[derive(Debug, Error)]
pub enum FoundingError {
    /// There are no founders.
    #[error("a cluster needs at least one node")]
    NoFounders,
    /// The ring cannot be made.
    #[error("no ring can be made of these nodes")]
    Placement(#[from] PlacementError),
    /// The ring cannot be published.
    #[error("the first ring cannot be published")]
    Snapshot(#[from] SnapshotError),
}

/// Makes the first state of a cluster. Equal foundings give equal states.
///
/// # Errors
/// [`FoundingError`] when the founders allow no ring.
pub fn found(founding: &Founding) -> Result<ClusterState, FoundingError> {
    if founding.founders.is_empty() {
        return Err(FoundingError::NoFounders);
    }
    let specs = founding.founders.iter().map(|founder| NodeSpec {
        id: founder.id,
        name: founder.name.clone(),
        zone: founder.zone.clone(),
        weight: founder.weight,
        state: NodeState::Active,
    });
    let topology = Topology::new(specs.collect())?;
    let tokens = placement::allocate(
        &topology,
        founding.partition_bits,
        founding.replication_factor,
        founding.vnodes_per_node,
        None,
        founding.policy,
    )?;
    let parts = SnapshotParts {
        partition_bits: founding.partition_bits,
        replication_factor: founding.replication_factor,
        topology,
        tokens,
        activated_at_ms: founding.now_ms,
    };
    let ring = RingSnapshot::publish(parts, None)?;

    let mut next_replica = 1;
    let mut member = |node| {
        let replica = ReplicaId(next_replica);
        next_replica += 1;
        Member { replica, node }
    };
    let group0 = group0_nodes(&nodes_and_zones(&founding.founders), &[])
        .into_iter()
        .map(&mut member)
        .collect();
    let table = Ring::new(std::sync::Arc::new(ring.clone()));
    let replicas = founding
        .partition_bits
        .partitions()
        .map(|partition| table.owner_ids(partition).map(&mut member).collect())
        .collect();
    let nodes: BTreeMap<_, _> = founding
        .founders
        .iter()
        .map(|founder| {
            let record = NodeRecord { registration: founder.clone(), health: Health::Up };
            (founder.id, record)
        })
        .collect();
    Ok(ClusterState {
        cluster: founding.cluster,
        revision: FOUNDING_REVISION,
        history: vec![EpochRecord {
            epoch: ring.epoch(),
            checksum: ring.checksum(),
            activated_at_ms: ring.activated_at_ms(),
        }],
        ring,
        nodes,
        directory_revision: 1,
        replicas,
        group0,
        group0_former: Vec::new(),
        next_replica: ReplicaId(next_replica),
        settings: ClusterSettings::new(founding.policy, founding.vnodes_per_node),
        draft: Vec::new(),
        plans: Vec::new(),
        next_plan: PlanId(1),
        departed: BTreeMap::new(),
    })
}

fn nodes_and_zones(founders: &[Founder]) -> Vec<(NodeId, Zone)> {
    founders.iter().map(|founder| (founder.id, founder.zone.clone())).collect()
}
