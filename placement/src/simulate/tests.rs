//! Simulations of clusters small enough to know the answer, and of large ones against theory.

mod closed_forms;
mod comparison;
mod membership;

use super::sweep::{diminishing_from, measure};
use super::{
    FleetSpec, Load, Measure, PartitionLoads, RingRules, Sample, SimulateError, Spread, Tally,
    loads_of,
};
use crate::{PartitionBits, PartitionId, PlacementError, ReplicationFactor, TokenPolicy, key_hash};

pub(super) fn rules(bits: u8, copies: u8, policy: TokenPolicy, vnodes: u32) -> RingRules {
    RingRules {
        partition_bits: PartitionBits::new(bits).unwrap(),
        replication_factor: ReplicationFactor::new(copies).unwrap(),
        policy,
        vnodes_per_node: vnodes,
    }
}

/// Keys of 100 bytes, asked for once each.
pub(super) fn keys(count: u32) -> impl Iterator<Item = Sample> + Clone {
    let load = Load { keys: 1, bytes: 100, millirequests: 1000 };
    (0..count).map(move |number| Sample { hash: key_hash(&number.to_be_bytes()), load })
}

pub(super) fn tally<T: Tally>(mut empty: T, samples: impl Iterator<Item = Sample>) -> T {
    samples.for_each(|sample| empty.add(&sample));
    empty
}

#[test]
fn parts_merged_in_any_order_are_the_whole() {
    let empty = PartitionLoads::new(PartitionBits::new(5).unwrap());
    let whole = tally(empty.clone(), keys(3000));
    let mut merged = tally(empty.clone(), keys(3000).skip(1000));
    merged.merge(tally(empty, keys(1000)));
    assert_eq!(merged, whole);
    assert_eq!(whole.total(), Load { keys: 3000, bytes: 300_000, millirequests: 3_000_000 });
}

#[test]
fn a_partition_that_is_not_there_takes_no_load() {
    let mut loads = PartitionLoads::new(PartitionBits::new(2).unwrap());
    let load = Load { keys: 7, bytes: 1, millirequests: 0 };
    assert!(loads.add_to(PartitionId::new(3), load));
    assert!(!loads.add_to(PartitionId::new(4), load));
    assert_eq!((loads.get(PartitionId::new(3)), loads.total()), (load, load));
    assert_eq!(loads.get(PartitionId::new(4)), Load::default());
}

#[test]
fn copies_add_up_to_all_keys_as_often_as_there_are_owners() {
    for (nodes, zones, copies, owners) in [(1, 1, 3, 1), (2, 1, 3, 2), (5, 1, 3, 3), (9, 3, 3, 3)] {
        let nodes = FleetSpec::equal(nodes, zones, 1).topology().unwrap();
        let rules = rules(6, copies, TokenPolicy::Balanced, 0);
        let loads = tally(PartitionLoads::new(rules.partition_bits), keys(5000));
        let sums = loads_of(&rules.ring(nodes, None).unwrap(), &loads);
        assert_eq!(sums.primaries.iter().map(|load| load.keys).sum::<u64>(), 5000);
        assert_eq!(sums.copies.iter().map(|load| load.keys).sum::<u64>(), 5000 * owners);
    }
}

#[test]
fn a_spread_is_per_weight_and_that_of_nothing_is_even() {
    let even = Spread::of_weighted([(10.0, 1.0), (20.0, 2.0), (40.0, 4.0)].into_iter());
    assert_eq!((even.max_over_mean, even.min_over_mean, even.variation), (1.0, 1.0, 0.0));
    let uneven = Spread::of_weighted([(1.0, 1.0), (3.0, 1.0)].into_iter());
    assert_eq!((uneven.max_over_mean, uneven.min_over_mean, uneven.variation), (1.5, 0.5, 0.5));
    assert_eq!(Spread::of_weighted([(0.0, 1.0), (0.0, 1.0)].into_iter()), Spread::EVEN);
    assert_eq!(Spread::of_weighted([].into_iter()), Spread::EVEN);
}

