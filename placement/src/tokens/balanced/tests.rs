//! Assignments that no sequence of whole rings leads to.

use super::layout::Layout;
use super::primaries;
use crate::tests::support::node;
use crate::{NodeSpec, ReplicationFactor};

/// Two of four nodes own three quarters of the partitions. By weight each should be the primary of
/// two, but those two cannot pass any on, and then must at least share alike.
#[test]
fn primaries_that_cannot_reach_the_others_are_shared_among_their_owners() {
    let nodes: Vec<NodeSpec> = (0..4).map(|number| node(number, 0, 1)).collect();
    let nodes: Vec<&NodeSpec> = nodes.iter().collect();
    let mut rows = vec![vec![0, 1]; 6];
    rows.extend(vec![vec![2, 3]; 2]);
    let before = rows.clone();
    let factor = ReplicationFactor::new(2).unwrap();
    let layout = Layout::new(&nodes, rows.len(), factor, &before);
    primaries::assign(&layout, &mut rows, &before);
    let led = |node| rows.iter().filter(|row| row[0] == node).count();
    assert_eq!([led(0), led(1)], [3, 3]);
}
