//! What was written is there after a restart, and what was not made current is not.

use kvcore::storage::{Store, WriteOp};
use kvcore::{Generation, LogIndex, LogPosition, ReplicaId, Term, Version};

use super::support::*;
use crate::storage::OpenError;

fn drop_entries(from: u64, to: u64) -> WriteOp {
    WriteOp::DropEntries { group: group(), from: LogIndex(from), to: LogIndex(to) }
}

#[test]
fn a_reopened_store_tells_what_was_written() {
    let mut fixture = Fixture::with_replica(3);
    let mut progress = progress(11);
    progress.commit = LogIndex(12);
    fixture.write(vec![
        append(vec![entry(11, 1, b"a"), entry(12, 1, b"b"), entry(13, 2, b"c")]),
        put(3, b"k", record(11, b"value")),
        WriteOp::Progress { group: group(), progress },
        WriteOp::Cluster { state: view(5) },
        WriteOp::View { state: view(6) },
        WriteOp::Tombstone { group: kvcore::GroupId::from_raw(77), replica: ReplicaId(4) },
    ]);
    let (fixture, boot) = fixture.reopen();

    assert_eq!(boot.replicas.len(), 1);
    let replica = &boot.replicas[0];
    assert_eq!(replica.group, group());
    assert_eq!(replica.record, replica_record(3));
    assert_eq!(replica.progress, progress);
    assert_eq!(replica.tail, vec![entry(12, 1, b"b"), entry(13, 2, b"c")]);
    assert_eq!(replica.generation_max, Generation(3));
    assert_eq!(boot.tombstones, vec![(kvcore::GroupId::from_raw(77), ReplicaId(4))]);
    assert_eq!(boot.cluster, Some(view(5)));
    assert_eq!(boot.view, Some(view(6)));
    let version = fixture.store.version(PARTITION, Generation(3), b"k").unwrap();
    assert_eq!(version, Some(Version(11)));
    assert_eq!(fixture.store.version(PARTITION, Generation(3), b"other").unwrap(), None);
}

#[test]
fn an_overwritten_suffix_of_the_log_is_gone() {
    let mut fixture = Fixture::with_replica(1);
    fixture.write(vec![append((11..=60).map(|index| entry(index, 1, b"old")).collect())]);
    fixture.write(vec![append(vec![entry(20, 2, b"new")]), drop_entries(21, 61)]);
    let (mut fixture, boot) = fixture.reopen();
    let tail = &boot.replicas[0].tail;
    assert_eq!(tail.len(), 10);
    assert_eq!(tail.last(), Some(&entry(20, 2, b"new")));

    fixture.write(vec![append(vec![entry(19, 3, b"newer")]), drop_entries(20, 21)]);
    let (_, boot) = fixture.reopen();
    assert_eq!(boot.replicas[0].tail.last(), Some(&entry(19, 3, b"newer")));
}

