//! One row for each way in which a plan can be refused, and for each close call that is legal.

use super::{BALANCED, RANDOM, founded, replace, reweight};
use crate::tests::support::{equal_nodes, node};
use crate::{
    CHANGES_MAX, Change, NodeName, NodeSpec, PartitionId, PlanRefusal, PlanRules, Ring, Zone, plan,
};

fn outcome(base: &Ring, changes: &[Change]) -> &'static str {
    match plan(base.snapshot(), changes, &BALANCED) {
        Ok(_) => "ok",
        Err(refusal) => refusal.rule(),
    }
}

/// Nodes numbered from 0, as many in each zone as given.
fn zoned(counts: &[usize]) -> Vec<NodeSpec> {
    let zones = counts.iter().enumerate().flat_map(|(zone, count)| vec![zone; *count]);
    zones.zip(0..).map(|(zone, number)| node(number, zone, 1)).collect()
}

fn named(number: u32, zone: usize, name: &str) -> NodeSpec {
    NodeSpec { name: NodeName::parse(name).unwrap(), ..node(number, zone, 1) }
}

#[test]
fn changes_that_do_not_fit_the_members_are_refused() {
    let nodes = zoned(&[2, 2, 2]);
    let base = founded(5, 3, &nodes);
    let stranger = node(70, 0, 1);
    let join = || Change::Join(stranger.clone());
    let drain = |at: usize| Change::Drain(nodes[at].id);
    let remove = |at: usize| Change::Remove(nodes[at].id);
    let table: &[(&str, Vec<Change>, &str)] = &[
        ("no change", vec![], "nothing-to-do"),
        ("the weight that it has", vec![reweight(&nodes[0], 1)], "nothing-to-do"),
        ("another weight", vec![reweight(&nodes[0], 2)], "ok"),
        ("a stranger drains", vec![Change::Drain(stranger.id)], "unknown-node"),
        ("a stranger is dead", vec![Change::Remove(stranger.id)], "unknown-node"),
        ("a stranger is weighted", vec![reweight(&stranger, 2)], "unknown-node"),
        ("a stranger is replaced", vec![replace(&stranger, &node(71, 0, 1))], "unknown-node"),
        ("a stranger joins", vec![join()], "ok"),
        ("a member joins", vec![Change::Join(nodes[3].clone())], "already-member"),
        ("a member replaces", vec![replace(&nodes[0], &nodes[1])], "already-member"),
        ("joined twice", vec![join(), join()], "duplicate-change"),
        ("drained and dead", vec![drain(0), remove(0)], "duplicate-change"),
        ("drained and weighted", vec![drain(0), reweight(&nodes[0], 3)], "duplicate-change"),
        ("replaces and joins", vec![replace(&nodes[0], &stranger), join()], "duplicate-change"),
        ("replaces itself", vec![replace(&nodes[0], &nodes[0])], "duplicate-change"),
        ("a member's name", vec![Change::Join(named(70, 0, "n3"))], "name-taken"),
        ("a leaver's name", vec![drain(3), Change::Join(named(70, 1, "n3"))], "name-taken"),
        (
            "one name twice",
            vec![Change::Join(named(70, 0, "x")), Change::Join(named(71, 0, "x"))],
            "name-taken",
        ),
        ("the name replaced", vec![replace(&nodes[3], &named(70, 1, "n3"))], "ok"),
        ("replaces from elsewhere", vec![replace(&nodes[3], &stranger)], "zone-differs"),
        ("all drain", (0..6).map(drain).collect(), "no-nodes-left"),
        ("all are dead", (0..6).map(remove).collect(), "no-nodes-left"),
    ];
    for (story, changes, expected) in table {
        assert_eq!(outcome(&base, changes), *expected, "{story}");
    }
}

