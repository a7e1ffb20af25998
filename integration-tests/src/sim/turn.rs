//! A node's turn, and what its shell does with the effects.

use std::sync::Arc;

use kvcore::event::BuiltSnapshot;
use kvcore::message::{CopyFailure, PeerMessage, SnapshotManifest};
use kvcore::{Effect, Event, Generation, GroupId, Reply, SnapshotId, SyncId};
use placement::PartitionBits;
use xxhash_rust::xxh3::xxh3_128;

use super::clients::Answer;
use super::network::Parcel;
use super::node::{Copying, File};
use super::report::Violation;
use super::weather::{MICROS, MILLIS};
use super::world::{Asked, Asker, Happening, REACTION, World};

/// Records in a chunk of a snapshot; so few that copies have several.
const CHUNK_RECORDS: usize = 1;
/// Chunks of the smallest snapshot; the last ones are empty, but take their time.
const CHUNKS_MIN: usize = 8;
/// Failed tries of a chunk after which a copy is given up.
const CHUNK_FAILURES_MAX: u32 = 5;

impl World {
    /// Hands an event to a core; it sees it in its next turn.
    pub fn tell(&mut self, node: usize, event: Event<u64>) {
        if let Some(process) = &mut self.nodes[node].process {
            process.inbox.push(event);
            let reaction = self.dice.within(&REACTION);
            self.schedule_turn(node, reaction);
        }
    }

    pub(super) fn schedule_turn(&mut self, number: usize, delay: u64) {
        let at = self.now + delay;
        let node = &mut self.nodes[number];
        let incarnation = node.incarnation;
        let Some(process) = &mut node.process else { return };
        if process.turn_at.is_none_or(|due| at < due) {
            process.turn_at = Some(at);
            self.at(at, Happening::Turn { node: number, incarnation });
        }
    }

    /// Makes a turn of a node's core, audits it, and carries out what it wants.
    pub(super) fn turn(&mut self, number: usize) -> Result<(), Violation> {
        let now = self.now;
        let node = &mut self.nodes[number];
        let Some(process) = &mut node.process else { return Ok(()) };
        process.turn_at = None;
        let installing = installing(&process.inbox);
        let mut effects = Vec::new();
        let local = node.clock.local(now);
        node.disk.clear_attic();
        process
            .core
            .turn(local, &mut process.inbox, &mut node.disk, &mut effects)
            .map_err(|error| Violation::new("store", error.to_string()))?;
        let wake = node.clock.moment(process.core.next_wake(), now);
        self.note(3, &[number as u64, effects.len() as u64]);
        for effect in &effects {
            if let Effect::ReplicaCreated { group, gate } = effect {
                let process = self.nodes[number].process.as_mut().expect("it just made a turn");
                process.gates.insert(*group, Arc::clone(gate));
            }
        }
        self.audit(number, &installing)?;
        self.carry_out_all(number, effects)?;
        self.schedule_turn(number, wake - now);
        Ok(())
    }

