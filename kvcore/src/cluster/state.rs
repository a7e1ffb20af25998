//! The cluster state, and what makes one state a legal successor of another.

use std::collections::BTreeMap;

use migration::{Member, Move, Plan, PlanId, ReplicaId, Wanted};
use placement::{
    Change, Checksum, Epoch, NodeId, NodeName, PartitionId, RingSnapshot, SnapshotError, Weight,
    Zone,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::settings::ClusterSettings;
use crate::ids::{ClusterId, GroupId, Revision};

/// What is known of a node's life. It is not membership: it changes no token and moves no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Heartbeats arrive.
    #[default]
    Up,
    /// Some heartbeats are missing.
    Suspect,
    /// Heartbeats have been missing for long.
    Down,
}

/// What a node says of itself when it registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Identity made with the node's data directory.
    pub id: NodeId,
    /// Name, unique among the members.
    pub name: NodeName,
    /// The zone whose loss the node would not survive.
    pub zone: Zone,
    /// Share of the data relative to other nodes.
    pub weight: Weight,
    /// Address, as `host:port`, at which clients reach it.
    pub client_address: String,
    /// Address, as `host:port`, at which other nodes reach it.
    pub peer_address: String,
}

/// A node of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// What it said of itself.
    pub registration: Registration,
    /// How it does, as group 0's leader last judged.
    pub health: Health,
}

/// One line of the ring's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch.
    pub epoch: Epoch,
    /// Its snapshot's checksum.
    pub checksum: Checksum,
    /// When it was published, in unix milliseconds, by the publisher's clock.
    pub activated_at_ms: u64,
}

/// All that group 0 replicates. Every node keeps the last one it verified as its view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterState {
    /// The cluster.
    pub cluster: ClusterId,
    /// Index of the last command that changed the state.
    pub revision: Revision,
    /// The ring in force.
    pub ring: RingSnapshot,
    /// The rings that were, oldest first, the one in force included.
    pub history: Vec<EpochRecord>,
    /// The nodes, by identity.
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// Changes with every change of `nodes`.
    pub directory_revision: u64,
    /// Replicas of each partition in the order of the ring's owners, by partition number.
    pub replicas: Vec<Vec<Member>>,
    /// Voters of group 0.
    pub group0: Vec<Member>,
    /// Voters of group 0 before those: they follow until the new ones vote.
    pub group0_former: Vec<Member>,
    /// The next replica id to give out.
    pub next_replica: ReplicaId,
    /// What operators may set.
    pub settings: ClusterSettings,
    /// Changes that are staged and not applied.
    pub draft: Vec<Change>,
    /// The plans that were applied, oldest first: at most one that moves, those in their grace, and
    /// the last ones that have ended.
    pub plans: Vec<Plan>,
    /// The next plan id to give out.
    pub next_plan: PlanId,
    /// Nodes that have left.
    pub departed: BTreeMap<NodeId, Departure>,
}

/// How a node left the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// The name it had.
    pub name: NodeName,
    /// Whether it was given up: its identity is barred for good, and its data stays on its disk.
    pub is_lost: bool,
    /// The epoch that it is in no ring from.
    pub epoch: Epoch,
}

