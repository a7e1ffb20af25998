//! The balanced allocator: how even it is, how little it moves, and what it does at the edges.

use std::collections::BTreeSet;

use super::support::{Plan, equal_nodes, node};
use crate::{
    Balance, NodeSpec, NodeState, PartitionBits, PlacementError, ReplicationFactor, Ring, RingDiff,
    TokenPolicy, Topology, Weight, allocate,
};

/// The largest size planned for.
const LARGE: (u32, usize, Plan) =
    (120, 3, Plan { bits: 12, replicas: 3, vnodes: 0, policy: TokenPolicy::Balanced });

fn copies(ring: &Ring) -> Vec<u32> {
    Balance::of(ring).nodes.iter().map(|load| load.copies).collect()
}

fn diff(before: &Ring, after: &Ring) -> RingDiff {
    RingDiff::between(before, after).unwrap()
}

/// Copies and primaries of a node.
fn load(ring: &Ring, node: &NodeSpec) -> (u32, u32) {
    let balance = Balance::of(ring);
    let load = balance.nodes.iter().find(|load| load.id == node.id);
    load.map_or((0, 0), |load| (load.copies, load.primaries))
}

#[test]
fn a_hundred_and_twenty_equal_nodes_are_even() {
    let (count, zones, plan) = LARGE;
    let ring = plan.ring(&equal_nodes(count, zones), None);
    let balance = Balance::of(&ring);
    assert!(balance.copies_max_over_mean <= 1.03, "{}", balance.copies_max_over_mean);
    assert!(balance.primaries_max_over_mean <= 1.05, "{}", balance.primaries_max_over_mean);
    assert!(ring.memory_bytes() < 256 << 10, "{} bytes", ring.memory_bytes());
    assert!(ring.snapshot().canonical_bytes().len() < 256 << 10);
}

#[test]
fn one_node_more_or_less_among_many_moves_the_minimum() {
    let (count, zones, plan) = LARGE;
    let ring = plan.ring(&equal_nodes(count, zones), None);
    let grown = plan.ring(&equal_nodes(count + 1, zones), Some(&ring));
    let join = diff(&ring, &grown);
    assert_eq!(join.copies_moved, 4096 / 41, "the newcomer's share of its zone");
    assert_eq!(join.copies_moved, join.copies_moved_min);
    assert!(join.primaries_moved * 2 <= join.primaries_moved_min * 3, "{}", join.primaries_moved);
    assert!(Balance::of(&grown).primaries_max_over_mean <= 1.05);

    let shrunk = plan.ring(&equal_nodes(count, zones), Some(&grown));
    let drain = diff(&grown, &shrunk);
    assert_eq!(drain.copies_moved, join.copies_moved, "what came in goes out again");
    assert!(Balance::of(&shrunk).copies_max_over_mean <= 1.03);
}

#[test]
fn a_join_moves_copies_inside_its_zone_alone() {
    for (zone_size, bits, moved) in [(3, 8, 64), (9, 10, 102), (9, 12, 409)] {
        let plan = Plan::balanced(bits, 3);
        let mut nodes = equal_nodes(zone_size * 3, 3);
        let before = plan.ring(&nodes, None);
        let newcomer = node(1000, 1, 1);
        nodes.push(newcomer.clone());
        let after = plan.ring(&nodes, Some(&before));
        let diff = diff(&before, &after);
        assert_eq!(diff.copies_moved, moved, "{zone_size} to {} nodes", zone_size + 1);
        assert!(
            diff.primaries_moved * 20 <= diff.primaries_moved_min * 21,
            "the copies that move are chosen so that the primaries come out right: {} of {}",
            diff.primaries_moved,
            diff.primaries_moved_min
        );
        for change in diff.partitions.iter().filter(|change| !change.gained.is_empty()) {
            assert_eq!(change.gained, [newcomer.id]);
            let giver = before.snapshot().topology().get(change.lost[0]).unwrap();
            assert_eq!(giver.zone, newcomer.zone);
        }
    }
}

