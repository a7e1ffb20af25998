//! The node's core: all its replicas, its view of the cluster, and its part in judging others.

mod core;
mod disk;
mod membership;
mod peers;
mod verify;

pub use self::core::{Core, CoreConfig};

#[cfg(test)]
mod tests;
