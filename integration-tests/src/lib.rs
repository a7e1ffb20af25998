//! What the integration tests are made of: real processes, a client that records what it saw,
//! faults, and a checker that decides whether what was seen could have happened.
//!
//! The stories are in `tests/it`, one file each. The long runs are programs of this crate:
//! `linearizability`, `kills` and `absence`. Nothing here is used by the store itself.
//!
//! The simulator in [`sim`] needs none of it: it runs the core alone, in one thread.
//!
//! Reading order: [`wait`], [`cluster`], [`shim`], [`wire`], [`caller`], [`ledger`], [`load`]; then
//! [`history`], [`checker`] and [`nemesis`], which [`linearizability`] puts together.

pub mod wait;
pub mod cluster;
pub mod shim;
pub mod wire;
pub mod caller;
pub mod ledger;
pub mod load;
pub mod history;
pub mod checker;
pub mod nemesis;
pub mod linearizability;
pub mod kills;
pub mod absence;
pub mod measure;
pub mod sim;

#[cfg(test)]
mod tidy;
