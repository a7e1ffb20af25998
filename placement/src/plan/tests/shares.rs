//! What each node should have by the closed form, in floating point: an independent check of the
//! whole-numbered quotas.

use std::collections::BTreeMap;

use crate::{Balance, NodeId, NodeSpec, Ring, Zone};

/// The level at which `filled` reaches `total`, by bisection.
fn level(total: f64, highest: f64, filled: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if filled(middle) <= total { low = middle } else { high = middle }
    }
    low
}

/// The copies of each node: in proportion to its weight, where a node holds at most one copy of each
/// partition, and a zone the copies of the full rounds and at most one more.
pub(super) fn copies(ring: &Ring) -> BTreeMap<NodeId, f64> {
    let partitions = f64::from(ring.partition_bits().count());
    let mut zones: BTreeMap<&Zone, Vec<&NodeSpec>> = BTreeMap::new();
    for node in ring.nodes() {
        zones.entry(&node.zone).or_default().push(node);
    }
    let in_rounds =
        |rounds: usize| -> usize { zones.values().map(|nodes| nodes.len().min(rounds)).sum() };
    let owners = ring.owners_per_partition();
    let rounds = (1..=owners)
        .rev()
        .find(|rounds| in_rounds(*rounds) <= owners && in_rounds(*rounds) > in_rounds(*rounds - 1));
    let rounds = rounds.unwrap_or(0);
    let has_extras = in_rounds(rounds) < owners;
    let held = |node: &NodeSpec, level: f64| (weight(node) * level).min(partitions);
    let bounds = |nodes: &[&NodeSpec]| {
        let base = nodes.len().min(rounds) as f64;
        let extra = f64::from(u8::from(has_extras && nodes.len() > rounds));
        (base * partitions, (base + extra) * partitions)
    };
    let in_zone = |nodes: &[&NodeSpec], level: f64| -> f64 {
        nodes.iter().map(|node| held(node, level)).sum()
    };
    let total = owners as f64 * partitions;
    let everywhere = level(total, partitions, |level| {
        zones
            .values()
            .map(|nodes| in_zone(nodes, level).clamp(bounds(nodes).0, bounds(nodes).1))
            .sum()
    });
    let mut shares = BTreeMap::new();
    for nodes in zones.values() {
        let (floor, cap) = bounds(nodes);
        let share = in_zone(nodes, everywhere).clamp(floor, cap);
        let inside = level(share, partitions, |level| in_zone(nodes, level));
        shares.extend(nodes.iter().map(|node| (node.id, held(node, inside))));
    }
    shares
}

/// The primaries of each node: in proportion to its weight, and no more than it has copies.
pub(super) fn primaries(ring: &Ring) -> BTreeMap<NodeId, f64> {
    let partitions = f64::from(ring.partition_bits().count());
    let loads = Balance::of(ring).nodes;
    let held =
        |weight: u32, copies: u32, level: f64| (f64::from(weight) * level).min(copies.into());
    let level = level(partitions, partitions, |level| {
        loads.iter().map(|load| held(load.weight.get(), load.copies, level)).sum()
    });
    loads.iter().map(|load| (load.id, held(load.weight.get(), load.copies, level))).collect()
}

fn weight(node: &NodeSpec) -> f64 {
    f64::from(node.weight.get())
}
