//! The seeded simulator: several nodes in one thread, with the real core, over a network, disks and
//! clocks that misbehave by a seed. The same seed gives the same trace.
//!
//! - [`world`]: the queue of happenings, and time; [`lifecycle`]: starts, pauses and crashes;
//! - [`turn`]: a node's turn and what its shell does with the effects;
//! - [`disk`]: what is visible and what is durable;
//! - [`clients`], [`nemesis`], [`operator`]: who makes things happen;
//! - [`oracle`], [`audit`], [`conduct`], [`history`], [`verdict`]: the invariants, named as in the
//!   design;
//! - [`ending`]: a whole run, after which everything must serve again.

pub mod audit;
pub mod cast;
pub mod clients;
pub mod conduct;
pub mod dice;
pub mod disk;
pub mod ending;
pub mod history;
pub mod lifecycle;
pub mod nemesis;
pub mod network;
pub mod node;
pub mod operator;
pub mod oracle;
pub mod report;
pub mod turn;
pub mod verdict;
pub mod weather;
pub mod world;

pub use ending::run;
pub use report::{Counters, Outcome, Violation};
pub use weather::{Setup, Weather};
pub use world::World;

#[cfg(test)]
mod tests;
