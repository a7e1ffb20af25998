//! What the integration tests are made of: real processes, a client that records what it saw,
//! faults, and a checker that decides whether what was seen could have happened.
//!
//! The stories are in `tests/it`, one file each. The long runs are programs of this crate:
//! `linearizability`, `kills` and `absence`. Nothing here is used by the store itself.
//!
//! The simulator in [`sim`] needs none of it: it runs the core alone, in one thread.
//!
//! Reading order: [`wait`], [`cluster`], [`shim`], [`wire`], [`caller`], [`ledger`], [`load`]; then
//! [`history`], [`checker`], [`growth`] and [`nemesis`], which [`linearizability`] puts together.

pub mod absence;
pub mod caller;
pub mod checker;
pub mod cluster;
pub mod cutover;
pub mod growth;
pub mod history;
pub mod kills;
pub mod ledger;
pub mod linearizability;
pub mod load;
pub mod matrix;
pub mod measure;
pub mod nemesis;
pub mod plans;
pub mod shim;
pub mod sim;
pub mod wait;
pub mod wire;

#[cfg(test)]
mod tidy;
