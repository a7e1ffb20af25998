//! Damaged files: the tail that a crash tears off is forgiven, anything else refuses or is an error.
//!
//! Each test works on copies of a store that was not closed, so that the write-ahead log has to be
//! replayed.

use std::fs;
use std::path::{Path, PathBuf};

use kvcore::Generation;
use kvcore::storage::WriteOp;
use tempfile::TempDir;

use super::support::*;
use crate::storage::snapshot::SnapshotInstaller;
use crate::storage::{Damage, Database, OpenError, StoreHandle};
use placement::PartitionBits;

const RECORDS: u32 = 40;

/// A store whose log holds one batch for each of [`RECORDS`], below one block of 32 KiB.
fn store_with_a_log() -> Fixture {
    let fixture = Fixture::with_replica(1);
    let (mut fixture, _) = fixture.reopen();
    for number in 0..RECORDS {
        fixture.put(1, &number.to_be_bytes(), record(u64::from(number), &[b'v'; 100]));
    }
    fixture
}

/// The newest log file of a copy, with its bytes.
fn newest_log(copy: &TempDir) -> (std::path::PathBuf, Vec<u8>) {
    let path = files(copy.path(), "log").pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// Offsets of the records in a log that is one block long.
fn offsets(log: &[u8]) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut at = 0;
    while at + 7 <= log.len() {
        offsets.push(at);
        at += 7 + usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
    }
    offsets
}

/// How many of the records are there, from the first on; panics on a hole.
fn records_in(path: &Path) -> u32 {
    let (database, _) = open(path);
    let present = |number: u32| {
        let key = number.to_be_bytes();
        database.get(PARTITION, Generation(1), &key).unwrap().is_some()
    };
    let count = (0..RECORDS).take_while(|&number| present(number)).count();
    let count = u32::try_from(count).unwrap();
    assert!((count..RECORDS).all(|number| !present(number)), "there is a hole");
    count
}

#[test]
fn a_torn_last_record_costs_the_last_batch_alone() {
    let fixture = store_with_a_log();
    for cut in [1, 60, 140] {
        let copy = fixture.crash();
        let (path, bytes) = newest_log(&copy);
        fs::write(path, &bytes[..bytes.len() - cut]).unwrap();
        assert_eq!(records_in(copy.path()), RECORDS - 1, "{cut} bytes cut off");
    }
    let copy = fixture.crash();
    let (path, bytes) = newest_log(&copy);
    let half = offsets(&bytes)[20] + 3;
    fs::write(path, &bytes[..half]).unwrap();
    assert!(records_in(copy.path()) < RECORDS - 1);
}

#[test]
fn a_store_opens_crash_after_crash() {
    let mut fixture = Fixture::with_replica(1);
    for cycle in 0..5_u32 {
        for number in 0..20 {
            fixture.put(1, &(cycle * 20 + number).to_be_bytes(), record(1, &[b'v'; 100]));
        }
        let directory = fixture.crash();
        let (path, bytes) = newest_log(&directory);
        fs::write(path, &bytes[..bytes.len() - 30]).unwrap();
        let (database, boot) = open(directory.path());
        assert_eq!(boot.replicas.len(), 1);
        fixture = Fixture { store: StoreHandle::new(database.clone()), database, directory };
        for number in 0..20 {
            let key = (cycle * 20 + number).to_be_bytes();
            let found = fixture.database.get(PARTITION, Generation(1), &key).unwrap();
            assert_eq!(found.is_some(), number < 19, "cycle {cycle}, record {number}");
        }
    }
}

