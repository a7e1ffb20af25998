//! The core of a ringkv node: every Raft group the node takes part in, the cluster state that
//! group 0 replicates, and the state machine of a partition.
//!
//! The core performs no I/O, reads no clock and spawns nothing. Events go in with the time at
//! which they happened ([`Event`]), effects come out ([`Effect`]); between the two the core talks
//! only to a [`storage::Store`], whose writes are visible at once and durable after a sync.
//! The same core runs in `kvnode` over RocksDB and in the simulator over a map in memory.
//!
//! Invariants kept here, whatever the shell does:
//! - what a message promises is durable before the message leaves (persist, then speak);
//! - data, applied index and configuration of a group change in one atomic batch;
//! - only a leader inside its own applied configuration proposes or holds a lease.

pub mod cluster;
pub mod codec;
pub mod event;
pub mod faults;
pub mod group;
pub mod ids;
pub mod message;
pub mod node;
pub mod settings;
pub mod storage;
pub mod store;
pub mod time;

pub use event::{Effect, Event, NotLeader, Refusal, Reply};
pub use faults::Faults;
pub use ids::*;
pub use node::{Core, CoreConfig};
pub use settings::Settings;
pub use time::Time;