#[test]
fn more_vnodes_stop_paying_after_the_last_step_that_paid() {
    let point = |points: &[(u32, f64)]| diminishing_from(points, 0.1);
    assert_eq!(point(&[(1, 3.0), (2, 2.0), (4, 1.95), (8, 1.94)]), Some(2));
    assert_eq!(point(&[(1, 3.0), (2, 2.98), (4, 1.5), (8, 1.49)]), Some(4), "a pause is no end");
    assert_eq!(point(&[(1, 3.0), (2, 2.0), (4, 1.5)]), None, "the last step still pays");
    assert_eq!(point(&[(1, 1.0), (2, 1.0)]), Some(1), "an even ring needs no more");
    assert_eq!(point(&[(1, 3.0)]), None);
    assert_eq!(point(&[]), None);
}

#[test]
fn the_sweep_ends_where_partitions_are_the_limit() {
    let draws: Vec<_> =
        (0..4).map(|seed| FleetSpec::equal(30, 3, seed).topology().unwrap()).collect();
    let mut loads = PartitionLoads::new(PartitionBits::new(9).unwrap());
    for partition in loads.partition_bits().partitions() {
        loads.add_to(partition, Load { keys: 1, bytes: 1, millirequests: 1 });
    }
    let at = |policy, vnodes| measure(rules(9, 3, policy, vnodes), &draws, &loads).unwrap();
    let points: Vec<_> = (0..11)
        .map(|power| 1 << power)
        .map(|vnodes| (vnodes, at(TokenPolicy::Random, vnodes).primaries[0].max_over_mean))
        .collect();
    let vnodes = diminishing_from(&points, 0.1).unwrap();
    assert!((8..=256).contains(&vnodes), "{points:?}");
    let balanced = at(TokenPolicy::Balanced, 0);
    assert!(balanced.primaries[0].max_over_mean < 1.06, "{balanced:?}");
    assert!(points[10].1 > 1.2, "more vnodes do not get there: {points:?}");
}

#[test]
fn fleets_that_cannot_be_are_refused() {
    let refused = |nodes, zones, weights: &[u32]| {
        FleetSpec { nodes, zones, weights: weights.to_vec(), seed: 1 }.topology().unwrap_err()
    };
    assert_eq!(refused(0, 1, &[1]), PlacementError::NoNodes.into());
    assert_eq!(refused(3, 0, &[1]), SimulateError::NoZones);
    assert_eq!(refused(2, 3, &[1]), SimulateError::EmptyZone { nodes: 2, zones: 3 });
    assert_eq!(refused(3, 1, &[]), SimulateError::NoWeights);
    assert_eq!(refused(3, 1, &[1, 0]), PlacementError::ZeroWeight.into());
    let too_many = PlacementError::TooManyNodes { count: u32::MAX as usize };
    assert_eq!(refused(u32::MAX, 1, &[1]), too_many.into());
}

#[test]
fn every_zone_gets_the_same_mix_of_weights() {
    let spec = FleetSpec { nodes: 9, zones: 3, weights: vec![1, 2, 4], seed: 5 };
    let mut mixes = std::collections::BTreeMap::<_, Vec<u32>>::new();
    for node in spec.topology().unwrap().nodes() {
        mixes.entry(node.zone.clone()).or_default().push(node.weight.get());
    }
    for mix in mixes.values_mut() {
        mix.sort_unstable();
        assert_eq!(*mix, [1, 2, 4]);
    }
    let other = FleetSpec { seed: 6, ..spec.clone() };
    assert_ne!(spec.topology().unwrap(), other.topology().unwrap());
}

#[test]
fn a_measure_looks_at_its_part() {
    let load = Load { keys: 1, bytes: 2, millirequests: 3 };
    assert_eq!(Measure::ALL.map(|measure| load.get(measure)), [1, 2, 3]);
    assert_eq!(Measure::ALL.map(Measure::name), ["keys", "bytes", "requests"]);
}
