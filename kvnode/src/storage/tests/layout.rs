//! Stored bytes are a schema: each layout is pinned here and shown in docs/data-layout.md.

use bytes::Bytes;
use kvcore::codec::encode;
use kvcore::{ClusterId, Generation, GroupId, LogIndex, ReplicaId, SnapshotId, Version};
use placement::PartitionId;
use raft::eraftpb::EntryType;

use super::support::{entry, node_id, progress, record, replica_record};
use crate::storage::keys::{self, MetaKey};
use crate::storage::{Identity, codec};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_keys() {
    let (partition, generation) = (PartitionId::new(0x0102), Generation(0x0304));
    let group = GroupId::of_partition(partition);
    let golden = [
        (keys::data(partition, generation, b"key"), "0000010200000000000003046b6579"),
        (keys::log(group, LogIndex(0x0506)).to_vec(), "000001030000000000000506"),
        (keys::IDENTITY.to_vec(), "69"),
        (keys::ACCEPTED_VIEW.to_vec(), "61"),
        (keys::SNAPSHOT_ID.to_vec(), "6e"),
        (keys::CLUSTER.to_vec(), "63"),
        (keys::VIEW.to_vec(), "76"),
        (keys::replica(group).to_vec(), "7200000103"),
        (keys::progress(group).to_vec(), "7000000103"),
        (keys::tombstone(group, ReplicaId(9)).to_vec(), "74000001030000000000000009"),
    ];
    for (key, expected) in golden {
        assert_eq!(hex(&key), expected);
    }
}

#[test]
fn keys_read_back_and_other_bytes_do_not() {
    let (partition, generation) = (PartitionId::new(3), Generation(u64::MAX));
    let key = keys::data(partition, generation, b"");
    assert_eq!(keys::parse_data(&key), Some((partition, generation, &b""[..])));
    assert_eq!(keys::parse_data(&key[..11]), None);
    let group = GroupId::from_raw(5);
    assert_eq!(keys::parse_log(&keys::log(group, LogIndex(8))), Some((group, LogIndex(8))));
    assert_eq!(keys::parse_log(b"short"), None);
    let known = [
        (keys::IDENTITY.to_vec(), MetaKey::Identity),
        (keys::ACCEPTED_VIEW.to_vec(), MetaKey::AcceptedView),
        (keys::SNAPSHOT_ID.to_vec(), MetaKey::SnapshotId),
        (keys::CLUSTER.to_vec(), MetaKey::Cluster),
        (keys::VIEW.to_vec(), MetaKey::View),
        (keys::replica(group).to_vec(), MetaKey::Replica(group)),
        (keys::progress(group).to_vec(), MetaKey::Progress(group)),
        (keys::tombstone(group, ReplicaId(9)).to_vec(), MetaKey::Tombstone(group, ReplicaId(9))),
    ];
    for (bytes, parsed) in known {
        assert_eq!(keys::parse_meta(&bytes), Some(parsed));
        assert_eq!(keys::parse_meta(&[&bytes[..], b"\0"].concat()), None);
    }
    assert_eq!(keys::parse_meta(b""), None);
    assert_eq!(keys::parse_meta(b"z"), None);
}

#[test]
fn a_data_range_holds_its_generation_and_no_other() {
    let (partition, generation) = (PartitionId::new(3), Generation(4));
    let range = keys::data_range(partition, generation);
    let inside = |partition, generation, key: &[u8]| {
        let key = keys::data(PartitionId::new(partition), Generation(generation), key);
        range.from <= key && key < range.to
    };
    assert!(inside(3, 4, b"") && inside(3, 4, &[0xff; 40]));
    assert!(!inside(3, 3, &[0xff; 40]) && !inside(3, 5, b""));
    assert!(!inside(2, 4, b"k") && !inside(4, 4, b"k"));
    let last = keys::data_range(partition, Generation(u64::MAX));
    assert_eq!(last.to, keys::data_prefix(PartitionId::new(4), Generation(0)));
}

#[test]
fn golden_entries() {
    let normal = entry(5, 0x0102, b"data");
    let mut change = entry(6, 3, b"cc");
    change.set_entry_type(EntryType::EntryConfChangeV2);
    change.set_context(Bytes::from_static(b"why"));
    let golden = [
        (normal, "0100020100000000000000000000 64617461"),
        (change, "0102030000000000000003000000 776879 6363"),
    ];
    for (entry, golden) in golden {
        let mut bytes = Vec::new();
        codec::encode_entry_into(&mut bytes, &entry);
        assert_eq!(hex(&bytes), golden.replace(' ', ""));
        let index = LogIndex(entry.get_index());
        let back = codec::decode_entry(GroupId::CLUSTER, index, &bytes).unwrap();
        assert_eq!(back, entry);
    }
}

#[test]
fn bytes_that_are_no_entry_are_refused_by_name() {
    let group = GroupId::from_raw(1);
    for (bytes, reason) in [
        (&b""[..], "the value is empty"),
        (b"\x02\0", "format version 2 is newer"),
        (b"\x01\0\0", "ends within its header"),
        (b"\x01\x09\0\0\0\0\0\0\0\0\0\0\0\0", "unknown entry type 9"),
        (b"\x01\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff", "ends within its context"),
    ] {
        let error = codec::decode_entry(group, LogIndex(2), bytes).unwrap_err();
        let text = crate::storage::error::chain(&error);
        assert!(text.contains("log under key 000000010000000000000002"), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn golden_values() {
    let identity = Identity {
        node: node_id(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
        created_at_ms: 0x10,
        cluster: Some(ClusterId(0x20)),
    };
    assert_eq!(
        hex(&encode(&identity)),
        "01 1000000000000000 000102030405060708090a0b0c0d0e0f 1000000000000000 \
         01 20000000000000000000000000000000"
            .replace(' ', "")
    );
    assert_eq!(hex(&encode(&SnapshotId(3))), "010300000000000000");
    assert_eq!(
        hex(&encode(&progress(10))),
        "01 0100000000000000 0100000000000000 0a00000000000000 0a00000000000000 0100000000000000 \
         0a00000000000000 6300000000000000 0000000000000000"
            .replace(' ', "")
    );
    let mut replica = replica_record(4);
    replica.configuration = kvcore::storage::Configuration::default();
    assert_eq!(
        hex(&encode(&replica)),
        "01 0100000000000000 00 0400000000000000 0a00000000000000 0100000000000000 \
         0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 \
         0000000000000000 0000000000000000 0000000000000000"
            .replace(' ', "")
    );
}

#[test]
fn a_version_is_read_from_the_header_alone() {
    let bytes = record(0x0102, b"value");
    assert_eq!(codec::record_version(&bytes).unwrap(), Version(0x0102));
    assert_eq!(codec::record_version(&bytes[..10]).unwrap(), Version(0x0102));
    assert!(codec::record_version(&bytes[..9]).is_err());
    assert!(codec::record_version(b"\x09\0\0\0\0\0\0\0\0\0").is_err());
}
