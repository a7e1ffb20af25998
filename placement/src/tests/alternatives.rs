//! The other schemes against their published vectors and closed forms.

use std::num::NonZeroU32;

use crate::alternatives::{FixedTable, jump, modulo, rendezvous, weighted_rendezvous};
use crate::{NodeId, PartitionBits, Weight, key_hash};

fn buckets(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn hashes(count: u32) -> impl Iterator<Item = u64> {
    (0..count).map(|number| key_hash(&number.to_be_bytes()))
}

#[test]
fn jump_gives_the_published_vectors() {
    let hundred = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83];
    for (key, expected) in hundred.into_iter().enumerate() {
        assert_eq!(jump(key as u64, buckets(100)), expected, "key {key}");
    }
    assert_eq!(jump(10_863_919_174_838_991, buckets(11)), 6);
    assert_eq!(jump(2_016_238_256_797_177_309, buckets(11)), 3);
    assert_eq!(jump(42, buckets(57)), 43);
    assert_eq!(jump(2, buckets(100_001)), 80_343);
    assert_eq!(jump(u64::MAX, buckets(1)), 0);
}

#[test]
fn with_jump_a_key_stays_or_goes_to_the_new_bucket() {
    for hash in hashes(2000) {
        for count in 2..40 {
            let (before, after) = (jump(hash, buckets(count - 1)), jump(hash, buckets(count)));
            assert!(after == before || after == count - 1);
        }
    }
}

#[test]
fn modulo_keeps_n_hashes_of_a_residue_cycle() {
    for n in [4_u32, 10, 120] {
        let cycle = u64::from(n) * u64::from(n + 1);
        let stays = |hash: &u64| modulo(*hash, buckets(n)) == modulo(*hash, buckets(n + 1));
        assert_eq!((0..cycle).filter(stays).count(), n as usize);
    }
}

#[test]
fn rendezvous_moves_only_the_keys_of_the_node_that_leaves() {
    let nodes: Vec<NodeId> = (1..=10).map(NodeId::from_u128).collect();
    let mut shares = [0; 10];
    for hash in hashes(20_000) {
        let before = rendezvous(hash, &nodes).unwrap();
        shares[before] += 1;
        let after = rendezvous(hash, &nodes[..9]).unwrap();
        assert!(before == 9 || after == before);
    }
    assert!(shares.iter().all(|share| (1_850..2_150).contains(share)), "{shares:?}");
    assert_eq!(rendezvous(1, &[]), None);
}

#[test]
fn weighted_rendezvous_follows_the_weights_and_moves_keys_only_to_the_heavier_node() {
    let weights = |last: u32| -> Vec<(NodeId, Weight)> {
        let pairs = [1, 2, 3, last].into_iter().zip(1..);
        pairs.map(|(w, id)| (NodeId::from_u128(id), Weight::new(w).unwrap())).collect()
    };
    let (before, after) = (weights(4), weights(6));
    let mut shares = [0.0_f64; 4];
    for hash in hashes(40_000) {
        let place = weighted_rendezvous(hash, &before).unwrap();
        shares[place] += 1.0 / 40_000.0;
        let place_after = weighted_rendezvous(hash, &after).unwrap();
        assert!(place_after == place || place_after == 3);
    }
    for (share, expected) in shares.into_iter().zip([0.1, 0.2, 0.3, 0.4]) {
        // Three standard deviations of 40,000 draws are below 0.0074.
        assert!((share - expected).abs() < 0.008, "{shares:?}");
    }
    assert_eq!(weighted_rendezvous(1, &[]), None);
}

#[test]
fn a_fixed_table_moves_the_fewest_partitions() {
    let bits = PartitionBits::new(10).unwrap();
    let mut table = FixedTable::new(bits, buckets(1));
    for count in 2..60 {
        let grown = table.resized(buckets(count));
        let moved = table.buckets().iter().zip(grown.buckets()).filter(|(a, b)| a != b);
        assert_eq!(moved.count(), 1024 / count as usize, "to {count} buckets");
        table = grown;
    }
    let shrunk = table.resized(buckets(40));
    for (before, after) in table.buckets().iter().zip(shrunk.buckets()) {
        assert!(before == after || *before >= 40, "only the buckets that leave give");
    }
    assert_eq!(shrunk.bucket(u64::MAX), shrunk.buckets()[1023]);
}
