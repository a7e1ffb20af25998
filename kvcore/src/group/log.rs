//! A group's log as raft-rs sees it: a bounded tail in memory, the rest on disk.
//!
//! Entries that are not applied are always in memory, so everything raft-rs must have at once is
//! here. Older entries are fetched without blocking the core. Terms of all entries are known.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::ids::{LogIndex, LogPosition, ReplicaId, Term};
use crate::storage::{Progress, ReplicaRecord};

/// Bytes of an entry beside its data, roughly.
const ENTRY_OVERHEAD: u64 = 24;

/// Entries that raft-rs wants and that are not in memory.
#[derive(Debug)]
pub(crate) struct WantedEntries {
    pub low: LogIndex,
    pub high: LogIndex,
    pub bytes_max: u64,
    pub context: GetEntriesContext,
}

/// Which snapshot a replica may be offered, where not simply the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotWish {
    /// None for now: it takes one already, or its last attempt was too short ago.
    None,
    /// The one of this index, of which it has a part.
    At(LogIndex),
}

/// The log of one replica with the durable state around it.
#[derive(Debug)]
pub(crate) struct GroupLog {
    pub record: ReplicaRecord,
    pub progress: Progress,
    tail: VecDeque<Entry>,
    tail_bytes: u64,
    last: LogIndex,
    fetched: Option<(LogIndex, Vec<Entry>)>,
    snapshots: Vec<Snapshot>,
    wishes: BTreeMap<ReplicaId, SnapshotWish>,
    wanted_entries: RefCell<Vec<WantedEntries>>,
    wanted_snapshot: Cell<bool>,
}

impl GroupLog {
    pub fn new(record: ReplicaRecord, progress: Progress, tail: Vec<Entry>) -> Self {
        let last = tail.last().map_or(progress.applied.index, |entry| LogIndex(entry.index));
        Self {
            tail_bytes: tail.iter().map(entry_bytes).sum(),
            tail: tail.into(),
            last,
            record,
            progress,
            fetched: None,
            snapshots: Vec::new(),
            wishes: BTreeMap::new(),
            wanted_entries: RefCell::default(),
            wanted_snapshot: Cell::new(false),
        }
    }

    pub fn last(&self) -> LogIndex {
        self.last
    }

    /// Adds entries after, or over, what is there. Returns the old last index if entries beyond the
    /// new end must go, and whether the record of terms changed.
    pub fn append(&mut self, entries: &[Entry]) -> (Option<LogIndex>, bool) {
        let Some(first) = entries.first().map(|entry| LogIndex(entry.index)) else {
            return (None, false);
        };
        let old_last = self.last;
        let terms_before = self.record.terms.clone();
        assert!(first <= old_last.next(), "raft-rs leaves no gap in the log");
        assert!(first > self.progress.applied.index, "raft-rs never overwrites applied entries");
        while self.tail.back().is_some_and(|entry| entry.index >= first.get()) {
            let dropped = entry_bytes(&self.tail.pop_back().expect("it has a back"));
            self.tail_bytes -= dropped;
            self.progress.log_bytes = self.progress.log_bytes.saturating_sub(dropped);
        }
        while self.record.terms.last().is_some_and(|run| run.index >= first) {
            self.record.terms.pop();
        }
        for entry in entries {
            let term = Term(entry.term);
            if self.record.terms.last().is_none_or(|run| run.term != term) {
                self.record.terms.push(LogPosition { index: LogIndex(entry.index), term });
            }
            let bytes = entry_bytes(entry);
            self.tail_bytes += bytes;
            self.progress.log_bytes += bytes;
            self.tail.push_back(entry.clone());
        }
        self.last = LogIndex(entries.last().expect("there is a first").index);
        let beyond = (self.last < old_last).then_some(old_last);
        (beyond, self.record.terms != terms_before)
    }

    /// Drops applied entries from memory until they fit.
    pub fn trim(&mut self, bytes_max: u64) {
        while self.tail_bytes > bytes_max
            && self
                .tail
                .front()
                .is_some_and(|entry| entry.index <= self.progress.applied.index.get())
        {
            self.tail_bytes -= entry_bytes(&self.tail.pop_front().expect("it has a front"));
        }
    }

    /// Drops the log through an applied index. Returns the range of indexes that went.
    pub fn truncate(&mut self, through: LogIndex) -> Option<(LogIndex, LogIndex)> {
        let through = through.min(self.progress.applied.index);
        let from = self.record.truncated.index.next();
        if through < from {
            return None;
        }
        let term = self.term_of(through).expect("the log holds its applied entries");
        let kept = self.last.get() - through.get();
        let all = self.last.get() - self.record.truncated.index.get();
        // Entries are about equal in size; after a restart nothing better is known.
        self.progress.log_bytes = self.progress.log_bytes / all.max(1) * kept;
        self.record.truncated = LogPosition { index: through, term };
        while self.tail.front().is_some_and(|entry| entry.index <= through.get()) {
            self.tail_bytes -= entry_bytes(&self.tail.pop_front().expect("it has a front"));
        }
        while self.record.terms.get(1).is_some_and(|run| run.index <= through.next()) {
            self.record.terms.remove(0);
        }
        if through == self.last {
            self.record.terms.clear();
        }
        Some((from, through.next()))
    }

