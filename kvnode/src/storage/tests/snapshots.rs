//! Snapshots from one store to another.

use std::fs;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use kvcore::event::BuiltSnapshot;
use kvcore::message::SnapshotManifest;
use kvcore::storage::WriteOp;
use kvcore::store::Digest;
use kvcore::{Generation, GroupId, SnapshotId};
use xxhash_rust::xxh3::xxh3_128;

use super::support::*;
use crate::storage::snapshot::{
    BuildError, ChunkDamage, ChunkError, InstallError, SnapshotInstaller,
};
use crate::storage::{Database, StorageSettings, StoreHandle};

pub const FRESH: Generation = Generation(2);

pub fn small_chunks() -> StorageSettings {
    StorageSettings { snapshot_chunk_bytes: 4 << 10, install_file_bytes: 20 << 10, ..settings() }
}

/// A store with small chunks and files.
pub fn small() -> Fixture {
    let Fixture { store, database, directory } = Fixture::with_replica(1);
    drop((store, database));
    let (database, _, _) = Database::open(directory.path(), small_chunks()).unwrap();
    Fixture { store: StoreHandle::new(database.clone()), database, directory }
}

/// A source with `count` records of about 300 bytes, in small chunks.
pub fn source(count: u32) -> Fixture {
    let mut fixture = small();
    for number in 0..count {
        fixture.put(1, &number.to_be_bytes(), record(1, &varied_bytes(u64::from(number), 300)));
    }
    fixture
}

pub fn build(fixture: &Fixture) -> BuiltSnapshot {
    let mut pace = |_| ControlFlow::Continue(());
    fixture.database.snapshots().build(group(), node_id(1), &mut pace).unwrap()
}

pub fn digest(database: &Database, generation: Generation) -> Digest {
    let state = progress(10).state;
    database.read_point().digest(PARTITION, generation, &state).unwrap()
}

pub fn chunks(fixture: &Fixture, manifest: &SnapshotManifest) -> Vec<Bytes> {
    let snapshots = fixture.database.snapshots();
    (0..manifest.chunks).map(|number| snapshots.chunk(manifest.id, number).unwrap()).collect()
}

fn begin(target: &Fixture, manifest: &SnapshotManifest) -> SnapshotInstaller {
    SnapshotInstaller::begin(&target.database, manifest.clone(), PARTITION, FRESH).unwrap()
}

fn install(target: &Fixture, manifest: &SnapshotManifest, chunks: &[Bytes]) {
    let mut installer = begin(target, manifest);
    for (number, chunk) in (0..).zip(chunks) {
        installer.add_chunk(number, chunk).unwrap();
    }
    installer.finish().unwrap();
}

#[test]
fn a_copy_has_the_digest_of_its_source_although_writes_went_on() {
    let mut source = source(500);
    let before = digest(&source.database, Generation(1));
    let mut writes = 0_u32;
    let Fixture { store, database, .. } = &mut source;
    let mut pace = |_| {
        // Between any two chunks the source is overwritten, extended and moves its applied index.
        use kvcore::storage::{Store, WriteBatch};
        writes += 1;
        let ops = vec![
            put(1, &(writes * 7).to_be_bytes(), record(99, b"later")),
            put(1, &(10_000 + writes).to_be_bytes(), record(99, b"later")),
            WriteOp::Progress { group: group(), progress: progress(10 + u64::from(writes)) },
        ];
        store.write(WriteBatch { ops }).unwrap();
        ControlFlow::Continue(())
    };
    let built = database.snapshots().build(group(), node_id(1), &mut pace).unwrap();
    assert!(writes > 20, "{writes} chunks");
    assert_eq!(built.position, progress(10).applied);
    assert_eq!(built.manifest.state, progress(10).state);
    assert_eq!(built.manifest.configuration, replica_record(1).configuration);
    assert_eq!(built.manifest.source, node_id(1));
    assert_eq!(built.manifest.chunks, writes);
    assert_ne!(digest(&source.database, Generation(1)), before);

    let target = small();
    let chunks = chunks(&source, &built.manifest);
    install(&target, &built.manifest, &chunks);
    assert_eq!(digest(&target.database, FRESH), before);
    let bytes: usize = chunks.iter().map(Bytes::len).sum();
    assert_eq!(built.manifest.bytes, bytes as u64);
    let sums: Vec<u8> =
        chunks.iter().flat_map(|chunk| chunk[chunk.len() - 16..].to_vec()).collect();
    assert_eq!(built.manifest.checksum, xxh3_128(&sums));
}

