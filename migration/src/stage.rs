//! Stages of a move, and the one function that says which may follow which.
//!
//! ```text
//! pending -> copying -> catching_up -> verified -> [published] -> swapping -> serving -> retiring -> done
//!                ^-------------'------------'          blocked: from any step and back
//!             pending .. verified -> aborted
//! ```

use std::fmt;

use placement::NodeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::PlanId;

/// A step on a move's way that is not its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Waits for a free place among the moves at a time.
    Pending,
    /// The new replica is created and takes a snapshot.
    Copying,
    /// The new replica takes the log up to the watermark.
    CatchingUp,
    /// The new replica's digest agreed with every staying voter's at one index.
    Verified,
    /// The epoch is published; the group changes its voters.
    Swapping,
    /// The new owner votes; the old one follows without a vote until the grace ends.
    Serving,
    /// The old replica leaves the group and its data is destroyed.
    Retiring,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Copying,
        Self::CatchingUp,
        Self::Verified,
        Self::Swapping,
        Self::Serving,
        Self::Retiring,
    ];

    /// Stable name, as shown to operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Copying => "copying",
            Self::CatchingUp => "catching_up",
            Self::Verified => "verified",
            Self::Swapping => "swapping",
            Self::Serving => "serving",
            Self::Retiring => "retiring",
        }
    }

    /// Whether the plan's epoch is not published yet in this step.
    #[must_use]
    pub fn is_before_publication(self) -> bool {
        self < Self::Swapping
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What keeps a move from its next step. It goes by itself when the cause does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum BlockReason {
    /// The node that is to hold the new replica does not answer.
    #[error("the target {0} is down")]
    TargetDown(NodeId),
    /// A voter that stays in the group does not answer or is far behind.
    #[error("the voter on {0}, which stays, is down or far behind")]
    VoterDown(NodeId),
    /// The node of a replica that is to be destroyed does not answer.
    #[error("the old owner {0} is down and still holds its copy")]
    OldOwnerDown(NodeId),
    /// The target's disk has no room for the copy.
    #[error("the disk of the target {0} is full")]
    TargetDiskFull(NodeId),
    /// The copy was left behind by the log again and again.
    #[error("the copy to {0} is slower than the writes: it fell off the log {1} times")]
    CopyTooSlow(NodeId, u32),
    /// A copy cannot be made for another reason.
    #[error("the copy to {0} fails: {1}")]
    CopyFails(NodeId, String),
    /// Digests differed after the cut-over.
    #[error("the replica on {node} differs in {range} after the cut-over")]
    Mismatch {
        /// Where the differing replica is.
        node: NodeId,
        /// The first sub-range that differs.
        range: String,
    },
}

/// Why a move was given up; nothing of it was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum AbortReason {
    /// An operator cancelled the plan.
    #[error("cancelled")]
    Cancelled,
    /// The copy differed from the replicas it was made from.
    #[error("the copy on {node} differs in {range}")]
    Mismatch {
        /// Where the differing replica is.
        node: NodeId,
        /// The first sub-range that differs.
        range: String,
    },
    /// Another move of the plan was aborted.
    #[error("another move of the plan was aborted")]
    PlanAborted,
    /// A later plan took over.
    #[error("plan {0} took over")]
    Superseded(PlanId),
}

/// Where a move is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// On its way.
    Running(Step),
    /// Held up.
    Blocked {
        /// The step it goes on from.
        at: Step,
        /// What holds it up.
        reason: BlockReason,
    },
    /// Ended; the ring's difference is carried out.
    Done,
    /// Ended before the epoch was published.
    Aborted(AbortReason),
}

/// Something that takes a move from one stage to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transition {
    /// There is room for the move: its copy begins.
    Admit,
    /// The move brings nothing new, or its copy is there already.
    Skip,
    /// The copy is installed.
    Installed,
    /// The copy fell so far behind that it starts again from a snapshot.
    Lost,
    /// The copy is behind the log again.
    FellBehind,
    /// The gate is passed.
    Verified,
    /// The epoch is published.
    Published,
    /// The group's voters are the owners of the published epoch.
    Swapped,
    /// The old replica is to go.
    Retire,
    /// The old replica is gone.
    Retired,
    /// Nothing is left to retire: a later plan has taken the old replica over, or there is none.
    Ended,
    /// Something holds the move up.
    Block(BlockReason),
    /// Nothing holds it up any more.
    Unblock,
    /// The move is given up.
    Abort(AbortReason),
}

/// A transition that does not fit the stage.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{transition:?} does not follow {stage:?}")]
pub struct OutOfOrder {
    /// The stage.
    pub stage: Stage,
    /// What was asked of it.
    pub transition: Transition,
}

impl Stage {
    /// The step that the move is in or held up at; `None` when it has ended.
    #[must_use]
    pub fn step(&self) -> Option<Step> {
        match self {
            Self::Running(step) | Self::Blocked { at: step, .. } => Some(*step),
            Self::Done | Self::Aborted(_) => None,
        }
    }

    /// Whether the move has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.step().is_none()
    }

    /// Stable name, as shown to operators.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running(step) => step.name(),
            Self::Blocked { .. } => "blocked",
            Self::Done => "done",
            Self::Aborted(_) => "aborted",
        }
    }

    /// The stage after a transition: the whole relation. A blocked move goes on from its step.
    ///
    /// # Errors
    /// [`OutOfOrder`] for every pair that the relation does not name.
    pub fn after(&self, transition: &Transition) -> Result<Self, OutOfOrder> {
        use Step::{CatchingUp, Copying, Pending, Retiring, Serving, Swapping, Verified};
        let out_of_order = || OutOfOrder { stage: self.clone(), transition: transition.clone() };
        let step = self.step().ok_or_else(out_of_order)?;
        let next = match (step, transition) {
            (Pending, Transition::Admit) => Self::Running(Copying),
            (Pending, Transition::Skip) => Self::Running(Verified),
            (Copying, Transition::Installed) => Self::Running(CatchingUp),
            (CatchingUp | Verified, Transition::Lost) => Self::Running(Copying),
            (Verified, Transition::FellBehind) => Self::Running(CatchingUp),
            (CatchingUp, Transition::Verified) => Self::Running(Verified),
            (Verified, Transition::Published) => Self::Running(Swapping),
            (Swapping, Transition::Swapped) => Self::Running(Serving),
            (Serving, Transition::Retire) => Self::Running(Retiring),
            (Retiring, Transition::Retired) | (Serving, Transition::Ended) => Self::Done,
            (at, Transition::Block(reason)) => Self::Blocked { at, reason: reason.clone() },
            (at, Transition::Unblock) => Self::Running(at),
            (Pending | Copying | CatchingUp | Verified, Transition::Abort(reason)) => {
                Self::Aborted(reason.clone())
            }
            (Pending | Copying | CatchingUp | Verified | Swapping | Serving | Retiring, _) => {
                return Err(out_of_order());
            }
        };
        Ok(next)
    }
}
