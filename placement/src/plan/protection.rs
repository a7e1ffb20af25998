//! What a plan may not make worse: the copies, the zones and the majorities of each partition.
//!
//! What is achieved now counts, not what was planned: copies on nodes that are removed as dead are
//! lost already, so that a repair is never refused for a loss that it did not cause.

use std::collections::BTreeMap;

use super::staging::Staged;
use super::{AffectedPartitions, PlanRefusal};
use crate::ids::{NodeId, PartitionId, Zone};
use crate::ring::Ring;

/// Refuses to remove so many nodes as dead that some partition has no majority of its owners left.
///
/// Without a majority the newest copy cannot be told, and the partition's Raft group cannot agree on
/// new members.
pub(super) fn check_quorums(base: &Ring, staged: &Staged) -> Result<(), PlanRefusal> {
    let is_without_majority = |partition: &PartitionId| {
        let left = base.owner_ids(*partition).filter(|node| !staged.removed.contains(node)).count();
        left < majority(base)
    };
    let partitions = base.partition_bits().partitions().filter(is_without_majority);
    match AffectedPartitions::collect(partitions) {
        Some(partitions) => Err(PlanRefusal::NoQuorum { partitions }),
        None => Ok(()),
    }
}

/// Refuses what lowers the redundancy or the zone cover of any partition.
pub(super) fn check_not_lowered(
    base: &Ring,
    target: &Ring,
    staged: &Staged,
) -> Result<(), PlanRefusal> {
    let pairs: Vec<(PartitionId, Protection, Protection)> = base
        .partition_bits()
        .partitions()
        .map(|partition| {
            let now = Protection::of(base, partition, |node| !staged.removed.contains(&node));
            (partition, now, Protection::of(target, partition, |_| true))
        })
        .collect();
    let where_lower = |is_lower: fn(&Protection, &Protection) -> bool| {
        let lower = pairs.iter().filter(|(_, now, then)| is_lower(now, then));
        AffectedPartitions::collect(lower.map(|(partition, _, _)| *partition))
    };
    if let Some(partitions) = where_lower(|now, then| then.copies < now.copies) {
        return Err(PlanRefusal::Redundancy {
            nodes_left: staged.topology.len(),
            replication_factor: target.snapshot().replication_factor().get(),
            partitions,
        });
    }
    if let Some(partitions) = where_lower(|now, then| then.zones < now.zones) {
        let zones_left = zones(target);
        let zones_lost = zones(base).into_iter().filter(|zone| !zones_left.contains(zone));
        return Err(PlanRefusal::ZoneCover {
            zones_left: zones_left.len(),
            zones_lost: zones_lost.collect(),
            partitions,
        });
    }
    let survives_no_more =
        |now: &Protection, then: &Protection| now.survives_zone_loss && !then.survives_zone_loss;
    match where_lower(survives_no_more) {
        Some(partitions) => Err(PlanRefusal::ZoneLoss { partitions }),
        None => Ok(()),
    }
}

/// What the copies of one partition protect from.
struct Protection {
    copies: usize,
    zones: usize,
    survives_zone_loss: bool,
}

impl Protection {
    /// Of the copies on the nodes that count.
    fn of(ring: &Ring, partition: PartitionId, counts: impl Fn(NodeId) -> bool) -> Self {
        let mut copies_in_zone: BTreeMap<&Zone, usize> = BTreeMap::new();
        for node in ring.owners(partition).iter().map(|index| ring.node(*index)) {
            if counts(node.id) {
                *copies_in_zone.entry(&node.zone).or_default() += 1;
            }
        }
        let copies: usize = copies_in_zone.values().sum();
        let in_fullest_zone = copies_in_zone.values().copied().max().unwrap_or(0);
        Self {
            copies,
            zones: copies_in_zone.len(),
            survives_zone_loss: copies - in_fullest_zone >= majority(ring),
        }
    }
}

fn majority(ring: &Ring) -> usize {
    ring.owners_per_partition() / 2 + 1
}

/// The zones that hold data.
fn zones(ring: &Ring) -> Vec<Zone> {
    let owners = ring.partition_bits().partitions().flat_map(|partition| ring.owners(partition));
    let mut nodes: Vec<_> = owners.collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut zones: Vec<Zone> =
        nodes.into_iter().map(|index| ring.node(*index).zone.clone()).collect();
    zones.sort_unstable();
    zones.dedup();
    zones
}
