//! Clients: they read and write a few hot keys through any node, follow hints, give up, and keep a
//! history that is checked at the end.
//!
//! A request that was refused as not applied is tried again elsewhere under the same invocation,
//! with a value of its own for each attempt, so that a refusal that was a lie shows. A request
//! without an answer is never tried again: its outcome is unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kvcore::group::ReadTicket;
use kvcore::store::{Command, Condition, Record, WriteOutcome};
use kvcore::{Event, GroupId, NotLeader, Reply, Version};

use super::history::NEVER;
use super::report::Violation;
use super::weather::{MICROS, MILLIS, SECONDS};
use super::world::{Asker, Happening, Read, World};

/// How long a patient client waits for an answer in all.
const PATIENCE: u64 = 2 * SECONDS;
/// How long the others wait: so briefly that a leader without followers does not keep them.
const IMPATIENCE: u64 = 120 * MILLIS;
/// A lease with less than this left is renewed by its readers.
const RENEW_WITHIN: Duration = Duration::from_millis(250);

/// One try of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The request.
    pub request: usize,
    /// Counts its tries.
    pub number: u32,
}

/// What a client is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A write was decided.
    Written(WriteOutcome),
    /// A read saw this.
    Saw(Read),
    /// Nothing was changed; another node may lead.
    NotApplied(Option<usize>),
    /// The outcome is unknown.
    Unknown,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Store a value.
    Put(Condition),
    /// Remove the key.
    Delete(Condition),
    /// Read it.
    Read,
}

/// A request, from its invocation to its answer.
#[derive(Clone, Debug)]
pub struct Request {
    client: usize,
    /// The key's place among all keys.
    pub key: usize,
    /// What is wanted.
    pub wish: Wish,
    /// When it was invoked.
    pub invoked: u64,
    /// When it was answered.
    pub returned: u64,
    attempts: u32,
    /// Whether an attempt is under way.
    open: bool,
    /// The value of the last attempt.
    pub value: Bytes,
    /// The values of attempts that were refused.
    pub refused: Vec<Bytes>,
    /// The answer.
    pub answer: Option<Answer>,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Habit {
    /// It reads and writes, and waits long.
    #[default]
    Patient,
    /// It reads and writes, and gives up soon.
    Impatient,
    /// It only reads, and gives up soon.
    Reader,
}

/// A client.
#[derive(Clone, Debug, Default)]
pub struct Client {
    habit: Habit,
    busy: Option<usize>,
    leaders: BTreeMap<GroupId, usize>,
    versions: BTreeMap<usize, Option<Version>>,
}

impl Client {
    /// This many clients.
    #[must_use]
    pub fn all(count: usize) -> Vec<Self> {
        let habits = [Habit::Patient, Habit::Impatient, Habit::Reader];
        let client =
            |number: usize| Self { habit: habits[number % habits.len()], ..Self::default() };
        (0..count).map(client).collect()
    }

    fn patience(&self) -> u64 {
        match self.habit {
            Habit::Patient => PATIENCE,
            Habit::Impatient | Habit::Reader => IMPATIENCE,
        }
    }
}

impl World {
    pub(super) fn client_acts(&mut self, client: usize) {
        if self.clearing || self.clients[client].busy.is_some() {
            return;
        }
        let key = self.dice.index(self.keys.len());
        let known = self.clients[client].versions.get(&key).copied();
        let condition = match (self.dice.index(6), known) {
            (0, Some(Some(version))) => Condition::Version(version),
            (1, Some(None)) => Condition::Absent,
            (2, _) => Condition::Present,
            _ => Condition::Always,
        };
        let reads_only = self.clients[client].habit == Habit::Reader;
        let wish = match self.dice.index(20) {
            0..9 => Wish::Read,
            _ if reads_only => Wish::Read,
            9..18 => Wish::Put(condition),
            _ => Wish::Delete(condition),
        };
        let request = self.requests.len();
        self.requests.push(Request {
            client,
            key,
            wish,
            invoked: self.now,
            returned: NEVER,
            attempts: 0,
            open: false,
            value: Bytes::new(),
            refused: Vec::new(),
            answer: None,
        });
        self.clients[client].busy = Some(request);
        self.attempt(request);
        let patience = self.clients[client].patience();
        self.after(patience, Happening::ClientGivesUp { request });
    }

    fn attempt(&mut self, number: usize) {
        self.values += 1;
        let padding = self.dice.index(120);
        let value = Bytes::from(format!("{}:{}", self.values, "x".repeat(padding)));
        let request = &mut self.requests[number];
        request.attempts += 1;
        request.open = true;
        request.value = value;
        let group = GroupId::of_partition(self.keys[request.key].partition);
        let attempt = Attempt { request: number, number: request.attempts };
        let hint = self.clients[request.client].leaders.get(&group).copied();
        // Reads try any node now and then: one that led a moment ago must refuse them.
        let stray = if request.wish == Wish::Read { 400 } else { 100 };
        let node = match hint {
            Some(node) if !self.dice.chance(stray) => node,
            _ => self.dice.index(self.nodes.len()),
        };
        let delay = self.dice.within(&(50 * MICROS..MILLIS));
        self.after(delay, Happening::RequestArrives { node, attempt });
    }

