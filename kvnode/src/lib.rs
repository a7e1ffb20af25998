//! A ringkv node: the core of `kvcore` with a disk, a network, a clock and a face for clients.
//!
//! The core runs on one thread and owns all state of replication. Everything around it holds
//! handles: a bounded queue into the core, tables that the core's thread publishes, and the store.

pub mod clock;
pub mod config;
pub mod core_thread;
pub mod fatal;
pub mod founding;
pub mod groups;
pub mod http;
pub mod identity;
pub mod metrics;
pub mod migrate;
pub mod node;
pub mod program;
pub mod registration;
pub mod report;
pub mod router;
mod service;
pub mod storage;
pub mod transport;
pub mod view;
mod view_keeper;
