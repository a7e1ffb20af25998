//! Newtypes for the identifiers and counters of replication.

use std::fmt;

use migration::counter;
pub use migration::{LogIndex, ReplicaId};
use placement::PartitionId;
use serde::{Deserialize, Serialize};

counter! {
    /// Raft term of a group.
    Term(u64)
}
counter! {
    /// Version of a key: a value of its partition's counter, strictly increasing per key over the
    /// key's whole life, deletes and re-creations included.
    Version(u64)
}
counter! {
    /// Number of one installation of a partition's data on a node; part of every data key.
    Generation(u64)
}
counter! {
    /// Number of a request to make everything written so far durable. Syncs complete in order.
    SyncId(u64)
}
counter! {
    /// Names a snapshot file on the node that built it; unique there for all time.
    SnapshotId(u64)
}
counter! {
    /// Applied index of group 0 at which a cluster state was current: orders views of one epoch.
    Revision(u64)
}

/// Identifies a cluster; drawn at random when the cluster is founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", uuid::Uuid::from_u128(self.0).hyphenated())
    }
}

/// Identifies a Raft group: group 0 replicates the cluster state, group `p + 1` partition `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(u32);

impl GroupId {
    /// The group that replicates the cluster state.
    pub const CLUSTER: Self = Self(0);

    /// The group of a partition.
    #[must_use]
    pub fn of_partition(partition: PartitionId) -> Self {
        Self(partition.get() + 1)
    }

    /// The partition that this group replicates; `None` for group 0.
    #[must_use]
    pub fn partition(self) -> Option<PartitionId> {
        self.0.checked_sub(1).map(PartitionId::new)
    }

    /// The raw number, for keys on disk and frames.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The group with this raw number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// A place in a group's log: the index of an entry and the term it was proposed in.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LogPosition {
    /// Index of the entry.
    pub index: LogIndex,
    /// Term of the entry.
    pub term: Term,
}
