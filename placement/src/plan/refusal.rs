//! Why a plan is refused: one variant for each rule.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::CHANGES_MAX;
use crate::error::{PlacementError, SnapshotError};
use crate::ids::{NodeId, NodeName, PartitionId, Zone};

/// The rule that a plan would violate, with what an operator needs to see why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanRefusal {
    /// The members and their weights would stay as they are.
    #[error("the changes leave the members and their weights as they are")]
    NothingToDo,
    /// More changes than one plan may have.
    #[error("{count} changes are more than the {CHANGES_MAX} of one plan")]
    TooManyChanges {
        /// The number of changes given.
        count: usize,
    },
    /// Two changes name one node.
    #[error("two changes name node {node}")]
    DuplicateChange {
        /// The node.
        node: NodeId,
    },
    /// A node that is to leave, to be replaced or to be weighted is no member.
    #[error("node {node} is no member of the ring")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// A node that is to join is a member.
    #[error("node {node} is a member of the ring already")]
    AlreadyMember {
        /// The node.
        node: NodeId,
    },
    /// A node that is to join has the name of another. A leaving member keeps its name until its data
    /// is gone; only who replaces it may have the same.
    #[error("node {node} cannot join as {name}, which is the name of node {holder}")]
    NameTaken {
        /// The node that is to join.
        node: NodeId,
        /// Its name.
        name: NodeName,
        /// The node with that name.
        holder: NodeId,
    },
    /// A node would be replaced by one of another zone, which could not take its tokens.
    #[error(
        "node {old} of zone {old_zone} cannot be replaced by a node of zone {new_zone}: \
         stage a join and a drain"
    )]
    ZoneDiffers {
        /// The node that is to leave.
        old: NodeId,
        /// Its zone.
        old_zone: Zone,
        /// The zone of the node that is to take its place.
        new_zone: Zone,
    },
    /// Nobody would be left to own the data.
    #[error("no node would be left")]
    NoNodesLeft,
    /// Without the nodes that are to be removed as dead, partitions have no majority of their owners
    /// left. Such a partition can neither be copied safely nor agree on new members.
    #[error("without the removed nodes {partitions} have no majority of owners left")]
    NoQuorum {
        /// The partitions without a majority.
        partitions: AffectedPartitions,
    },
    /// Partitions would have fewer copies than they have now on nodes that are not removed as dead.
    #[error(
        "{nodes_left} nodes would be left for {replication_factor} copies: \
         {partitions} would have fewer copies than now"
    )]
    Redundancy {
        /// Nodes that would own data.
        nodes_left: usize,
        /// Copies asked for.
        replication_factor: u8,
        /// The partitions that would have fewer copies.
        partitions: AffectedPartitions,
    },
    /// Partitions would lie in fewer zones than now.
    #[error("{zones_left} zones would be left: {partitions} would cover fewer zones than now")]
    ZoneCover {
        /// Zones that would hold data.
        zones_left: usize,
        /// Zones that would hold data no more.
        zones_lost: Vec<Zone>,
        /// The partitions that would cover fewer zones.
        partitions: AffectedPartitions,
    },
    /// Partitions would lose their majority with some zone, which now they would keep.
    #[error("{partitions} would no longer keep a majority when a zone is lost")]
    ZoneLoss {
        /// The partitions that would not survive the loss of some zone any more.
        partitions: AffectedPartitions,
    },
    /// No tokens can be handed out to the nodes that there would be.
    #[error("no ring can be made of these nodes")]
    Placement(#[from] PlacementError),
    /// The tokens do not make a legal ring.
    #[error("the next ring cannot be published")]
    Snapshot(#[from] SnapshotError),
}

impl PlanRefusal {
    /// The violated rule, as a word that stays the same in every release.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::NothingToDo => "nothing-to-do",
            Self::TooManyChanges { .. } => "too-many-changes",
            Self::DuplicateChange { .. } => "duplicate-change",
            Self::UnknownNode { .. } => "unknown-node",
            Self::AlreadyMember { .. } => "already-member",
            Self::NameTaken { .. } => "name-taken",
            Self::ZoneDiffers { .. } => "zone-differs",
            Self::NoNodesLeft => "no-nodes-left",
            Self::NoQuorum { .. } => "no-quorum",
            Self::Redundancy { .. } => "redundancy",
            Self::ZoneCover { .. } => "zone-cover",
            Self::ZoneLoss { .. } => "zone-loss",
            Self::Placement(_) => "placement",
            Self::Snapshot(_) => "snapshot",
        }
    }
}

/// How many partitions a refusal is about, and the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedPartitions {
    /// How many.
    pub count: u32,
    /// Those with the lowest numbers, at most [`AffectedPartitions::FIRST_MAX`].
    pub first: Vec<PartitionId>,
}

impl AffectedPartitions {
    /// Most partitions that are named one by one: enough to look some up, short enough for a line.
    pub const FIRST_MAX: usize = 8;

    /// The partitions in question, if there are any.
    pub(super) fn collect(partitions: impl Iterator<Item = PartitionId>) -> Option<Self> {
        let mut affected = Self { count: 0, first: Vec::new() };
        for partition in partitions {
            affected.count += 1;
            if affected.first.len() < Self::FIRST_MAX {
                affected.first.push(partition);
            }
        }
        (affected.count > 0).then_some(affected)
    }
}

impl fmt::Display for AffectedPartitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.first.iter().map(PartitionId::to_string).collect();
        let more = if self.count as usize > self.first.len() { ", ..." } else { "" };
        write!(f, "{} partitions ({}{more})", self.count, names.join(", "))
    }
}
