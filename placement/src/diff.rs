//! What changes between two rings, partition by partition, beside the least that had to change.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::DiffError;
use crate::ids::{Epoch, NodeId, PartitionId};
use crate::ring::Ring;

/// The difference between two rings of one cluster.
///
/// # The theoretical minimum
///
/// Let a node have `old` copies before and `new` copies after. Whatever else moves, it has to
/// receive at least `max(0, new - old)` copies, and no copy is received by two nodes. Hence no way
/// from the old ring to *any* ring with the new loads moves fewer than the sum of `max(0, new - old)`
/// over all nodes. The same holds for primaries. For S equal nodes of one zone that become S + 1, with
/// Q partitions each held once in the zone, the sum is `floor(Q / (S + 1))` when the newcomer takes
/// its share rounded down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingDiff {
    /// The older ring.
    pub from: Epoch,
    /// The newer ring.
    pub to: Epoch,
    /// The partitions whose set of owners or primary changes, in hash order.
    pub partitions: Vec<PartitionDiff>,
    /// Copies that some node receives.
    pub copies_moved: u64,
    /// The fewest copies that any way to the new loads moves.
    pub copies_moved_min: u64,
    /// Partitions whose primary changes.
    pub primaries_moved: u64,
    /// The fewest primaries that any way to the new loads changes.
    pub primaries_moved_min: u64,
}

/// What changes for one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionDiff {
    /// The partition.
    pub partition: PartitionId,
    /// Owners in the newer ring only, in its order.
    pub gained: Vec<NodeId>,
    /// Owners in the older ring only, in its order.
    pub lost: Vec<NodeId>,
    /// The primary before.
    pub primary_before: NodeId,
    /// The primary after.
    pub primary_after: NodeId,
}

impl PartitionDiff {
    /// Whether the primary changes.
    pub fn changes_primary(&self) -> bool {
        self.primary_before != self.primary_after
    }
}

impl RingDiff {
    /// Compares two rings that cut the hash space alike. Nodes are matched by identity.
    pub fn between(old: &Ring, new: &Ring) -> Result<Self, DiffError> {
        if old.partition_bits() != new.partition_bits() {
            return Err(DiffError::PartitionBitsDiffer {
                old: old.partition_bits().get(),
                new: new.partition_bits().get(),
            });
        }
        let mut diff = Self {
            from: old.epoch(),
            to: new.epoch(),
            partitions: Vec::new(),
            copies_moved: 0,
            copies_moved_min: 0,
            primaries_moved: 0,
            primaries_moved_min: 0,
        };
        let mut copies = Growth::default();
        let mut primaries = Growth::default();
        for partition in old.partition_bits().partitions() {
            let before: Vec<NodeId> = old.owner_ids(partition).collect();
            let after: Vec<NodeId> = new.owner_ids(partition).collect();
            copies.count(&before, &after);
            primaries.count(&before[..1], &after[..1]);
            let only_in = |these: &[NodeId], others: &[NodeId]| -> Vec<NodeId> {
                these.iter().copied().filter(|id| !others.contains(id)).collect()
            };
            let change = PartitionDiff {
                partition,
                gained: only_in(&after, &before),
                lost: only_in(&before, &after),
                primary_before: before[0],
                primary_after: after[0],
            };
            diff.copies_moved += change.gained.len() as u64;
            diff.primaries_moved += u64::from(change.changes_primary());
            if change.changes_primary() || !change.gained.is_empty() || !change.lost.is_empty() {
                diff.partitions.push(change);
            }
        }
        diff.copies_moved_min = copies.sum();
        diff.primaries_moved_min = primaries.sum();
        Ok(diff)
    }

    /// Whether no owner and no primary changes.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}

/// By how much each node's load grows.
#[derive(Default)]
struct Growth(BTreeMap<NodeId, i64>);

impl Growth {
    fn count(&mut self, before: &[NodeId], after: &[NodeId]) {
        for id in before {
            *self.0.entry(*id).or_default() -= 1;
        }
        for id in after {
            *self.0.entry(*id).or_default() += 1;
        }
    }

    fn sum(&self) -> u64 {
        self.0.values().map(|growth| u64::try_from(*growth).unwrap_or(0)).sum()
    }
}
