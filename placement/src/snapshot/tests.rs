//! Snapshots: the golden bytes, hostile bytes, and which ring may follow which.

mod binary;

use std::sync::Arc;

use proptest::prelude::*;

use super::{Checksum, RingSnapshot, SnapshotParts};
use crate::tests::support::{Plan, equal_nodes};
use crate::{
    Epoch, NodeId, NodeName, NodeSpec, NodeState, PartitionBits, PartitionId, ReplicationFactor,
    Ring, SnapshotError, Token, Topology, Weight, Zone,
};

const DOCUMENT: &str = include_str!("../../../docs/ring-format.md");

/// The two documents of `docs/ring-format.md`, made by another implementation of that page.
const GOLDEN: [(&str, &str); 2] = [
    (
        "5bced4c03b023b8b192ae1269a54075f",
        "\
52494e474b56000100000000000000010000018bcfe568010000000000000000
000000000000000007787868332d36340000000000000000097261772d627974
6573000000010203000400000000000040008000000000000001040000000102
6e310465617374000000000000400080000000000000020500000002026e3204
77657374000000000000400080000000000000030100000004026e3304656173
74000000000000400080000000000000040000000001026e34056e6f72746800
0000060000000000000001000000000000000000000002000000000000000100
0000020000000100000001000100000000000000000002000700000000000100
00000200070001000000015bced4c03b023b8b192ae1269a54075f
",
    ),
    (
        "afbe699436f5cf4ba19e44aa819f14d4",
        "\
52494e474b56000100000000000000020000018bcfe568025bced4c03b023b8b
192ae1269a54075f07787868332d36340000000000000000097261772d627974
6573000000010203000400000000000040008000000000000001040000000102
6e310465617374000000000000400080000000000000020500000002026e3204
77657374000000000000400080000000000000030100000004026e3304656173
74000000000000400080000000000000040000000001026e34056e6f72746800
0000060000000000000001000000000000000000000002000000000000000100
0000020000000100000001000100000000000000000002000700000000000100
0000020007000100000001afbe699436f5cf4ba19e44aa819f14d4
",
    ),
];

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn golden_node(number: u8, state: NodeState, weight: u32, zone: &str) -> NodeSpec {
    NodeSpec {
        id: NodeId::from_u128(0x4000_8000_0000_0000_0000 + u128::from(number)),
        name: NodeName::parse(&format!("n{number}")).unwrap(),
        zone: Zone::parse(zone).unwrap(),
        weight: Weight::new(weight).unwrap(),
        state,
    }
}

fn golden_parts(activated_at_ms: u64) -> SnapshotParts {
    let nodes = vec![
        golden_node(1, NodeState::Active, 1, "east"),
        golden_node(2, NodeState::Draining, 2, "west"),
        golden_node(3, NodeState::Joining, 4, "east"),
        golden_node(4, NodeState::Spare, 1, "north"),
    ];
    let partition_bits = PartitionBits::new(2).unwrap();
    // Deliberately not in ring order.
    let tokens =
        [(2, 7, 1, 1), (2, 7, 0, 1), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 2, 0), (1, 0, 2, 1)].map(
            |(partition, rank, node, index): (u32, u16, usize, u32)| Token {
                position: partition_bits.last_hash(PartitionId::new(partition)),
                rank,
                node: nodes[node].id,
                index,
            },
        );
    SnapshotParts {
        partition_bits,
        replication_factor: ReplicationFactor::DEFAULT,
        topology: Topology::new(nodes).unwrap(),
        tokens: tokens.to_vec(),
        activated_at_ms,
    }
}

fn golden() -> [RingSnapshot; 2] {
    let first = RingSnapshot::publish(golden_parts(1_700_000_000_001), None).unwrap();
    let second = RingSnapshot::publish(golden_parts(1_700_000_000_002), Some(&first)).unwrap();
    [first, second]
}

