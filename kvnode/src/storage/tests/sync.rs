//! The thread that makes writes durable.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use kvcore::{Generation, SyncId};

use super::support::*;
use crate::storage::{StorageError, SyncThread};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn what_was_written_before_a_reported_sync_survives_a_crash() {
    let mut fixture = Fixture::with_replica(1);
    let (report, reported) = mpsc::channel();
    let thread =
        SyncThread::spawn(fixture.database.clone(), move |sync| report.send(sync).unwrap())
            .unwrap();
    for number in 1..=50_u64 {
        fixture.put(1, &number.to_be_bytes(), record(number, b"v"));
        thread.request(SyncId(number));
    }
    let mut highest = SyncId(0);
    while highest < SyncId(50) {
        let next = reported.recv_timeout(DEADLINE).unwrap();
        assert!(next > highest, "reports only go up");
        highest = next;
    }
    assert_eq!(thread.oldest_waiting(), None);
    let (database, _) = open(fixture.crash().path());
    for number in 1..=50_u64 {
        let found = database.get(PARTITION, Generation(1), &number.to_be_bytes()).unwrap();
        assert_eq!(found, Some(record(number, b"v")));
    }
}

#[test]
fn waiting_requests_share_one_sync_and_writes_do_not_wait_for_it() {
    let mut fixture = Fixture::with_replica(1);
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (report, reported) = mpsc::channel();
    let thread = SyncThread::spawn_with(
        move || {
            begun.send(()).unwrap();
            released.recv().unwrap();
            Ok(())
        },
        move |sync| report.send(sync).unwrap(),
    )
    .unwrap();
    thread.request(SyncId(1));
    begins.recv_timeout(DEADLINE).unwrap();
    for number in 2..=9 {
        fixture.put(1, b"k", record(number, b"v"));
        thread.request(SyncId(number));
    }
    let asked = Instant::now();
    release.send(()).unwrap();
    assert_eq!(reported.recv_timeout(DEADLINE).unwrap(), SyncId(1));
    begins.recv_timeout(DEADLINE).unwrap();
    assert!(thread.oldest_waiting().is_some_and(|waiting| waiting >= asked.elapsed() / 2));
    release.send(()).unwrap();
    assert_eq!(reported.recv_timeout(DEADLINE).unwrap(), SyncId(9));
    assert!(begins.try_recv().is_err(), "eight requests made one sync");
}

#[test]
fn dropping_the_thread_finishes_what_was_asked_for() {
    let fixture = Fixture::new();
    let (report, reported) = mpsc::channel();
    let thread =
        SyncThread::spawn(fixture.database.clone(), move |sync| report.send(sync).unwrap())
            .unwrap();
    thread.request(SyncId(7));
    drop(thread);
    assert_eq!(reported.iter().last(), Some(SyncId(7)));
}

/// Set in the process that is to fail.
const CHILD: &str = "RINGKV_TEST_FAILING_SYNC";

#[test]
fn a_failed_sync_ends_the_process_with_a_reason() {
    if std::env::var_os(CHILD).is_some() {
        let thread = SyncThread::spawn_with(
            || {
                // A real error of RocksDB's: opening what is not there.
                let missing = std::path::Path::new("/nonexistent/ringkv");
                let error = rocksdb::DB::open(&rocksdb::Options::default(), missing).unwrap_err();
                Err(StorageError::engine("syncing the write-ahead log")(error))
            },
            |_| println!("reported as durable"),
        )
        .unwrap();
        thread.request(SyncId(1));
        drop(thread);
        println!("went on");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "storage::tests::sync::a_failed_sync_ends_the_process_with_a_reason"])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success());
    assert!(errors.contains("kvnode: syncing the write-ahead log"), "{errors}");
    assert!(!said.contains("reported") && !said.contains("went on"), "{said}");
}