    fn is_current(&self, attempt: Attempt) -> bool {
        let request = &self.requests[attempt.request];
        request.answer.is_none() && request.open && request.attempts == attempt.number
    }

    pub(super) fn request_arrives(&mut self, node: usize, attempt: Attempt) {
        if self.nodes[node].process.is_none() {
            self.answer(attempt, Answer::NotApplied(None));
            return;
        }
        let request = &self.requests[attempt.request];
        let key = self.keys[request.key].clone();
        let value = request.value.clone();
        let command = match request.wish {
            Wish::Put(condition) => {
                Command::Put { key: key.bytes, value, content_type: None, condition }
            }
            Wish::Delete(condition) => Command::Delete { key: key.bytes, condition },
            Wish::Read => {
                self.read_arrives(node, attempt);
                return;
            }
        };
        let (partition, group) = (key.partition, GroupId::of_partition(key.partition));
        self.ask(node, group, Asker::Client(attempt), |reply| Event::Write {
            partition,
            command,
            reply,
        });
    }

    fn read_arrives(&mut self, number: usize, attempt: Attempt) {
        let partition = self.keys[self.requests[attempt.request].key].partition;
        let node = &self.nodes[number];
        let local = node.clock.local(self.now);
        let gate = node
            .process
            .as_ref()
            .and_then(|process| process.gates.get(&GroupId::of_partition(partition)));
        match gate.and_then(|gate| gate.arrive(local, RENEW_WITHIN)) {
            Some(ticket) => {
                if ticket.renew {
                    self.tell(number, Event::RenewLease { partition });
                }
                self.gate_step(number, attempt, ticket, None);
            }
            None => self.ask_for_round(number, attempt),
        }
    }

    fn gate_step(&mut self, node: usize, attempt: Attempt, ticket: ReadTicket, read: Option<Read>) {
        let delay = self.dice.within(&(MICROS..500 * MICROS));
        let incarnation = self.nodes[node].incarnation;
        self.after(delay, Happening::GateRead { node, incarnation, attempt, ticket, read });
    }

    fn ask_for_round(&mut self, node: usize, attempt: Attempt) {
        let partition = self.keys[self.requests[attempt.request].key].partition;
        let group = GroupId::of_partition(partition);
        self.ask(node, group, Asker::Client(attempt), |reply| Event::Read { partition, reply });
    }

    pub(super) fn gate_read(
        &mut self,
        number: usize,
        attempt: Attempt,
        ticket: ReadTicket,
        read: Option<Read>,
    ) -> Result<(), Violation> {
        let Some(read) = read else {
            let read = self.look_up(number, attempt)?;
            self.gate_step(number, attempt, ticket, Some(read));
            return Ok(());
        };
        let group = GroupId::of_partition(self.keys[self.requests[attempt.request].key].partition);
        let node = &self.nodes[number];
        let local = node.clock.local(self.now);
        let gate = node.process.as_ref().and_then(|process| process.gates.get(&group));
        if gate.is_some_and(|gate| gate.still_held(&ticket, local)) {
            self.counters.lease_reads += 1;
            self.answer(attempt, Answer::Saw(read));
        } else {
            self.ask_for_round(number, attempt);
        }
        Ok(())
    }

    /// The value as the node's store has it.
    fn look_up(&self, number: usize, attempt: Attempt) -> Result<Read, Violation> {
        let key = &self.keys[self.requests[attempt.request].key];
        let node = &self.nodes[number];
        let gate = node
            .process
            .as_ref()
            .and_then(|process| process.gates.get(&GroupId::of_partition(key.partition)));
        let Some(gate) = gate else { return Ok(None) };
        let records = node.disk.visible().data.get(&(key.partition, gate.generation()));
        let Some(bytes) = records.and_then(|records| records.get(&key.bytes)) else {
            return Ok(None);
        };
        let record = Record::decode(bytes.clone())
            .map_err(|error| Violation::new("codec", error.to_string()))?;
        Ok(Some((record.version, record.value)))
    }

    /// A core answered an attempt.
    pub(super) fn answered(&mut self, number: usize, attempt: Attempt, reply: Reply) {
        let hint = |hint: NotLeader| {
            hint.leader.and_then(|leader| self.nodes.iter().position(|node| node.id == leader))
        };
        let answer = match reply {
            Reply::Written(outcome) => Answer::Written(outcome),
            Reply::Readable => {
                self.counters.round_reads += 1;
                match self.look_up(number, attempt) {
                    Ok(read) => Answer::Saw(read),
                    Err(_) => Answer::Unknown,
                }
            }
            Reply::NotLeader(leader) => Answer::NotApplied(hint(leader)),
            Reply::Refused(_) => Answer::NotApplied(None),
            Reply::Unknown | Reply::Done | Reply::Cluster(_) => Answer::Unknown,
        };
        self.answer(attempt, answer);
    }