#[test]
fn shares_follow_weights_of_one_two_and_four() {
    // In each zone one node of each weight.
    let nodes: Vec<NodeSpec> =
        (0..9).map(|n| node(n, n as usize % 3, [1, 2, 4][n as usize / 3])).collect();
    let ring = Plan::balanced(12, 3).ring(&nodes, None);
    let (copies, primaries) = (3.0 * 4096.0, 4096.0);
    for node in &nodes {
        let share = f64::from(node.weight.get()) / 21.0;
        let (held, led) = load(&ring, node);
        assert!((f64::from(held) / copies / share - 1.0).abs() < 0.02, "{node:?}: {held}");
        assert!((f64::from(led) / primaries / share - 1.0).abs() < 0.02, "{node:?}: {led}");
    }
}

#[test]
fn where_zones_force_equal_copies_the_primaries_still_follow_the_weights() {
    let nodes: Vec<NodeSpec> = (0..3).map(|n| node(n, n as usize, 1 << n)).collect();
    let ring = Plan::balanced(8, 3).ring(&nodes, None);
    assert_eq!(copies(&ring), [256; 3]);
    let led: Vec<u32> = nodes.iter().map(|node| load(&ring, node).1).collect();
    assert_eq!(led, [37, 73, 146], "a seventh, two sevenths, four sevenths of 256");
}

#[test]
fn more_zones_than_copies_leave_no_node_behind() {
    for zones in [4, 5, 6] {
        let ring = Plan::balanced(10, 3).ring(&equal_nodes(30, zones), None);
        let copies = copies(&ring);
        let (least, most) = (copies.iter().min().unwrap(), copies.iter().max().unwrap());
        assert!(most - least <= 1, "{zones} zones: {copies:?}");
        assert_eq!(ring.redundancy().zones_covered_min, 3);
    }
}

#[test]
fn a_single_zone_is_balanced_and_says_that_it_is_one() {
    let ring = Plan::balanced(8, 3).ring(&equal_nodes(5, 1), None);
    let redundancy = ring.redundancy();
    assert!(redundancy.fewer_zones_than_replicas && !redundancy.under_replicated);
    assert!(redundancy.survives_node_loss && !redundancy.survives_zone_loss);
    assert_eq!((redundancy.zones_total, redundancy.zones_covered_min), (1, 1));
    assert_eq!(redundancy.partitions_at_min, 256);
    assert!(copies(&ring).iter().all(|copies| (153..=154).contains(copies)));
}

#[test]
fn clusters_of_one_and_two_nodes_are_legal_and_say_what_they_lack() {
    let plan = Plan::balanced(4, 3);
    for (count, survives) in [(1, false), (2, false)] {
        let ring = plan.ring(&equal_nodes(count, 3), None);
        let redundancy = ring.redundancy();
        assert_eq!(u32::from(redundancy.owners_per_partition), count);
        assert!(redundancy.under_replicated && redundancy.fewer_zones_than_replicas);
        assert_eq!(redundancy.survives_node_loss, survives);
        assert_eq!(copies(&ring), vec![16; count as usize]);
    }
    let one = plan.ring(&equal_nodes(1, 3), None);
    let three = plan.ring(&equal_nodes(3, 3), Some(&one));
    assert_eq!(diff(&one, &three).copies_moved, 32, "only the newcomers' copies");
    assert!(!three.redundancy().under_replicated && three.redundancy().survives_zone_loss);
}

#[test]
fn a_replacement_takes_exactly_the_copies_of_the_node_it_replaces() {
    let plan = Plan::balanced(9, 3);
    let mut nodes = equal_nodes(12, 3);
    let before = plan.ring(&nodes, None);
    let leaving = nodes[4].clone();
    nodes[4] = node(77, 1, 1);
    let after = plan.ring(&nodes, Some(&before));
    let diff = diff(&before, &after);
    assert_eq!(diff.copies_moved, u64::from(load(&before, &leaving).0));
    for change in diff.partitions.iter().filter(|change| !change.lost.is_empty()) {
        assert_eq!((&change.gained[..], &change.lost[..]), (&[nodes[4].id][..], &[leaving.id][..]));
    }
}

#[test]
fn a_node_that_becomes_heavier_only_takes_copies() {
    let plan = Plan::balanced(10, 3);
    let mut nodes = equal_nodes(12, 3);
    let before = plan.ring(&nodes, None);
    nodes[0].weight = Weight::new(2).unwrap();
    let after = plan.ring(&nodes, Some(&before));
    assert_eq!(
        load(&after, &nodes[0]).0,
        409,
        "two fifths of its zone's 1024, rounded so that less moves"
    );
    for change in diff(&before, &after).partitions.iter().filter(|c| !c.gained.is_empty()) {
        assert_eq!(change.gained, [nodes[0].id]);
    }
}

