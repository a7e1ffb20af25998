//! Copies that are interrupted, on either side, and go on.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvcore::event::BuiltSnapshot;
use kvcore::message::SnapshotManifest;
use kvcore::storage::{Boot, PartialCopy, ReplicaRecord, WriteOp};
use kvcore::{Generation, GroupId, LogIndex, LogPosition, Term};
use tempfile::TempDir;

use super::snapshots::{FRESH, build, chunks, digest, small, small_chunks, source};
use super::support::*;
use crate::storage::snapshot::{InstallError, SnapshotInstaller};
use crate::storage::{Database, StoreHandle};

fn open_small(path: &Path) -> (Database, Boot) {
    let (database, boot, _) = Database::open(path, small_chunks()).unwrap();
    (database, boot)
}

fn begin_in(database: &Database, manifest: &SnapshotManifest) -> SnapshotInstaller {
    SnapshotInstaller::begin(database, manifest.clone(), PARTITION, FRESH).unwrap()
}

/// What a process leaves that is killed after it took some chunks.
fn killed_after(manifest: &SnapshotManifest, chunks: &[Bytes]) -> TempDir {
    let target = small();
    let mut installer = begin_in(&target.database, manifest);
    for (number, chunk) in (0..).zip(chunks) {
        installer.add_chunk(number, chunk).unwrap();
    }
    target.crash()
}

fn incoming(directory: &Path) -> PathBuf {
    directory.join("incoming/7-2")
}

/// Adds the chunks that are due, until there are so many.
fn add_until(installer: &mut SnapshotInstaller, chunks: &[Bytes], until: usize) {
    let first = installer.resume_point() as usize;
    for (number, chunk) in (0..).zip(chunks).take(until).skip(first) {
        installer.add_chunk(number, chunk).unwrap();
    }
}

fn finish(mut installer: SnapshotInstaller, chunks: &[Bytes]) {
    add_until(&mut installer, chunks, chunks.len());
    installer.finish().unwrap();
}

#[test]
fn a_killed_receiver_goes_on_with_the_chunk_that_is_due() {
    let source = source(400);
    let built = build(&source);
    let all = chunks(&source, &built.manifest);
    assert!(all.len() > 24);
    for taken in [0, 1, 4, 5, 6, 17, all.len() - 1, all.len()] {
        let directory = killed_after(&built.manifest, &all[..taken]);
        let (database, boot) = open_small(directory.path());
        let expected =
            PartialCopy { group: group(), generation: FRESH, manifest: built.manifest.clone() };
        assert_eq!(boot.partial_copies, [expected], "after {taken} chunks");
        let installer = begin_in(&database, &built.manifest);
        assert_eq!(installer.resume_point() as usize, taken);
        let bytes: usize = all[..taken].iter().map(Bytes::len).sum();
        assert_eq!(installer.bytes(), bytes as u64);
        finish(installer, &all);
        assert_eq!(digest(&database, FRESH), digest(&source.database, Generation(1)));
        assert!(!incoming(directory.path()).exists());
    }
}

#[test]
fn an_attempt_that_was_given_up_is_gone_on_with_in_the_same_process() {
    let source = source(200);
    let built = build(&source);
    let all = chunks(&source, &built.manifest);
    let target = small();
    for until in [3, 9, all.len()] {
        let mut installer = begin_in(&target.database, &built.manifest);
        add_until(&mut installer, &all, until);
    }
    let installer = begin_in(&target.database, &built.manifest);
    assert_eq!(installer.resume_point() as usize, all.len());
    installer.finish().unwrap();
    assert_eq!(digest(&target.database, FRESH), digest(&source.database, Generation(1)));
}

