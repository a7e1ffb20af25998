//! Taking from raft-rs what it wants done, until there is nothing left.

use std::sync::Arc;

use placement::PartitionId;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};

use super::change::ChangeContext;
use super::propose::Outcomes;
use super::replica::{Held, Machine, Replica};
use super::turn::Turn;
use crate::cluster::{self, ClusterCommand, ClusterOutcome};
use crate::codec;
use crate::event::Effect;
use crate::ids::{Generation, LogIndex, LogPosition, ReplicaId, Revision, SyncId, Term, Version};
use crate::storage::{Store, StoreError, WriteOp};
use crate::store::{self, EntryPayload, Record, Records, WriteOutcome};

/// A group is left to its next turn after this many readies, so that others are served.
const READIES_PER_TURN: usize = 32;

impl<R> Replica<R> {
    /// Carries out what raft-rs wants. Returns whether more is left for the next turn.
    ///
    /// # Errors
    /// The store's error, which stops the node.
    pub fn drive<S: Store>(
        &mut self,
        turn: &mut Turn<'_, R>,
        disk: &S,
    ) -> Result<bool, StoreError> {
        if self.verifier.is_at_boundary() {
            return Ok(true);
        }
        let deferred = std::mem::take(&mut self.deferred);
        self.apply(deferred, turn, disk)?;
        self.advance_applied();
        self.propose_waiting(turn);
        if !self.is_leader() {
            self.refuse_reads(turn);
        }
        self.start_round(turn);
        let mut readies = 0;
        while !self.verifier.is_at_boundary() && self.raw.has_ready() && !self.ended {
            if readies == READIES_PER_TURN {
                return Ok(true);
            }
            readies += 1;
            self.take_ready(turn, disk)?;
            self.start_round(turn);
        }
        self.release_reads(turn);
        self.fetch_wanted(turn);
        self.build_wanted(turn);
        Ok(self.verifier.is_at_boundary())
    }

    /// Handles one ready, in this order:
    fn take_ready<S: Store>(&mut self, turn: &mut Turn<'_, R>, disk: &S) -> Result<(), StoreError> {
        let mut ready = self.raw.ready();
        let role_changed = ready.ss().is_some()
            || ready.hs().is_some_and(|hs| hs.term != self.log().progress.term.get());

        // 1. What must be on disk goes into the turn's batch.
        if !ready.snapshot().is_empty() {
            self.install(&ready.snapshot().clone(), turn);
        }
        self.append(&ready.take_entries(), turn);
        if let Some(hard_state) = ready.hs() {
            let progress = &mut self.raw.mut_store().progress;
            let vote_before = (progress.term, progress.vote);
            progress.term = Term(hard_state.term);
            progress.vote = ReplicaId(hard_state.vote);
            progress.commit = progress.commit.max(LogIndex(hard_state.commit));
            if (progress.term, progress.vote) != vote_before {
                self.vote_sync = Some(turn.sync);
            }
            self.progress_dirty = true;
        }

        // 2. Readers may not miss what messages are about to tell others.
        self.gate.note_commit(LogIndex(self.raw.raft.raft_log.committed));

        // 3. A leader's messages may leave at once, all others wait for what they promise. A sole
        // voter leads before its own vote is durable: its first messages wait as well.
        let number = ready.number();
        let must_sync = ready.must_sync();
        let mut at_once = ready.take_messages();
        let mut after_persist = ready.take_persisted_messages();
        if self.vote_sync.is_some() {
            after_persist.append(&mut at_once);
        }
        let committed = ready.take_committed_entries();
        let confirmed = ready.take_read_states();
        self.raw.advance_append_async(ready);
        for message in at_once {
            self.send(message, turn);
        }
        self.hold(number, must_sync, after_persist, turn);

        // 4. What is committed is applied, exactly once, in the same batch as its index.
        self.apply(committed, turn, disk)?;
        self.advance_applied();

        // 5. Rounds that a quorum has confirmed grant the lease and release reads.
        if role_changed {
            self.role_changed(turn);
        }
        for state in confirmed {
            self.round_confirmed(&state.request_ctx, LogIndex(state.index), turn);
        }
        Ok(())
    }

    fn append(&mut self, entries: &[Entry], turn: &mut Turn<'_, R>) {
        if entries.is_empty() {
            return;
        }
        let group = self.group;
        let (beyond, terms_changed) = self.raw.mut_store().append(entries);
        turn.write(WriteOp::Append { group, entries: entries.to_vec() });
        if let Some(old_last) = beyond {
            let from = self.log().last().next();
            turn.write(WriteOp::DropEntries { group, from, to: old_last.next() });
        }
        self.record_dirty |= terms_changed;
    }

