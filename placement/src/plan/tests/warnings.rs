//! What deserves attention, for clusters that do and for clusters that do not.

use super::{founded, planned, reweight};
use crate::tests::support::node;
use crate::{Change, NodeSpec, PlanWarning};

/// The codes of the warnings after a node joins the last zone.
fn codes(zones: &[usize], replicas: u8) -> Vec<&'static str> {
    let zoned = zones.iter().enumerate().flat_map(|(zone, count)| vec![zone; *count]);
    let mut nodes: Vec<NodeSpec> =
        zoned.zip(0..).map(|(zone, number)| node(number, zone, 1)).collect();
    let joining = nodes.pop().unwrap();
    let base = founded(8, replicas, &nodes);
    let plan = planned(&base, &[Change::Join(joining)]);
    plan.warnings.iter().map(PlanWarning::code).collect()
}

#[test]
fn each_weakness_of_a_cluster_is_named() {
    let table: &[(&[usize], u8, &[&str])] = &[
        (&[3, 3, 3], 3, &[]),
        (&[5, 5, 4], 3, &[]),
        (&[2, 2, 2, 2, 2], 3, &[]),
        (&[2], 3, &["fewer-nodes-than-copies", "one-zone"]),
        (
            &[1, 1],
            3,
            &["fewer-nodes-than-copies", "fewer-zones-than-copies", "zone-loss-stops-writes"],
        ),
        (&[3], 3, &["no-spare-node", "one-zone"]),
        (&[5], 3, &["one-zone"]),
        (&[1, 1, 1], 3, &["no-spare-node"]),
        (&[3, 3], 3, &["fewer-zones-than-copies", "zone-loss-stops-writes"]),
        (&[3, 3, 3], 5, &["fewer-zones-than-copies"]),
        (&[1, 1, 4], 5, &["fewer-zones-than-copies", "zone-loss-stops-writes"]),
    ];
    for (zones, replicas, expected) in table {
        let known = |code: &&str| !matches!(*code, "uneven-zones" | "overloaded");
        let found: Vec<_> = codes(zones, *replicas).into_iter().filter(known).collect();
        assert_eq!(found, *expected, "{zones:?} for {replicas}");
    }
    assert!(codes(&[3, 3, 3], 3).is_empty());
    assert!(codes(&[5, 5, 4], 3).iter().all(|code| *code == "overloaded"));
}

#[test]
fn nodes_of_a_light_zone_carry_more_and_are_named() {
    let nodes: Vec<NodeSpec> = (0..9).map(|n| node(n, n as usize % 3, 1)).collect();
    let base = founded(8, 3, &nodes);
    let plan = planned(&base, &[Change::Drain(nodes[0].id)]);
    let codes: Vec<_> = plan.warnings.iter().map(PlanWarning::code).collect();
    assert_eq!(codes, ["uneven-zones", "overloaded", "overloaded"]);
    assert_eq!(
        plan.warnings[0].to_string(),
        "for its weight, zone zone-0 holds 50 % more copies than zone zone-1"
    );
    let overloaded = plan.warnings[1..].iter().map(|warning| match warning {
        PlanWarning::Overloaded { copies, percent_above_share, .. } => {
            (*copies, *percent_above_share)
        }
        other => panic!("{other}"),
    });
    assert_eq!(overloaded.collect::<Vec<_>>(), [(128, 33); 2], "128 of 768, by right 96");
}

#[test]
fn a_weight_beyond_what_a_node_can_hold_overloads_the_others() {
    let nodes: Vec<NodeSpec> = (0..4).map(|n| node(n, 0, 1)).collect();
    let base = founded(8, 3, &nodes);
    let plan = planned(&base, &[reweight(&nodes[0], 100)]);
    let overloaded = plan.warnings.iter().filter(|warning| warning.code() == "overloaded").count();
    assert_eq!(overloaded, 3);
}