    pub(super) fn carry_out(
        &mut self,
        number: usize,
        effect: Effect<u64>,
    ) -> Result<(), Violation> {
        match effect {
            Effect::Send { to, message } => {
                an_append_starts_where_it_says(number, &message)?;
                self.send(number, to, message);
            }
            Effect::Reply { to, reply } => self.reply(number, to, reply)?,
            Effect::Sync { sync } => self.start_sync(number, sync),
            Effect::FetchEntries { group, low, high, bytes_max } => {
                self.counters.fetches += 1;
                let delay = self.dice.within(&(50 * MICROS..3 * MILLIS));
                let incarnation = self.nodes[number].incarnation;
                self.after(
                    delay,
                    Happening::Fetch {
                        node: number,
                        incarnation,
                        group,
                        range: (low, high),
                        bytes: bytes_max,
                    },
                );
            }
            Effect::BuildSnapshot { group } => self.build(number, group),
            Effect::DropSnapshot { group: _, manifest } => {
                self.nodes[number].disk.files.remove(&manifest.id);
            }
            Effect::ReceiveSnapshot { group, manifest, generation } => {
                self.start_copy(number, group, manifest, generation);
            }
            Effect::SweepGeneration { partition, generation } => {
                if let Some(process) = &mut self.nodes[number].process {
                    process.copying.remove(&(GroupId::of_partition(partition), generation));
                }
                if !self.nodes[number].disk.sweep(partition, generation) {
                    let seen = format!("n{number} sweeps {partition:?} {generation} in use");
                    return Err(Violation::new("I9", seen));
                }
            }
            Effect::ComputeDigest { group, index, generation, state } => {
                let partition = group.partition().expect("group 0 has no digest");
                let bits = PartitionBits::new(self.setup.partition_bits).expect("few partitions");
                let disk = &self.nodes[number].disk;
                let mut digest = disk.partition_digest(partition, generation, &state, bits);
                if self.setup.faults.corrupt_digest {
                    // Each node in a place of its own, so that no two agree.
                    digest = digest.with_a_difference_in(number);
                }
                let digest = Some(digest);
                let delay = self.dice.within(&(MILLIS..20 * MILLIS));
                let incarnation = self.nodes[number].incarnation;
                let event = Event::DigestComputed { group, index, digest };
                self.after(delay, Happening::Tell { node: number, incarnation, event });
            }
            Effect::ReplicaCreated { group, gate } => {
                if let Some(process) = &mut self.nodes[number].process {
                    process.gates.insert(group, gate);
                }
            }
            Effect::ReplicaRemoved { group } => {
                self.counters.replicas_removed += 1;
                if let Some(process) = &mut self.nodes[number].process {
                    process.gates.remove(&group);
                    process.copying.retain(|(of, _), _| *of != group);
                }
            }
            Effect::LeaderChanged { .. } => {}
            Effect::ViewChanged(_) => self.counters.views_changed += 1,
            Effect::Alarm(alarm) => {
                return Err(Violation::new("alarm", format!("n{number}: {alarm}")));
            }
        }
        Ok(())
    }

    fn send(&mut self, from: usize, to: placement::NodeId, message: PeerMessage) {
        let Some(to) = self.nodes.iter().position(|node| node.id == to) else { return };
        if let PeerMessage::Raft { group, message } = &message {
            let facts = [
                from as u64,
                to as u64,
                u64::from(group.get()),
                message.msg_type as u64,
                message.term,
                message.index,
                message.commit,
                message.entries.len() as u64,
            ];
            self.note(4, &facts);
        }
        let now = self.now;
        let ambush = &mut self.network.ambush;
        if let Some(ambush) = ambush.take_if(|it| it.is_met_by(from, &message, now)) {
            self.ambush(ambush);
        }
        let arrivals = self.network.send(
            (from, to),
            message,
            self.now,
            &self.setup.weather,
            &mut self.dice,
            &mut self.counters,
        );
        for (at, parcel) in arrivals {
            self.at(at, Happening::Arrival(parcel));
        }
    }

    /// A message arrives; a stopped process finds it later, whatever becomes of the link.
    pub(super) fn arrival(&mut self, parcel: Parcel) {
        if self.nodes[parcel.to].process.is_none()
            || !self.network.arrives(&parcel, self.now, &mut self.counters)
        {
            return;
        }
        let from = self.nodes[parcel.from].id;
        let event = Event::Peer { from, messages: vec![parcel.message] };
        let node = &mut self.nodes[parcel.to];
        match &mut node.backlog {
            Some(backlog) => {
                let incarnation = node.incarnation;
                backlog.push_back(Happening::Tell { node: parcel.to, incarnation, event });
            }
            None => self.tell(parcel.to, event),
        }
    }

    fn reply(&mut self, number: usize, to: u64, reply: Reply) -> Result<(), Violation> {
        let Some(asked) = self.asked.remove(&to) else {
            return Err(Violation::new("answers", format!("request {to} was answered twice")));
        };
        self.note(5, &[to, number as u64]);
        i8_a_leader_outside_serves_nothing(&asked, &reply)?;
        match asked.by {
            Asker::Client(attempt) => self.answered(number, attempt, reply),
            Asker::Transfer => match reply {
                Reply::Done => self.counters.transfers += 1,
                _ => self.counters.transfers_given_up += 1,
            },
            Asker::Operator(errand) => self.errand_done(errand, &reply)?,
            Asker::Script => {
                self.answers.insert(to, reply);
            }
        }
        Ok(())
    }

