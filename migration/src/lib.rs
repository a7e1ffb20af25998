//! The protocol that moves partitions between nodes: plans and their moves, one total transition
//! function, the gates, and the reconciliation of a group's configuration with what is wanted.
//!
//! Pure: no I/O, no clock. Group 0 keeps the records and applies every transition as a logged
//! command; the leader of a partition compares what its group has with what is wanted and takes the
//! next step. Neither remembers what ran: everything follows from records and configurations.
//!
//! Invariants, whatever messages are lost and whoever dies:
//! - an epoch is published only when every move of its plan is verified;
//! - a move leaves a stage only by [`Stage::after`], which names every legal transition;
//! - a replica that is owner, or part of a move that has not ended, is never retired.

mod actual;
mod budget;
mod gate;
mod ids;
mod judge;
mod moves;
mod plan;
mod reconcile;
mod stage;
mod why;

pub use actual::{Actual, Copy, CopyTrouble, Follower, Verification};
pub use budget::{Budget, admit};
pub use gate::{Gate, PublishBar, RetireBar, may_publish, may_retire};
pub use ids::{LogIndex, Member, PlanId, ReplicaId};
pub use judge::{Advance, Progress, Standing, judge, verification_wanted};
pub use moves::{Move, MoveId};
pub use plan::{Phase, Plan, PlanKind, Signals};
pub use reconcile::{Blocker, GroupStep, LAG_MAX, Next, Wanted, reconcile};
pub use stage::{AbortReason, BlockReason, OutOfOrder, Stage, Step, Transition};
pub use why::{Explanation, why};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