#[test]
fn a_log_that_does_not_fit_its_replica_is_refused() {
    let mut committed_beyond = progress(10);
    committed_beyond.commit = LogIndex(12);
    let cases: [(&str, Vec<WriteOp>); 4] = [
        ("goes on with index 12", vec![append(vec![entry(12, 1, b"hole")])]),
        (
            "goes on with index 12, term 1",
            vec![append(vec![entry(11, 2, b"a"), entry(12, 1, b"term goes back")])],
        ),
        (
            "ends before the committed index 12",
            vec![WriteOp::Progress { group: group(), progress: committed_beyond }],
        ),
        (
            "there is progress of a replica without a record",
            vec![WriteOp::Progress { group: kvcore::GroupId::from_raw(99), progress: progress(1) }],
        ),
    ];
    for (reason, ops) in cases {
        let mut fixture = Fixture::with_replica(1);
        fixture.write(ops);
        let copy = fixture.crash();
        let error = try_open(copy.path()).unwrap_err();
        let text = crate::storage::error::chain(&error);
        assert!(matches!(error, OpenError::Damaged { .. }), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn a_tombstone_takes_record_progress_and_log() {
    let mut fixture = Fixture::with_replica(1);
    fixture.write(vec![append(vec![entry(11, 1, b"left over")]), put(1, b"k", record(1, b"v"))]);
    fixture.write(vec![WriteOp::Tombstone { group: group(), replica: ReplicaId(1) }]);
    let mut later = replica_record(1);
    later.replica = ReplicaId(8);
    later.truncated = LogPosition { index: LogIndex(4), term: Term(1) };
    fixture.write(vec![
        WriteOp::Replica { group: group(), record: later },
        WriteOp::Progress { group: group(), progress: progress(10) },
    ]);
    let (_, boot) = fixture.reopen();
    assert_eq!(boot.tombstones, vec![(group(), ReplicaId(1))]);
    assert_eq!(boot.replicas[0].record.replica, ReplicaId(8));
    assert!(boot.replicas[0].tail.is_empty());
}

#[test]
fn data_that_is_not_current_is_swept_at_the_start_and_its_generation_stays_used() {
    let mut fixture = Fixture::with_replica(2);
    for generation in [1, 2, 5] {
        fixture.put(generation, b"k", record(generation, b"v"));
    }
    let other = kvcore::Generation(1);
    let elsewhere = placement::PartitionId::new(40);
    fixture.write(vec![WriteOp::PutRecord {
        partition: elsewhere,
        generation: other,
        key: "k".into(),
        record: record(1, b"nobody's"),
    }]);
    let (fixture, boot) = fixture.reopen();
    assert_eq!(boot.replicas[0].generation_max, Generation(5));
    let get = |generation| fixture.database.get(PARTITION, Generation(generation), b"k").unwrap();
    assert_eq!(get(1), None);
    assert_eq!(get(2), Some(record(2, b"v")));
    assert_eq!(get(5), None);
    assert_eq!(fixture.database.get(elsewhere, other, b"k").unwrap(), None);
    let (_, boot) = fixture.reopen();
    assert_eq!(boot.replicas[0].generation_max, Generation(2));
}

#[test]
fn sweeping_a_generation_gives_its_space_back() {
    let mut fixture = Fixture::with_replica(1);
    for number in 0..400_u32 {
        let value = varied_bytes(u64::from(number), 40_000);
        fixture.put(1, &number.to_be_bytes(), record(1, &value));
    }
    fixture.put(2, b"k", record(2, b"current"));
    fixture.flush();
    let bytes = |generation| {
        fixture.database.partition_stats(PARTITION, Generation(generation)).bytes_on_disk
    };
    let before = bytes(1);
    assert!(before > 10_000_000, "{before} bytes before");
    fixture.database.sweep_generation(PARTITION, Generation(1)).unwrap();
    assert!(bytes(1) < before / 100, "{} of {before} bytes are left", bytes(1));
    let current = fixture.database.get(PARTITION, Generation(2), b"k").unwrap();
    assert_eq!(current, Some(record(2, b"current")));
}

#[test]
fn a_sweep_leaves_an_older_read_point_whole() {
    let mut fixture = Fixture::with_replica(1);
    for number in 0..100_u32 {
        fixture.put(1, &number.to_be_bytes(), record(1, &varied_bytes(1, 2000)));
    }
    fixture.flush();
    fixture.database.inner.db.compact_range_cf(
        fixture.database.family(crate::storage::keys::Family::Data),
        None::<&[u8]>,
        None::<&[u8]>,
    );
    let state = progress(10).state;
    let before = fixture.database.read_point().digest(PARTITION, Generation(1), &state).unwrap();
    let point = fixture.database.read_point();
    fixture.database.sweep_generation(PARTITION, Generation(1)).unwrap();
    assert_eq!(point.digest(PARTITION, Generation(1), &state).unwrap(), before);
    drop(point);
    let after = fixture.database.read_point().digest(PARTITION, Generation(1), &state).unwrap();
    assert_ne!(after, before);
}
