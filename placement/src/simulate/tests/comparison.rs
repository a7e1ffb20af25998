//! Strategies side by side, hot keys and caches.

use super::{keys, rules, tally};
use crate::simulate::cache::{CacheFleet, Hits, Lru};
use crate::simulate::hot_key::busiest;
use crate::simulate::strategy::{Comparison, Placer, Shares, Strategy};
use crate::simulate::{FleetSpec, PartitionLoads, theory};
use crate::{NodeSpec, TokenPolicy, key_hash};

const KEYS: u32 = 40_000;

fn nodes(count: u32) -> Vec<NodeSpec> {
    let spec = FleetSpec::equal(count, 1, 3);
    (0..count).map(|index| spec.node(index, 0, 1).unwrap()).collect()
}

/// Moved, and moved between others, when a node comes.
fn grown(strategy: Strategy, from: u32) -> (f64, f64) {
    let rules = rules(12, 1, TokenPolicy::Balanced, 256);
    let before = Placer::new(strategy, &nodes(from), &rules).unwrap();
    let after = before.grown(&nodes(from + 1), &rules).unwrap();
    let comparison = Comparison::new(&before, &after, nodes(from + 1)[from as usize].id);
    let comparison = tally(comparison, keys(KEYS));
    let part = |keys: u64| keys as f64 / f64::from(KEYS);
    (part(comparison.moved.keys), part(comparison.moved_between_others.keys))
}

fn shrunk(strategy: Strategy, from: u32, place: u32) -> (f64, f64) {
    let rules = rules(12, 1, TokenPolicy::Balanced, 256);
    let before = Placer::new(strategy, &nodes(from), &rules).unwrap();
    let mut left = nodes(from);
    let gone = left.remove(place as usize);
    let after = before.shrunk(&left, place, &rules).unwrap();
    let comparison = tally(Comparison::new(&before, &after, gone.id), keys(KEYS));
    let part = |keys: u64| keys as f64 / f64::from(KEYS);
    (part(comparison.moved.keys), part(comparison.moved_between_others.keys))
}

/// Three standard deviations of a part found from [`KEYS`] keys, and of the share itself where
/// random tokens decide it; a partition is 1/4096 of the keys.
fn doubt(strategy: Strategy, expected: f64, nodes: u32) -> f64 {
    let sampling = 3.0 * (expected * (1.0 - expected) / f64::from(KEYS)).sqrt();
    sampling
        + match strategy {
            Strategy::RingRandom => {
                let cut = theory::share_variation_cut(nodes, 256, 4096);
                3.0 * cut / f64::from(nodes)
            }
            Strategy::RingBalanced | Strategy::FixedTable => 1.0 / 4096.0,
            Strategy::Modulo
            | Strategy::Rendezvous
            | Strategy::WeightedRendezvous
            | Strategy::Jump => 0.0,
        }
}

#[test]
fn one_node_more_or_less_moves_its_share_and_nothing_between_others_but_for_modulo() {
    for from in [4, 10, 120] {
        for strategy in Strategy::ALL {
            let name = strategy.name();
            let fair = 1.0 / f64::from(from + 1);
            let (moved, strayed) = grown(strategy, from);
            if strategy == Strategy::Modulo {
                let expected = theory::modulo_moved(from, from + 1);
                assert!((moved - expected).abs() < doubt(strategy, expected, from), "{moved}");
                assert!(strayed > expected * 0.5);
            } else {
                let doubt = doubt(strategy, fair, from + 1);
                assert!(
                    (moved - fair).abs() < doubt,
                    "{name}, {from} + 1: {moved}, {fair} ± {doubt}"
                );
                assert_eq!(strayed, 0.0, "{name}, {from} + 1");
            }
            if strategy.refuses_removal().is_some() {
                continue;
            }
            let fair = 1.0 / f64::from(from);
            let (moved, strayed) = shrunk(strategy, from, from / 2);
            if strategy == Strategy::Modulo {
                let expected = theory::modulo_moved(from, from - 1);
                assert!((moved - expected).abs() < doubt(strategy, expected, from), "{moved}");
            } else {
                let doubt = doubt(strategy, fair, from);
                assert!(
                    (moved - fair).abs() < doubt,
                    "{name}, {from} - 1: {moved}, {fair} ± {doubt}"
                );
                assert_eq!(strayed, 0.0, "{name}, {from} - 1");
            }
        }
    }
}

#[test]
fn jump_without_a_middle_bucket_would_move_keys_between_others() {
    let (_, strayed) = shrunk(Strategy::Jump, 10, 4);
    assert!(strayed > 0.1, "renumbering its buckets is why jump refuses: {strayed}");
    let (_, strayed) = shrunk(Strategy::Jump, 10, 9);
    assert_eq!(strayed, 0.0, "the last may go");
}