/// The document with some bytes replaced and the checksum set right again.
fn forged(snapshot: &RingSnapshot, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = snapshot.canonical_bytes();
    bytes.truncate(bytes.len() - 16);
    change(&mut bytes);
    let checksum = Checksum::of(&bytes);
    bytes.extend_from_slice(&checksum.as_u128().to_be_bytes());
    bytes
}

#[test]
fn the_golden_documents_are_written_and_read_to_the_byte() {
    for (snapshot, (checksum, hex)) in golden().iter().zip(GOLDEN) {
        assert_eq!(snapshot.canonical_bytes(), unhex(hex));
        assert_eq!(snapshot.checksum().to_string(), checksum);
        assert_eq!(checksum.parse(), Ok(snapshot.checksum()));
        assert_eq!(RingSnapshot::from_canonical_bytes(&unhex(hex)).as_ref(), Ok(snapshot));
        assert!(DOCUMENT.contains(hex) && DOCUMENT.contains(checksum), "docs/ring-format.md");
    }
}

#[test]
fn the_golden_ring_gives_the_documented_owners() {
    let ring = Ring::new(Arc::new(golden()[0].clone()));
    for (key, hash, partition, owners) in [
        ("", 0x2d06_8005_38d3_94c2, 0, "n2 n3 n1"),
        ("b", 0x575a_0b1c_44d8_843f, 1, "n3 n1 n2"),
        ("key", 0xbbea_0d63_a051_65e3, 2, "n1 n2 n3"),
        ("user/42", 0xd0c8_b567_05d1_a786, 3, "n2 n3 n1"),
    ] {
        let placement = ring.locate(key.as_bytes());
        assert_eq!((placement.key_hash, placement.partition.get()), (hash, partition));
        let names = ring.owners(placement.partition).iter().map(|o| ring.node(*o).name.as_str());
        assert_eq!(names.collect::<Vec<_>>().join(" "), owners);
        let row = format!("| {hash:016x} | {partition} | {owners} |");
        assert!(DOCUMENT.contains(&row), "docs/ring-format.md lacks {row}");
    }
}

#[test]
fn json_shows_named_fields_and_is_verified() {
    let snapshot = &golden()[1];
    let json = serde_json::to_value(snapshot).unwrap();
    assert_eq!(json["epoch"], 2);
    assert_eq!(json["hash"]["algorithm"], "xxh3-64");
    assert_eq!(json["nodes"][1]["state"], "draining");
    assert_eq!(json["nodes"][1]["id"], "00000000-0000-4000-8000-000000000002");
    assert_eq!(json["tokens"][0]["position"], u64::MAX >> 2);
    assert_eq!(json["previous_checksum"], GOLDEN[0].0);
    assert_eq!(serde_json::from_value::<RingSnapshot>(json.clone()).unwrap(), *snapshot);

    let refused = |path: &str, value: serde_json::Value| {
        let mut json = json.clone();
        *json.pointer_mut(path).unwrap() = value;
        serde_json::from_value::<RingSnapshot>(json).unwrap_err().to_string()
    };
    assert!(refused("/epoch", 3.into()).contains("checksum"));
    assert!(refused("/epoch", 0.into()).contains("epoch above 0"));
    assert!(refused("/epoch", 1.into()).contains("predecessor"));
    assert!(refused("/previous_checksum", ().into()).contains("predecessor"));
    assert!(refused("/previous_checksum", "12".into()).contains("hexadecimal"));
    assert!(refused("/hash/algorithm", "md5".into()).contains("md5"));
    assert!(refused("/partition_bits", 17.into()).contains("17"));
    assert!(refused("/replication_factor", 0.into()).contains("replication factor 0"));
    assert!(refused("/nodes/0/weight", 0.into()).contains("zero"));
    assert!(refused("/nodes/0/zone", "a b".into()).contains("zone"));
    assert!(refused("/nodes/0/name", "n2".into()).contains("twice"));
    assert!(refused("/nodes/0/state", "gone".into()).contains("gone"));
    assert!(refused("/tokens/0/position", 5.into()).contains("position"));
    assert!(refused("/tokens/0/index", 9.into()).contains("checksum"));
}

