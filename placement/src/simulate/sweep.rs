//! Balance against the number of vnodes, and where more of them stop paying.

use super::{Load, Measure, PartitionLoads, RingRules, SimulateError, Spread, loads_of};
use crate::ring::Ring;
use crate::tokens::TokenPolicy;
use crate::topology::Topology;

/// What rings of one kind do to a load, on average over several draws of node identities.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPoint {
    /// How the tokens were handed out.
    pub policy: TokenPolicy,
    /// Tokens of a node of weight 1. Zero for a policy that does not ask.
    pub vnodes: u32,
    /// Spread of what nodes have as primaries: by keys, bytes, requests.
    pub primaries: [Spread; 3],
    /// Spread of what they have as any owner.
    pub copies: [Spread; 3],
    /// The largest draw by keys: one ring is not the mean of many.
    pub primaries_worst: f64,
    /// Bytes of the published document.
    pub snapshot_bytes: usize,
    /// Bytes of snapshot and partition table in memory.
    pub memory_bytes: usize,
}

/// Measures rings of these rules, one for each set of nodes.
pub fn measure(
    rules: RingRules,
    draws: &[Topology],
    loads: &PartitionLoads,
) -> Result<SweepPoint, SimulateError> {
    let mut primaries: [Vec<Spread>; 3] = Default::default();
    let mut copies: [Vec<Spread>; 3] = Default::default();
    let mut bytes = (0, 0);
    for nodes in draws {
        let ring = rules.ring(nodes.clone(), None)?;
        let sums = loads_of(&ring, loads);
        for (place, measure) in Measure::ALL.into_iter().enumerate() {
            let spread = |ring: &Ring, sums: &[Load]| Spread::of(ring.nodes(), sums, measure);
            primaries[place].push(spread(&ring, &sums.primaries));
            copies[place].push(spread(&ring, &sums.copies));
        }
        bytes = (ring.snapshot().canonical_bytes().len(), ring.memory_bytes());
    }
    let worst = primaries[0].iter().map(|spread| spread.max_over_mean).fold(0.0, f64::max);
    Ok(SweepPoint {
        policy: rules.policy,
        vnodes: match rules.policy {
            TokenPolicy::Random => rules.vnodes_per_node,
            TokenPolicy::Balanced => 0,
        },
        primaries: primaries.map(|spreads| Spread::mean(&spreads)),
        copies: copies.map(|spreads| Spread::mean(&spreads)),
        primaries_worst: worst,
        snapshot_bytes: bytes.0,
        memory_bytes: bytes.1,
    })
}

/// The number of vnodes from which on no further step of the sweep lowers the overload (busiest
/// over mean, less one) by at least the part `gain`. None when the last step still does: the point
/// then lies beyond the sweep. `points` are pairs of vnodes and busiest over mean, in order of
/// vnodes.
pub fn diminishing_from(points: &[(u32, f64)], gain: f64) -> Option<u32> {
    let pays = |pair: &[(u32, f64)]| {
        let (before, after) = (pair[0].1 - 1.0, pair[1].1 - 1.0);
        before > 0.0 && (before - after) / before >= gain
    };
    let last_that_pays = points.windows(2).rposition(pays);
    let first_beyond = last_that_pays.map_or(0, |step| step + 1);
    let (vnodes, _) = points.get(first_beyond)?;
    (first_beyond + 1 < points.len()).then_some(*vnodes)
}