#[test]
fn draining_nodes_and_spares_receive_no_tokens() {
    let plan = Plan::balanced(8, 3);
    let mut nodes = equal_nodes(9, 3);
    let before = plan.ring(&nodes, None);
    nodes[2].state = NodeState::Draining;
    nodes[6].state = NodeState::Draining;
    let mut spare = node(50, 0, 1);
    spare.state = NodeState::Spare;
    nodes.push(spare.clone());
    let after = plan.ring(&nodes, Some(&before));
    for idle in [&nodes[2], &nodes[6], &spare] {
        assert_eq!(load(&after, idle), (0, 0));
    }
    let moved = load(&before, &nodes[2]).0 + load(&before, &nodes[6]).0;
    assert_eq!(diff(&before, &after).copies_moved, u64::from(moved), "two drains at once");
    assert_eq!(after.redundancy().zones_covered_min, 3);
}

#[test]
fn a_new_zone_takes_the_doubled_copies_and_nothing_else() {
    let plan = Plan::balanced(8, 3);
    let mut nodes = equal_nodes(4, 2);
    let before = plan.ring(&nodes, None);
    nodes.extend([node(10, 2, 1), node(11, 2, 1)]);
    let after = plan.ring(&nodes, Some(&before));
    assert_eq!(diff(&before, &after).copies_moved, 256, "one copy of each partition");
    assert!(before.redundancy().fewer_zones_than_replicas);
    assert!(!after.redundancy().fewer_zones_than_replicas);
}

#[test]
fn another_replication_factor_adds_or_drops_copies_and_moves_none() {
    let nodes = equal_nodes(10, 5);
    let three = Plan::balanced(8, 3).ring(&nodes, None);
    let five = Plan::balanced(8, 5).ring(&nodes, Some(&three));
    let up = diff(&three, &five);
    assert_eq!(up.copies_moved, 2 * 256);
    let back = Plan::balanced(8, 3).ring(&nodes, Some(&five));
    assert!(copies(&back).iter().all(|copies| (76..=77).contains(copies)), "{:?}", copies(&back));
    assert_eq!(diff(&five, &back).copies_moved, 0);
}

#[test]
fn a_random_ring_becomes_balanced_by_the_fewest_moves() {
    let nodes = equal_nodes(12, 3);
    let random = Plan::random(10, 3, 32).ring(&nodes, None);
    let balanced = Plan::balanced(10, 3).ring(&nodes, Some(&random));
    let diff = diff(&random, &balanced);
    assert_eq!(diff.copies_moved, diff.copies_moved_min);
    assert!(Balance::of(&balanced).primaries_max_over_mean < 1.02);
    assert!(Balance::of(&random).primaries_max_over_mean > 1.1);
}

#[test]
fn the_partners_of_a_node_are_many() {
    let (count, zones, plan) = LARGE;
    let ring = plan.ring(&equal_nodes(count, zones), None);
    for node in ring.nodes() {
        let partners: BTreeSet<_> = ring
            .partitions_of(node.id)
            .flat_map(|(partition, _)| ring.owner_ids(partition))
            .filter(|id| *id != node.id)
            .collect();
        assert!(partners.len() >= 50, "{} shares partitions with {}", node.name, partners.len());
    }
}

#[test]
fn the_order_in_which_nodes_are_named_does_not_matter() {
    let nodes = equal_nodes(11, 4);
    let reversed: Vec<NodeSpec> = nodes.iter().rev().cloned().collect();
    for plan in [Plan::balanced(8, 3), Plan::random(8, 3, 16)] {
        assert_eq!(plan.tokens(&nodes, None), plan.tokens(&reversed, None));
        let ring = plan.ring(&nodes[1..], None);
        assert_eq!(plan.tokens(&nodes, Some(&ring)), plan.tokens(&reversed, Some(&ring)));
    }
}

