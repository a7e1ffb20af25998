//! The numbers to reach, at the sizes that are planned for.

use super::{founded, planned, reweight};
use crate::tests::support::{equal_nodes, node};
use crate::{Balance, Change, Ring};

const BITS: u8 = 12;

fn check_balance(ring: &Ring, story: &str) {
    let balance = Balance::of(ring);
    // With one copy of each partition, 35 of 34.1 copies is what whole numbers allow.
    let bar = if ring.owners_per_partition() == 1 { 1.03 } else { 1.01 };
    assert!(balance.copies_max_over_mean <= bar, "{story}: {}", balance.copies_max_over_mean);
    let primaries = balance.primaries_max_over_mean;
    assert!(primaries <= 1.03, "{story}: primaries {primaries}");
}

#[test]
fn at_120_nodes_a_join_and_a_drain_move_the_minimum_and_leave_the_ring_even() {
    for zones in [1, 2, 3, 4, 5, 6] {
        for replicas in [1, 3, 5] {
            let story = format!("{zones} zones, {replicas} copies");
            let base = founded(BITS, replicas, &equal_nodes(120, zones));
            check_balance(&base, &story);
            let join = planned(&base, &[Change::Join(node(120, 0, 1))]);
            let (moved, least) = (join.diff.copies_moved, join.diff.copies_moved_min);
            assert!(moved * 100 <= least * 105, "{story}: {moved} of {least} copies");
            assert_eq!(join.nodes.iter().filter(|node| node.copies_gained > 0).count(), 1);
            let newcomer = join.target.nodes().iter().find(|node| node.name.as_str() == "n120");
            let drain = planned(&join.target, &[Change::Drain(newcomer.unwrap().id)]);
            assert_eq!(drain.diff.copies_moved, drain.diff.copies_moved_min, "{story}");
            check_balance(&drain.target, &story);
        }
    }
}

#[test]
fn weights_of_one_two_and_four_are_met_within_two_percent() {
    let nodes = equal_nodes(9, 3);
    let base = founded(BITS, 3, &nodes);
    let changes: Vec<Change> =
        nodes[3..].iter().zip(1..).map(|(n, i)| reweight(n, if i <= 3 { 2 } else { 4 })).collect();
    let plan = planned(&base, &changes);
    assert_eq!(plan.diff.copies_moved, plan.diff.copies_moved_min);
    for load in Balance::of(&plan.target).nodes {
        let share = f64::from(load.weight.get()) / 21.0;
        let copies = f64::from(load.copies) / (3.0 * 4096.0) / share;
        let primaries = f64::from(load.primaries) / 4096.0 / share;
        assert!((copies - 1.0).abs() < 0.02 && (primaries - 1.0).abs() < 0.02, "{load:?}");
    }
}

#[test]
fn a_reweighted_node_is_the_only_one_that_gains_or_the_only_one_that_loses() {
    let nodes = equal_nodes(12, 3);
    let base = founded(10, 3, &nodes);
    let heavier = planned(&base, &[reweight(&nodes[0], 3)]);
    let gain = heavier.nodes.iter().filter(|node| node.copies_gained > 0);
    assert_eq!(gain.map(|node| node.node).collect::<Vec<_>>(), [nodes[0].id]);
    let lighter = planned(&heavier.target, &[reweight(&nodes[0], 1)]);
    let lose = lighter.nodes.iter().filter(|node| node.copies_lost > 0);
    assert_eq!(lose.map(|node| node.node).collect::<Vec<_>>(), [nodes[0].id]);
    assert_eq!(lighter.diff.copies_moved, heavier.diff.copies_moved, "there and back");
}