#[test]
fn each_kind_of_bad_document_is_named() {
    let [first, second] = golden();
    let read = RingSnapshot::from_canonical_bytes;
    let reason = |bytes: &[u8]| match read(bytes).unwrap_err() {
        SnapshotError::Malformed { reason } => reason,
        other => panic!("{other}"),
    };
    assert_eq!(read(b""), Err(SnapshotError::NotASnapshot));
    assert_eq!(read(b"RINGKV"), Err(SnapshotError::Truncated));
    assert_eq!(read(&[0; 300]), Err(SnapshotError::NotASnapshot));
    let newer = forged(&first, |bytes| bytes[7] = 2);
    assert_eq!(read(&newer), Err(SnapshotError::UnsupportedLayout { found: 2, supported: 1 }));
    let mut damaged = first.canonical_bytes();
    damaged[40] ^= 1;
    assert!(matches!(read(&damaged), Err(SnapshotError::ChecksumMismatch { .. })));
    let other_hash = forged(&first, |bytes| bytes[41..48].copy_from_slice(b"crc--64"));
    let error = read(&other_hash).unwrap_err().to_string();
    assert!(error.contains("crc--64"), "{error}");
    assert_eq!(
        read(&forged(&first, |bytes| bytes.push(0))),
        Err(SnapshotError::TrailingBytes { count: 1 })
    );
    let cut = forged(&first, |bytes| bytes.truncate(bytes.len() - 1));
    assert_eq!(read(&cut), Err(SnapshotError::Truncated));
    assert_eq!(
        reason(&forged(&first, |bytes| bytes[8..16].fill(0))),
        "a published ring has an epoch above 0"
    );
    assert_eq!(
        reason(&forged(&second, |bytes| bytes[15] = 1)),
        "the first ring names a predecessor"
    );
    let tokens = first.canonical_bytes().len() - 16 - 6 * 12;
    assert_eq!(
        reason(&forged(&first, |bytes| bytes[tokens + 3] = 4)),
        "a token's partition does not exist"
    );
    assert_eq!(
        reason(&forged(&first, |bytes| bytes[tokens + 7] = 4)),
        "a token's node does not exist"
    );
    assert_eq!(
        reason(&forged(&first, |bytes| bytes[tokens..tokens + 24].rotate_left(12))),
        "tokens are not in ring order"
    );
    let idle = forged(&first, |bytes| bytes[tokens + 5 * 12 + 7] = 3);
    assert!(matches!(read(&idle), Err(SnapshotError::TokenOfIdleNode { .. })));
    let double = forged(&first, |bytes| bytes[tokens + 2 * 12 + 11] = 0);
    assert!(matches!(read(&double), Err(SnapshotError::DuplicateToken { index: 0, .. })));
    let many = forged(&first, |bytes| bytes[tokens - 4..tokens].fill(0xff));
    assert_eq!(reason(&many), "too many tokens");
    let none = forged(&first, |bytes| {
        bytes[tokens - 4..tokens].fill(0);
        bytes.truncate(tokens);
    });
    assert_eq!(read(&none), Err(SnapshotError::NoTokens));
}

#[test]
fn publishing_refuses_tokens_that_fit_no_ring() {
    let publish = |change: &dyn Fn(&mut SnapshotParts)| {
        let mut parts = golden_parts(0);
        change(&mut parts);
        RingSnapshot::publish(parts, None)
    };
    assert_eq!(
        publish(&|parts| parts.tokens[0].position = 7),
        Err(SnapshotError::TokenInsidePartition { position: 7 })
    );
    let stranger = NodeId::from_u128(99);
    assert_eq!(
        publish(&|parts| parts.tokens[0].node = stranger),
        Err(SnapshotError::UnknownTokenNode { node: stranger })
    );
    assert_eq!(publish(&|parts| parts.tokens.clear()), Err(SnapshotError::NoTokens));
    let twice = publish(&|parts| parts.tokens.push(parts.tokens[0]));
    assert!(matches!(twice, Err(SnapshotError::DuplicateToken { .. })));
    let [first, _] = golden();
    let mut parts = golden_parts(0);
    parts.partition_bits = PartitionBits::new(1).unwrap();
    assert_eq!(RingSnapshot::publish(parts, Some(&first)), Err(SnapshotError::KeySpaceChanged));
}