#[test]
fn shares_follow_weights_of_one_two_and_four_where_a_strategy_knows_weights() {
    let spec = FleetSpec { nodes: 3, zones: 1, weights: vec![1, 2, 4], seed: 3 };
    let nodes: Vec<NodeSpec> =
        [1, 2, 4].into_iter().zip(0..).map(|(w, n)| spec.node(n, 0, w).unwrap()).collect();
    let rules = rules(12, 1, TokenPolicy::Balanced, 512);
    for strategy in Strategy::ALL.into_iter().filter(|s| s.refuses_weights().is_none()) {
        let placer = Placer::new(strategy, &nodes, &rules).unwrap();
        let loads = tally(Shares::new(&placer), keys(KEYS)).loads;
        for (load, node) in loads.iter().zip(&nodes) {
            let share = load.keys as f64 / f64::from(KEYS);
            let asked = f64::from(node.weight.get()) / 7.0;
            let sampling = 3.0 * (asked * (1.0 - asked) / f64::from(KEYS)).sqrt();
            // Of w of 7 x 512 random tokens the share is Beta(512 w, 512 (7 - w)), and cutting the
            // space into 4096 adds a draw for each partition.
            let tokens = if strategy == Strategy::RingRandom {
                let variance = asked * (1.0 - asked) * (1.0 / (7.0 * 512.0) + 1.0 / 4096.0);
                3.0 * variance.sqrt()
            } else {
                1.0 / 4096.0
            };
            let name = strategy.name();
            assert!((share - asked).abs() < sampling + tokens, "{name}: {share}, asked {asked}");
        }
    }
}

#[test]
fn a_fixed_table_that_loses_a_bucket_numbers_the_others_anew() {
    use crate::alternatives::FixedTable;
    use crate::{PartitionBits, Weight};
    let bits = PartitionBits::new(4).unwrap();
    let table = FixedTable::weighted(bits, &[Weight::ONE; 4]);
    assert_eq!(table.buckets(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    let without = table.without(1, &[Weight::ONE; 3]);
    let moved = |(old, new): (&u32, &u32)| match old {
        0 => *new != 0,
        1 => true,
        2.. => *new != old - 1,
    };
    assert_eq!(
        table.buckets().iter().zip(without.buckets()).filter(|pair| moved(*pair)).count(),
        4
    );
    assert!(without.buckets().iter().all(|bucket| *bucket < 3));
}

#[test]
fn a_hot_key_is_on_one_node_at_any_number_of_vnodes() {
    let nodes = FleetSpec::equal(20, 1, 3).topology().unwrap();
    let rules_of = |vnodes| rules(12, 3, TokenPolicy::Random, vnodes);
    let loads = tally(PartitionLoads::new(rules_of(1).partition_bits), keys(KEYS));
    for share in [0.2, 0.4] {
        for vnodes in [100, 1000] {
            let ring = rules_of(vnodes).ring(nodes.clone(), None).unwrap();
            let hot = busiest(&ring, &loads, key_hash(b"hot"), share);
            assert!(hot.at_primaries > share, "{hot:?}");
            assert!(hot.at_primaries < share + (1.0 - share) * 2.0 * hot.even, "{hot:?}");
            assert!(hot.at_all_owners > share / 3.0, "three owners divide it by three");
            assert!(hot.at_all_owners < share / 3.0 + (1.0 - share) * 2.0 * hot.even, "{hot:?}");
        }
    }
    let ring = rules_of(100).ring(nodes, None).unwrap();
    let nobody = busiest(&ring, &PartitionLoads::new(ring.partition_bits()), 1, 0.0);
    assert_eq!(nobody.at_primaries, 0.0);
}

#[test]
fn a_cache_drops_what_was_used_least_recently() {
    let mut cache = Lru::new(2);
    let asked = [1, 2, 1, 3, 1, 2, 3].map(|key| cache.ask(key));
    // 3 pushes 2 out, because 1 was used after it; then 2 pushes 3 out.
    assert_eq!(asked, [false, false, true, false, true, false, false]);
    let mut none = Lru::new(0);
    assert!(!none.ask(1) && !none.ask(1));
    assert_eq!(Hits::default().ratio(), 0.0);
}

#[test]
fn when_a_cache_server_goes_the_ring_loses_its_share_and_modulo_nearly_all() {
    let rules = rules(12, 1, TokenPolicy::Balanced, 1);
    let misses_after = |strategy| {
        let servers = nodes(10);
        let placer = Placer::new(strategy, &servers, &rules).unwrap();
        let mut left = servers;
        left.remove(4);
        let after = placer.shrunk(&left, 4, &rules).unwrap();
        // Room for everything, so that each miss is a key that lost its server.
        let mut fleet = CacheFleet::new(&placer, 10_000);
        let hashes = || keys(10_000).map(|sample| sample.hash);
        assert_eq!(fleet.ask_all(hashes()).ratio(), 0.0);
        assert_eq!(fleet.ask_all(hashes()).ratio(), 1.0);
        fleet.change(&after);
        1.0 - fleet.ask_all(hashes()).ratio()
    };
    // Three standard deviations of 10,000 keys are 0.009 at a tenth; a partition is 0.0002.
    let ring = misses_after(Strategy::RingBalanced);
    assert!((ring - 0.1).abs() < 0.0095, "{ring}");
    let modulo = misses_after(Strategy::Modulo);
    assert!((modulo - 0.9).abs() < 0.0095, "{modulo}");
}
