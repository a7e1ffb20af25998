//! The world: nodes, network, clients and time, driven by one queue of happenings.
//!
//! Everything that is left to chance comes from the seed, and nothing else is: no wall clock, no
//! order of a hash map, no thread. Time is that of the simulation, in nanoseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;

use bytes::Bytes;
use kvcore::cluster::ClusterState;
use kvcore::group::{GroupSummary, ReadTicket, Role};
use kvcore::{Effect, Event, Generation, GroupId, LogIndex, ReplicaId, Reply, SyncId, Term};
use placement::NodeId;
use xxhash_rust::xxh3::Xxh3;

use super::cast::{Key, found_cluster, keys, node_id};
use super::clients::{Answer, Attempt, Client, Request};
use super::conduct::{describe, given_out};
use super::dice::Dice;
use super::disk::Disk;
use super::nemesis::Traps;
use super::network::{Network, Parcel};
use super::node::{Clock, SimNode};
use super::operator::Errand;
use super::oracle::Oracle;
use super::report::{Counters, Violation};
use super::weather::{MICROS, MILLIS, SECONDS, Setup};

/// Something that is going to happen.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A process makes a turn.
    Turn { node: usize, incarnation: u64 },
    /// A message arrives.
    Arrival(Parcel),
    /// A sync is complete.
    Synced { node: usize, incarnation: u64, sync: SyncId, through: u64 },
    /// The shell tells the core something.
    Tell { node: usize, incarnation: u64, event: Event<u64> },
    /// The shell reads entries for a follower.
    Fetch { node: usize, incarnation: u64, group: GroupId, range: (LogIndex, LogIndex), bytes: u64 },
    /// The next chunk of a snapshot is due.
    Chunk { node: usize, incarnation: u64, group: GroupId, generation: Generation },
    /// A client starts its next request.
    ClientActs { client: usize },
    /// A request reaches a node.
    RequestArrives { node: usize, attempt: Attempt },
    /// A client tries a request again.
    ClientTriesAgain { request: usize },
    /// A client stops waiting.
    ClientGivesUp { request: usize },
    /// An answer reaches its client.
    ClientHears { attempt: Attempt, answer: Answer },
    /// A read under the lease goes on: it reads the value, then looks at the lease again.
    GateRead {
        node: usize,
        incarnation: u64,
        attempt: Attempt,
        ticket: ReadTicket,
        read: Option<Read>,
    },
    /// A stopped process goes on; its mail is handled at once, or message by message.
    Resume { node: usize, incarnation: u64, one_by_one: bool },
    /// A node starts.
    Start { node: usize },
    /// A link is cut.
    Cut { from: usize, to: usize, until: u64 },
    /// A node's power fails.
    PowerFails { node: usize, downtime: u64 },
    /// The nemesis acts.
    Nemesis,
    /// The operator acts.
    Operator,
}

/// What a read saw: a version and a value, or nothing.
pub type Read = Option<(kvcore::Version, Bytes)>;

/// A request that a core has not answered.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The node.
    pub node: usize,
    /// Who waits for the answer.
    pub by: Asker,
    /// The group it was for.
    pub group: GroupId,
    /// Whether the replica led from outside its configuration when it was asked.
    pub outside: bool,
}

/// Who waits for an answer.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// A client.
    Client(Attempt),
    /// The operator.
    Operator(Errand),
    /// The nemesis, for a transfer.
    Transfer,
    /// A scripted test, which finds the answer under its number.
    Script,
}