#[test]
fn only_the_same_ring_or_its_direct_successor_follows() {
    let [first, second] = golden();
    let third = RingSnapshot::publish(golden_parts(3), Some(&second)).unwrap();
    assert_eq!(second.epoch(), first.epoch().next());
    assert_eq!(second.previous_checksum(), Some(first.checksum()));
    assert_eq!(first.check_successor(&first), Ok(()));
    assert_eq!(first.check_successor(&second), Ok(()));

    let older = SnapshotError::OlderEpoch { current: Epoch::new(2), offered: Epoch::new(1) };
    assert_eq!(second.check_successor(&first), Err(older.clone()));
    assert_eq!(second.check_newer(&first), Err(older));
    let gap = SnapshotError::EpochGap { current: Epoch::new(1), offered: Epoch::new(3) };
    assert_eq!(first.check_successor(&third), Err(gap));
    assert_eq!(first.check_newer(&third), Ok(()), "a client that slept takes the newest");

    let rival = RingSnapshot::publish(golden_parts(4), None).unwrap();
    let conflict = first.check_successor(&rival).unwrap_err();
    assert!(matches!(conflict, SnapshotError::EpochConflict { epoch, .. } if epoch.get() == 1));
    let broken = rival.check_successor(&second).unwrap_err();
    assert!(matches!(broken, SnapshotError::BrokenChain { epoch, .. } if epoch.get() == 2));

    let finer = Plan::balanced(3, 3).ring(&equal_nodes(3, 3), None);
    let finer = Plan::balanced(3, 3).ring(&equal_nodes(3, 3), Some(&finer));
    let finer = Plan::balanced(3, 3).ring(&equal_nodes(3, 3), Some(&finer));
    assert_eq!(first.check_newer(finer.snapshot()), Err(SnapshotError::KeySpaceChanged));
}

#[test]
fn tokens_come_out_in_ring_order() {
    let [first, _] = golden();
    let tokens: Vec<Token> = first.tokens().collect();
    assert!(tokens.is_sorted());
    let mut given = golden_parts(0).tokens;
    given.sort_unstable();
    assert_eq!(tokens, given);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(RingSnapshot::from_canonical_bytes(&bytes).is_err());
    }

    /// What an attacker who can compute a checksum can do: whatever is accepted is in canonical form
    /// and can be used.
    #[test]
    fn a_forged_document_is_refused_or_is_a_sound_ring(
        edits in proptest::collection::vec((8..267_usize, any::<u8>()), 1..4),
        cut in 8..400_usize,
    ) {
        let bytes = forged(&golden()[0], |bytes| {
            for (place, value) in edits {
                bytes[place] = value;
            }
            bytes.truncate(cut);
        });
        if let Ok(snapshot) = RingSnapshot::from_canonical_bytes(&bytes) {
            prop_assert_eq!(snapshot.canonical_bytes(), bytes);
            let ring = Ring::new(Arc::new(snapshot));
            prop_assert_eq!(ring.locate(b"key").owners.len(), ring.owners_per_partition());
        }
    }

    #[test]
    fn any_damage_is_found(place in 0..283_usize, flip in 1..=255_u8) {
        let mut bytes = golden()[0].canonical_bytes();
        bytes[place] ^= flip;
        prop_assert!(RingSnapshot::from_canonical_bytes(&bytes).is_err());
    }
}
