use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::ids::{LogIndex, Version};

#[derive(Default)]
struct Map(BTreeMap<Bytes, Record>);

impl Records for Map {
    type Error = Infallible;

    fn version(&self, key: &[u8]) -> Result<Option<Version>, Infallible> {
        Ok(self.0.get(key).map(|record| record.version))
    }

    fn put(&mut self, key: Bytes, record: Record) {
        self.0.insert(key, record);
    }

    fn delete(&mut self, key: Bytes) {
        self.0.remove(&key);
    }
}

fn put(key: &str, condition: Condition) -> Command {
    Command::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from_static(b"v"),
        content_type: None,
        condition,
    }
}

fn delete(key: &str, condition: Condition) -> Command {
    Command::Delete { key: Bytes::copy_from_slice(key.as_bytes()), condition }
}

fn run(commands: Vec<Command>) -> Vec<WriteOutcome> {
    let mut state = PartitionState::default();
    let mut records = Map::default();
    commands
        .into_iter()
        .map(|command| apply(&mut state, &mut records, command).expect("the map never fails"))
        .collect()
}

#[test]
fn conditions_are_decided_in_log_order() {
    let outcomes = run(vec![
        put("k", Condition::Present),
        put("k", Condition::Absent),
        put("k", Condition::Absent),
        put("k", Condition::Version(Version(1))),
        put("k", Condition::Version(Version(1))),
        delete("k", Condition::Version(Version(1))),
        delete("k", Condition::Present),
        delete("k", Condition::Present),
    ]);
    assert_eq!(
        outcomes,
        vec![
            WriteOutcome::ConditionFailed(None),
            WriteOutcome::Put(Version(1)),
            WriteOutcome::ConditionFailed(Some(Version(1))),
            WriteOutcome::Put(Version(2)),
            WriteOutcome::ConditionFailed(Some(Version(2))),
            WriteOutcome::ConditionFailed(Some(Version(2))),
            WriteOutcome::Deleted(Version(3)),
            WriteOutcome::ConditionFailed(None),
        ]
    );
}

#[test]
fn a_version_never_repeats_after_a_delete_and_a_new_creation() {
    let outcomes = run(vec![
        put("k", Condition::Always),
        delete("k", Condition::Always),
        delete("k", Condition::Always),
        put("k", Condition::Absent),
    ]);
    assert_eq!(outcomes[3], WriteOutcome::Put(Version(4)));
}

#[test]
fn golden_record_bytes() {
    let record = Record {
        version: Version(0x0102),
        expires_at_ms: Some(7),
        content_type: Some("a/b".into()),
        value: Bytes::from_static(b"xyz"),
    };
    let golden = b"\x01\x03\x02\x01\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x03\0a/bxyz";
    assert_eq!(record.encode().as_ref(), golden);
    assert_eq!(Record::decode(Bytes::from_static(golden)), Ok(record));
}

#[test]
fn golden_payload_bytes() {
    let payload = EntryPayload {
        commands: vec![
            Command::Put {
                key: Bytes::from_static(b"k"),
                value: Bytes::from_static(b"v"),
                content_type: Some("t".into()),
                condition: Condition::Version(Version(9)),
            },
            Command::Delete { key: Bytes::from_static(b"k"), condition: Condition::Absent },
            Command::Truncate { through: LogIndex(5) },
        ],
    };
    let golden: &[u8] = b"\x01\x03\0\0\0\0\0\0\0\
        \0\0\0\0\x01\0\0\0\0\0\0\0k\x01\0\0\0\0\0\0\0v\x01\x01\0\0\0\0\0\0\0t\x03\0\0\0\x09\0\0\0\0\0\0\0\
        \x01\0\0\0\x01\0\0\0\0\0\0\0k\x01\0\0\0\
        \x02\0\0\0\x05\0\0\0\0\0\0\0";
    assert_eq!(payload.encode().as_ref(), golden);
    assert_eq!(EntryPayload::decode(golden).expect("golden bytes decode"), payload);
}