/// The world.
pub struct World {
    /// What it started from.
    pub setup: Setup,
    /// Nanoseconds since it started.
    pub now: u64,
    /// The nodes.
    pub nodes: Vec<SimNode>,
    /// The links between them.
    pub network: Network,
    /// What is committed.
    pub oracle: Oracle,
    /// What was met so far.
    pub counters: Counters,
    /// The first state of the cluster.
    pub founding: Arc<ClusterState>,
    /// The keys in use.
    pub keys: Vec<Key>,
    /// Answers to scripted requests.
    pub answers: BTreeMap<u64, Reply>,
    pub(super) dice: Dice,
    pub(super) clients: Vec<Client>,
    pub(super) requests: Vec<Request>,
    pub(super) asked: BTreeMap<u64, Asked>,
    /// Pairs of plans that were applied at once, and those of them of which one was taken.
    pub(super) duels: u64,
    pub(super) duels_won: BTreeSet<u64>,
    /// Replicas that group 0 has given out, and where.
    pub(super) given_out: BTreeSet<(GroupId, ReplicaId, NodeId)>,
    /// Replicas that were owners in some epoch.
    pub(super) ever_owned: BTreeSet<ReplicaId>,
    pub(super) leaders: BTreeMap<GroupId, ReplicaId>,
    pub(super) terms: BTreeMap<(GroupId, Term), ReplicaId>,
    pub(super) values: u64,
    pub(super) snapshots: u64,
    pub(super) clearing: bool,
    pub(super) traps: Traps,
    queue: BTreeMap<(u64, u64), Happening>,
    happenings: u64,
    next_request: u64,
    trace: Xxh3,
}

