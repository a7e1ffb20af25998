//! The gates: what must hold before an epoch is published and before a replica is retired.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::actual::Actual;
use crate::ids::{LogIndex, Member};
use crate::moves::Move;
use crate::plan::{Phase, Plan};
use crate::reconcile::LAG_MAX;
use crate::stage::{Stage, Step};

/// Agreement of digests at one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The index at which all replicas asked were compared.
    pub index: LogIndex,
    /// The digest that they have in common.
    pub digest: u128,
}

/// Why an epoch cannot be published yet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishBar {
    /// The plan is not waiting for publication.
    #[error("the plan is {0}")]
    Phase(&'static str),
    /// The plan is paused.
    #[error("the plan is paused")]
    Paused,
    /// Moves are not verified.
    #[error("{0} moves are not verified")]
    Unverified(usize),
}

/// Whether a plan's epoch may be published, by its records alone.
///
/// # Errors
/// [`PublishBar`] says what is missing.
pub fn may_publish(plan: &Plan) -> Result<(), PublishBar> {
    match plan.phase {
        Phase::Moving => {}
        Phase::Published { .. } | Phase::Finished { .. } | Phase::Aborted { .. } => {
            return Err(PublishBar::Phase(plan.phase.name()));
        }
    }
    if plan.paused {
        return Err(PublishBar::Paused);
    }
    let verified = Stage::Running(Step::Verified);
    match plan.moves.iter().filter(|it| it.stage != verified).count() {
        0 => Ok(()),
        unverified => Err(PublishBar::Unverified(unverified)),
    }
}

/// Why a replica cannot be retired yet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RetireBar {
    /// The old owners still follow, for a rollback.
    #[error("the grace has not ended")]
    Grace,
    /// The owners have not been compared since the voters changed.
    #[error("the owners are not verified after the swap")]
    Unverified,
    /// An owner does not vote yet, or somebody else still does.
    #[error("the voters are not the owners")]
    NotOwners,
    /// An owner is down or behind.
    #[error("the owner on {0} is down or behind")]
    OwnerDown(placement::NodeId),
}

/// Whether the old replica of a move may be retired: the grace is over, and all owners of the
/// published epoch vote, live, are caught up and agreed after the swap.
///
/// # Errors
/// [`RetireBar`] says what is missing.
pub fn may_retire(
    step: &Move,
    owners: &[Member],
    actual: &Actual,
    grace_over: bool,
) -> Result<(), RetireBar> {
    if !grace_over && !step.lose_is_dead {
        return Err(RetireBar::Grace);
    }
    if step.after_swap.is_none() {
        return Err(RetireBar::Unverified);
    }
    let votes = |owner: &Member| actual.voters.contains(&owner.replica);
    if actual.is_joint() || actual.voters.len() != owners.len() || !owners.iter().all(votes) {
        return Err(RetireBar::NotOwners);
    }
    match owners.iter().find(|owner| !actual.is_close(owner.replica, LAG_MAX)) {
        Some(owner) => Err(RetireBar::OwnerDown(owner.node)),
        None => Ok(()),
    }
}
