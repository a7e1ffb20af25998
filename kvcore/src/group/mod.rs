//! One Raft group's replica: raft-rs, its log, its proposals, its reads and its snapshots.
//!
//! Within a turn: events are handed to raft-rs, then [`Replica::drive`] takes what raft-rs wants
//! done until there is nothing left. Nothing calls into raft-rs between `ready` and `advance`.

mod actual;
mod change;
mod copies;
mod drive;
mod gate;
mod leadership;
mod learner_mail;
mod log;
mod offer;
mod propose;
mod reads;
mod replica;
mod snapshot;
mod truncate;
mod turn;
mod verify;

pub(crate) use change::ConfigurationChange;
pub use copies::CopyState;
pub use gate::{ReadGate, ReadTicket};
pub(crate) use learner_mail::LearnerMail;
pub(crate) use propose::Work;
pub(crate) use replica::{Birth, Machine, RANK_MAX, Replica};
pub use replica::{GroupSummary, Role};
pub(crate) use turn::Turn;

#[cfg(test)]
mod log_tests;