impl World {
    /// A world in which every node has just started, without a cluster.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut dice = Dice::new(setup.seed);
        let founding = found_cluster(&setup);
        let keys = keys(setup.keys, setup.partition_bits);
        let drift = setup.weather.drift_per_mille;
        let nodes = (0..setup.founders + setup.spares).map(|number| SimNode {
            id: node_id(number, 0),
            disk: Disk::default(),
            clock: Clock {
                offset: 1000 * SECONDS + dice.within(&(0..1000 * SECONDS)),
                rate_per_mille: i64::try_from(dice.within(&(0..2 * drift + 1))).unwrap_or(0)
                    - i64::try_from(drift).unwrap_or(0),
            },
            process: None,
            incarnation: 0,
            backlog: None,
            stalled_until: 0,
            down_until: 0,
            lost: false,
            wipes: 0,
        });
        let nodes: Vec<SimNode> = nodes.collect();
        let mut world = Self {
            now: 0,
            network: Network::default(),
            oracle: Oracle::new(&founding),
            counters: Counters::default(),
            clients: Client::all(setup.weather.clients),
            setup,
            nodes,
            given_out: given_out(&founding).collect(),
            ever_owned: founding.replicas.iter().flatten().map(|it| it.replica).collect(),
            founding,
            keys,
            answers: BTreeMap::new(),
            dice,
            requests: Vec::new(),
            asked: BTreeMap::new(),
            duels: 0,
            duels_won: BTreeSet::new(),
            leaders: BTreeMap::new(),
            terms: BTreeMap::new(),
            values: 0,
            snapshots: 0,
            clearing: false,
            traps: Traps::default(),
            queue: BTreeMap::new(),
            happenings: 0,
            next_request: 0,
            trace: Xxh3::new(),
        };
        for node in 0..world.nodes.len() {
            let at = world.dice.within(&(0..50 * MILLIS));
            world.at(at, Happening::Start { node });
        }
        for client in 0..world.clients.len() {
            let at = SECONDS + world.dice.within(&(0..100 * MILLIS));
            world.at(at, Happening::ClientActs { client });
        }
        if !world.setup.weather.deed_every.is_empty() {
            world.at(2 * SECONDS, Happening::Nemesis);
        }
        if !world.setup.weather.order_every.is_empty() {
            world.at(1500 * MILLIS, Happening::Operator);
        }
        world
    }

    /// Lets something happen at a moment.
    pub(crate) fn at(&mut self, at: u64, happening: Happening) {
        self.happenings += 1;
        self.queue.insert((at.max(self.now), self.happenings), happening);
    }

    /// Lets something happen after a while.
    pub(crate) fn after(&mut self, delay: u64, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    /// Lets the next thing happen. Returns false if nothing is left.
    ///
    /// # Errors
    /// The invariant that broke.
    pub fn step(&mut self) -> Result<bool, Violation> {
        let Some(((at, _), happening)) = self.queue.pop_first() else { return Ok(false) };
        self.now = at;
        self.counters.events += 1;
        self.happens(happening)?;
        Ok(true)
    }

    /// Lets everything happen that is due within a time.
    ///
    /// # Errors
    /// The invariant that broke.
    pub fn run_for(&mut self, length: u64) -> Result<(), Violation> {
        let until = self.now + length;
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= until) {
            self.step()?;
        }
        self.now = until;
        Ok(())
    }

    /// Lets things happen until a condition holds, or fails after a while.
    ///
    /// # Errors
    /// The invariant that broke, or that the condition did not come to hold.
    pub fn run_until(
        &mut self,
        what: &str,
        within: u64,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), Violation> {
        let until = self.now + within;
        while !holds(self) {
            if self.now >= until {
                let seen = format!("within {} ms: {}", within / MILLIS, self.picture());
                return Err(Violation::new("liveness", format!("{what} did not happen {seen}")));
            }
            self.run_for(MILLIS)?;
        }
        Ok(())
    }

    /// Hash of all that has happened.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }

    pub(super) fn note(&mut self, what: u8, facts: &[u64]) {
        self.trace.write_u8(what);
        self.trace.write_u64(self.now);
        for fact in facts {
            self.trace.write_u64(*fact);
        }
    }

    pub(super) fn happens(&mut self, happening: Happening) -> Result<(), Violation> {
        let Some(happening) = self.unless_stopped(happening) else { return Ok(()) };
        match happening {
            Happening::Turn { node, incarnation } => {
                let due = self.process(node, incarnation).is_some_and(|it| it.turn_at.is_some());
                if due
                    && self.process(node, incarnation).and_then(|it| it.turn_at) <= Some(self.now)
                {
                    self.turn(node)?;
                }
            }
            Happening::Arrival(parcel) => self.arrival(parcel),
            Happening::Synced { node, incarnation, sync, through } => {
                if self.process(node, incarnation).is_some() {
                    self.synced(node, sync, through);
                }
            }
            Happening::Tell { node, incarnation, event } => {
                if self.process(node, incarnation).is_some() {
                    self.tell(node, event);
                }
            }
            Happening::Fetch { node, incarnation, group, range: (low, high), bytes } => {
                if self.process(node, incarnation).is_some() {
                    let entries = self.nodes[node].disk.entries(group, low, high, bytes);
                    self.tell(node, Event::EntriesFetched { group, low, entries });
                }
            }
            Happening::Chunk { node, incarnation, group, generation } => {
                if self.process(node, incarnation).is_some() {
                    self.chunk(node, group, generation);
                }
            }
            Happening::ClientActs { client } => self.client_acts(client),
            Happening::RequestArrives { node, attempt } => self.request_arrives(node, attempt),
            Happening::ClientTriesAgain { request } => self.client_tries_again(request),
            Happening::ClientGivesUp { request } => self.client_gives_up(request),
            Happening::ClientHears { attempt, answer } => self.client_hears(attempt, answer)?,
            Happening::GateRead { node, incarnation, attempt, ticket, read } => {
                if self.process(node, incarnation).is_some() {
                    self.gate_read(node, attempt, ticket, read)?;
                }
            }
            Happening::Resume { node, incarnation, one_by_one } => {
                self.resume(node, incarnation, one_by_one)?;
            }
            Happening::Start { node } => self.start(node)?,
            Happening::Cut { from, to, until } => self.network.cut(from, to, until),
            Happening::PowerFails { node, downtime } => self.power_fails(node, downtime),
            Happening::Nemesis => self.nemesis(),
            Happening::Operator => self.operator_acts(),
        }
        Ok(())
    }

    /// A stopped process notices nothing: what would reach it waits.
    fn unless_stopped(&mut self, happening: Happening) -> Option<Happening> {
        let node = match &happening {
            Happening::Turn { node, .. }
            | Happening::Tell { node, .. }
            | Happening::Fetch { node, .. }
            | Happening::Chunk { node, .. }
            | Happening::RequestArrives { node, .. }
            | Happening::GateRead { node, .. } => *node,
            Happening::Synced { node, incarnation, sync, through } => {
                // The kernel completes a sync whether or not the process looks.
                if let Some(backlog) = &mut self.nodes[*node].backlog {
                    let (incarnation, sync) = (*incarnation, *sync);
                    let event = Event::Synced { sync };
                    backlog.push_back(Happening::Tell { node: *node, incarnation, event });
                    self.nodes[*node].disk.synced(*through);
                    return None;
                }
                *node
            }
            Happening::Arrival(_)
            | Happening::ClientActs { .. }
            | Happening::ClientTriesAgain { .. }
            | Happening::ClientGivesUp { .. }
            | Happening::ClientHears { .. }
            | Happening::Resume { .. }
            | Happening::Start { .. }
            | Happening::Cut { .. }
            | Happening::PowerFails { .. }
            | Happening::Nemesis
            | Happening::Operator => return Some(happening),
        };
        match &mut self.nodes[node].backlog {
            Some(backlog) => {
                backlog.push_back(happening);
                None
            }
            None => Some(happening),
        }
    }

    /// Asks a core something; the answer finds its way by the number.
    pub(crate) fn ask(
        &mut self,
        node: usize,
        group: GroupId,
        by: Asker,
        event: impl FnOnce(u64) -> Event<u64>,
    ) -> u64 {
        self.next_request += 1;
        let request = self.next_request;
        let outside = self.leads_from_outside(node, group);
        self.asked.insert(request, Asked { node, by, group, outside });
        self.tell(node, event(request));
        request
    }

    /// The node that leads a group in its highest term, by what the running nodes think.
    #[must_use]
    pub fn leader(&self, group: GroupId) -> Option<usize> {
        let seen = self.nodes.iter().enumerate().filter_map(|(number, node)| {
            let seen = node.process.as_ref()?.seen.get(&group)?;
            (seen.role == Role::Leader).then_some((seen.term, number))
        });
        seen.max().map(|(_, number)| number)
    }

    /// The leader of a group, if it runs, with what it thinks of the group.
    pub(super) fn leader_of(&self, group: GroupId) -> Option<(usize, GroupSummary)> {
        let leader = self.leader(group)?;
        if !self.nodes[leader].is_running() {
            return None;
        }
        self.summary(leader, group).map(|summary| (leader, summary))
    }

    /// The replica of a group on a node.
    #[must_use]
    pub fn summary(&self, node: usize, group: GroupId) -> Option<GroupSummary> {
        let process = self.nodes[node].process.as_ref()?;
        process.core.summaries().into_iter().find(|it| it.group == group)
    }

    /// Carries out what a core wants, in order.
    pub(super) fn carry_out_all(
        &mut self,
        node: usize,
        effects: Vec<Effect<u64>>,
    ) -> Result<(), Violation> {
        for effect in effects {
            self.carry_out(node, effect)?;
        }
        Ok(())
    }

    /// The replicas of all running nodes, for a person to read.
    #[must_use]
    pub fn picture(&self) -> String {
        let mut lines = vec![format!("at {} ms", self.now / MILLIS)];
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(process) = &node.process else {
                lines.push(format!("n{number}: down"));
                continue;
            };
            let stopped = if node.backlog.is_some() { " (stopped)" } else { "" };
            for it in process.core.summaries() {
                lines.push(format!(
                    "n{number}{stopped}: group {} replica {} {:?} term {} log {}..={} commit {} \
                     applied {} voters {:?} outgoing {:?} learners {:?}",
                    it.group,
                    it.replica,
                    it.role,
                    it.term,
                    it.first,
                    it.last,
                    it.commit,
                    it.applied,
                    it.configuration.voters,
                    it.configuration.voters_outgoing,
                    it.configuration.learners,
                ));
            }
        }
        let plans = self.oracle.cluster().map_or(&[][..], |state| &state.plans);
        lines.extend(plans.iter().filter(|plan| !plan.is_over()).map(describe));
        lines.join("\n")
    }
}

/// How long a process takes to look at what has arrived.
pub(super) const REACTION: std::ops::Range<u64> = 10 * MICROS..300 * MICROS;