    /// Puts a snapshot in place of everything. Returns the range of indexes that went.
    pub fn restore(&mut self, position: LogPosition) -> (LogIndex, LogIndex) {
        let range = (self.record.truncated.index.next(), self.last.max(position.index).next());
        self.tail.clear();
        self.tail_bytes = 0;
        self.progress.log_bytes = 0;
        self.record.terms.clear();
        self.record.truncated = position;
        self.progress.applied = position;
        self.progress.commit = self.progress.commit.max(position.index);
        self.last = position.index;
        range
    }

    /// Term of an entry that the log still knows.
    pub fn term_of(&self, index: LogIndex) -> Option<Term> {
        if index == self.record.truncated.index {
            return Some(self.record.truncated.term);
        }
        if index < self.record.truncated.index || index > self.last {
            return None;
        }
        self.record.terms.iter().rev().find(|run| run.index <= index).map(|run| run.term)
    }

    /// Lends entries read from disk for one answer.
    pub fn lend(&mut self, low: LogIndex, entries: Vec<Entry>) {
        self.fetched = Some((low, entries));
    }

    /// Ends the loan.
    pub fn end_loan(&mut self) {
        self.fetched = None;
    }

    pub fn take_wanted_entries(&self) -> Vec<WantedEntries> {
        self.wanted_entries.take()
    }

    /// Whether a snapshot was asked for since the last call.
    pub fn take_wanted_snapshot(&self) -> bool {
        self.wanted_snapshot.take()
    }

    /// Sets the snapshots that may be offered, the newest last.
    pub fn offer_snapshots(&mut self, snapshots: Vec<Snapshot>) {
        self.snapshots = snapshots;
    }

    /// The snapshots that may be offered.
    pub fn offered_snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// Sets what certain replicas are to be offered.
    pub fn wish_snapshots(&mut self, wishes: BTreeMap<ReplicaId, SnapshotWish>) {
        self.wishes = wishes;
    }

    fn first_in_tail(&self) -> LogIndex {
        self.tail.front().map_or(self.last.next(), |entry| LogIndex(entry.index))
    }
}

impl Storage for GroupLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let hard_state = HardState {
            term: self.progress.term.get(),
            vote: self.progress.vote.get(),
            commit: self.progress.commit.get(),
            ..HardState::default()
        };
        Ok(RaftState::new(hard_state, self.record.configuration.to_conf_state()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        if low <= self.record.truncated.index.get() {
            return Err(StorageError::Compacted.into());
        }
        assert!(high <= self.last.get() + 1, "raft-rs asks for entries that exist");
        if low >= self.first_in_tail().get() {
            let skip = usize::try_from(low - self.first_in_tail().get()).expect("fits memory");
            let count = usize::try_from(high - low).expect("fits memory");
            return Ok(limited(self.tail.iter().skip(skip).take(count), bytes_max));
        }
        if let Some((from, entries)) = &self.fetched
            && from.get() == low
            && !entries.is_empty()
        {
            let wanted = entries.iter().take_while(|entry| entry.index < high);
            return Ok(limited(wanted, bytes_max));
        }
        if context.can_async() {
            self.wanted_entries.borrow_mut().push(WantedEntries {
                low: LogIndex(low),
                high: LogIndex(high),
                bytes_max,
                context,
            });
            return Err(StorageError::LogTemporarilyUnavailable.into());
        }
        // Only what lies beyond the applied index is asked for without a way to wait.
        Err(StorageError::Unavailable.into())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.record.truncated.index.get() {
            return Err(StorageError::Compacted.into());
        }
        self.term_of(LogIndex(index)).map(Term::get).ok_or(StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.record.truncated.index.get() + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last.get())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let unavailable = Err(StorageError::SnapshotTemporarilyUnavailable.into());
        let wish = self.wishes.get(&ReplicaId(to));
        if wish == Some(&SnapshotWish::None) {
            return unavailable;
        }
        let fit = |snapshot: &&Snapshot| {
            let metadata = snapshot.get_metadata();
            let fresh = metadata.index >= self.record.truncated.index.get().max(request_index);
            fresh && names(metadata.get_conf_state(), to)
        };
        let wished = |snapshot: &&Snapshot| {
            wish == Some(&SnapshotWish::At(LogIndex(snapshot.get_metadata().index)))
        };
        let mut newest_first = self.snapshots.iter().rev().filter(fit);
        let found = newest_first.clone().find(wished).or_else(|| newest_first.next());
        if let Some(snapshot) = found {
            return Ok(snapshot.clone());
        }
        self.wanted_snapshot.set(true);
        unavailable
    }
}

/// Whether a configuration names a replica: a snapshot older than that is of no use to it.
fn names(state: &ConfState, replica: u64) -> bool {
    [
        state.get_voters(),
        state.get_learners(),
        state.get_voters_outgoing(),
        state.get_learners_next(),
    ]
    .iter()
    .any(|ids| ids.contains(&replica))
}

fn limited<'a>(entries: impl Iterator<Item = &'a Entry>, bytes_max: u64) -> Vec<Entry> {
    let mut bytes = 0_u64;
    let mut taken = Vec::new();
    for entry in entries {
        bytes = bytes.saturating_add(entry_bytes(entry));
        if bytes > bytes_max && !taken.is_empty() {
            break;
        }
        taken.push(entry.clone());
    }
    taken
}

pub(crate) fn entry_bytes(entry: &Entry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64 + ENTRY_OVERHEAD
}
