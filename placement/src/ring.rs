//! A snapshot made ready for lookups: for each partition, its owners.
//!
//! The ring rule defines the owners: from the key's hash walk clockwise over the tokens, past the
//! end to the beginning, and take each node once. In the first round a zone gives one owner, in the
//! second round two, and so on until there are enough; the owners are listed in clockwise order.
//! So copies spread over as many zones as there are, and then as evenly as the nodes allow.
//!
//! Tokens sit on partition ends, hence all keys of a partition have the same owners and the rule is
//! evaluated once per partition. [`Ring::walk_owners`] evaluates it for one hash, as a check.

mod redundancy;
mod walk;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::{PartitionBits, key_hash};
use crate::ids::{Epoch, NodeId, PartitionId, Zone};
use crate::snapshot::RingSnapshot;
use crate::topology::NodeSpec;

pub use redundancy::Redundancy;
pub(crate) use walk::partition_table;

/// The place of a node in its ring's [`Ring::nodes`]. Means nothing in another ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(u16);

impl NodeIndex {
    pub(crate) fn from_usize(index: usize) -> Self {
        Self(u16::try_from(index).expect("a topology holds at most NODES_MAX nodes"))
    }

    /// The index as a number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The index, for indexing.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// A ring ready for lookups.
#[derive(Debug, Clone)]
pub struct Ring {
    snapshot: Arc<RingSnapshot>,
    /// `owners_per_partition` entries for each partition.
    owners: Box<[NodeIndex]>,
    owners_per_partition: usize,
}

impl Ring {
    /// Evaluates the ring rule for every partition.
    pub fn new(snapshot: Arc<RingSnapshot>) -> Self {
        let (owners, owners_per_partition) = partition_table(&snapshot);
        Self { snapshot, owners, owners_per_partition }
    }

    /// The snapshot that this ring was made from.
    pub fn snapshot(&self) -> &Arc<RingSnapshot> {
        &self.snapshot
    }

    /// The number of the ring.
    pub fn epoch(&self) -> Epoch {
        self.snapshot.epoch()
    }

    /// How finely the hash space is cut.
    pub fn partition_bits(&self) -> PartitionBits {
        self.snapshot.partition_bits()
    }

    /// The members in order of their identity.
    pub fn nodes(&self) -> &[NodeSpec] {
        self.snapshot.nodes()
    }

    /// The member at an index. The index must come from this ring.
    pub fn node(&self, index: NodeIndex) -> &NodeSpec {
        &self.nodes()[index.as_usize()]
    }

    /// The index of a member.
    pub fn node_index(&self, id: NodeId) -> Option<NodeIndex> {
        self.snapshot.topology().position(id).map(NodeIndex::from_usize)
    }

    /// The partition of a key.
    #[inline]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.partition_bits().partition_of(key_hash(key))
    }

    /// How many owners each partition has: the replication factor, or the number of nodes with
    /// tokens where there are fewer.
    pub fn owners_per_partition(&self) -> usize {
        self.owners_per_partition
    }

    /// The owners of a partition, the primary first. Empty for a partition that the ring does not have.
    #[inline]
    pub fn owners(&self, partition: PartitionId) -> &[NodeIndex] {
        let start = partition.as_usize().saturating_mul(self.owners_per_partition);
        self.owners.get(start..start.saturating_add(self.owners_per_partition)).unwrap_or(&[])
    }

    /// The identities of the owners of a partition, the primary first.
    pub fn owner_ids(&self, partition: PartitionId) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        self.owners(partition).iter().map(|index| self.node(*index).id)
    }

    /// The first owner of a partition; none for a partition that the ring does not have.
    #[inline]
    pub fn primary(&self, partition: PartitionId) -> Option<NodeId> {
        self.owners(partition).first().map(|index| self.node(*index).id)
    }

    /// The role of a node in a partition, if it is an owner.
    pub fn role(&self, partition: PartitionId, node: NodeId) -> Option<OwnerRole> {
        self.owner_ids(partition).position(|id| id == node).map(OwnerRole::of_rank)
    }

    /// The partitions that a node owns, with its role in each, in hash order.
    pub fn partitions_of(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (PartitionId, OwnerRole)> + '_ {
        let partitions = self.partition_bits().partitions();
        partitions.filter_map(move |partition| Some((partition, self.role(partition, node)?)))
    }

    /// Where a key lives, in full. A hot path takes [`Ring::partition_of`] and [`Ring::owners`].
    pub fn locate(&self, key: &[u8]) -> Placement {
        self.locate_hash(key_hash(key))
    }

    /// Where the key with this hash lives.
    pub fn locate_hash(&self, key_hash: u64) -> Placement {
        let partition = self.partition_bits().partition_of(key_hash);
        let owners = self.owners(partition).iter().enumerate().map(|(rank, index)| {
            let node = self.node(*index);
            Owner { node: node.id, zone: node.zone.clone(), role: OwnerRole::of_rank(rank) }
        });
        Placement { key_hash, partition, epoch: self.epoch(), owners: owners.collect() }
    }

    /// The owners of a hash by a walk over the tokens: slow, and independent of the partition table.
    pub fn walk_owners(&self, hash: u64) -> Vec<NodeId> {
        walk::owners_of_hash(&self.snapshot, hash)
    }

    /// What the owners' zones protect from.
    pub fn redundancy(&self) -> Redundancy {
        Redundancy::of(self)
    }

    /// In how many zones a partition's owners stand.
    pub fn zones_covered(&self, partition: PartitionId) -> usize {
        let owners = self.owners(partition);
        let zone_at = |rank: usize| &self.node(owners[rank]).zone;
        (0..owners.len())
            .filter(|rank| (0..*rank).all(|earlier| zone_at(earlier) != zone_at(*rank)))
            .count()
    }

    /// Memory held by the snapshot and the partition table, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.snapshot.memory_bytes() + size_of_val(&*self.owners) + size_of::<Self>()
    }
}

/// Where a key lives, according to one ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Hash of the key. A 64-bit number: readers of JSON need exact integers.
    pub key_hash: u64,
    /// Partition of the hash.
    pub partition: PartitionId,
    /// The ring that was asked.
    pub epoch: Epoch,
    /// The owners, the primary first.
    pub owners: Vec<Owner>,
}

/// One owner of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub zone: Zone,
    /// Its role.
    pub role: OwnerRole,
}

/// What the ring appoints an owner to. Who leads now is Raft's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerRole {
    /// The first owner, which should lead.
    Primary,
    /// Any other owner.
    Replica,
}

impl OwnerRole {
    /// The role of the owner at a place in the list of owners.
    pub const fn of_rank(rank: usize) -> Self {
        if rank == 0 { Self::Primary } else { Self::Replica }
    }
}

impl fmt::Display for OwnerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        })
    }
}