#[test]
fn what_lowers_copies_zones_or_majorities_is_refused() {
    // Nodes in each zone, copies, nodes that drain, nodes that are dead, outcome.
    type Row<'a> = (&'a [usize], u8, &'a [usize], &'a [usize], &'a str);
    let table: &[Row<'_>] = &[
        (&[2, 2, 2], 3, &[0], &[], "ok"),
        (&[2, 2, 2], 3, &[0, 2, 4], &[], "ok"),
        (&[2, 2, 2], 3, &[0, 1], &[], "zone-cover"),
        (&[2, 2, 2], 3, &[0, 1, 2, 3], &[], "redundancy"),
        (&[1, 1, 1], 3, &[0], &[], "redundancy"),
        (&[1, 1, 2], 3, &[3], &[], "ok"),
        (&[1, 1, 2], 3, &[0], &[], "zone-cover"),
        (&[1, 1, 1, 1], 3, &[0], &[], "ok"),
        (&[1, 1, 1, 1], 3, &[0, 1], &[], "redundancy"),
        (&[3], 3, &[0], &[], "redundancy"),
        (&[5], 3, &[0, 1], &[], "ok"),
        (&[2], 3, &[0], &[], "redundancy"),
        (&[2, 1], 3, &[0], &[], "redundancy"),
        (&[2, 2], 3, &[0], &[], "ok"),
        (&[3, 1], 3, &[3], &[], "zone-cover"),
        (&[3, 3, 3], 5, &[0, 1, 3, 4], &[], "zone-loss"),
        (&[3, 3, 3], 5, &[0, 3, 6], &[], "ok"),
        // Of a dead node nothing is left to lower.
        (&[2, 2, 2], 3, &[], &[0], "ok"),
        (&[1, 1, 1], 3, &[], &[0], "ok"),
        (&[1, 1, 2], 3, &[], &[0], "ok"),
        (&[2, 2, 2], 3, &[], &[0, 1], "ok"),
        (&[1, 1, 1], 3, &[1], &[0], "redundancy"),
        (&[2, 2, 2], 3, &[2], &[0], "ok"),
        // Without a majority nobody can tell the newest copy.
        (&[1, 1, 1], 3, &[], &[0, 1], "no-quorum"),
        (&[2, 2, 2], 3, &[], &[0, 2], "no-quorum"),
        (&[2], 3, &[], &[0], "no-quorum"),
        (&[4], 1, &[], &[0], "no-quorum"),
        (&[4], 1, &[0], &[], "ok"),
        (&[3, 3, 3], 5, &[], &[0, 3], "ok"),
    ];
    for row in table {
        let (counts, replicas, drained, dead, expected) = *row;
        let nodes = zoned(counts);
        let base = founded(6, replicas, &nodes);
        let mut changes: Vec<Change> =
            drained.iter().map(|at| Change::Drain(nodes[*at].id)).collect();
        changes.extend(dead.iter().map(|at| Change::Remove(nodes[*at].id)));
        assert_eq!(outcome(&base, &changes), expected, "{row:?}");
    }
}

#[test]
fn a_newcomer_makes_a_drain_legal() {
    let nodes = zoned(&[1, 1, 1]);
    let base = founded(6, 3, &nodes);
    let drain = Change::Drain(nodes[0].id);
    assert_eq!(outcome(&base, &[drain.clone(), Change::Join(node(9, 0, 1))]), "ok");
    assert_eq!(outcome(&base, &[drain, Change::Join(node(9, 1, 1))]), "zone-cover");
}

#[test]
fn a_refusal_says_what_an_operator_needs() {
    let nodes = zoned(&[1, 2, 2]);
    let base = founded(5, 3, &nodes);
    let refused = plan(base.snapshot(), &[Change::Drain(nodes[0].id)], &BALANCED).unwrap_err();
    let PlanRefusal::ZoneCover { zones_left, zones_lost, partitions } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!((*zones_left, &zones_lost[..]), (2, &[Zone::parse("zone-0").unwrap()][..]));
    assert_eq!(partitions.count, 32);
    assert_eq!(partitions.first, (0..8).map(PartitionId::new).collect::<Vec<_>>());
    assert_eq!(
        refused.to_string(),
        "2 zones would be left: 32 partitions (0, 1, 2, 3, 4, 5, 6, 7, ...) would cover fewer zones \
         than now"
    );
    let taken = Change::Join(named(9, 0, "n1"));
    let refused = plan(base.snapshot(), &[taken], &BALANCED).unwrap_err();
    let PlanRefusal::NameTaken { node: joining, name, holder } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((joining, name.as_str(), holder), (node(9, 0, 1).id, "n1", nodes[1].id));
}

#[test]
fn limits_are_refused_by_name() {
    let base = founded(4, 3, &equal_nodes(3, 3));
    let joins = |count: usize| -> Vec<Change> {
        (100..).take(count).map(|number| Change::Join(node(number, 0, 1))).collect()
    };
    assert_eq!(outcome(&base, &joins(CHANGES_MAX)), "ok");
    assert_eq!(outcome(&base, &joins(CHANGES_MAX + 1)), "too-many-changes");
    let no_vnodes = PlanRules { vnodes_per_node: 0, ..RANDOM };
    let refused = plan(base.snapshot(), &joins(1), &no_vnodes).unwrap_err();
    assert_eq!(refused.rule(), "placement");
}
