use bytes::Bytes;
use raft::eraftpb::Entry;
use raft::{GetEntriesContext, Storage};

use super::log::GroupLog;
use super::replica::Birth;
use crate::ids::{Generation, LogIndex, LogPosition, ReplicaId, Term};
use crate::storage::Configuration;

fn entry(index: u64, term: u64) -> Entry {
    Entry { index, term, data: Bytes::from_static(&[7; 76]), ..Entry::default() }
}

/// A log born at (1, 1) with entries 2..=`last` of term 2, all applied through `applied`.
fn log(last: u64, applied: u64) -> GroupLog {
    let birth = Birth::Founder(Configuration::default());
    let (record, progress) = birth.records(ReplicaId(1), 0, Generation(1));
    let mut log = GroupLog::new(record, progress, Vec::new());
    log.append(&(2..=last).map(|index| entry(index, 2)).collect::<Vec<_>>());
    log.progress.applied = LogPosition { index: LogIndex(applied), term: Term(2) };
    log
}

fn indexes(log: &GroupLog, low: u64, high: u64, bytes: u64) -> raft::Result<Vec<u64>> {
    let entries = log.entries(low, high, bytes, GetEntriesContext::empty(true))?;
    Ok(entries.into_iter().map(|entry| entry.index).collect())
}

#[test]
fn a_new_leaders_entries_take_the_place_of_unapplied_ones() {
    let mut log = log(10, 5);
    let (beyond, terms_changed) = log.append(&[entry(7, 3), entry(8, 3)]);
    assert_eq!(beyond, Some(LogIndex(10)));
    assert!(terms_changed);
    assert_eq!(log.last(), LogIndex(8));
    let terms: Vec<_> = (1..=8).map(|index| log.term(index).unwrap()).collect();
    assert_eq!(terms, [1, 2, 2, 2, 2, 2, 3, 3]);
    assert!(log.term(9).is_err());
    assert_eq!(indexes(&log, 6, 9, u64::MAX).unwrap(), [6, 7, 8]);
}

#[test]
fn a_truncated_log_remembers_the_term_before_it_and_nothing_older() {
    let mut log = log(10, 6);
    assert_eq!(log.truncate(LogIndex(9)), Some((LogIndex(2), LogIndex(7))), "not beyond applied");
    assert_eq!(log.first_index().unwrap(), 7);
    assert_eq!(log.term(6).unwrap(), 2);
    assert!(log.term(5).is_err());
    assert!(indexes(&log, 6, 8, u64::MAX).is_err());
    assert_eq!(indexes(&log, 7, 9, u64::MAX).unwrap(), [7, 8]);
    assert_eq!(log.truncate(LogIndex(6)), None);
    assert!(log.progress.log_bytes <= 500, "{}", log.progress.log_bytes);
}

#[test]
fn a_log_truncated_to_its_end_goes_on_in_another_term() {
    let mut log = log(10, 10);
    log.truncate(LogIndex(10));
    assert_eq!(log.term(10).unwrap(), 2);
    log.append(&[entry(11, 4)]);
    assert_eq!(log.term(11).unwrap(), 4);
    assert_eq!(log.term(10).unwrap(), 2);
}

#[test]
fn entries_that_left_memory_are_asked_for_and_lent_once() {
    let mut log = log(10, 9);
    log.trim(200);
    assert!(indexes(&log, 3, 6, u64::MAX).is_err());
    let wanted = log.take_wanted_entries();
    assert_eq!(wanted.len(), 1);
    assert_eq!((wanted[0].low, wanted[0].high), (LogIndex(3), LogIndex(6)));
    log.lend(LogIndex(3), vec![entry(3, 2), entry(4, 2)]);
    assert_eq!(indexes(&log, 3, 6, u64::MAX).unwrap(), [3, 4]);
    log.end_loan();
    assert!(indexes(&log, 3, 6, u64::MAX).is_err());
    assert_eq!(indexes(&log, 10, 11, u64::MAX).unwrap(), [10], "the rest stays in memory");
}

#[test]
fn unapplied_entries_never_leave_memory() {
    let mut log = log(10, 4);
    log.trim(0);
    assert_eq!(indexes(&log, 5, 11, u64::MAX).unwrap(), [5, 6, 7, 8, 9, 10]);
}

#[test]
fn at_least_one_entry_is_given_however_small_the_limit() {
    assert_eq!(indexes(&log(10, 5), 2, 9, 1).unwrap(), [2]);
    assert_eq!(indexes(&log(10, 5), 2, 9, 200).unwrap(), [2, 3]);
}

#[test]
fn a_snapshot_takes_the_place_of_everything() {
    let mut log = log(10, 5);
    let position = LogPosition { index: LogIndex(20), term: Term(4) };
    assert_eq!(log.restore(position), (LogIndex(2), LogIndex(21)));
    assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (21, 20));
    assert_eq!(log.term(20).unwrap(), 4);
    log.append(&[entry(21, 4)]);
    assert_eq!(indexes(&log, 21, 22, u64::MAX).unwrap(), [21]);
}
