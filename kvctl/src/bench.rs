//! The load generator behind `kvctl bench`.
//!
//! It shares the machine with the nodes that it measures, so a request costs little: each thread
//! runs its workers on a single-threaded runtime, a worker drives its own connections without
//! another task, and nothing is allocated per request beyond the request itself.
//!
//! The i-th operation is a function of seed and i alone, whichever worker performs it.
//!
//! Reading order: [`plan`], [`link`], [`worker`], [`run`], [`tally`].

pub mod link;
pub mod plan;
pub mod run;
pub mod tally;
pub mod worker;