/// The tokens of a mixed cluster, pinned: two programs of different builds have to agree.
#[test]
fn tokens_are_the_same_in_every_build() {
    let nodes: Vec<NodeSpec> = (0..10).map(|n| node(n, n as usize % 4, 1 + n % 3)).collect();
    let founded = Plan::balanced(8, 3).ring(&nodes[..9], None);
    let grown = Plan::balanced(8, 3).ring(&nodes, Some(&founded));
    let random = Plan::random(8, 3, 8).ring(&nodes, None);
    let checksums = [founded, grown, random].map(|ring| ring.snapshot().checksum().to_string());
    assert_eq!(
        checksums,
        [
            "6edca4edf1ea2e944caab06988c5fb9c",
            "d4642ef0f27f852c8e801272d03b8a33",
            "820baf278c9545d4989156c37d368bd0"
        ]
    );
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let bits = PartitionBits::new(4).unwrap();
    let factor = ReplicationFactor::DEFAULT;
    let topology = |nodes: &[NodeSpec]| Topology::new(nodes.to_vec()).unwrap();
    let ask = |nodes: &[NodeSpec], vnodes, policy| {
        allocate(&topology(nodes), bits, factor, vnodes, None, policy)
    };
    let mut nodes = equal_nodes(3, 3);
    assert_eq!(ask(&[], 1, TokenPolicy::Balanced), Err(PlacementError::NoNodes));
    assert_eq!(ask(&nodes, 0, TokenPolicy::Random), Err(PlacementError::NoVnodes));
    nodes[0].weight = Weight::new(u32::MAX).unwrap();
    let too_many = ask(&nodes, u32::MAX, TokenPolicy::Random);
    assert!(matches!(too_many, Err(PlacementError::TooManyTokens { .. })));
    assert!(ask(&nodes, 0, TokenPolicy::Balanced).is_ok(), "weights are ratios, not counts");
    nodes.iter_mut().for_each(|node| node.state = NodeState::Spare);
    assert_eq!(ask(&nodes, 1, TokenPolicy::Balanced), Err(PlacementError::NoNodes));

    let previous = Plan::balanced(5, 3).ring(&equal_nodes(3, 3), None);
    let topology = topology(&equal_nodes(3, 3));
    let previous = Some(&**previous.snapshot());
    assert_eq!(
        allocate(&topology, bits, factor, 1, previous, TokenPolicy::Balanced),
        Err(PlacementError::PartitionBitsChanged { previous: 5, asked: 4 })
    );
}

#[test]
fn names_weights_and_identities_are_checked_once_at_the_edge() {
    use crate::{NodeId, NodeName, Zone};
    assert_eq!(Zone::parse("eu-west_1.a").unwrap().as_str(), "eu-west_1.a");
    assert!(NodeName::parse(&"x".repeat(64)).is_ok());
    for text in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert!(Zone::parse(text).is_err(), "{text:?}");
        assert!(serde_json::from_value::<NodeName>(text.into()).is_err(), "{text:?}");
    }
    let id = NodeId::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    assert_eq!(id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!(id.to_string().parse(), Ok(id));
    assert!("node-1".parse::<NodeId>().is_err());
    assert_eq!(Weight::new(0), Err(PlacementError::ZeroWeight));
    assert!(ReplicationFactor::new(0).is_err() && ReplicationFactor::new(8).is_err());

    let (a, b) = (node(1, 0, 1), node(2, 0, 1));
    let same_id = NodeSpec { id: a.id, ..b.clone() };
    let same_name = NodeSpec { name: a.name.clone(), ..b };
    let refused = |other: NodeSpec| Topology::new(vec![a.clone(), other]).unwrap_err();
    assert_eq!(refused(same_id), PlacementError::DuplicateNodeId { id: a.id });
    assert_eq!(refused(same_name), PlacementError::DuplicateNodeName { name: a.name.clone() });
}

/// Where nodes of one zone compete with nodes of others, copies first go to neighbours: what leaves
/// the zone would only make another copy come in.
#[test]
fn zones_of_very_different_sizes_still_move_the_minimum() {
    for (replicas, zone_sizes) in [(2, [1, 1, 30]), (3, [4, 2, 24]), (5, [25, 3, 6])] {
        let plan = Plan::balanced(9, replicas);
        let zones = zone_sizes.iter().enumerate();
        let zones = zones.flat_map(|(zone, size)| std::iter::repeat_n(zone, *size));
        let mut nodes: Vec<NodeSpec> = zones.zip(0..).map(|(zone, n)| node(n, zone, 1)).collect();
        let before = plan.ring(&nodes, None);
        nodes.extend((0..3).map(|zone| node(1000 + zone, zone as usize, 3)));
        let join = diff(&before, &plan.ring(&nodes, Some(&before)));
        assert_eq!(join.copies_moved, join.copies_moved_min, "{zone_sizes:?}");
    }
}
