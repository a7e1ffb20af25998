//! Space that is given back: measured as an operator would, on the file system.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kvcore::Generation;
use kvcore::storage::WriteOp;

use super::support::*;
use crate::storage::Database;

const PATIENCE: Duration = Duration::from_secs(30);
const MEBIBYTE: u64 = 1 << 20;
/// What a store without data may take: the write-ahead log and files of RocksDB's own.
const EMPTY_MAX: u64 = 4 * MEBIBYTE;

/// Bytes of the files below a directory but for the write-ahead log, which is bounded otherwise.
fn disk_bytes(directory: &Path) -> u64 {
    let mut sum = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.metadata() {
            Ok(found) if found.is_dir() => sum += disk_bytes(&entry.path()),
            Ok(_) if entry.path().extension().is_some_and(|it| it == "log") => {}
            Ok(found) => sum += found.len(),
            // RocksDB deleted it meanwhile.
            Err(_) => {}
        }
    }
    sum
}

fn wait_until_small(directory: &Path, bytes_max: u64) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let bytes = disk_bytes(directory);
        if bytes <= bytes_max {
            return;
        }
        assert!(Instant::now() < give_up, "{} MiB are left", bytes / MEBIBYTE);
        std::thread::yield_now();
    }
}

/// A store with 24 MiB that do not compress in a generation.
fn filled(fixture: &mut Fixture, generation: u64) {
    for number in 0..384_u32 {
        let seed = u64::from(number) + (generation << 32);
        let value = varied_bytes(seed, 64 << 10);
        fixture.put(generation, &number.to_be_bytes(), record(1, &value));
    }
}

#[test]
fn obsolete_files_are_renamed_and_then_deleted() {
    let mut fixture = Fixture::with_replica(1);
    let waiting = |fixture: &Fixture| files(fixture.directory.path(), "trash");
    let mut seen = Vec::new();
    for _ in 0..4 {
        filled(&mut fixture, 1);
        fixture.flush();
        seen.extend(waiting(&fixture));
    }
    assert!(!seen.is_empty(), "nothing waited to be deleted");
    let give_up = Instant::now() + PATIENCE;
    while waiting(&fixture).iter().any(|file| seen.contains(file)) {
        assert!(Instant::now() < give_up, "{:?} are left", waiting(&fixture));
        std::thread::sleep(Duration::from_millis(20));
    }
    let key = bytes::Bytes::copy_from_slice(&7_u32.to_be_bytes());
    assert!(fixture.database.get(PARTITION, Generation(1), &key).unwrap().is_some());
}

#[test]
fn a_swept_generation_gives_its_space_back_and_leaves_its_neighbours() {
    let mut fixture = Fixture::with_replica(2);
    filled(&mut fixture, 1);
    fixture.put(2, b"stays", record(1, b"v"));
    fixture.flush();
    assert!(disk_bytes(fixture.directory.path()) > 20 * MEBIBYTE);
    fixture.database.sweep_generation(PARTITION, Generation(1)).unwrap();
    wait_until_small(fixture.directory.path(), EMPTY_MAX);
    assert!(fixture.database.get(PARTITION, Generation(2), b"stays").unwrap().is_some());
}

#[test]
fn data_that_is_still_in_memory_or_under_a_read_point_is_given_back_too() {
    let mut fixture = Fixture::with_replica(2);
    filled(&mut fixture, 1);
    let point = fixture.database.read_point();
    fixture.flush();
    fixture.database.sweep_generation(PARTITION, Generation(1)).unwrap();
    let state = progress(10).state;
    let seen = point.digest(PARTITION, Generation(1), &state).unwrap();
    let empty = fixture.database.read_point().digest(PARTITION, Generation(1), &state).unwrap();
    assert_ne!(seen, empty, "what a read point sees is not taken from it");
    drop(point);
    // With the read point gone, the next sweep or the next start does it.
    fixture.database.sweep_generation(PARTITION, Generation(1)).unwrap();
    wait_until_small(fixture.directory.path(), EMPTY_MAX);
}

#[test]
fn a_sweep_that_a_crash_prevented_happens_at_the_next_start() {
    let mut fixture = Fixture::with_replica(2);
    filled(&mut fixture, 1);
    filled(&mut fixture, 3);
    fixture.flush();
    let directory = fixture.crash();
    let (database, boot): (Database, _) = open(directory.path());
    assert_eq!(boot.replicas[0].generation_max, Generation(3));
    database.reclaim_deleted(|| true);
    wait_until_small(directory.path(), EMPTY_MAX);
}

#[test]
fn what_lies_between_swept_generations_stays_also_when_space_is_given_back_later() {
    let mut fixture = Fixture::with_replica(2);
    filled(&mut fixture, 1);
    fixture.put(2, b"stays", record(1, b"v"));
    filled(&mut fixture, 3);
    fixture.flush();
    let point = fixture.database.read_point();
    for generation in [1, 3] {
        fixture.database.delete_generation_first(PARTITION, Generation(generation)).unwrap();
    }
    drop(point);
    for has_time in [false, true] {
        fixture.database.reclaim_deleted(|| has_time);
        let stays = fixture.database.get(PARTITION, Generation(2), b"stays").unwrap();
        assert!(stays.is_some(), "time to give space back: {has_time}");
    }
    wait_until_small(fixture.directory.path(), EMPTY_MAX);
}

#[test]
fn an_ended_replicas_log_gives_its_space_back() {
    let mut fixture = Fixture::with_replica(1);
    for number in 11..400_u64 {
        fixture.write(vec![append(vec![entry(number, 1, &varied_bytes(number, 64 << 10))])]);
    }
    fixture.flush();
    fixture.flush();
    assert!(disk_bytes(fixture.directory.path()) > 20 * MEBIBYTE);
    let ended = WriteOp::Tombstone { group: group(), replica: replica_record(1).replica };
    fixture.write(vec![ended]);

    let directory = fixture.crash();
    fixture.database.reclaim_log(group());
    fixture.database.reclaim_deleted(|| true);
    wait_until_small(fixture.directory.path(), EMPTY_MAX);

    // The same if the process ended in between.
    let (database, _) = open(directory.path());
    database.reclaim_deleted(|| true);
    wait_until_small(directory.path(), EMPTY_MAX);
}
