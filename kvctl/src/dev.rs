//! A cluster of local processes: its directory, its processes, its life.
//!
//! Invariants:
//! - a process is signalled only while it demonstrably runs one of this directory's nodes;
//! - a node's process belongs to nobody: whichever `kvctl` started it, the pid file finds it;
//! - one `dev up` at a time watches a directory, held by a lock that dies with its holder.

pub mod layout;
pub mod process;
pub mod up;
pub mod wait;
