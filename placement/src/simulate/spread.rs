//! How evenly a load lies on the nodes.

use serde::Serialize;

use super::{Load, Measure, PartitionLoads};
use crate::ring::Ring;
use crate::topology::NodeSpec;

/// The load per node, by the place of the node in [`Ring::nodes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLoads {
    /// What a node has as the primary of partitions.
    pub primaries: Vec<Load>,
    /// What it has as any owner.
    pub copies: Vec<Load>,
}

/// Adds up what each node of a ring has.
pub fn loads_of(ring: &Ring, loads: &PartitionLoads) -> NodeLoads {
    let mut sums = NodeLoads {
        primaries: vec![Load::default(); ring.nodes().len()],
        copies: vec![Load::default(); ring.nodes().len()],
    };
    for partition in ring.partition_bits().partitions() {
        let load = loads.get(partition);
        for (rank, owner) in ring.owners(partition).iter().enumerate() {
            sums.copies[owner.as_usize()] += load;
            if rank == 0 {
                sums.primaries[owner.as_usize()] += load;
            }
        }
    }
    sums
}

/// How far loads per weight lie from their mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The busiest over the mean; 1 is even.
    pub max_over_mean: f64,
    /// The idlest over the mean.
    pub min_over_mean: f64,
    /// Coefficient of variation: standard deviation over the mean; 0 is even.
    pub variation: f64,
}

impl Spread {
    /// What a load of nothing has.
    pub const EVEN: Self = Self { max_over_mean: 1.0, min_over_mean: 1.0, variation: 0.0 };

    /// The spread over the nodes that may own data. `loads` stand in the order of `nodes`.
    pub fn of(nodes: &[NodeSpec], loads: &[Load], measure: Measure) -> Self {
        let takes_part = |(node, load): (&NodeSpec, &Load)| {
            let weight = f64::from(node.weight.get());
            node.state.receives_tokens().then_some((load.get(measure) as f64, weight))
        };
        Self::of_weighted(nodes.iter().zip(loads).filter_map(takes_part))
    }

    /// The spread of pairs of load and weight. The mean is that of all load over all weight, so a
    /// node counts by its weight.
    pub fn of_weighted(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let load: f64 = pairs.clone().map(|(load, _)| load).sum();
        let weight: f64 = pairs.clone().map(|(_, weight)| weight).sum();
        if load <= 0.0 {
            return Self::EVEN;
        }
        let relative =
            |(own, own_weight): (f64, f64)| (own / own_weight * weight / load, own_weight);
        let relatives = pairs.map(relative);
        let squares: f64 = relatives.clone().map(|(own, w)| w * (own - 1.0).powi(2)).sum();
        Self {
            max_over_mean: relatives.clone().map(|(own, _)| own).fold(0.0, f64::max),
            min_over_mean: relatives.map(|(own, _)| own).fold(f64::INFINITY, f64::min),
            variation: (squares / weight).sqrt(),
        }
    }

    /// The mean of several spreads, for what several draws give on average.
    pub fn mean(spreads: &[Self]) -> Self {
        let mean = |part: fn(&Self) -> f64| {
            spreads.iter().map(part).sum::<f64>() / spreads.len().max(1) as f64
        };
        Self {
            max_over_mean: mean(|spread| spread.max_over_mean),
            min_over_mean: mean(|spread| spread.min_over_mean),
            variation: mean(|spread| spread.variation),
        }
    }
}
