//! Reads of records and logs.

use bytes::Bytes;
use kvcore::Generation;
use kvcore::LogIndex;
use kvcore::storage::WriteOp;

use super::support::*;
use crate::storage::{CacheAnswer, DiskGuard, DiskState, PageRequest};

#[test]
fn a_cached_read_never_touches_the_disk() {
    let mut fixture = Fixture::with_replica(1);
    fixture.put(1, b"k", record(1, b"value"));
    let cached = |fixture: &Fixture, key: &[u8]| {
        fixture.database.get_cached(PARTITION, Generation(1), key).unwrap()
    };
    let hit = CacheAnswer::Hit(Some(record(1, b"value")));
    assert_eq!(cached(&fixture, b"k"), hit, "in a memtable");
    assert_eq!(cached(&fixture, b"absent"), CacheAnswer::Hit(None), "nothing is on disk yet");
    fixture.flush();
    let (fixture, _) = fixture.reopen();
    assert_eq!(cached(&fixture, b"k"), CacheAnswer::NotInMemory);
    let get = fixture.database.get(PARTITION, Generation(1), b"k").unwrap();
    assert_eq!(get, Some(record(1, b"value")));
    assert_eq!(cached(&fixture, b"k"), hit, "the blocking read filled the cache");
    assert_eq!(cached(&fixture, b"absent"), CacheAnswer::Hit(None), "the filter tells");
}

#[test]
fn a_deleted_record_is_absent() {
    let mut fixture = Fixture::with_replica(1);
    fixture.put(1, b"k", record(1, b"value"));
    fixture.write(vec![WriteOp::DeleteRecord {
        partition: PARTITION,
        generation: Generation(1),
        key: "k".into(),
    }]);
    assert_eq!(fixture.database.get(PARTITION, Generation(1), b"k").unwrap(), None);
}

#[test]
fn pages_follow_each_other_in_key_order() {
    let mut fixture = Fixture::with_replica(1);
    let keys: [&[u8]; 6] = [b"", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b"];
    for key in keys {
        fixture.put(1, key, record(1, key));
        fixture.put(2, key, record(2, b"another generation"));
    }
    let page = |prefix: &[u8], after: Option<&[u8]>, records_max, bytes_max| {
        let request = PageRequest { prefix, after, records_max, bytes_max };
        let page = fixture.database.page(PARTITION, Generation(1), request).unwrap();
        let found: Vec<Bytes> = page.records.into_iter().map(|(key, _)| key).collect();
        (found, page.more)
    };
    assert_eq!(page(b"", None, 100, 1 << 20), (keys.map(Bytes::from_static).to_vec(), false));
    let with_a: Vec<Bytes> = keys[1..5].iter().map(|key| Bytes::from_static(key)).collect();
    assert_eq!(page(b"a", None, 100, 1 << 20), (with_a.clone(), false));
    assert_eq!(page(b"a\xff", None, 100, 1 << 20), (with_a[2..].to_vec(), false));
    assert_eq!(page(b"a", None, 2, 1 << 20), (with_a[..2].to_vec(), true));
    assert_eq!(page(b"a", Some(b"a\0"), 2, 1 << 20), (with_a[2..].to_vec(), false));
    assert_eq!(page(b"", None, 100, 1), (vec![Bytes::new()], true));
    assert_eq!(page(b"a", Some(b"c"), 100, 1 << 20), (vec![], false));
    assert_eq!(page(b"\xff\xff", None, 100, 1 << 20), (vec![], false));
}

#[test]
fn a_read_point_does_not_see_later_writes() {
    let mut fixture = Fixture::with_replica(1);
    fixture.put(1, b"k", record(1, b"before"));
    let state = progress(10).state;
    let point = fixture.database.read_point();
    fixture.put(1, b"k", record(2, b"after"));
    fixture.write(vec![WriteOp::Progress { group: group(), progress: progress(11) }]);
    let mut expected = kvcore::store::DigestBuilder::default();
    expected.add(b"k", &record(1, b"before"));
    assert_eq!(point.digest(PARTITION, Generation(1), &state).unwrap(), expected.finish(&state));
    let (record, progress_then) = point.replica(group()).unwrap().unwrap();
    assert_eq!(record, replica_record(1));
    assert_eq!(progress_then, progress(10));
}

#[test]
fn entries_are_fetched_by_bytes_but_at_least_one() {
    let mut fixture = Fixture::with_replica(1);
    fixture.write(vec![append((11..=30).map(|index| entry(index, 1, &[7; 100])).collect())]);
    let fetch = |low, high, bytes_max| {
        fixture
            .database
            .fetch_entries(group(), LogIndex(low), LogIndex(high), bytes_max)
            .unwrap()
            .iter()
            .map(raft::eraftpb::Entry::get_index)
            .collect::<Vec<_>>()
    };
    assert_eq!(fetch(11, 14, 1 << 20), vec![11, 12, 13]);
    assert_eq!(fetch(12, 31, 0), vec![12]);
    assert_eq!(fetch(12, 31, 230), vec![12, 13]);
    assert_eq!(fetch(29, 100, 1 << 20), vec![29, 30]);
    assert_eq!(fetch(5, 20, 1 << 20), Vec::<u64>::new(), "the log does not reach back");
    assert_eq!(fetch(20, 20, 1 << 20), Vec::<u64>::new());
}

#[test]
fn a_hole_in_the_log_is_an_error() {
    let mut fixture = Fixture::with_replica(1);
    fixture.write(vec![append(vec![entry(11, 1, b"a"), entry(13, 1, b"b")])]);
    let fetched = fixture.database.fetch_entries(group(), LogIndex(11), LogIndex(14), 1 << 20);
    assert!(fetched.is_err());
}

#[test]
fn the_disk_guard_refuses_below_its_reserve() {
    let directory = tempfile::tempdir().unwrap();
    let roomy = DiskGuard::new(directory.path(), 1);
    assert_eq!(roomy.check().unwrap(), DiskState::Ok);
    let space = roomy.space().unwrap();
    assert!(space.available > 0 && space.available <= space.total);
    let tight = DiskGuard::new(directory.path(), u64::MAX);
    assert_eq!(tight.state(), DiskState::Ok, "not looked yet");
    assert_eq!(tight.check().unwrap(), DiskState::Full);
    assert_eq!(tight.state(), DiskState::Full);
    let missing = DiskGuard::new(&directory.path().join("missing"), 1);
    assert!(missing.check().is_err());
}

#[test]
fn every_published_property_is_one_of_rocksdb() {
    let fixture = Fixture::new();
    assert_eq!(fixture.database.unanswered_properties(), Vec::<&str>::new());
    fixture.database.publish_stats();
}
