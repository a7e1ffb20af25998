//! Where a key lives: the hash, the partitions, the ring of virtual nodes and its published snapshots.
//!
//! The crate is pure. It opens no file and no socket, reads no clock and draws no random number:
//! equal inputs give equal bytes on every machine. It says where data *should* be; who may write
//! is decided by Raft and by nothing in here.
//!
//! Reading order: [`ids`], [`hash`], [`topology`], [`tokens`], [`snapshot`], [`ring`], [`diff`],
//! [`plan`](mod@plan); [`balance`] measures a ring, [`alternatives`] holds the schemes it is compared
//! with, and [`simulate`] shows what any of them does to a load.
//!
//! Invariants
//! * Every token sits on the last hash of a partition, so one partition never has two owner lists.
//! * A [`RingSnapshot`] that exists has been verified: its bounds, its order and its checksum.
//! * The owners of a partition are distinct nodes, spread over as many zones as the nodes allow.

pub mod ids;

pub mod hash;

pub mod topology;

pub mod tokens;

pub mod snapshot;

pub mod ring;

pub mod diff;

pub mod balance;

pub mod plan;

pub mod alternatives;

pub mod simulate;

pub mod error;

pub use balance::{Balance, NodeLoad};
pub use diff::{PartitionDiff, RingDiff};
pub use error::{DiffError, PlacementError, SnapshotError};
pub use hash::{HashSpec, PartitionBits, key_hash};
pub use ids::{Epoch, NodeId, NodeName, PartitionId, Zone};
pub use plan::{
    AffectedPartitions, CHANGES_MAX, Change, CopyFlow, NodeMovement, PlanRefusal, PlanRules,
    PlanWarning, RingPlan, plan,
};
pub use ring::{NodeIndex, Owner, OwnerRole, Placement, Redundancy, Ring};
pub use snapshot::{Checksum, RingSnapshot, SnapshotParts};
pub use tokens::{Token, TokenPolicy, allocate};
pub use topology::{NodeSpec, NodeState, ReplicationFactor, Topology, Weight};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