#[test]
fn what_a_power_failure_damaged_is_fetched_again_and_nothing_else() {
    let source = source(400);
    let built = build(&source);
    let all = chunks(&source, &built.manifest);
    let taken = 14;
    let whole = killed_after(&built.manifest, &all[..taken]);
    let tail = fs::read(incoming(whole.path()).join("TAIL")).unwrap();
    let in_tail = all[..taken].iter().rev().scan(0, |sum, chunk| {
        *sum += chunk.len();
        Some(*sum)
    });
    let in_tail = in_tail.take_while(|sum| *sum <= tail.len()).count();
    assert!((2..taken - 1).contains(&in_tail), "{in_tail} chunks in the tail");

    let resumed_at = |damage: &dyn Fn(&Path)| {
        let directory = killed_after(&built.manifest, &all[..taken]);
        damage(&incoming(directory.path()));
        let (database, _) = open_small(directory.path());
        let installer = begin_in(&database, &built.manifest);
        let at = installer.resume_point() as usize;
        finish(installer, &all);
        assert_eq!(digest(&database, FRESH), digest(&source.database, Generation(1)));
        at
    };
    let cut_tail = |path: &Path| fs::write(path.join("TAIL"), &tail[..tail.len() - 7]).unwrap();
    assert_eq!(resumed_at(&cut_tail), taken - 1);
    let flip_tail = |path: &Path| {
        let mut tail = tail.clone();
        tail[100] ^= 1;
        fs::write(path.join("TAIL"), tail).unwrap();
    };
    assert_eq!(resumed_at(&flip_tail), taken - in_tail);
    let no_tail = |path: &Path| fs::remove_file(path.join("TAIL")).unwrap();
    assert_eq!(resumed_at(&no_tail), taken - in_tail);
    // A file that the note names and that is not whole: nothing can be told of the rest.
    let short_file = |path: &Path| {
        let file = path.join("000000.sst");
        let bytes = fs::read(&file).unwrap();
        fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
    };
    assert_eq!(resumed_at(&short_file), 0);
    let cut_note = |path: &Path| {
        let note = path.join("NOTE");
        let bytes = fs::read(&note).unwrap();
        fs::write(note, &bytes[..bytes.len() - 1]).unwrap();
    };
    assert!(resumed_at(&cut_note) < taken - in_tail);
}

#[test]
fn a_tail_that_was_not_cut_after_its_file_was_complete_is_passed_over() {
    let source = source(400);
    let built = build(&source);
    let all = chunks(&source, &built.manifest);
    let target = small();
    let mut installer = begin_in(&target.database, &built.manifest);
    let tail = incoming(target.directory.path()).join("TAIL");
    let mut number = 0;
    let before = loop {
        let before = fs::read(&tail).unwrap();
        installer.add_chunk(number, &all[number as usize]).unwrap();
        number += 1;
        if fs::metadata(&tail).unwrap().len() == 0 {
            break before;
        }
    };
    let mut uncut = before;
    uncut.extend_from_slice(&all[number as usize - 1]);
    drop(installer);
    fs::write(&tail, uncut).unwrap();
    let installer = begin_in(&target.database, &built.manifest);
    assert_eq!(installer.resume_point(), number);
    finish(installer, &all);
    assert_eq!(digest(&target.database, FRESH), digest(&source.database, Generation(1)));
}

#[test]
fn another_manifest_starts_afresh_and_nothing_of_the_old_one_is_left() {
    let source = source(200);
    let (first, second) = (build(&source), build(&source));
    let all = chunks(&source, &second.manifest);
    let directory = killed_after(&first.manifest, &chunks(&source, &first.manifest)[..9]);
    let (database, _) = open_small(directory.path());
    let installer = begin_in(&database, &second.manifest);
    assert_eq!(installer.resume_point(), 0);
    drop(installer);

    // Into another generation, as the core does it.
    let manifest = second.manifest.clone();
    let next = SnapshotInstaller::begin(&database, manifest, PARTITION, Generation(3)).unwrap();
    assert!(!incoming(directory.path()).exists());
    finish(next, &all);
    assert_eq!(digest(&database, Generation(3)), digest(&source.database, Generation(1)));
    assert_eq!(fs::read_dir(directory.path().join("incoming")).unwrap().count(), 0);
}

#[test]
fn a_copy_that_is_swept_while_it_runs_never_becomes_data() {
    let source = source(200);
    let built = build(&source);
    let all = chunks(&source, &built.manifest);
    let target = small();
    let mut installer = begin_in(&target.database, &built.manifest);
    for (number, chunk) in (0..).zip(&all) {
        installer.add_chunk(number, chunk).unwrap();
    }
    target.database.sweep_generation(PARTITION, FRESH).unwrap();
    assert!(!incoming(target.directory.path()).exists());
    assert!(installer.finish().is_err());
    let empty = small();
    assert_eq!(digest(&target.database, FRESH), digest(&empty.database, FRESH));
}

