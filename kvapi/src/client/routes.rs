//! Where to send the calls of a partition first: the ring, the addresses, and learned leaders.
//!
//! A table is immutable but for the learned leaders, which are plain hints: a wrong one costs a
//! refusal that names the right one, never a wrong answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use placement::{Epoch, PartitionId, Ring};

use crate::kv::{DirectoryNode, Health, RingDocument};

/// Marks a partition without a learned leader.
const NOBODY: u32 = u32::MAX;

/// Routes under one ring and one directory.
#[derive(Debug)]
pub struct RouteTable {
    ring: Ring,
    directory_revision: u64,
    nodes: Vec<DirectoryNode>,
    /// For each of the ring's nodes its place in `nodes`; [`NOBODY`] without a known address.
    members: Vec<u32>,
    /// For each partition the place of its learned leader in `nodes`.
    leaders: Vec<AtomicU32>,
}

impl RouteTable {
    /// Routes by a verified document, without any learned leader.
    pub fn new(document: RingDocument) -> Self {
        let ring = Ring::new(Arc::new(document.snapshot));
        let nodes = document.directory.nodes;
        let place = |id| nodes.iter().position(|node| node.id == id).map_or(NOBODY, to_u32);
        let members = ring.nodes().iter().map(|node| place(node.id)).collect();
        let partitions = ring.partition_bits().partitions().count();
        let leaders = (0..partitions).map(|_| AtomicU32::new(NOBODY)).collect();
        let directory_revision = document.directory.revision;
        Self { ring, directory_revision, nodes, members, leaders }
    }

    /// Takes over the leaders that an older table learned and that this one has an address for.
    pub fn inherit(&self, older: &RouteTable) {
        for (partition, leader) in (0..).map(PartitionId::new).zip(&older.leaders) {
            let known = older.nodes.get(leader.load(Ordering::Relaxed) as usize);
            let Some(node) = known.and_then(|node| self.node_by_name(node.name.as_str())) else {
                continue;
            };
            self.learn(partition, node);
        }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Epoch of the ring.
    pub fn epoch(&self) -> Epoch {
        self.ring.epoch()
    }

    /// Revision of the directory.
    pub fn directory_revision(&self) -> u64 {
        self.directory_revision
    }

    /// All nodes with an address.
    pub fn nodes(&self) -> &[DirectoryNode] {
        &self.nodes
    }

    /// The place in [`RouteTable::nodes`] of the node with this name.
    pub fn node_by_name(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name.as_str() == name)
    }

    /// The place in [`RouteTable::nodes`] of the node with this `host:port`.
    pub fn node_by_address(&self, address: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.client_address == address)
    }

    /// The place in [`RouteTable::nodes`] of the leader learned for a partition.
    pub fn leader(&self, partition: PartitionId) -> Option<usize> {
        let leader = self.leaders.get(partition.as_usize())?.load(Ordering::Relaxed);
        (leader != NOBODY).then_some(leader as usize)
    }

    /// The place of the node to ask first: the learned leader, else the primary.
    pub fn first(&self, partition: PartitionId) -> Option<usize> {
        self.leader(partition).or_else(|| self.owners(partition).next())
    }

    /// The places of all owners with an address, the primary first but nodes that are down last.
    pub fn owners(&self, partition: PartitionId) -> impl Iterator<Item = usize> + '_ {
        let known = self.ring.owners(partition).iter().filter_map(|owner| {
            let place = *self.members.get(owner.as_usize())?;
            (place != NOBODY).then_some(place as usize)
        });
        let is_down = |place: &usize| self.nodes[*place].health == Health::Down;
        let down = known.clone().filter(is_down);
        known.filter(move |place| !is_down(place)).chain(down)
    }

    /// Remembers that a node leads a partition.
    pub fn learn(&self, partition: PartitionId, node: usize) {
        if let Some(leader) = self.leaders.get(partition.as_usize())
            && node < self.nodes.len()
        {
            leader.store(to_u32(node), Ordering::Relaxed);
        }
    }

    /// Forgets a partition's leader, if it still is this node.
    pub fn forget(&self, partition: PartitionId, node: usize) {
        if let Some(leader) = self.leaders.get(partition.as_usize()) {
            let _ =
                leader.compare_exchange(to_u32(node), NOBODY, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(NOBODY)
}