impl ClusterState {
    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.ring.epoch()
    }

    /// The replicas that a group is meant to have, in rank order.
    #[must_use]
    pub fn members(&self, group: GroupId) -> &[Member] {
        match group.partition() {
            None => &self.group0,
            Some(partition) => self.replicas_of(partition),
        }
    }

    /// The replicas of a partition, in the order of its owners; empty if there is no such partition.
    #[must_use]
    pub fn replicas_of(&self, partition: PartitionId) -> &[Member] {
        self.replicas.get(partition.get() as usize).map_or(&[], Vec::as_slice)
    }

    /// Moves that have not ended, or of which a replica waits to be destroyed.
    pub fn open_moves(&self) -> impl Iterator<Item = &Move> {
        self.plans.iter().flat_map(|plan| &plan.moves).filter(|it| !it.is_over())
    }

    /// The configuration that a group should have now.
    #[must_use]
    pub fn wanted(&self, group: GroupId) -> Wanted {
        let Some(partition) = group.partition() else {
            let (voters, learners) = (self.group0.clone(), self.group0_former.clone());
            return Wanted { voters, learners };
        };
        let moves = self.open_moves().filter(|it| it.partition == partition);
        Wanted::of(self.members(group), moves)
    }

    /// All replicas that may take part in a group now: whoever leads it is among them.
    #[must_use]
    pub fn participants(&self, group: GroupId) -> Vec<Member> {
        let Wanted { mut voters, learners } = self.wanted(group);
        voters.extend(learners);
        voters
    }

    /// Whether a replica has, or may still get, a place in its group. Once it has none it never has
    /// one again, since ids are not used twice.
    #[must_use]
    pub fn has_place(&self, replica: ReplicaId) -> bool {
        let named = |member: &Option<Member>| member.is_some_and(|it| it.replica == replica);
        replica >= self.next_replica
            || self.members_ever_voting().any(|it| it.replica == replica)
            || self.open_moves().any(|it| {
                let condemned = it.condemned().is_some_and(|it| it.replica == replica);
                !it.stage.is_ended() && !condemned && (named(&it.gain) || named(&it.lose))
            })
    }

    /// Whether an identity was given up: its data stays untouched on its disk, whoever runs it.
    #[must_use]
    pub fn is_barred(&self, node: NodeId) -> bool {
        self.departed.get(&node).is_some_and(|departure| departure.is_lost)
    }

    /// Whether a plan that is not published leads back to a replica of an earlier ring.
    #[must_use]
    pub fn comes_back(&self, member: Member) -> bool {
        let mut moving = self.plans.iter().filter(|plan| plan.is_moving());
        moving.any(|plan| plan.moves.iter().any(|it| it.gain == Some(member)))
    }

    /// Whether a node is part of the ring in force, of the one that a plan leads to, or of group 0.
    #[must_use]
    pub fn is_needed(&self, node: NodeId) -> bool {
        let comes = |plan: &Plan| plan.is_moving() && plan.topology.get(node).is_some();
        self.ring.topology().get(node).is_some()
            || self.plans.iter().any(comes)
            || self.group0.iter().any(|member| member.node == node)
    }

    fn members_ever_voting(&self) -> impl Iterator<Item = &Member> {
        self.replicas.iter().flatten().chain(&self.group0).chain(&self.group0_former)
    }

    /// The plan of this id, if it is still on record.
    #[must_use]
    pub fn plan(&self, id: PlanId) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.id == id)
    }

    /// Whether a plan is paused whose copies are being made: none goes on then.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.plans.iter().any(|plan| plan.paused && plan.is_moving())
    }

    /// The last plan that was applied.
    #[must_use]
    pub fn last_plan(&self) -> Option<&Plan> {
        self.plans.last()
    }

    /// All groups: group 0 and one per partition.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        let partitions = u32::try_from(self.replicas.len()).expect("at most 65536 partitions");
        std::iter::once(GroupId::CLUSTER)
            .chain((0..partitions).map(|number| GroupId::of_partition(PartitionId::new(number))))
    }

    /// Checks what must hold of any state, wherever it came from.
    ///
    /// # Errors
    /// [`ViewError::Inconsistent`] names the first rule that is broken.
    pub fn check(&self) -> Result<(), ViewError> {
        let rule = |holds: bool, rule: &'static str| {
            if holds { Ok(()) } else { Err(ViewError::Inconsistent { rule }) }
        };
        let partitions = self.ring.partition_bits().count() as usize;
        rule(self.replicas.len() == partitions, "every partition has its line of replicas")?;
        rule(
            self.history.last().is_some_and(|last| {
                last.epoch == self.ring.epoch() && last.checksum == self.ring.checksum()
            }),
            "the history ends with the ring in force",
        )?;
        let mut seen = std::collections::BTreeSet::new();
        for member in self.members_ever_voting() {
            rule(seen.insert(member.replica), "a replica id is given out once")?;
            rule(member.replica < self.next_replica, "replica ids come from the counter")?;
        }
        for member in self.replicas.iter().flatten().chain(&self.group0) {
            rule(self.nodes.contains_key(&member.node), "replicas are on nodes of the directory")?;
        }
        rule(
            self.nodes.iter().all(|(id, node)| node.registration.id == *id),
            "a node stands under its own identity",
        )
    }
}

/// Why a view was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewError {
    /// It belongs to another cluster.
    #[error("the view is of cluster {theirs}, this node belongs to {ours}")]
    OtherCluster {
        /// This node's cluster.
        ours: ClusterId,
        /// The view's cluster.
        theirs: ClusterId,
    },
    /// Its ring does not follow the one in force.
    #[error("the view's ring does not follow the ring in force")]
    Ring(#[from] SnapshotError),
    /// It breaks a rule of any state.
    #[error("the view is inconsistent: {rule}")]
    Inconsistent {
        /// The rule.
        rule: &'static str,
    },
}

/// Checks that `next` may take the place of `current`.
///
/// Returns `false` when `next` is not newer, which is no error: views arrive in any order.
///
/// # Errors
/// [`ViewError`] when `next` contradicts `current` or itself.
pub fn check_successor(current: &ClusterState, next: &ClusterState) -> Result<bool, ViewError> {
    if next.cluster != current.cluster {
        return Err(ViewError::OtherCluster { ours: current.cluster, theirs: next.cluster });
    }
    let same_epoch_in_history = next.history.iter().find(|line| line.epoch == current.epoch());
    if let Some(line) = same_epoch_in_history
        && line.checksum != current.ring.checksum()
    {
        return Err(ViewError::Ring(SnapshotError::EpochConflict {
            epoch: current.epoch(),
            current: current.ring.checksum(),
            offered: line.checksum,
        }));
    }
    if next.revision <= current.revision {
        return Ok(false);
    }
    next.check()?;
    current.ring.check_newer(&next.ring)?;
    Ok(true)
}
