//! The durable record of one plan.

use placement::{Change, Checksum, Epoch, NodeId, RingSnapshot, Token, Topology};
use serde::{Deserialize, Serialize};

use crate::ids::PlanId;
use crate::moves::{Move, MoveId};
use crate::stage::{AbortReason, Stage, Step};

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanKind {
    /// Changes that an operator staged.
    Changes,
    /// Back to the ring before another plan.
    Rollback(PlanId),
}

/// How far a plan is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Copies are made and verified; the ring is the old one.
    Moving,
    /// The new ring is in force.
    Published {
        /// Its epoch.
        epoch: Epoch,
        /// When it was published, in unix milliseconds.
        at_ms: u64,
    },
    /// All moves have ended and all signals have passed.
    Finished {
        /// The epoch that it published.
        epoch: Epoch,
        /// When it was found finished, in unix milliseconds.
        at_ms: u64,
    },
    /// Given up before the ring was published.
    Aborted {
        /// Why.
        reason: AbortReason,
        /// When, in unix milliseconds.
        at_ms: u64,
    },
}

impl Phase {
    /// Stable name, as shown to operators.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Published { .. } => "published",
            Self::Finished { .. } => "finished",
            Self::Aborted { .. } => "aborted",
        }
    }
}

/// What must be true of the cluster before a plan counts as finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// Nodes that are up and have not adopted the plan's epoch.
    pub nodes_behind: u32,
    /// Partitions with fewer healthy voters than owners.
    pub under_replicated: u32,
    /// Log entries that followers lack, over all partitions.
    pub backlog: u64,
    /// Share of requests that nodes forward to each other because of an outdated route, per mille.
    pub misrouted_per_mille: u32,
    /// Moves whose owners have not been compared after the swap.
    pub unverified: u32,
    /// Old copies that are not destroyed.
    pub copies_left: u32,
}

impl Signals {
    /// Share of misrouted requests that counts as normal, per mille: hints go stale by ordinary
    /// changes of leadership as well.
    pub const MISROUTED_MAX: u32 = 20;
    /// Entries that followers may lack while writes arrive: what is on its way.
    pub const BACKLOG_PER_PARTITION_MAX: u64 = 64;

    /// Whether all signals pass for a cluster of this many partitions.
    #[must_use]
    pub fn pass(&self, partitions: u32) -> bool {
        self.nodes_behind == 0
            && self.under_replicated == 0
            && self.backlog <= Self::BACKLOG_PER_PARTITION_MAX * u64::from(partitions)
            && self.misrouted_per_mille <= Self::MISROUTED_MAX
            && self.unverified == 0
            && self.copies_left == 0
    }
}

/// A plan from its application to its end, and after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its id.
    pub id: PlanId,
    /// What it is for.
    pub kind: PlanKind,
    /// The changes that were staged; none for a rollback.
    pub changes: Vec<Change>,
    /// The epoch that it starts from.
    pub base_epoch: Epoch,
    /// Names base, changes and target together.
    pub digest: Checksum,
    /// The nodes of the ring that it leads to.
    pub topology: Topology,
    /// The tokens of the ring that it leads to.
    pub tokens: Vec<Token>,
    /// The ring that it starts from, as long as a rollback may need it.
    pub base: Option<RingSnapshot>,
    /// The fewest copies that any way to the new balance moves.
    pub copies_min: u64,
    /// When it was applied, in unix milliseconds.
    pub applied_at_ms: u64,
    /// How far it is.
    pub phase: Phase,
    /// Nothing starts while it is paused: no copy, no publication.
    pub paused: bool,
    /// The grace was ended before its time.
    pub grace_ended: bool,
    /// The moves, by partition.
    pub moves: Vec<Move>,
    /// The signals when they were last recorded.
    pub signals: Option<Signals>,
}

impl Plan {
    /// Whether nothing of the plan is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Finished { .. } => true,
            Phase::Aborted { .. } => self.moves.iter().all(Move::is_over),
            Phase::Moving | Phase::Published { .. } => false,
        }
    }

    /// Whether the ring is still the old one and the plan may be cancelled.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Moving)
    }

    /// Whether every group has its new voters.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        let swapped = |stage: &Stage| stage.step().is_none_or(|step| step >= Step::Serving);
        matches!(self.phase, Phase::Published { .. })
            && self.moves.iter().all(|it| swapped(&it.stage))
    }

    /// Whether old owners no longer follow for a rollback.
    #[must_use]
    pub fn is_grace_over(&self, grace_ms: u64, now_ms: u64) -> bool {
        match self.phase {
            Phase::Published { at_ms, .. } => {
                self.grace_ended || now_ms >= at_ms.saturating_add(grace_ms)
            }
            Phase::Moving => false,
            Phase::Finished { .. } | Phase::Aborted { .. } => true,
        }
    }

    /// The moves with their ids.
    pub fn numbered(&self) -> impl Iterator<Item = (MoveId, &Move)> {
        let plan = self.id;
        (0..).zip(&self.moves).map(move |(number, it)| (MoveId { plan, number }, it))
    }

    /// A move by its number.
    pub fn move_mut(&mut self, number: u32) -> Option<&mut Move> {
        self.moves.get_mut(number as usize)
    }

    /// Nodes that leave the ring by this plan.
    pub fn leaving(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.changes.iter().filter_map(|change| match change {
            Change::Drain(node) | Change::Remove(node) => Some(*node),
            Change::Replace { old, .. } => Some(*old),
            Change::Join(_) | Change::Reweight { .. } => None,
        })
    }

    /// Nodes that leave the ring and will not come back.
    pub fn lost(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.changes.iter().filter_map(|change| match change {
            Change::Remove(node) => Some(*node),
            Change::Join(_)
            | Change::Drain(_)
            | Change::Replace { .. }
            | Change::Reweight { .. } => None,
        })
    }

    /// Gives the plan up; legal while it is moving.
    pub fn abort(&mut self, reason: &AbortReason, now_ms: u64) {
        for it in &mut self.moves {
            let reason = match reason {
                AbortReason::Mismatch { .. } => AbortReason::PlanAborted,
                AbortReason::Cancelled | AbortReason::PlanAborted | AbortReason::Superseded(_) => {
                    reason.clone()
                }
            };
            let given_up = crate::judge::Advance::to(crate::stage::Transition::Abort(reason));
            // One that has aborted on its own stays as it is.
            let _ = it.advance(&given_up, now_ms);
        }
        self.phase = Phase::Aborted { reason: reason.clone(), at_ms: now_ms };
    }
}
