//! From staged changes of membership to the ring that they lead to, with what it costs and risks.
//!
//! A plan is a pure function of the ring in force, the changes and the rules. The order in which the
//! changes were staged does not matter. Equal arguments give an equal plan on every machine, hence
//! its [`RingPlan::digest`] names it: of two operators who apply different plans to one ring, one
//! wins by compare-and-set on the base epoch and the digest.
//!
//! 1. The changes are checked against the members and become the next topology ([`staging`]).
//! 2. Tokens are handed out, starting from those in force ([`target`]).
//! 3. What would lower the redundancy or the zone cover achieved now is refused ([`protection`]).
//! 4. The movement is counted ([`movement`]), and what deserves attention is said ([`warning`]).
//!
//! Not here: how much fits on a disk, how long a copy takes, and how it is made.

mod digest;
mod movement;
mod protection;
mod refusal;
mod staging;
mod target;
mod warning;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::balance::Balance;
use crate::diff::RingDiff;
use crate::ids::{Epoch, NodeId};
use crate::ring::{Redundancy, Ring};
use crate::snapshot::{Checksum, RingSnapshot, SnapshotParts};
use crate::tokens::TokenPolicy;
use crate::topology::{NodeSpec, Weight};

pub use movement::{CopyFlow, NodeMovement};
pub use refusal::{AffectedPartitions, PlanRefusal};
pub use warning::PlanWarning;

/// Most changes of one plan: all nodes of the largest cluster planned for (120) may be replaced, and
/// a draft in the log stays below 64 KiB.
pub const CHANGES_MAX: usize = 256;

/// A staged change of membership.
///
/// It is stored in the log: the order of the variants and of their fields is part of the format.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A node that is no member yet becomes one. The state in the spec is not looked at.
    Join(NodeSpec),
    /// A live member leaves. Its copies can be read while they move.
    Drain(NodeId),
    /// A dead member leaves. Its copies are lost already and count for nothing.
    Remove(NodeId),
    /// A new node takes exactly the tokens of a member, which leaves. Both stand in one zone, else
    /// the plan is refused: staged as a join and a drain it says what else moves. With another weight
    /// it is also a reweight.
    Replace {
        /// The member that leaves. It may be dead: it is copied from only where no other copy stays.
        old: NodeId,
        /// The node that takes its place. The state in the spec is not looked at.
        new: NodeSpec,
    },
    /// A member's share relative to the others' becomes another.
    Reweight {
        /// The member.
        node: NodeId,
        /// Its share from now on.
        weight: Weight,
    },
}

impl Change {
    /// The nodes that the change names: one, or for a replacement the old and the new one.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        let (first, second) = match self {
            Self::Join(spec) => (spec.id, None),
            Self::Drain(node) | Self::Remove(node) | Self::Reweight { node, .. } => (*node, None),
            Self::Replace { old, new } => (*old, Some(new.id)),
        };
        std::iter::once(first).chain(second)
    }
}

/// How the tokens of a cluster are handed out; the same for all its plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRules {
    /// The policy.
    pub policy: TokenPolicy,
    /// Tokens of a node of weight 1 under [`TokenPolicy::Random`]; not looked at under `Balanced`.
    pub vnodes_per_node: u32,
}

/// The ring that changes lead to, beside the one in force.
#[derive(Debug, Clone)]
pub struct RingPlan {
    /// The ring that the plan starts from.
    pub base_epoch: Epoch,
    /// The changes, in order of the node that each names first.
    pub changes: Vec<Change>,
    /// A preview of the next ring. What is published differs in the time of activation and hence in
    /// the checksum, and in nothing else: see [`RingPlan::parts`].
    pub target: Arc<Ring>,
    /// What changes hands, partition by partition and in total, beside the theoretical minimum.
    pub diff: RingDiff,
    /// How even the ring in force is.
    pub balance_before: Balance,
    /// How even the next ring is.
    pub balance_after: Balance,
    /// What the ring in force protects from, all its nodes taken as live.
    pub redundancy_before: Redundancy,
    /// What the next ring protects from.
    pub redundancy_after: Redundancy,
    /// What each node gains and loses, in order of identity; nodes without a change are left out.
    pub nodes: Vec<NodeMovement>,
    /// The copies by source and target, in order of source, then target.
    pub flows: Vec<CopyFlow>,
    /// What deserves attention, and does not forbid the plan.
    pub warnings: Vec<PlanWarning>,
    /// Names the plan: XXH3-128 over the base, the changes and the next ring.
    pub digest: Checksum,
}

impl RingPlan {
    /// What the next ring is published from. [`RingSnapshot::publish`] on the base makes it.
    pub fn parts(&self, activated_at_ms: u64) -> SnapshotParts {
        let snapshot = self.target.snapshot();
        SnapshotParts {
            partition_bits: snapshot.partition_bits(),
            replication_factor: snapshot.replication_factor(),
            topology: snapshot.topology().clone(),
            tokens: snapshot.tokens().collect(),
            activated_at_ms,
        }
    }
}

/// Makes the plan for some changes of the ring in force.
///
/// # Errors
/// [`PlanRefusal`] names the rule that the changes violate. Nothing has changed then.
pub fn plan(
    base: &RingSnapshot,
    changes: &[Change],
    rules: &PlanRules,
) -> Result<RingPlan, PlanRefusal> {
    let staged = staging::stage(base, changes)?;
    let base_ring = Ring::new(Arc::new(base.clone()));
    protection::check_quorums(&base_ring, &staged)?;
    let target = Ring::new(Arc::new(target::snapshot(base, &staged, rules)?));
    protection::check_not_lowered(&base_ring, &target, &staged)?;

    let diff = RingDiff::between(&base_ring, &target)
        .expect("a ring is published only with the partitions of the one before");
    let balance_before = Balance::of(&base_ring);
    let balance_after = Balance::of(&target);
    let redundancy_after = target.redundancy();
    Ok(RingPlan {
        base_epoch: base.epoch(),
        nodes: movement::by_node(&base_ring, &target, &diff),
        flows: movement::flows(&base_ring, &target, &diff, &staged),
        warnings: warning::warnings(&target, &balance_after, &redundancy_after),
        digest: digest::digest(base, &staged.changes, target.snapshot()),
        changes: staged.changes,
        target: Arc::new(target),
        diff,
        balance_before,
        balance_after,
        redundancy_before: base_ring.redundancy(),
        redundancy_after,
    })
}