    /// Lets messages leave, or holds them until what came before them is durable.
    fn hold(
        &mut self,
        ready: u64,
        must_sync: bool,
        messages: Vec<raft::eraftpb::Message>,
        turn: &mut Turn<'_, R>,
    ) {
        if must_sync {
            turn.sync_needed = true;
        }
        let sync = if must_sync { Some(turn.sync) } else { self.held.back().map(|held| held.sync) };
        let Some(sync) = sync else {
            self.raw.on_persist_ready(ready);
            for message in messages {
                self.send(message, turn);
            }
            return;
        };
        if turn.faults.send_before_persist {
            for message in messages {
                self.send(message, turn);
            }
            self.held.push_back(Held { sync, ready, messages: Vec::new() });
        } else {
            self.held.push_back(Held { sync, ready, messages });
        }
    }

    /// A sync is complete: what it covers may be spoken of.
    pub fn synced(&mut self, sync: SyncId, turn: &mut Turn<'_, R>) {
        let mut persisted = None;
        self.vote_sync = self.vote_sync.filter(|vote| *vote > sync);
        while self.held.front().is_some_and(|held| held.sync <= sync) {
            let held = self.held.pop_front().expect("it has a front");
            persisted = Some(held.ready);
            for message in held.messages {
                self.send(message, turn);
            }
        }
        if let Some(ready) = persisted {
            self.raw.on_persist_ready(ready);
            self.advance_applied();
        }
    }

    /// Tells raft-rs how much is applied. Of a snapshot it may hear only once that is durable: its
    /// applied index never passes its persisted one.
    fn advance_applied(&mut self) {
        let log = &self.raw.raft.raft_log;
        let applied = self.log().progress.applied.index.get().min(log.persisted);
        if applied > log.applied {
            self.raw.advance_apply_to(applied);
        }
    }

    fn apply<S: Store>(
        &mut self,
        entries: Vec<Entry>,
        turn: &mut Turn<'_, R>,
        disk: &S,
    ) -> Result<(), StoreError> {
        let mut entries = entries.into_iter();
        while let Some(entry) = entries.next() {
            let position = LogPosition { index: LogIndex(entry.index), term: Term(entry.term) };
            let outcomes = match entry.get_entry_type() {
                EntryType::EntryNormal if entry.data.is_empty() => Outcomes::Nothing,
                EntryType::EntryNormal => self.apply_commands(&entry, turn, disk)?,
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                    self.apply_change(&entry, turn)?
                }
            };
            let progress = &mut self.raw.mut_store().progress;
            progress.applied = position;
            progress.commit = progress.commit.max(position.index);
            self.progress_dirty = true;
            self.proposals.resolve(position.index, position.term, &outcomes, turn);
            self.truncate_if_decided(&outcomes, turn);
            if !self.configuration().contains(self.id) {
                self.ended = !turn.faults.removed_replica_votes;
                return Ok(());
            }
            // A digest is of the state at one index: what follows waits for the next batch.
            if self.digest_if_asked(position.index, &outcomes) {
                self.deferred = entries.collect();
                return Ok(());
            }
        }
        Ok(())
    }

    fn apply_commands<S: Store>(
        &mut self,
        entry: &Entry,
        turn: &mut Turn<'_, R>,
        disk: &S,
    ) -> Result<Outcomes, StoreError> {
        let generation = self.log().record.generation;
        match &mut self.machine {
            Machine::Cluster(state) => {
                let commands: Vec<ClusterCommand> =
                    codec::decode(&entry.data).map_err(|error| undecodable(entry, &error))?;
                let Some(current) = state else {
                    return Err(StoreError {
                        what: "applying a command of group 0",
                        reason: "there is no cluster state to apply it to".into(),
                    });
                };
                let next = Arc::make_mut(current);
                let outcomes = commands
                    .into_iter()
                    .map(|command| cluster::apply(next, Revision(entry.index), command))
                    .collect();
                turn.write(WriteOp::Cluster { state: Arc::clone(current) });
                Ok(Outcomes::Cluster(outcomes))
            }
            Machine::Partition { written } => {
                let payload = EntryPayload::decode(&entry.data)
                    .map_err(|error| undecodable(entry, &error))?;
                let partition = self.group.partition().expect("group 0 has the other machine");
                let mut records = TurnRecords { partition, generation, disk, written, turn };
                let mut state = self.raw.store().progress.state;
                let mut outcomes = Vec::with_capacity(payload.commands.len());
                for command in payload.commands {
                    outcomes.push(store::apply(&mut state, &mut records, command)?);
                }
                self.raw.mut_store().progress.state = state;
                Ok(Outcomes::Partition(outcomes))
            }
        }
    }

    fn apply_change(
        &mut self,
        entry: &Entry,
        turn: &mut Turn<'_, R>,
    ) -> Result<Outcomes, StoreError> {
        let mut change = ConfChangeV2::default();
        change.merge_from_bytes(&entry.data).map_err(|error| undecodable(entry, &error))?;
        let context = if change.context.is_empty() {
            ChangeContext::default()
        } else {
            codec::decode(&change.context).map_err(|error| undecodable(entry, &error))?
        };
        let conf_state = self.raw.apply_conf_change(&change).map_err(|error| StoreError {
            what: "applying a configuration change",
            reason: error.to_string(),
        })?;
        let learners = self.configuration().learners.clone();
        self.configuration_changed(&conf_state, &context, LogIndex(entry.index));
        // What a learner could wait for, a quorum may need from a voter.
        let configuration = self.configuration();
        let promoted = learners.iter().filter(|it| !configuration.learners.contains(it));
        for node in promoted.filter_map(|replica| configuration.node_of(*replica)) {
            turn.learner_mail.release_group(node, self.group, turn.effects);
        }
        Ok(Outcomes::Changed)
    }

    fn truncate_if_decided(&mut self, outcomes: &Outcomes, turn: &mut Turn<'_, R>) {
        let through = match outcomes {
            Outcomes::Partition(outcomes) => {
                outcomes.iter().rev().find_map(|outcome| match outcome {
                    WriteOutcome::Truncate(through) => Some(*through),
                    WriteOutcome::Put(_)
                    | WriteOutcome::Deleted(_)
                    | WriteOutcome::ConditionFailed(_)
                    | WriteOutcome::Verify => None,
                })
            }
            Outcomes::Cluster(outcomes) => {
                outcomes.iter().rev().find_map(|outcome| match outcome {
                    ClusterOutcome::Truncate(through) => Some(*through),
                    ClusterOutcome::Done
                    | ClusterOutcome::Refused(_)
                    | ClusterOutcome::Planned(_) => None,
                })
            }
            Outcomes::Changed | Outcomes::Nothing => None,
        };
        if let Some(through) = through {
            self.truncate_log(through, turn);
        }
    }

    /// Ends the group's part of the turn: the last ops of the batch, and what readers see once it
    /// is written.
    pub fn end_turn(&mut self, turn: &mut Turn<'_, R>) {
        let group = self.group;
        if self.record_dirty {
            turn.write(WriteOp::Replica { group, record: self.log().record.clone() });
            self.record_dirty = false;
        }
        if self.progress_dirty {
            turn.write(WriteOp::Progress { group, progress: self.log().progress });
            self.progress_dirty = false;
        }
        if let Machine::Partition { written } = &mut self.machine {
            written.clear();
        }
        self.ask_for_digest(turn);
        let cache = turn.settings.log_cache_bytes as u64;
        self.raw.mut_store().trim(cache);
    }

    /// Tells readers what the batch just written made visible.
    pub fn show_applied(&self) {
        let log = self.log();
        self.gate.note_applied(log.progress.applied.index, log.record.generation);
    }

    fn fetch_wanted(&mut self, turn: &mut Turn<'_, R>) {
        for wanted in self.log().take_wanted_entries() {
            let low = wanted.low;
            let waiting = self.fetching.entry(low).or_default();
            if waiting.is_empty() {
                turn.effects.push(Effect::FetchEntries {
                    group: self.group,
                    low,
                    high: wanted.high,
                    bytes_max: wanted.bytes_max,
                });
            }
            if waiting.len() < FETCH_WAITERS_MAX {
                waiting.push(wanted);
            }
        }
    }

    /// Entries came from disk: raft-rs asks for them again and finds them.
    pub fn fetched(&mut self, low: LogIndex, entries: Vec<Entry>) {
        let Some(waiting) = self.fetching.remove(&low) else { return };
        if entries.is_empty() {
            return;
        }
        self.raw.mut_store().lend(low, entries);
        for wanted in waiting {
            self.raw.on_entries_fetched(wanted.context);
        }
        self.raw.mut_store().end_loan();
    }
}

