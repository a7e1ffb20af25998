//! Copies of partitions between nodes: taking them, serving them, and how much of the node they may
//! use for that.
//!
//! The taker pulls: it asks for a few chunks ahead and holds no more than those in memory. Bytes per
//! second are limited in both directions, and the number of copies at a time; both may be changed
//! while copies run. What touches the disk runs on threads of its own, at low priority. Whoever waits
//! for its budget says so, and is not taken for somebody who has stalled.

mod limits;
mod receive;
mod serve;
mod threads;
mod throttle;

#[cfg(test)]
mod tests;

pub use limits::{CopyControl, CopyLimits};
pub(crate) use receive::{ReceiverParts, SnapshotReceiver};
pub(crate) use serve::{ChunkFault, SnapshotSource};
pub(crate) use threads::{CopyThreads, lower_priority};