    /// The connection to a node broke: what was asked there has an unknown outcome.
    pub(super) fn connection_lost(&mut self, asked: &Asked) {
        if let Asker::Client(attempt) = asked.by {
            let delay = self.dice.within(&(100 * MICROS..5 * MILLIS));
            self.after(delay, Happening::ClientHears { attempt, answer: Answer::Unknown });
        }
    }

    fn start_sync(&mut self, number: usize, sync: SyncId) {
        let takes = self.dice.within(&self.setup.weather.sync);
        let node = &mut self.nodes[number];
        let incarnation = node.incarnation;
        let through = node.disk.written();
        let begins = self.now.max(node.stalled_until);
        let Some(process) = &mut node.process else { return };
        process.sync_ends = process.sync_ends.max(begins + takes);
        let at = process.sync_ends;
        self.at(at, Happening::Synced { node: number, incarnation, sync, through });
    }

    pub(super) fn synced(&mut self, number: usize, sync: SyncId, through: u64) {
        let stalled_until = self.nodes[number].stalled_until;
        if self.now < stalled_until {
            let incarnation = self.nodes[number].incarnation;
            self.at(stalled_until, Happening::Synced { node: number, incarnation, sync, through });
            return;
        }
        self.nodes[number].disk.synced(through);
        self.tell(number, Event::Synced { sync });
    }

    /// Lets the syncs of a node hang for a while.
    pub fn stall(&mut self, number: usize, length: u64) {
        self.counters.disk_stalls += 1;
        let until = self.now + length;
        let node = &mut self.nodes[number];
        node.stalled_until = node.stalled_until.max(until);
    }

    fn build(&mut self, number: usize, group: GroupId) {
        self.snapshots += 1;
        let id = SnapshotId(self.snapshots);
        let source = self.nodes[number].id;
        let tables = self.nodes[number].disk.visible();
        let found = group.partition().and_then(|partition| tables.current(partition));
        let table = tables.replicas.get(&group);
        let snapshot = table.zip(found).map(|(table, (_, records))| {
            let mut content = Vec::new();
            for (key, record) in &records {
                content.extend_from_slice(key);
                content.extend_from_slice(record);
            }
            let chunks = records.len().div_ceil(CHUNK_RECORDS).max(CHUNKS_MIN);
            let manifest = SnapshotManifest {
                id,
                source,
                configuration: table.record.configuration.clone(),
                state: table.progress.state,
                chunks: u32::try_from(chunks).expect("few records"),
                bytes: content.len() as u64,
                checksum: xxh3_128(&content),
            };
            (BuiltSnapshot { position: table.progress.applied, manifest }, records)
        });
        let built = snapshot.map(|(built, records)| {
            let (position, manifest) = (built.position, built.manifest.clone());
            let file = File { group, position, manifest, records };
            self.nodes[number].disk.files.insert(id, file);
            built
        });
        let delay = self.dice.within(&(MILLIS..20 * MILLIS));
        let incarnation = self.nodes[number].incarnation;
        let event = Event::SnapshotBuilt { group, snapshot: built };
        self.after(delay, Happening::Tell { node: number, incarnation, event });
    }

    fn start_copy(
        &mut self,
        number: usize,
        group: GroupId,
        manifest: SnapshotManifest,
        generation: Generation,
    ) {
        let node = &mut self.nodes[number];
        let (of, chunks) =
            node.disk.partial.entry((group, generation)).or_insert_with(|| (manifest.clone(), 0));
        assert_eq!(*of, manifest, "a generation is filled from one snapshot");
        let chunks = *chunks;
        self.counters.snapshots_resumed += u64::from(chunks > 0);
        let source = manifest.source;
        if let Some(process) = &mut node.process {
            process.copying.retain(|(of, _), _| *of != group);
            let copying = Copying { manifest, chunks, failures: 0 };
            process.copying.insert((group, generation), copying);
        }
        self.copy_began(number, source);
        self.next_chunk(number, group, generation);
    }

    fn next_chunk(&mut self, number: usize, group: GroupId, generation: Generation) {
        let delay = self.dice.within(&self.setup.weather.chunk);
        let incarnation = self.nodes[number].incarnation;
        self.after(delay, Happening::Chunk { node: number, incarnation, group, generation });
    }