#[test]
fn an_installed_generation_is_durable_and_becomes_current_by_one_batch() {
    let source = source(200);
    let built = build(&source);
    let target = Fixture::with_replica(1);
    install(&target, &built.manifest, &chunks(&source, &built.manifest));

    // Not made current: a crash sweeps it and keeps its number used.
    let (swept, boot) = open(target.crash().path());
    assert_eq!(boot.replicas[0].generation_max, FRESH);
    let page = crate::storage::PageRequest {
        prefix: b"",
        after: None,
        records_max: 1,
        bytes_max: 1 << 20,
    };
    assert!(swept.page(PARTITION, FRESH, page).unwrap().records.is_empty());

    let mut target = target;
    target.write(vec![
        WriteOp::Replica { group: group(), record: replica_record(FRESH.get()) },
        WriteOp::Progress { group: group(), progress: progress(10) },
    ]);
    let (database, boot) = open(target.crash().path());
    assert_eq!(boot.replicas[0].record.generation, FRESH);
    assert_eq!(digest(&database, FRESH), digest(&source.database, Generation(1)));
}

#[test]
fn a_partition_without_records_can_be_copied() {
    let source = source(0);
    let built = build(&source);
    assert_eq!((built.manifest.chunks, built.manifest.bytes), (0, 0));
    let target = Fixture::with_replica(1);
    install(&target, &built.manifest, &[]);
    assert_eq!(digest(&target.database, FRESH), digest(&source.database, Generation(1)));
}

#[test]
fn values_of_a_mebibyte_are_copied() {
    let mut source = Fixture::with_replica(1);
    for number in 0..24_u32 {
        let value = varied_bytes(u64::from(number), 1 << 20);
        source.put(1, &number.to_be_bytes(), record(1, &value));
    }
    let built = build(&source);
    assert_eq!(built.manifest.chunks, 24);
    let target = Fixture::with_replica(1);
    install(&target, &built.manifest, &chunks(&source, &built.manifest));
    assert_eq!(digest(&target.database, FRESH), digest(&source.database, Generation(1)));
}

#[test]
fn a_bad_chunk_is_refused_and_the_copy_goes_on_after_it() {
    let source = source(200);
    let built = build(&source);
    let other = build(&source);
    let chunks = chunks(&source, &built.manifest);
    assert!(chunks.len() > 8);
    let target = Fixture::with_replica(1);
    let mut installer = begin(&target, &built.manifest);
    assert_eq!(installer.resume_point(), 0);
    installer.add_chunk(0, &chunks[0]).unwrap();

    for at in [0, 9, 13, 17, 30, chunks[1].len() / 2, chunks[1].len() - 1] {
        let mut flipped = chunks[1].to_vec();
        flipped[at] ^= 4;
        let error = installer.add_chunk(1, &flipped).unwrap_err();
        assert!(matches!(error, InstallError::Chunk { number: 1, .. }), "byte {at}: {error}");
    }
    for length in [0, 10, 36, chunks[1].len() - 1] {
        let error = installer.add_chunk(1, &chunks[1][..length]).unwrap_err();
        assert!(
            matches!(error, InstallError::Chunk { source: ChunkDamage::Length { .. }, .. }),
            "{error}"
        );
    }
    let foreign = source.database.snapshots().chunk(other.manifest.id, 1).unwrap();
    let error = installer.add_chunk(1, &foreign).unwrap_err();
    assert!(
        matches!(error, InstallError::Chunk { source: ChunkDamage::OtherSnapshot { .. }, .. }),
        "{error}"
    );
    for (number, chunk, found) in [(0, 0, 0), (2, 2, 2), (1, 2, 2), (1, 0, 0)] {
        let error = installer.add_chunk(number, &chunks[chunk]).unwrap_err();
        assert!(
            matches!(error, InstallError::OutOfOrder { expected: 1, found: it } if it == found),
            "{error}"
        );
    }

    let next = installer.resume_point();
    assert_eq!(next, 1);
    for number in next..built.manifest.chunks {
        installer.add_chunk(number, &chunks[number as usize]).unwrap();
    }
    installer.finish().unwrap();
    assert_eq!(digest(&target.database, FRESH), digest(&source.database, Generation(1)));
}

