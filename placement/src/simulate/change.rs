//! A change of membership: which ring follows, what moves, and what the survivors carry meanwhile.

use std::collections::BTreeMap;

use super::{Load, PartitionLoads, RingRules, SimulateError, theory};
use crate::diff::RingDiff;
use crate::ids::{NodeId, NodeName, PartitionId, Zone};
use crate::ring::{NodeIndex, Ring};
use crate::topology::{NodeSpec, NodeState, Topology, Weight};

/// What happens to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node comes.
    Join(NodeSpec),
    /// A node gives everything away; it serves until it has.
    Drain(NodeName),
    /// A node dies, and its copies are made anew from the others.
    Fail(NodeName),
    /// All nodes of a zone die.
    LoseZone(Zone),
    /// A node gets another weight.
    Reweight(NodeName, Weight),
}

impl Change {
    /// The nodes afterwards, and the identities of those that died on the way.
    fn apply(&self, nodes: &[NodeSpec]) -> Result<(Vec<NodeSpec>, Vec<NodeId>), SimulateError> {
        let mut after = nodes.to_vec();
        let find = |name: &NodeName| {
            let place = nodes.iter().position(|node| node.name == *name);
            place.ok_or_else(|| SimulateError::NoSuchNode { name: name.clone() })
        };
        let mut dead = Vec::new();
        match self {
            Self::Join(node) => after.push(node.clone()),
            Self::Drain(name) => after[find(name)?].state = NodeState::Draining,
            Self::Fail(name) => dead.push(after.remove(find(name)?).id),
            Self::LoseZone(zone) => {
                dead.extend(nodes.iter().filter(|node| node.zone == *zone).map(|node| node.id));
                if dead.is_empty() {
                    return Err(SimulateError::NoSuchZone { zone: zone.clone() });
                }
                after.retain(|node| node.zone != *zone);
            }
            Self::Reweight(name, weight) => after[find(name)?].weight = *weight,
        }
        if !after.iter().any(|node| node.state.receives_tokens()) {
            return Err(SimulateError::NothingLeft);
        }
        Ok((after, dead))
    }
}

/// The rings before and after a change.
#[derive(Debug, Clone)]
pub struct Transition {
    /// The ring before.
    pub before: Ring,
    /// The ring that the planner would publish.
    pub after: Ring,
    /// What differs.
    pub diff: RingDiff,
    /// The nodes that died.
    pub dead: Vec<NodeId>,
}

impl Transition {
    /// Makes the ring that follows `before` under these rules.
    pub fn new(before: Ring, rules: &RingRules, change: &Change) -> Result<Self, SimulateError> {
        let (nodes, dead) = change.apply(before.nodes())?;
        let after = rules.ring(Topology::new(nodes)?, Some(&before))?;
        let diff = RingDiff::between(&before, &after).expect("both rings have the rules' bits");
        Ok(Self { before, after, diff, dead })
    }

    /// What moves of a load.
    pub fn movement(&self, loads: &PartitionLoads) -> Movement {
        let mut movement = Movement {
            copies: Load::default(),
            primaries: Load::default(),
            total: loads.total(),
            sources: BTreeMap::new(),
            targets: BTreeMap::new(),
            without_source: 0,
        };
        for change in &self.diff.partitions {
            let load = loads.get(change.partition);
            if change.changes_primary() {
                movement.primaries += load;
            }
            for (place, target) in change.gained.iter().enumerate() {
                movement.copies += load;
                *movement.targets.entry(*target).or_default() += load;
                match self.source(change.partition, change.lost.get(place).copied()) {
                    Some(source) => *movement.sources.entry(source).or_default() += load,
                    None => movement.without_source += 1,
                }
            }
        }
        movement
    }

    /// Who gives a copy: the owner that makes way, else the first owner that lives.
    fn source(&self, partition: PartitionId, making_way: Option<NodeId>) -> Option<NodeId> {
        let lives = |id: &NodeId| !self.dead.contains(id);
        making_way.filter(lives).or_else(|| self.before.owner_ids(partition).find(lives))
    }

    /// Copies per key that have to move when every node goes from one fair share to the next.
    pub fn copies_expected(&self) -> f64 {
        let copies = self.after.snapshot().replication_factor();
        theory::fair_movement(self.before.nodes(), self.after.nodes(), copies)
    }

    /// Before the change, with every node alive.
    pub fn stage_before(&self, loads: &PartitionLoads) -> Stage {
        Stage::of(&self.before, loads, &[])
    }

    /// Right after the change: the dead are gone, and nothing has moved yet.
    pub fn stage_at_once(&self, loads: &PartitionLoads) -> Stage {
        Stage::of(&self.before, loads, &self.dead)
    }

    /// When all copies are where the new ring wants them.
    pub fn stage_after(&self, loads: &PartitionLoads) -> Stage {
        Stage::of(&self.after, loads, &[])
    }
}

/// What a transition moves of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// What nodes receive as copies.
    pub copies: Load,
    /// What changes its primary.
    pub primaries: Load,
    /// All there is, once.
    pub total: Load,
    /// What each node sends.
    pub sources: BTreeMap<NodeId, Load>,
    /// What each node receives.
    pub targets: BTreeMap<NodeId, Load>,
    /// Copies to be made of which no owner lives.
    pub without_source: u64,
}

/// A ring at work, with some of its nodes dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What each living node has as the first living owner, which is where leadership goes.
    pub primaries: BTreeMap<NodeId, Load>,
    /// What each living node has as any owner.
    pub copies: BTreeMap<NodeId, Load>,
    /// Entry z: the number of partitions with living owners in z zones.
    pub zone_cover: Vec<u32>,
    /// Partitions of which less than a majority of the owners lives.
    pub without_majority: u32,
}

impl Stage {
    /// Adds up a ring whose nodes in `dead` are gone.
    pub fn of(ring: &Ring, loads: &PartitionLoads, dead: &[NodeId]) -> Self {
        let lives = |index: &NodeIndex| !dead.contains(&ring.node(*index).id);
        let living = ring.nodes().iter().filter(|node| !dead.contains(&node.id));
        let none: BTreeMap<NodeId, Load> = living.map(|node| (node.id, Load::default())).collect();
        let owners_per_partition = ring.owners_per_partition();
        let mut stage = Self {
            primaries: none.clone(),
            copies: none,
            zone_cover: vec![0; owners_per_partition + 1],
            without_majority: 0,
        };
        let mut zones = Vec::with_capacity(owners_per_partition);
        for partition in ring.partition_bits().partitions() {
            let load = loads.get(partition);
            zones.clear();
            let owners = ring.owners(partition).iter().filter(|index| lives(index));
            for (rank, owner) in owners.clone().map(|index| ring.node(*index)).enumerate() {
                *stage.copies.entry(owner.id).or_default() += load;
                if rank == 0 {
                    *stage.primaries.entry(owner.id).or_default() += load;
                }
                zones.push(&owner.zone);
            }
            zones.sort_unstable();
            zones.dedup();
            stage.zone_cover[zones.len()] += 1;
            stage.without_majority += u32::from(owners.count() <= owners_per_partition / 2);
        }
        stage
    }
}