#[test]
fn the_node_forgets_copies_that_nobody_can_go_on_with() {
    let source = source(100);
    let built = build(&source);
    let some = &chunks(&source, &built.manifest)[..5];
    // Of a replica that ended.
    let directory = killed_after(&built.manifest, some);
    let (database, _) = open_small(directory.path());
    let mut store = StoreHandle::new(database.clone());
    let ended = WriteOp::Tombstone { group: group(), replica: replica_record(1).replica };
    kvcore::storage::Store::write(&mut store, kvcore::storage::WriteBatch { ops: vec![ended] })
        .unwrap();
    drop((store, database));
    let (_, boot) = open_small(directory.path());
    assert_eq!(boot.partial_copies, []);
    assert!(!incoming(directory.path()).exists());

    // Into a generation that is current by now, or older.
    let directory = killed_after(&built.manifest, some);
    let (database, _) = open_small(directory.path());
    let mut store = StoreHandle::new(database.clone());
    let newer = WriteOp::Replica { group: group(), record: replica_record(3) };
    kvcore::storage::Store::write(&mut store, kvcore::storage::WriteBatch { ops: vec![newer] })
        .unwrap();
    drop((store, database));
    let (_, boot) = open_small(directory.path());
    assert_eq!(boot.partial_copies, []);
    assert!(!incoming(directory.path()).exists());

    // What cannot be read.
    let directory = killed_after(&built.manifest, some);
    fs::write(incoming(directory.path()).join("NOTE"), "nothing").unwrap();
    let (_, boot) = open_small(directory.path());
    assert_eq!(boot.partial_copies, []);
    assert!(!incoming(directory.path()).exists());
}

#[test]
fn a_restarted_source_offers_the_newest_file_that_its_log_goes_on_from() {
    let source = source(100);
    let (first, second) = (build(&source), build(&source));
    let expected = chunks(&source, &second.manifest);
    let (source, boot) = source.reopen();
    let BuiltSnapshot { position, manifest } = second.clone();
    assert_eq!(boot.offers, [(group(), second)]);
    assert_eq!(position, progress(10).applied);
    assert_eq!(chunks(&source, &manifest), expected);
    assert!(source.database.snapshots().chunk(first.manifest.id, 0).is_err(), "it was superseded");

    // The log is truncated beyond it.
    let mut source = source;
    let truncated = LogPosition { index: LogIndex(11), term: Term(1) };
    let record = ReplicaRecord { truncated, ..replica_record(1) };
    source.write(vec![
        WriteOp::Replica { group: group(), record },
        WriteOp::Progress { group: group(), progress: progress(11) },
    ]);
    let (source, boot) = source.reopen();
    assert_eq!(boot.offers, []);
    assert!(source.database.snapshots().list().unwrap().is_empty());
}

#[test]
fn snapshot_files_of_an_ended_replica_are_deleted_at_the_start() {
    let mut source = source(10);
    build(&source);
    source.write(vec![WriteOp::Tombstone { group: group(), replica: replica_record(1).replica }]);
    let (source, boot) = source.reopen();
    assert_eq!(boot.offers, []);
    assert_eq!(source.database.snapshots().list().unwrap(), []);
    wait_until_empty(&source.directory.path().join("snapshots"));
    assert!(boot.tombstones.contains(&(GroupId::of_partition(PARTITION), kvcore::ReplicaId(1))));
}

#[test]
fn a_chunk_says_where_in_the_snapshot_it_ends() {
    let source = source(100);
    let built = build(&source);
    let mut end = 0;
    for number in 0..built.manifest.chunks {
        let chunk = source.database.snapshots().chunk_at(built.manifest.id, number).unwrap();
        end += chunk.bytes.len() as u64;
        assert_eq!(chunk.end, end);
        assert_eq!(chunk.last, number + 1 == built.manifest.chunks);
    }
    assert_eq!(end, built.manifest.bytes);
}

#[test]
fn a_whole_snapshot_with_a_wrong_sum_is_thrown_away() {
    let source = source(100);
    let built = build(&source);
    let all = chunks(&source, &built.manifest);
    let target = small();
    let manifest = SnapshotManifest { checksum: 1, ..built.manifest };
    let mut installer = begin_in(&target.database, &manifest);
    for (number, chunk) in (0..).zip(&all) {
        installer.add_chunk(number, chunk).unwrap();
    }
    assert!(matches!(installer.finish().unwrap_err(), InstallError::Mismatch));
    assert!(!incoming(target.directory.path()).exists());
}
