//! Random rings against the closed forms for S nodes with T tokens each.

use super::support::{Plan, equal_nodes, node};
use crate::{Balance, NodeSpec, Ring, RingDiff};

/// Fine enough that rounding tokens to partition ends does not show.
const BITS: u8 = 16;

fn share(ring: &Ring, node: &NodeSpec) -> f64 {
    let balance = Balance::of(ring);
    let load = balance.nodes.iter().find(|load| load.id == node.id).unwrap();
    f64::from(load.copies) / f64::from(ring.partition_bits().count())
}

fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (mean, (squares / samples.len() as f64).sqrt())
}

#[test]
fn the_deviation_of_a_share_follows_the_number_of_tokens() {
    for (nodes, vnodes, rings, expected, tolerance) in [
        (9_u32, 128, 24, 0.0833, 0.2),
        (9, 256, 24, 0.0589, 0.2),
        (1000, 1, 1, 0.999, 0.15),
        (1000, 10, 1, 0.316_05, 0.1),
    ] {
        let mut shares = Vec::new();
        for ring in 0..rings {
            let members: Vec<NodeSpec> =
                (0..nodes).map(|n| node(ring * 10_000 + n, 0, 1)).collect();
            let ring = Plan::random(BITS, 1, vnodes).ring(&members, None);
            let loads = Balance::of(&ring).nodes;
            shares.extend(loads.iter().map(|load| f64::from(load.copies) / 65536.0));
        }
        let (mean, deviation) = mean_and_deviation(&shares);
        let relative = deviation / mean;
        assert!(
            (relative / expected - 1.0).abs() < tolerance,
            "{nodes} nodes x {vnodes} tokens: {relative:.4}, expected {expected}"
        );
    }
}

#[test]
fn an_added_node_takes_its_share_and_moves_nothing_else() {
    let plan = Plan::random(BITS, 1, 256);
    let taken: Vec<f64> = (0..24)
        .map(|run| {
            let members: Vec<NodeSpec> = (0..31).map(|n| node(run * 100 + n, 0, 1)).collect();
            let ring = plan.ring(&members, None);
            share(&ring, &members[30])
        })
        .collect();
    let (mean, deviation) = mean_and_deviation(&taken);
    // Three standard errors of 24 samples around 0.0323 with a deviation of 0.0020.
    assert!((mean - 0.0323).abs() < 3.0 * 0.0020 / 24_f64.sqrt(), "{mean}");
    assert!((0.0012..0.0029).contains(&deviation), "{deviation}");
}

#[test]
fn of_four_nodes_the_keys_of_one_that_leaves_spread_over_the_three_others() {
    let plan = Plan::random(BITS, 1, 100);
    let nodes = equal_nodes(4, 1);
    let before = plan.ring(&nodes, None);
    let after = plan.ring(&nodes[..3], Some(&before));
    let diff = RingDiff::between(&before, &after).unwrap();
    let moved = diff.copies_moved as f64 / 65536.0;
    assert!((moved - 0.25).abs() < 0.06, "{moved}");
    for change in &diff.partitions {
        assert_eq!(change.lost, [nodes[3].id], "only the keys of the node that left");
    }
    for heir in &nodes[..3] {
        let gained = diff.partitions.iter().filter(|change| change.gained == [heir.id]).count();
        let part = gained as f64 / diff.copies_moved as f64;
        assert!((0.2..0.5).contains(&part), "{}: {part}", heir.name);
    }
}

#[test]
fn weights_of_one_two_and_four_give_sevenths() {
    let nodes = [node(0, 0, 1), node(1, 0, 2), node(2, 0, 4)];
    let ring = Plan::random(BITS, 1, 1000).ring(&nodes, None);
    for node in &nodes {
        let expected = f64::from(node.weight.get()) / 7.0;
        assert!((share(&ring, node) - expected).abs() < 0.03);
    }
}

#[test]
fn equal_slices_beat_random_tokens_at_equal_metadata() {
    let nodes = equal_nodes(30, 3);
    let balanced = Plan::balanced(10, 3).ring(&nodes, None);
    let tokens_per_node = u32::try_from(balanced.snapshot().tokens().len() / 30).unwrap();
    let random = Plan::random(10, 3, tokens_per_node).ring(&nodes, None);
    let efficiency = |ring: &Ring| 1.0 / Balance::of(ring).copies_max_over_mean;
    assert!(efficiency(&balanced) > 0.99, "{}", efficiency(&balanced));
    assert!(efficiency(&random) < 0.9, "{}", efficiency(&random));
}