    /// Takes the next chunk of a snapshot, if its source can be reached.
    pub(super) fn chunk(&mut self, number: usize, group: GroupId, generation: Generation) {
        let Some(process) = &mut self.nodes[number].process else { return };
        let Some(mut copying) = process.copying.remove(&(group, generation)) else { return };
        let partition = group.partition().expect("group 0 carries its state in the message");
        let source = self.nodes.iter().position(|node| node.id == copying.manifest.source);
        let reachable = source.filter(|source| {
            self.nodes[*source].is_running()
                && !self.network.is_cut(number, *source, self.now)
                && !self.network.is_cut(*source, number, self.now)
        });
        let file = reachable
            .and_then(|source| self.nodes[source].disk.files.get(&copying.manifest.id).cloned());
        let event = match (reachable, file) {
            (Some(source), Some(file)) => {
                let bytes = bytes_until(&copying, copying.chunks + 1);
                let to = self.nodes[number].id;
                self.tell(source, Event::SnapshotProgress { group, to, bytes });
                self.tell(number, Event::SnapshotTaken { group, generation, bytes });
                let skip = copying.chunks as usize * CHUNK_RECORDS;
                let records = file.records.into_iter().skip(skip).take(CHUNK_RECORDS).collect();
                self.nodes[number].disk.ingest(partition, generation, &records);
                copying.chunks += 1;
                let partial = &mut self.nodes[number].disk.partial;
                if let Some((_, chunks)) = partial.get_mut(&(group, generation)) {
                    *chunks = copying.chunks;
                }
                (copying.chunks >= copying.manifest.chunks).then_some(Ok(()))
            }
            (Some(_), None) => Some(Err(CopyFailure::SourceGone)),
            (None, _) => {
                copying.failures += 1;
                (copying.failures == CHUNK_FAILURES_MAX).then_some(Err(CopyFailure::Stalled))
            }
        };
        match event {
            Some(outcome) => {
                self.counters.snapshots_broken_off += u64::from(outcome.is_err());
                if outcome.is_ok() {
                    // From here on it is data that no replica's record names yet.
                    self.nodes[number].disk.partial.remove(&(group, generation));
                }
                self.tell(number, Event::SnapshotReceived { group, generation, outcome });
            }
            None => {
                if let Some(process) = &mut self.nodes[number].process {
                    process.copying.insert((group, generation), copying);
                }
                self.next_chunk(number, group, generation);
            }
        }
    }
}

/// Bytes of a snapshot up to the end of a number of its chunks, as if all were of one size.
fn bytes_until(copying: &Copying, chunks: u32) -> u64 {
    copying.manifest.bytes * u64::from(chunks) / u64::from(copying.manifest.chunks.max(1))
}

/// Groups in which a snapshot may be put in place in the coming turn.
fn installing(inbox: &[Event<u64>]) -> Vec<GroupId> {
    let mut groups = Vec::new();
    for event in inbox {
        match event {
            Event::SnapshotReceived { group, outcome: Ok(()), .. } => groups.push(*group),
            Event::Peer { messages, .. } => {
                groups.extend(messages.iter().filter_map(|message| match message {
                    PeerMessage::Raft { group, message } if message.has_snapshot() => Some(*group),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    groups
}

/// The entries of an append follow the place that it names: its receiver counts from there.
fn an_append_starts_where_it_says(number: usize, message: &PeerMessage) -> Result<(), Violation> {
    let PeerMessage::Raft { group, message } = message else { return Ok(()) };
    let follows =
        |(place, entry): (u64, &raft::eraftpb::Entry)| entry.index == message.index + 1 + place;
    if message.get_msg_type() != raft::eraftpb::MessageType::MsgAppend
        || (0..).zip(message.entries.iter()).all(follows)
    {
        return Ok(());
    }
    let seen = format!("n{number} sends an append of group {group} with a gap: {message:?}");
    Err(Violation::new("appends", seen))
}

/// I8: a leader outside its configuration serves nothing.
fn i8_a_leader_outside_serves_nothing(asked: &Asked, reply: &Reply) -> Result<(), Violation> {
    let served = match reply {
        Reply::Written(_) | Reply::Readable | Reply::Cluster(_) => true,
        Reply::Done | Reply::NotLeader(_) | Reply::Refused(_) | Reply::Unknown => false,
    };
    if !asked.outside || !served {
        return Ok(());
    }
    let seen = format!("n{} served group {} from outside: {reply:?}", asked.node, asked.group);
    Err(Violation::new("I8", seen))
}