#[test]
fn a_flipped_bit_before_the_last_record_refuses_to_open() {
    let fixture = store_with_a_log();
    let (_, bytes) = newest_log(&fixture.crash());
    let offsets = offsets(&bytes);
    assert!(offsets.len() > 30 && bytes.len() < 32 << 10);
    let middle = offsets[offsets.len() / 2];
    let late = offsets[offsets.len() - 2];
    let mut flips = Vec::new();
    for record in [middle, late] {
        // Checksum, both bytes of the length, every bit of the type, payload.
        flips.extend([(record, 3), (record + 4, 0), (record + 4, 7), (record + 5, 5)]);
        flips.extend((0..8).map(|bit| (record + 6, bit)));
        flips.extend([(record + 7, 0), (record + 50, 6)]);
    }
    for (at, bit) in flips {
        let copy = fixture.crash();
        let (path, mut bytes) = newest_log(&copy);
        bytes[at] ^= 1 << bit;
        fs::write(path, &bytes).unwrap();
        match try_open(copy.path()) {
            Err(OpenError::Damaged { source: Damage::Engine(_) | Damage::Wal(_), .. }) => {}
            Err(other) => panic!("byte {at} bit {bit}: {other}"),
            Ok(_) => panic!("byte {at} bit {bit}: the store opened"),
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_record_refuses_unless_it_looks_torn() {
    let fixture = store_with_a_log();
    let (_, bytes) = newest_log(&fixture.crash());
    let last = *offsets(&bytes).last().unwrap();
    for (at, bit, opens) in [
        (last, 0, false),
        (last + 6, 2, false),
        (last + 20, 1, false),
        // A length that reaches past the end is what a torn write looks like: nobody can tell.
        (last + 5, 6, true),
    ] {
        let copy = fixture.crash();
        let (path, mut bytes) = newest_log(&copy);
        bytes[at] ^= 1 << bit;
        fs::write(path, &bytes).unwrap();
        if opens {
            assert_eq!(records_in(copy.path()), RECORDS - 1);
        } else {
            assert!(
                matches!(try_open(copy.path()), Err(OpenError::Damaged { .. })),
                "byte {at} bit {bit}"
            );
        }
    }
}

#[test]
fn zeros_before_intact_records_refuse_to_open() {
    let mut fixture = Fixture::with_replica(1);
    // Enough for several blocks: a hole of whole blocks, as a file system may leave it.
    for number in 0..RECORDS {
        let value = varied_bytes(u64::from(number), 4000);
        fixture.put(1, &number.to_be_bytes(), record(1, &value));
    }
    for range in [32 << 10..64 << 10, 40 << 10..64 << 10] {
        let copy = fixture.crash();
        let (path, mut bytes) = newest_log(&copy);
        bytes[range.clone()].fill(0);
        fs::write(path, &bytes).unwrap();
        assert!(
            matches!(try_open(copy.path()), Err(OpenError::Damaged { .. })),
            "zeros at {range:?}"
        );
    }
    let copy = fixture.crash();
    let (path, mut bytes) = newest_log(&copy);
    bytes.resize(bytes.len() + 5000, 0);
    fs::write(path, &bytes).unwrap();
    assert_eq!(records_in(copy.path()), RECORDS, "zeros after the end are harmless");
}

#[test]
fn a_lost_or_shortened_log_file_refuses_to_open() {
    let mut fixture = Fixture::with_replica(1);
    let data = crate::storage::keys::Family::Data;
    for number in 0..RECORDS {
        fixture.put(1, &number.to_be_bytes(), record(1, &[b'v'; 100]));
        if number % 10 == 9 {
            // A flush begins a new log file; the other families keep the old ones alive.
            fixture.database.inner.db.flush_cf(fixture.database.family(data)).unwrap();
        }
    }
    let logs = files(fixture.directory.path(), "log");
    assert!(logs.len() >= 3, "{logs:?}");
    for (number, log) in logs.iter().enumerate().take(logs.len() - 1) {
        let copy = fixture.crash();
        let log = copy.path().join("db").join(log.file_name().unwrap());
        fs::remove_file(&log).unwrap();
        assert!(
            matches!(try_open(copy.path()), Err(OpenError::Damaged { .. })),
            "log file {number} removed"
        );
        let copy = fixture.crash();
        let log = copy.path().join("db").join(log.file_name().unwrap());
        let bytes = fs::read(&log).unwrap();
        fs::write(&log, &bytes[..bytes.len() - 20]).unwrap();
        assert!(
            matches!(try_open(copy.path()), Err(OpenError::Damaged { .. })),
            "log file {number} shortened"
        );
    }
}

#[test]
fn a_hole_between_two_log_files_that_were_not_synced_refuses_to_open() {
    let mut fixture = Fixture::with_replica(1);
    let elsewhere = kvcore::GroupId::from_raw(999);
    // The first memtable of `log` that fills is kept for a second one: a new log file begins, and
    // nothing syncs the old one.
    for number in 0..36_u32 {
        let entries = vec![entry(u64::from(number), 1, &varied_bytes(1, 1 << 20))];
        fixture.write(vec![
            WriteOp::Append { group: elsewhere, entries },
            put(1, &number.to_be_bytes(), record(1, b"v")),
        ]);
    }
    let logs = files(fixture.directory.path(), "log");
    assert_eq!(logs.len(), 2, "{logs:?}");
    let copy = fixture.crash();
    let log = copy.path().join("db").join(logs[0].file_name().unwrap());
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() - 20]).unwrap();
    assert!(matches!(
        try_open(copy.path()),
        Err(OpenError::Damaged { source: Damage::Engine(_), .. })
    ));
}

#[test]
fn a_lost_table_file_refuses_to_open() {
    let mut fixture = store_with_a_log();
    fixture.put(1, b"k", record(1, b"v"));
    fixture.flush();
    for table in files(fixture.directory.path(), "sst") {
        let copy = fixture.crash();
        fs::remove_file(copy.path().join("db").join(table.file_name().unwrap())).unwrap();
        let error = try_open(copy.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_store_that_may_not_be_opened_now_is_not_called_damaged() {
    let fixture = store_with_a_log();
    let copy = fixture.crash();
    // A directory where RocksDB wants to write a file: an error of the operating system.
    fs::remove_file(copy.path().join("db/LOCK")).unwrap();
    fs::create_dir(copy.path().join("db/LOCK")).unwrap();
    let error = try_open(copy.path()).unwrap_err();
    assert!(matches!(error, OpenError::Unavailable { .. }), "{error}");
}

/// A store with a partition to copy, and one that took the copy.
fn source_and_copy(records: u32) -> (Fixture, Fixture) {
    let source = super::snapshots::source(records);
    let built = super::snapshots::build(&source);
    let chunks = super::snapshots::chunks(&source, &built.manifest);
    let mut target = super::snapshots::small();
    let manifest = built.manifest.clone();
    let mut installer =
        SnapshotInstaller::begin(&target.database, manifest, PARTITION, Generation(2)).unwrap();
    for (number, chunk) in (0..).zip(&chunks) {
        installer.add_chunk(number, chunk).unwrap();
    }
    installer.finish().unwrap();
    target.write(vec![
        WriteOp::Replica { group: group(), record: replica_record(2) },
        WriteOp::Progress { group: group(), progress: progress(10) },
    ]);
    (source, target)
}

/// The table files of a store, each with a copy of the store in which a record in it is damaged.
fn rotten_copies(store: &Fixture) -> Vec<(PathBuf, TempDir)> {
    let mut copies = Vec::new();
    for table in files(store.directory.path(), "sst") {
        let copy = store.crash();
        let path = copy.path().join("db").join(table.file_name().unwrap());
        let mut bytes = fs::read(&path).unwrap();
        // Two blocks of records at least.
        if bytes.len() >= 20_000 {
            bytes[17_000] ^= 4;
            fs::write(path, bytes).unwrap();
            copies.push((table, copy));
        }
    }
    copies
}

#[test]
fn a_damaged_file_of_a_copy_is_noticed_by_the_scan_and_by_the_cores_own_reads() {
    let (source, target) = source_and_copy(400);
    let bits = PartitionBits::new(4).unwrap();
    let state = progress(10).state;
    let digest_in = |database: &Database, generation| {
        database.read_point().partition_digest(PARTITION, Generation(generation), &state, bits)
    };
    let expected = digest_in(&source.database, 1).unwrap();
    assert_eq!(digest_in(&target.database, 2).unwrap(), expected);

    let mut noticed = 0;
    for (table, copy) in rotten_copies(&target) {
        // Opening reads the ends of files and the first record of each generation, no others.
        let (database, _) = open(copy.path());
        let store = StoreHandle::new(database.clone());
        let versions = (0..400_u32).map(|number| {
            kvcore::storage::Store::version(&store, PARTITION, Generation(2), &number.to_be_bytes())
        });
        let failed = versions.filter(Result::is_err).count();
        let digest = digest_in(&database, 2);
        assert_eq!(digest.is_err(), failed > 0, "{table:?}");
        noticed += usize::from(failed > 0);
    }
    assert!(noticed >= 3, "{noticed} files with records");
}

#[test]
fn a_damaged_file_of_a_copy_that_ended_is_not_read_again_and_the_store_goes_on() {
    // More than what is left to the next ordinary compaction.
    let (_, target) = source_and_copy(8000);
    let copies = rotten_copies(&target);
    assert!(copies.len() >= 3, "{} files with records", copies.len());
    for (table, copy) in copies {
        let (database, _) = open(copy.path());
        // A verification reads while the replica ends.
        let point = database.read_point();
        database.delete_generation_first(PARTITION, Generation(2)).unwrap();
        database.reclaim_deleted(|| true);
        assert!(database.has_deleted(), "the files are still read");
        drop(point);
        database.reclaim_deleted(|| true);
        assert!(!database.has_deleted());
        let rotten = copy.path().join("db").join(table.file_name().unwrap());
        assert!(!rotten.exists(), "{table:?} is still there");
        // Any write would do: none succeeds after a compaction that failed.
        let written = database.sweep_generation(PARTITION, Generation(7));
        assert!(written.is_ok(), "{table:?}: {written:?}");
    }
}

#[test]
fn a_flipped_bit_in_a_table_file_is_an_error_and_never_a_wrong_value() {
    let mut fixture = Fixture::with_replica(1);
    let value = |number: u32| record(1, &varied_bytes(u64::from(number), 300));
    for number in 0..200_u32 {
        fixture.put(1, &number.to_be_bytes(), value(number));
    }
    fixture.flush();
    let table = files(fixture.directory.path(), "sst")
        .into_iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let length = fs::metadata(&table).unwrap().len();
    assert!(length > 50_000, "{length}");
    let mut errors = 0;
    for part in 0..12 {
        let copy = fixture.crash();
        let path = copy.path().join("db").join(table.file_name().unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let at = usize::try_from(length * part / 12).unwrap() + 11;
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let Ok((database, _, _)) = try_open(copy.path()) else {
            errors += 1;
            continue;
        };
        let mut failed = false;
        for number in 0..200_u32 {
            match database.get(PARTITION, Generation(1), &number.to_be_bytes()) {
                Ok(found) => assert_eq!(found, Some(value(number)), "byte {at}"),
                Err(_) => failed = true,
            }
        }
        let state = progress(10).state;
        let digest = database.read_point().digest(PARTITION, Generation(1), &state);
        assert_eq!(digest.is_err(), failed, "byte {at}");
        errors += usize::from(failed);
    }
    assert!(errors >= 10, "only {errors} of 12 flips were noticed");
}