    fn answer(&mut self, attempt: Attempt, answer: Answer) {
        let delay = self.dice.within(&(50 * MICROS..MILLIS));
        self.after(delay, Happening::ClientHears { attempt, answer });
    }

    pub(super) fn client_hears(
        &mut self,
        attempt: Attempt,
        answer: Answer,
    ) -> Result<(), Violation> {
        i1_acknowledged_writes_are_committed(self, attempt, &answer)?;
        if !self.is_current(attempt) {
            return Ok(());
        }
        let (client, group) = {
            let request = &self.requests[attempt.request];
            (request.client, GroupId::of_partition(self.keys[request.key].partition))
        };
        if let Answer::NotApplied(leader) = answer {
            self.counters.requests_refused += 1;
            let patience = self.clients[client].patience();
            let request = &mut self.requests[attempt.request];
            request.open = false;
            let value = request.value.clone();
            request.refused.push(value);
            match leader {
                Some(leader) => self.clients[client].leaders.insert(group, leader),
                None => self.clients[client].leaders.remove(&group),
            };
            if self.now < request.invoked + patience && !self.clearing {
                let request = attempt.request;
                let wait = if leader.is_some() { 0..MILLIS } else { MILLIS..30 * MILLIS };
                let wait = self.dice.within(&wait);
                self.after(wait, Happening::ClientTriesAgain { request });
            } else {
                self.finish(attempt.request);
            }
            return Ok(());
        }
        let seen = match &answer {
            Answer::Written(WriteOutcome::Put(version)) => Some(Some(*version)),
            Answer::Written(WriteOutcome::Deleted(_)) => Some(None),
            Answer::Written(WriteOutcome::ConditionFailed(version)) => Some(*version),
            Answer::Saw(read) => Some(read.as_ref().map(|(version, _)| *version)),
            Answer::Written(WriteOutcome::Truncate(_) | WriteOutcome::Verify)
            | Answer::NotApplied(_)
            | Answer::Unknown => None,
        };
        let key = self.requests[attempt.request].key;
        if let Some(seen) = seen {
            self.clients[client].versions.insert(key, seen);
        }
        match &answer {
            Answer::Written(WriteOutcome::ConditionFailed(_)) => {
                self.counters.conditions_refused += 1;
            }
            Answer::Written(_) => self.counters.writes_acknowledged += 1,
            Answer::Unknown => {
                self.counters.outcomes_unknown += 1;
                self.clients[client].leaders.remove(&group);
            }
            Answer::Saw(_) | Answer::NotApplied(_) => {}
        }
        let request = &mut self.requests[attempt.request];
        if !matches!(answer, Answer::Unknown) {
            request.returned = self.now;
        }
        request.answer = Some(answer);
        self.finish(attempt.request);
        Ok(())
    }

    pub(super) fn client_tries_again(&mut self, request: usize) {
        let it = &self.requests[request];
        if it.answer.is_none() && !it.open && self.clients[it.client].busy == Some(request) {
            self.attempt(request);
        }
    }

    pub(super) fn client_gives_up(&mut self, request: usize) {
        let it = &mut self.requests[request];
        if it.answer.is_some() || self.clients[it.client].busy != Some(request) {
            return;
        }
        if it.open {
            it.answer = Some(Answer::Unknown);
            self.counters.outcomes_unknown += 1;
        }
        let group = GroupId::of_partition(self.keys[it.key].partition);
        let client = it.client;
        self.clients[client].leaders.remove(&group);
        self.finish(request);
    }

    fn finish(&mut self, request: usize) {
        let client = self.requests[request].client;
        self.clients[client].busy = None;
        let think = self.dice.within(&self.setup.weather.think);
        self.after(think, Happening::ClientActs { client });
    }
}

/// I1: what is acknowledged is committed, under the version that was told.
fn i1_acknowledged_writes_are_committed(
    world: &World,
    attempt: Attempt,
    answer: &Answer,
) -> Result<(), Violation> {
    let request = &world.requests[attempt.request];
    let Answer::Written(outcome) = answer else { return Ok(()) };
    let holds = match outcome {
        WriteOutcome::Put(version) => {
            attempt.number != request.attempts
                || world.oracle.version_of(&request.value) == Some(*version)
        }
        WriteOutcome::Deleted(version) => world
            .oracle
            .effected(&world.keys[request.key].bytes)
            .iter()
            .any(|effect| effect.version == *version && effect.value.is_none()),
        WriteOutcome::ConditionFailed(_) => true,
        WriteOutcome::Truncate(_) | WriteOutcome::Verify => false,
    };
    if holds {
        return Ok(());
    }
    Err(Violation::new("I1", format!("{request:?} was acknowledged as {outcome:?}")))
}
