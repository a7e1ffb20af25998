//! Who may use a directory, and what it says of itself.

use std::fs;

use kvcore::{ClusterId, codec};

use super::support::*;
use crate::storage::keys::{self, Family};
use crate::storage::{AcceptError, Damage, OpenError, StorageError};

#[test]
fn an_identity_is_made_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er");
    let (database, _, first) = try_open(&path).unwrap();
    let uuid = uuid::Uuid::from(first.node);
    assert_eq!(uuid.get_version(), Some(uuid::Version::Random));
    assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
    assert_eq!(first.cluster, None);
    drop(database);
    let (_, _, second) = try_open(&path).unwrap();
    assert_eq!(second, first);
    assert_eq!(
        fs::read_to_string(path.join("FORMAT")).unwrap(),
        "ringkv data directory, format 1\n"
    );
}

#[test]
fn a_cluster_is_accepted_once_for_ever() {
    let fixture = Fixture::new();
    assert_eq!(fixture.database.accepted_view().unwrap(), None);
    let accepted = fixture.database.accept_cluster(ClusterId(5), &view(5)).unwrap();
    assert_eq!(accepted.cluster, Some(ClusterId(5)));

    // Durable on return: a crash right now keeps it.
    let copy = fixture.crash();
    let (database, boot, identity) = try_open(copy.path()).unwrap();
    assert_eq!(identity, accepted);
    assert_eq!(database.accepted_view().unwrap(), Some(view(5)));
    assert_eq!(boot.view, None, "the core has not taken the view yet");

    assert_eq!(database.accept_cluster(ClusterId(5), &view(5)).unwrap(), accepted);
    assert!(matches!(
        database.accept_cluster(ClusterId(6), &view(6)),
        Err(AcceptError::OtherCluster { ours: ClusterId(5), offered: ClusterId(6) })
    ));
    assert!(matches!(
        database.accept_cluster(ClusterId(6), &view(7)),
        Err(AcceptError::ForeignView { offered: ClusterId(6), of: ClusterId(7) })
    ));
    assert_eq!(database.identity(), accepted);
}

#[test]
fn two_stores_cannot_share_a_directory() {
    let fixture = Fixture::new();
    let error = try_open(fixture.directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(!error.to_string().contains('\n'));
    let path = fixture.directory.path().to_owned();
    let Fixture { store, database, directory } = fixture;
    drop((store, database));
    assert!(try_open(&path).is_ok());
    drop(directory);
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.txt"), "years of work").unwrap();
    let error = try_open(directory.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Foreign { found, .. } if found == "thesis.txt"), "{error}");
    assert!(!directory.path().join("db").exists());
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("FORMAT"), "something else").unwrap();
    assert!(matches!(try_open(directory.path()), Err(OpenError::Foreign { .. })));
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let fixture = Fixture::new();
    let copy = fixture.crash();
    fs::write(copy.path().join("FORMAT"), "ringkv data directory, format 2\n").unwrap();
    let error = try_open(copy.path()).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found: 2, newest: 1, .. }), "{error}");
    assert!(error.to_string().contains("newer binary"));
}

#[test]
fn a_newer_value_is_refused_by_name() {
    let fixture = Fixture::with_replica(1);
    let mut newer = codec::encode(&replica_record(1));
    newer[0] = 2;
    let meta = fixture.database.family(Family::Meta);
    fixture.database.inner.db.put_cf(meta, keys::replica(group()), newer).unwrap();
    let error = try_open(fixture.crash().path()).unwrap_err();
    let text = crate::storage::error::chain(&error);
    assert!(text.contains("meta under key 7200000008"), "{text}");
    assert!(text.contains("format version 2 is newer"), "{text}");
}

#[test]
fn a_first_start_that_was_cut_short_is_refused() {
    let fixture = Fixture::new();
    let without_store = fixture.crash();
    fs::remove_dir_all(without_store.path().join("db")).unwrap();
    let error = try_open(without_store.path()).unwrap_err();
    assert!(matches!(error, OpenError::Unfinished { .. }), "{error}");
    assert!(!without_store.path().join("db").exists(), "nothing was made");

    let meta = fixture.database.family(Family::Meta);
    fixture.database.inner.db.delete_cf(meta, keys::IDENTITY).unwrap();
    let error = try_open(fixture.crash().path()).unwrap_err();
    assert!(matches!(error, OpenError::Unfinished { .. }), "{error}");

    fixture.database.inner.db.put_cf(meta, keys::IDENTITY, [1, 16, 0]).unwrap();
    let error = try_open(fixture.crash().path()).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Damaged { source: Damage::Value(StorageError::Value { .. }), .. }
        ),
        "{error}"
    );
}

#[test]
fn a_start_that_was_cut_short_before_the_mark_may_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("LOCK"), "").unwrap();
    fs::write(directory.path().join("FORMAT.tmp"), "ringkv da").unwrap();
    assert!(try_open(directory.path()).is_ok());
}
