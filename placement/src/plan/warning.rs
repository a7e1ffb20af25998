//! What a plan leads to that deserves attention, and does not forbid it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::balance::{Balance, NodeLoad};
use crate::ids::{NodeId, NodeName, Zone};
use crate::ring::{Redundancy, Ring};

/// A node is overloaded from this many percent above its share. A disk is sized with more headroom
/// than a tenth, and rounding of a few copies stays below it on all but the smallest rings.
const OVERLOAD_PERCENT: u64 = 10;
/// Zones are uneven when one holds this many percent more copies per weight than another. With one
/// copy in each of three zones, 4, 4 and 3 nodes are uneven; 5, 5 and 4 are not.
const UNEVEN_PERCENT: u128 = 30;

/// Something about the next ring that an operator should know before applying a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanWarning {
    /// There are fewer nodes than copies asked for.
    FewerNodesThanCopies {
        /// Nodes that own data.
        nodes: u32,
        /// Copies asked for.
        copies: u32,
    },
    /// When a node fails, no other can take its copies: every node holds a copy of everything.
    NoSpareNode {
        /// Nodes that own data.
        nodes: u32,
    },
    /// All nodes stand in one zone, and fail with it.
    OneZone {
        /// The zone.
        zone: Zone,
    },
    /// There are several zones, but fewer than copies asked for: some zone holds several copies.
    FewerZonesThanCopies {
        /// Zones that hold data.
        zones: u32,
        /// Copies asked for.
        copies: u32,
    },
    /// There are several zones, and yet the loss of one takes the majority of some partition.
    ZoneLossStopsWrites,
    /// A zone holds more copies per weight than another: its nodes carry more. This comes of zones of
    /// different weight that have to hold equally many copies.
    UnevenZones {
        /// The zone with the most copies per weight.
        fullest: Zone,
        /// The zone with the fewest copies per weight.
        emptiest: Zone,
        /// By how many percent the fullest is above the emptiest, rounded down.
        percent_more: u32,
    },
    /// A node holds more copies than its weight calls for.
    Overloaded {
        /// The node.
        node: NodeId,
        /// Its name.
        name: NodeName,
        /// Copies that it will own.
        copies: u32,
        /// By how many percent that is above its share, rounded down.
        percent_above_share: u32,
    },
}

impl PlanWarning {
    /// What is warned of, as a word that stays the same in every release.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::FewerNodesThanCopies { .. } => "fewer-nodes-than-copies",
            Self::NoSpareNode { .. } => "no-spare-node",
            Self::OneZone { .. } => "one-zone",
            Self::FewerZonesThanCopies { .. } => "fewer-zones-than-copies",
            Self::ZoneLossStopsWrites => "zone-loss-stops-writes",
            Self::UnevenZones { .. } => "uneven-zones",
            Self::Overloaded { .. } => "overloaded",
        }
    }
}

impl fmt::Display for PlanWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerNodesThanCopies { nodes, copies } => {
                write!(f, "{nodes} nodes cannot hold the {copies} copies asked for")
            }
            Self::NoSpareNode { nodes } => {
                write!(f, "when one of the {nodes} nodes fails, no other can take its copies")
            }
            Self::OneZone { zone } => {
                write!(f, "all nodes stand in zone {zone}: its loss takes every copy")
            }
            Self::FewerZonesThanCopies { zones, copies } => {
                write!(f, "{zones} zones for {copies} copies: some zone holds several of them")
            }
            Self::ZoneLossStopsWrites => {
                f.write_str("the loss of one zone takes the majority of some partitions")
            }
            Self::UnevenZones { fullest, emptiest, percent_more } => write!(
                f,
                "for its weight, zone {fullest} holds {percent_more} % more copies than zone {emptiest}"
            ),
            Self::Overloaded { name, copies, percent_above_share, .. } => write!(
                f,
                "node {name} holds {copies} copies, {percent_above_share} % more than its share"
            ),
        }
    }
}

/// All that deserves attention in a ring, gravest first.
pub(super) fn warnings(
    ring: &Ring,
    balance: &Balance,
    redundancy: &Redundancy,
) -> Vec<PlanWarning> {
    let copies = u32::from(redundancy.replication_factor);
    let nodes = count(balance.nodes.len());
    let mut warnings = Vec::new();
    if redundancy.under_replicated {
        warnings.push(PlanWarning::FewerNodesThanCopies { nodes, copies });
    } else if balance.nodes.len() == ring.owners_per_partition() {
        warnings.push(PlanWarning::NoSpareNode { nodes });
    }
    if redundancy.zones_total == 1 {
        let zone = balance.nodes[0].zone.clone();
        warnings.push(PlanWarning::OneZone { zone });
        return with_overloaded(warnings, balance);
    }
    if redundancy.fewer_zones_than_replicas {
        let zones = redundancy.zones_total;
        warnings.push(PlanWarning::FewerZonesThanCopies { zones, copies });
    }
    if !redundancy.survives_zone_loss {
        warnings.push(PlanWarning::ZoneLossStopsWrites);
    }
    warnings.extend(uneven_zones(balance));
    with_overloaded(warnings, balance)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("bounded by NODES_MAX")
}

fn uneven_zones(balance: &Balance) -> Option<PlanWarning> {
    let mut zones: BTreeMap<&Zone, (u128, u128)> = BTreeMap::new();
    for node in &balance.nodes {
        let (copies, weight) = zones.entry(&node.zone).or_default();
        *copies += u128::from(node.copies);
        *weight += u128::from(node.weight.get());
    }
    // By copies per weight, compared as fractions.
    let by_fill = |(_, a): &(&&Zone, &(u128, u128)), (_, b): &(&&Zone, &(u128, u128))| {
        (a.0 * b.1).cmp(&(b.0 * a.1))
    };
    let (emptiest, (copies_least, weight_least)) = zones.iter().min_by(by_fill)?;
    let (fullest, (copies_most, weight_most)) = zones.iter().max_by(by_fill)?;
    let percent = (copies_most * weight_least * 100).checked_div(copies_least * weight_most)?;
    (percent >= 100 + UNEVEN_PERCENT).then(|| PlanWarning::UnevenZones {
        fullest: (*fullest).clone(),
        emptiest: (*emptiest).clone(),
        percent_more: small(percent - 100),
    })
}

fn small(percent: u128) -> u32 {
    u32::try_from(percent).unwrap_or(u32::MAX)
}

fn with_overloaded(mut warnings: Vec<PlanWarning>, balance: &Balance) -> Vec<PlanWarning> {
    let copies: u64 = balance.nodes.iter().map(|node| u64::from(node.copies)).sum();
    let weight: u64 = balance.nodes.iter().map(|node| u64::from(node.weight.get())).sum();
    warnings.extend(balance.nodes.iter().filter_map(|node| overloaded(node, copies, weight)));
    warnings
}

/// A node's share is its part of all copies by weight. One copy more than it is never too much:
/// shares are whole numbers.
fn overloaded(node: &NodeLoad, copies: u64, weight: u64) -> Option<PlanWarning> {
    let held = u128::from(node.copies) * u128::from(weight);
    let share = u128::from(copies) * u128::from(node.weight.get());
    let percent = held * 100 / share;
    let is_overloaded =
        percent > u128::from(100 + OVERLOAD_PERCENT) && held > share + u128::from(weight);
    is_overloaded.then(|| PlanWarning::Overloaded {
        node: node.id,
        name: node.name.clone(),
        copies: node.copies,
        percent_above_share: small(percent - 100),
    })
}