#[test]
fn an_incomplete_or_mismatching_copy_installs_nothing() {
    let source = source(200);
    let built = build(&source);
    let chunks = chunks(&source, &built.manifest);
    let target = Fixture::with_replica(1);
    let empty = digest(&target.database, FRESH);

    let mut installer = begin(&target, &built.manifest);
    installer.add_chunk(0, &chunks[0]).unwrap();
    let error = installer.finish().unwrap_err();
    assert!(matches!(error, InstallError::Incomplete { found: 1, .. }), "{error}");

    let manifest = SnapshotManifest { checksum: 1, ..built.manifest.clone() };
    let mut installer = begin(&target, &manifest);
    for (number, chunk) in (0..).zip(&chunks) {
        installer.add_chunk(number, chunk).unwrap();
    }
    assert!(matches!(installer.finish().unwrap_err(), InstallError::Mismatch));

    let manifest = SnapshotManifest { chunks: 1, ..built.manifest };
    let mut installer = begin(&target, &manifest);
    installer.add_chunk(0, &chunks[0]).unwrap();
    assert!(matches!(installer.add_chunk(1, &chunks[1]).unwrap_err(), InstallError::Mismatch));
    drop(installer);

    assert_eq!(digest(&target.database, FRESH), empty);
    target.database.sweep_generation(PARTITION, FRESH).unwrap();
    let incoming = target.directory.path().join("incoming");
    assert_eq!(fs::read_dir(incoming).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_generation_in_use_is_not_installed_into() {
    let source = source(10);
    let built = build(&source);
    let mut target = Fixture::with_replica(1);
    target.put(3, b"k", record(1, b"v"));
    for generation in [1, 3] {
        let begun = SnapshotInstaller::begin(
            &target.database,
            built.manifest.clone(),
            PARTITION,
            Generation(generation),
        );
        assert!(matches!(begun, Err(InstallError::GenerationInUse { .. })));
    }
    let installers = [begin(&target, &built.manifest), begin(&target, &built.manifest)];
    drop(installers);
}

#[test]
fn snapshot_files_outlive_a_restart_and_ids_never_come_again() {
    let source = source(100);
    let first = build(&source);
    let second = build(&source);
    assert!(second.manifest.id > first.manifest.id);
    let expected = chunks(&source, &first.manifest);
    source.database.snapshots().discard(second.manifest.id).unwrap();
    source.database.snapshots().discard(second.manifest.id).unwrap();

    let snapshots = source.directory.path().join("snapshots");
    fs::write(snapshots.join("9.tmp"), "half").unwrap();
    fs::write(snapshots.join("10.snap"), "a file that nobody finished").unwrap();
    let (source, _) = source.reopen();
    let listed = source.database.snapshots().list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].manifest, first.manifest);
    assert_eq!((listed[0].group, listed[0].position), (group(), first.position));
    assert_eq!(fs::read_dir(&snapshots).unwrap().count(), 1);
    assert_eq!(chunks(&source, &first.manifest), expected);
    assert!(build(&source).manifest.id > second.manifest.id);

    let gone = source.database.snapshots().chunk(second.manifest.id, 0).unwrap_err();
    assert!(matches!(gone, ChunkError::NoSnapshot(id) if id == second.manifest.id));
    let beyond = first.manifest.chunks;
    let absent = source.database.snapshots().chunk(first.manifest.id, beyond).unwrap_err();
    assert!(matches!(absent, ChunkError::NoChunk { number, .. } if number == beyond));

    let discarded = source.database.snapshots().discard_older_than(Duration::ZERO).unwrap();
    assert_eq!(discarded.len(), 2);
    assert!(source.database.snapshots().list().unwrap().is_empty());
}

#[test]
fn a_damaged_snapshot_file_is_noticed_by_its_source() {
    let source = source(100);
    let built = build(&source);
    let path = source.directory.path().join(format!("snapshots/{}.snap", built.manifest.id));
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let answers: Vec<_> = (0..built.manifest.chunks)
        .map(|number| source.database.snapshots().chunk(built.manifest.id, number))
        .collect();
    let damaged = |answer: &&Result<Bytes, ChunkError>| matches!(answer, Err(ChunkError::Damaged(id)) if *id == built.manifest.id);
    assert_eq!(answers.iter().filter(damaged).count(), 1);
}

#[test]
fn a_build_can_be_stopped_and_leaves_nothing() {
    let source = source(100);
    let mut left = 3;
    let mut pace = |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let snapshots = source.database.snapshots();
    let stopped = snapshots.build(group(), node_id(1), &mut pace);
    assert!(matches!(stopped, Err(BuildError::Stopped)));
    assert_eq!(fs::read_dir(source.directory.path().join("snapshots")).unwrap().count(), 0);
    let cluster = snapshots.build(GroupId::CLUSTER, node_id(1), &mut pace);
    assert!(matches!(cluster, Err(BuildError::NotAPartition)));
    let nobody = snapshots.build(GroupId::from_raw(500), node_id(1), &mut pace);
    assert!(matches!(nobody, Err(BuildError::NoReplica(group)) if group.get() == 500));
}

#[test]
fn golden_chunk_bytes() {
    let mut source = Fixture::with_replica(1);
    source.put(1, b"k", record(1, b"v"));
    let built = build(&source);
    let chunk = source.database.snapshots().chunk(built.manifest.id, 0).unwrap();
    let (covered, checksum) = chunk.split_at(chunk.len() - 16);
    let hex: String = covered.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(built.manifest.id, SnapshotId(1));
    assert_eq!(
        hex,
        "0100000000000000 00000000 01000000 20000000 01000000 6b 17000000 \
         0102 0100000000000000 0a00 746578742f706c61696e 76"
            .replace(' ', "")
    );
    assert_eq!(checksum, xxh3_128(covered).to_le_bytes());
}