/// Followers that may wait for entries from one place; more than a group has.
const FETCH_WAITERS_MAX: usize = 16;

fn undecodable(entry: &Entry, error: &dyn std::fmt::Display) -> StoreError {
    StoreError {
        what: "applying a committed entry",
        reason: format!("entry {} of term {}: {error}", entry.index, entry.term),
    }
}

/// A partition's records as a command sees them within a turn.
struct TurnRecords<'a, 'b, R, S> {
    partition: PartitionId,
    generation: Generation,
    disk: &'a S,
    written: &'a mut std::collections::HashMap<bytes::Bytes, Option<Version>>,
    turn: &'a mut Turn<'b, R>,
}

impl<R, S: Store> Records for TurnRecords<'_, '_, R, S> {
    type Error = StoreError;

    fn version(&self, key: &[u8]) -> Result<Option<Version>, StoreError> {
        match self.written.get(key) {
            Some(version) => Ok(*version),
            None => self.disk.version(self.partition, self.generation, key),
        }
    }

    fn put(&mut self, key: bytes::Bytes, record: Record) {
        let Self { partition, generation, .. } = *self;
        self.written.insert(key.clone(), Some(record.version));
        self.turn.write(WriteOp::PutRecord { partition, generation, key, record: record.encode() });
    }

    fn delete(&mut self, key: bytes::Bytes) {
        let Self { partition, generation, .. } = *self;
        self.written.insert(key.clone(), None);
        self.turn.write(WriteOp::DeleteRecord { partition, generation, key });
    }
}