#[test]
fn trailing_bytes_and_huge_lengths_are_refused() {
    let mut bytes = EntryPayload::default().encode().to_vec();
    bytes.push(0);
    assert!(EntryPayload::decode(&bytes).is_err());
    let huge = [&[1_u8][..], &u64::MAX.to_le_bytes()].concat();
    assert!(EntryPayload::decode(&huge).is_err());
    assert!(EntryPayload::decode(&[]).is_err());
    assert!(EntryPayload::decode(&[9, 0]).is_err());
}

proptest! {
    #[test]
    fn records_survive_their_encoding(
        version: u64,
        expires_at_ms: Option<u64>,
        content_type in proptest::option::of("[a-z/]{0,40}"),
        value in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let record = Record {
            version: Version(version),
            expires_at_ms,
            content_type,
            value: Bytes::from(value),
        };
        prop_assert_eq!(Record::decode(record.encode()), Ok(record));
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Record::decode(Bytes::from(bytes.clone()));
        let _ = EntryPayload::decode(&bytes);
    }
}

fn digest_of(records: &[(&str, &str)], state: PartitionState) -> PartitionDigest {
    let bits = placement::PartitionBits::new(4).expect("few bits");
    let partition = placement::PartitionId::new(9);
    let mut digest = PartitionDigestBuilder::new(partition, bits);
    for (key, value) in records {
        digest.add(key.as_bytes(), value.as_bytes());
    }
    digest.finish(&state)
}

/// A key of partition 9 of 16, and its hash.
fn key_in_partition(number: usize) -> (String, u64) {
    let keys = (0..).map(|number| format!("key-{number}"));
    let hashed = keys.map(|key| (placement::key_hash(key.as_bytes()), key));
    let (hash, key) = hashed.filter(|(hash, _)| hash >> 60 == 9).nth(number).expect("many keys");
    (key, hash)
}

#[test]
fn a_difference_is_named_by_the_range_of_hashes_that_it_is_in() {
    let state = PartitionState { version: Version(3), clock_ms: 5 };
    let keys: Vec<(String, u64)> = (0..40).map(key_in_partition).collect();
    let mut records: Vec<(&str, &str)> = keys.iter().map(|(key, _)| (key.as_str(), "v")).collect();
    records.sort_unstable();
    let whole = digest_of(&records, state);
    assert_eq!(whole.first_difference(&digest_of(&records, state)), None);
    for (key, hash) in &keys {
        let without: Vec<_> = records.iter().copied().filter(|(it, _)| it != key).collect();
        let Some(SubRange::Hashes { first, last }) =
            whole.first_difference(&digest_of(&without, state))
        else {
            panic!("{key} was not missed");
        };
        assert!((first..=last).contains(hash), "{key}: {hash:x} is not in {first:x}..={last:x}");
        assert_eq!(last - first, (u64::MAX >> 4) / 64);
        assert_eq!(first >> 60, 9);
    }
    let later = PartitionState { clock_ms: 6, ..state };
    let difference = whole.first_difference(&digest_of(&records, later));
    assert_eq!(difference, Some(SubRange::State));
    assert_eq!(
        difference.map(|it| it.to_string()).as_deref(),
        Some("the state beside the records")
    );
}

#[test]
fn a_corrupted_digest_differs_in_the_sub_range_asked_for() {
    let whole = digest_of(&[], PartitionState::default());
    let other = whole.clone().with_a_difference_in(63);
    let difference = whole.first_difference(&other).expect("it was corrupted");
    assert_eq!(difference.to_string(), "key hashes 9fc0000000000000 to 9fffffffffffffff");
    let other = whole.clone().with_a_difference_in(0);
    let difference = whole.first_difference(&other).expect("it was corrupted");
    assert_eq!(difference.to_string(), "key hashes 9000000000000000 to 903fffffffffffff");
}

#[test]
fn a_digest_travels_whole_or_not_at_all() {
    let digest = digest_of(&[("k", "v")], PartitionState::default());
    let bytes = crate::codec::encode(&digest);
    let decoded: PartitionDigest = crate::codec::decode(&bytes).expect("it was encoded");
    assert_eq!(decoded, digest);
    assert_eq!(decoded.ranges.as_array().len(), SUB_RANGES);
    let short: Result<RangeSums, _> = RangeSums::try_from(vec![0; 63]);
    assert!(short.is_err());
}
