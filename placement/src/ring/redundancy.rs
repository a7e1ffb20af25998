//! What the places of the copies protect from.

use serde::{Deserialize, Serialize};

use super::Ring;
use crate::ids::PartitionId;

/// What a ring's copies protect from, over all partitions. The worst partition counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redundancy {
    /// Copies asked for.
    pub replication_factor: u8,
    /// Copies that every partition has.
    pub owners_per_partition: u8,
    /// Zones that hold any data.
    pub zones_total: u32,
    /// Zones covered by the partition that covers the fewest.
    pub zones_covered_min: u8,
    /// How many partitions cover only that many.
    pub partitions_at_min: u32,
    /// There are fewer zones than copies asked for, so that some zone holds several.
    pub fewer_zones_than_replicas: bool,
    /// There are fewer nodes than copies asked for.
    pub under_replicated: bool,
    /// Every partition keeps a majority of its owners when any one node is lost.
    pub survives_node_loss: bool,
    /// Every partition keeps a majority of its owners when any one zone is lost.
    pub survives_zone_loss: bool,
}

impl Redundancy {
    pub(super) fn of(ring: &Ring) -> Self {
        let owners = ring.owners_per_partition();
        let majority = owners / 2 + 1;
        let zones_total = zones_with_data(ring);
        let replication_factor = ring.snapshot().replication_factor();

        let mut zones_covered_min = usize::MAX;
        let mut partitions_at_min = 0;
        let mut survives_zone_loss = true;
        for partition in ring.partition_bits().partitions() {
            let covered = ring.zones_covered(partition);
            if covered < zones_covered_min {
                zones_covered_min = covered;
                partitions_at_min = 0;
            }
            partitions_at_min += u32::from(covered == zones_covered_min);
            survives_zone_loss &= owners - owners_in_fullest_zone(ring, partition) >= majority;
        }
        let small = |count: usize| u8::try_from(count).expect("bounded by the replication factor");
        Self {
            replication_factor: replication_factor.get(),
            owners_per_partition: small(owners),
            zones_total: u32::try_from(zones_total).expect("bounded by NODES_MAX"),
            zones_covered_min: small(zones_covered_min),
            partitions_at_min,
            fewer_zones_than_replicas: zones_total < replication_factor.as_usize(),
            under_replicated: owners < replication_factor.as_usize(),
            survives_node_loss: owners > majority,
            survives_zone_loss,
        }
    }
}

fn zones_with_data(ring: &Ring) -> usize {
    let mut zones: Vec<_> =
        ring.snapshot().packed_tokens().iter().map(|token| &ring.node(token.node).zone).collect();
    zones.sort_unstable();
    zones.dedup();
    zones.len()
}

fn owners_in_fullest_zone(ring: &Ring, partition: PartitionId) -> usize {
    let owners = ring.owners(partition);
    let in_zone_of = |index| {
        let zone = &ring.node(index).zone;
        owners.iter().filter(|other| ring.node(**other).zone == *zone).count()
    };
    owners.iter().map(|index| in_zone_of(*index)).max().unwrap_or(0)
}
