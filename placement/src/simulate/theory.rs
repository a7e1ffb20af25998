//! What to expect, as closed forms. Expectations and deviations over all draws of random tokens: a
//! single ring lies around them, and none of them is a bound.

use crate::topology::{NodeSpec, ReplicationFactor};

/// Relative standard deviation of a node's share on a ring of `nodes` x `tokens` random tokens and
/// uncut hash space: the share is distributed as Beta(T, (S - 1) T), so its variance over its
/// squared mean is (S - 1) / (S T + 1).
pub fn share_variation(nodes: u32, tokens: u32) -> f64 {
    let (s, t) = (f64::from(nodes), f64::from(tokens));
    ((s - 1.0) / (s * t + 1.0)).sqrt()
}

/// The same where tokens are rounded to the ends of `partitions` equal slices.
///
/// Two partitions at distance d have the same owning token when none of the N = S T tokens falls
/// between them, which has the probability (1 - d/Q)^N; summed over all pairs this is the expected
/// sum of squared arcs A = (1 + 2 sum of (j/Q)^N for 0 < j < Q) / Q. Tokens of all nodes are alike,
/// so the variance of a share follows from A alone: S A + S (T - 1) (1 - A) / (N - 1) - 1 over the
/// squared mean. For Q without end A is 2 / (N + 1), and [`share_variation`] comes out; for N
/// without end every partition has an owner of its own, and sqrt((S - 1) / Q) is left, which no
/// number of tokens lowers.
pub fn share_variation_cut(nodes: u32, tokens: u32, partitions: u32) -> f64 {
    let (s, t, q) = (f64::from(nodes), f64::from(tokens), f64::from(partitions));
    let n = s * t;
    if n <= 1.0 {
        return 0.0;
    }
    let same_arc: f64 = (1..partitions).map(|j| (f64::from(j) / q).powf(n)).sum();
    let a = (1.0 + 2.0 * same_arc) / q;
    (s * a + s * (t - 1.0) * (1.0 - a) / (n - 1.0) - 1.0).max(0.0).sqrt()
}

/// What is left of [`share_variation_cut`] however many tokens there are: sqrt((S - 1) / Q).
pub fn share_variation_floor(nodes: u32, partitions: u32) -> f64 {
    ((f64::from(nodes) - 1.0) / f64::from(partitions)).sqrt()
}

/// Mean and standard deviation of the share that a node takes when it joins `nodes` others, all
/// with `tokens` random tokens: 1/(S + 1), and sqrt(S / ((S + 1) T + 1)) / (S + 1).
pub fn newcomer_share(nodes: u32, tokens: u32) -> (f64, f64) {
    let (s, t) = (f64::from(nodes), f64::from(tokens));
    (1.0 / (s + 1.0), (s / ((s + 1.0) * t + 1.0)).sqrt() / (s + 1.0))
}

/// The part of the keys that modulo moves from `old` to `new` buckets that differ by one: over one
/// residue cycle of N (N + 1) hashes exactly N stay.
pub fn modulo_moved(old: u32, new: u32) -> f64 {
    let (least, most) = (f64::from(old.min(new)), f64::from(old.max(new)));
    if old == new { 0.0 } else { 1.0 - least / (least * most) }
}

/// The fraction of all keys of which a node should hold a copy, among the nodes that may own data.
///
/// With as many zones as copies each zone holds every key once, and the node's share is that of its
/// weight in its zone; otherwise it is that of its weight among all, as often as there are copies.
/// Where weights are so unequal that a node's share would exceed one, it holds every key.
pub fn fair_share(nodes: &[NodeSpec], copies: ReplicationFactor, node: &NodeSpec) -> f64 {
    if !node.state.receives_tokens() {
        return 0.0;
    }
    let members = || nodes.iter().filter(|other| other.state.receives_tokens());
    let mut zones: Vec<_> = members().map(|other| &other.zone).collect();
    zones.sort_unstable();
    zones.dedup();
    let one_copy_per_zone = zones.len() == copies.as_usize();
    let weight: f64 = members()
        .filter(|other| !one_copy_per_zone || other.zone == node.zone)
        .map(|other| f64::from(other.weight.get()))
        .sum();
    let copies = if one_copy_per_zone { 1.0 } else { f64::from(copies.get()) };
    (copies * f64::from(node.weight.get()) / weight).min(1.0)
}

/// Copies per key that a change has to move when every node goes from one fair share to the next:
/// the sum of what the growing ones gain.
pub fn fair_movement(before: &[NodeSpec], after: &[NodeSpec], copies: ReplicationFactor) -> f64 {
    let share_before = |node: &NodeSpec| {
        let old = before.iter().find(|old| old.id == node.id);
        old.map_or(0.0, |old| fair_share(before, copies, old))
    };
    after.iter().map(|node| (fair_share(after, copies, node) - share_before(node)).max(0.0)).sum()
}
