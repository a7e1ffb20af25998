//! Joins, drains, failures and new weights: what moves, and what the survivors carry.

use super::{keys, rules, tally};
use crate::simulate::change::{Change, Transition};
use crate::simulate::proof::Proof;
use crate::simulate::{FleetSpec, PartitionLoads, RingRules, SimulateError};
use crate::{NodeName, TokenPolicy, Weight, Zone};

fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

fn transition(spec: &FleetSpec, rules: &RingRules, change: &Change) -> Transition {
    let before = rules.ring(spec.topology().unwrap(), None).unwrap();
    Transition::new(before, rules, change).unwrap()
}

fn changes(spec: &FleetSpec) -> Vec<Change> {
    vec![
        Change::Join(spec.node(spec.nodes, 0, 1).unwrap()),
        Change::Drain(name("n2")),
        Change::Fail(name("n3")),
        Change::LoseZone(Zone::parse("z1").unwrap()),
        Change::Reweight(name("n1"), Weight::new(3).unwrap()),
    ]
}

#[test]
fn no_key_outside_the_difference_moves_and_every_key_inside_does() {
    for (zones, policy) in [
        (3, TokenPolicy::Balanced),
        (3, TokenPolicy::Random),
        (2, TokenPolicy::Random),
        (5, TokenPolicy::Balanced),
    ] {
        let spec = FleetSpec::equal(15, zones, 4);
        let rules = rules(8, 3, policy, 16);
        for change in changes(&spec) {
            let transition = transition(&spec, &rules, &change);
            let proof = tally(Proof::new(&transition), keys(2000));
            assert!(proof.holds() && proof.moved > 0, "{zones} zones, {change:?}: {proof:?}");
            assert_eq!(proof.keys, 2000);
        }
    }
}

#[test]
fn a_difference_that_forgets_a_partition_is_found_out() {
    let spec = FleetSpec::equal(9, 3, 4);
    let rules = rules(6, 3, TokenPolicy::Balanced, 1);
    let mut transition = transition(&spec, &rules, &changes(&spec)[0]);
    transition.diff.partitions.pop();
    let proof = tally(Proof::new(&transition), keys(2000));
    assert!(proof.moved_outside > 0 && !proof.holds());
}

#[test]
fn what_is_sent_is_what_is_received_and_what_the_difference_says() {
    let spec = FleetSpec::equal(12, 3, 2);
    let rules = rules(8, 3, TokenPolicy::Balanced, 1);
    let loads = tally(PartitionLoads::new(rules.partition_bits), keys(20_000));
    for change in changes(&spec) {
        let transition = transition(&spec, &rules, &change);
        let movement = transition.movement(&loads);
        assert_eq!(
            movement.targets.values().copied().sum::<crate::simulate::Load>(),
            movement.copies
        );
        assert_eq!(
            movement.sources.values().copied().sum::<crate::simulate::Load>(),
            movement.copies
        );
        assert_eq!(movement.without_source, 0);
        assert!(
            movement.sources.keys().all(|id| !transition.dead.contains(id)),
            "the dead send nothing"
        );
        let moved = movement.copies.keys as f64 / movement.total.keys as f64;
        let expected = transition.copies_expected();
        // Shares are whole partitions, so each of at most 13 nodes is off by less than one of 256,
        // and 78 keys a partition deviate by 11 % at a time.
        assert!((moved / expected - 1.0).abs() < 0.15, "{change:?}: {moved}, expected {expected}");
    }
}

#[test]
fn a_join_takes_from_its_zone_and_a_replaced_weight_gives_to_one_node() {
    let spec = FleetSpec::equal(12, 3, 2);
    let rules = rules(8, 3, TokenPolicy::Balanced, 1);
    let loads = tally(PartitionLoads::new(rules.partition_bits), keys(20_000));
    let newcomer = spec.node(12, 0, 1).unwrap();
    let join = transition(&spec, &rules, &Change::Join(newcomer.clone()));
    let movement = join.movement(&loads);
    assert_eq!(movement.targets.keys().collect::<Vec<_>>(), [&newcomer.id]);
    assert_eq!(movement.sources.len(), 4, "each of the four nodes of its zone gives");
    assert_eq!(join.diff.copies_moved, 51, "256 / 5");
}

#[test]
fn after_the_loss_of_a_zone_two_thirds_serve_all_and_the_copies_come_back_in_two_zones() {
    let spec = FleetSpec::equal(12, 3, 2);
    let rules = rules(8, 3, TokenPolicy::Balanced, 1);
    let loads = tally(PartitionLoads::new(rules.partition_bits), keys(20_000));
    let lost = transition(&spec, &rules, &Change::LoseZone(Zone::parse("z2").unwrap()));
    let [before, at_once, after] =
        [lost.stage_before(&loads), lost.stage_at_once(&loads), lost.stage_after(&loads)];
    assert_eq!(before.zone_cover, [0, 0, 0, 256]);
    assert_eq!(at_once.zone_cover, [0, 0, 256, 0]);
    assert_eq!(after.zone_cover, [0, 0, 256, 0]);
    assert_eq!((at_once.without_majority, after.without_majority), (0, 0));
    assert_eq!((before.primaries.len(), at_once.primaries.len()), (12, 8));
    for stage in [&before, &at_once, &after] {
        assert_eq!(stage.primaries.values().map(|load| load.keys).sum::<u64>(), 20_000);
    }
    assert_eq!(at_once.copies.values().map(|load| load.keys).sum::<u64>(), 40_000);
    assert_eq!(lost.diff.copies_moved, 256, "one copy of each partition is made anew");
}

#[test]
fn where_all_copies_stand_in_one_zone_its_loss_leaves_nothing() {
    let spec = FleetSpec::equal(4, 1, 2);
    let rules = rules(4, 3, TokenPolicy::Balanced, 1);
    let before = rules.ring(spec.topology().unwrap(), None).unwrap();
    let refused = |change| Transition::new(before.clone(), &rules, &change).unwrap_err();
    let zone = Zone::parse("z1").unwrap();
    assert_eq!(refused(Change::LoseZone(zone)), SimulateError::NothingLeft);
    let absent = SimulateError::NoSuchNode { name: name("n9") };
    assert_eq!(refused(Change::Drain(name("n9"))), absent);
    let zone = Zone::parse("z9").unwrap();
    assert_eq!(refused(Change::LoseZone(zone.clone())), SimulateError::NoSuchZone { zone });
    let one = FleetSpec::equal(1, 1, 2);
    let before = rules.ring(one.topology().unwrap(), None).unwrap();
    let alone = Transition::new(before, &rules, &Change::Fail(name("n1")));
    assert_eq!(alone.unwrap_err(), SimulateError::NothingLeft);
}

#[test]
fn of_one_copy_a_failure_leaves_no_source() {
    let spec = FleetSpec::equal(4, 2, 2);
    let rules = rules(6, 1, TokenPolicy::Balanced, 1);
    let failed = transition(&spec, &rules, &Change::Fail(name("n1")));
    let movement = failed.movement(&PartitionLoads::new(rules.partition_bits));
    assert_eq!(movement.without_source, failed.diff.copies_moved);
    let at_once = failed.stage_at_once(&PartitionLoads::new(rules.partition_bits));
    assert_eq!(at_once.without_majority, 16);
}
