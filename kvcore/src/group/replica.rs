//! A replica: its parts, its birth, and messages on their way in.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use placement::NodeId;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Config, ProgressState, RawNode, StateRole};

use super::gate::ReadGate;
use super::leadership::Leadership;
use super::learner_mail::LEISURE;
use super::log::{GroupLog, WantedEntries};
use super::propose::{Proposals, Waiting};
use super::reads::Reads;
use super::snapshot::{Snapshots, is_cluster_snapshot};
use super::turn::Turn;
use super::verify::Verifier;
use crate::cluster::ClusterState;
use crate::event::Effect;
use crate::ids::{Generation, GroupId, LogIndex, LogPosition, ReplicaId, SyncId, Term, Version};
use crate::message::PeerMessage;
use crate::settings::Settings;
use crate::storage::{BootReplica, Configuration, Progress, ReplicaRecord};
use crate::store::PartitionState;
use crate::time::Time;

/// First position of every group's log: born from a snapshot, so that a later replica starts from
/// one too and knows the configuration.
pub(crate) const BIRTH: LogPosition = LogPosition { index: LogIndex(1), term: Term(1) };

/// The state machine that a group drives.
#[derive(Debug)]
pub(crate) enum Machine {
    /// Group 0: the cluster state, absent until a replica that is no founder got its snapshot.
    Cluster(Option<Arc<ClusterState>>),
    /// A partition: its records are in the store, these are the versions of keys written in the
    /// batch that is being built.
    Partition { written: HashMap<Bytes, Option<Version>> },
}

/// Messages and a ready that wait for a sync.
#[derive(Debug)]
pub(crate) struct Held {
    pub sync: SyncId,
    pub ready: u64,
    pub messages: Vec<Message>,
}

/// One replica of a group.
pub(crate) struct Replica<R> {
    pub group: GroupId,
    pub id: ReplicaId,
    pub raw: RawNode<GroupLog>,
    pub machine: Machine,
    pub waiting: Waiting<R>,
    pub proposals: Proposals<R>,
    pub reads: Reads<R>,
    pub leadership: Leadership<R>,
    pub snapshots: Snapshots,
    pub gate: Arc<ReadGate>,
    pub held: VecDeque<Held>,
    /// The sync that makes the last change of term or vote durable, until it is complete.
    pub vote_sync: Option<SyncId>,
    pub fetching: BTreeMap<LogIndex, Vec<WantedEntries>>,
    /// Nodes that messages came from, for replicas that the configuration here does not name yet.
    pub senders: BTreeMap<ReplicaId, NodeId>,
    /// When each other replica was heard last. raft-rs forgets at every check of its quorum whom it
    /// has heard, until they answer again: that is no sign of death.
    pub heard: BTreeMap<ReplicaId, Time>,
    /// A truncation is on its way, through this index. Forgotten whenever a command of the node's
    /// own is dropped, so that it is proposed again.
    pub truncating: Option<LogIndex>,
    pub record_dirty: bool,
    pub progress_dirty: bool,
    /// Committed entries behind one that ends its batch; applied first in the next turn.
    pub deferred: Vec<Entry>,
    /// Comparisons of digests.
    pub verifier: Verifier,
    /// No move waits for what the learners of this leader have.
    learners_at_leisure: bool,
    /// The replica applied its own removal.
    pub ended: bool,
}

/// What a replica is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows and votes.
    Follower,
    /// It follows without a vote.
    Learner,
    /// It tries to become leader.
    Candidate,
}

/// A replica at a glance.
#[derive(Clone, Debug)]
pub struct GroupSummary {
    /// The group.
    pub group: GroupId,
    /// The replica's id.
    pub replica: ReplicaId,
    /// What it is.
    pub role: Role,
    /// The leader's node, if known.
    pub leader: Option<NodeId>,
    /// Raft's term.
    pub term: Term,
    /// Known committed index.
    pub commit: LogIndex,
    /// Applied index.
    pub applied: LogIndex,
    /// First index of the log.
    pub first: LogIndex,
    /// Last index of the log.
    pub last: LogIndex,
    /// Bytes in the log, roughly.
    pub log_bytes: u64,
    /// The generation of the data that is current.
    pub generation: Generation,
    /// The applied configuration.
    pub configuration: Configuration,
    /// The partition's state beside its records.
    pub state: PartitionState,
}

/// How a replica comes into being.
pub(crate) enum Birth {
    /// With its group: a synthetic snapshot of an empty partition, or of the founding state.
    Founder(Configuration),
    /// Later: it knows nothing until the leader sends a snapshot.
    Later,
}

impl Birth {
    /// What a replica born now has on disk.
    pub fn records(
        self,
        replica: ReplicaId,
        rank: u8,
        generation: Generation,
    ) -> (ReplicaRecord, Progress) {
        let (position, configuration) = match self {
            Self::Founder(configuration) => (BIRTH, configuration),
            Self::Later => (LogPosition::default(), Configuration::default()),
        };
        let record = ReplicaRecord {
            replica,
            rank,
            generation,
            truncated: position,
            terms: Vec::new(),
            configuration,
        };
        let progress = Progress {
            term: position.term,
            commit: position.index,
            applied: position,
            ..Progress::default()
        };
        (record, progress)
    }
}

impl<R> Replica<R> {
    /// A replica from what is on disk.
    pub fn boot(
        boot: BootReplica,
        machine: Machine,
        gate: ReadGate,
        now: Time,
        settings: &Settings,
    ) -> Self {
        let BootReplica { group, record, progress, tail, generation_max } = boot;
        let id = record.replica;
        let rank = record.rank;
        let generation = record.generation;
        let config = Config {
            id: id.get(),
            election_tick: settings.election_ticks,
            max_election_tick: settings.election_ticks_end(RANK_MAX),
            heartbeat_tick: settings.heartbeat_ticks,
            applied: progress.applied.index.get(),
            max_size_per_msg: settings.append_bytes_max,
            max_inflight_msgs: settings.append_inflight_max,
            check_quorum: true,
            pre_vote: true,
            // raft-rs would add entries to an empty append that waits, without looking where that
            // one starts: the follower then acknowledges entries that it does not have.
            batch_append: false,
            skip_bcast_commit: true,
            max_uncommitted_size: settings.uncommitted_bytes_max,
            max_committed_size_per_ready: settings.append_bytes_max,
            ..Config::default()
        };
        let log = GroupLog::new(record, progress, tail);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger)
            .expect("the configuration is made of validated settings");
        gate.note_applied(progress.applied.index, generation);
        gate.note_commit(progress.commit);
        let mut replica = Self {
            group,
            id,
            raw,
            machine,
            waiting: Waiting::default(),
            proposals: Proposals::default(),
            reads: Reads::default(),
            leadership: Leadership::new(now, rank),
            snapshots: Snapshots::new(generation_max.max(generation)),
            gate: Arc::new(gate),
            held: VecDeque::new(),
            vote_sync: None,
            fetching: BTreeMap::new(),
            senders: BTreeMap::new(),
            heard: BTreeMap::new(),
            truncating: None,
            record_dirty: false,
            progress_dirty: false,
            deferred: Vec::new(),
            verifier: Verifier::default(),
            learners_at_leisure: false,
            ended: false,
        };
        replica.pin_election_timeout(settings);
        replica
    }

    /// The highest generation that this replica has used.
    pub fn generation_max(&self) -> Generation {
        self.snapshots.generation_max()
    }

    pub fn log(&self) -> &GroupLog {
        self.raw.store()
    }

    pub fn configuration(&self) -> &Configuration {
        &self.log().record.configuration
    }

    pub fn term(&self) -> Term {
        Term(self.raw.raft.term)
    }

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// The leader's replica, if one is known.
    pub fn leader(&self) -> Option<ReplicaId> {
        match self.raw.raft.leader_id {
            0 => None,
            id => Some(ReplicaId(id)),
        }
    }

    /// The leader's node, if one is known.
    pub fn leader_node(&self) -> Option<NodeId> {
        self.leader().and_then(|leader| self.node_of(leader))
    }

    pub fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        self.configuration().node_of(replica).or_else(|| self.senders.get(&replica).copied())
    }

    pub fn summary(&self) -> GroupSummary {
        let log = self.log();
        let role = match self.raw.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower if log.record.configuration.is_voter(self.id) => Role::Follower,
            StateRole::Follower => Role::Learner,
        };
        GroupSummary {
            group: self.group,
            replica: self.id,
            role,
            leader: self.leader_node(),
            term: self.term(),
            commit: LogIndex(self.raw.raft.raft_log.committed),
            applied: log.progress.applied.index,
            first: log.record.truncated.index.next(),
            last: log.last(),
            log_bytes: log.progress.log_bytes,
            generation: log.record.generation,
            configuration: log.record.configuration.clone(),
            state: log.progress.state,
        }
    }

    /// Takes a message from another replica.
    pub fn step(&mut self, from: NodeId, message: Message, turn: &mut Turn<'_, R>) {
        if message.to != self.id.get() || message.from == 0 {
            return;
        }
        let sender = ReplicaId(message.from);
        if self.configuration().node_of(sender).is_none() {
            if self.senders.len() >= SENDERS_MAX {
                self.senders.clear();
            }
            self.senders.insert(sender, from);
        }
        if self.leadership.refuses(&message, turn) {
            return;
        }
        if message.get_msg_type() == MessageType::MsgTimeoutNow && !self.is_log_durable() {
            return;
        }
        if message.get_msg_type() == MessageType::MsgSnapshot {
            let now = match self.machine {
                Machine::Cluster(_) => is_cluster_snapshot(&message.get_snapshot().data),
                Machine::Partition { .. } => self.snapshot_arrived(&message, turn),
            };
            if !now {
                return;
            }
        }
        self.step_raft(message, turn);
    }

    /// Holds every message of a replica just born until it is durable.
    pub fn hold_until(&mut self, sync: SyncId) {
        self.held.push_back(Held { sync, ready: 0, messages: Vec::new() });
    }

    /// The replica ends: whoever waits is answered.
    pub fn abandon(&mut self, turn: &mut Turn<'_, R>) {
        self.refuse_waiting(turn);
        self.abandon_reads(turn);
        self.proposals.abandon(turn);
        self.abandon_copies(turn);
        self.gate.set_lease(Time::ZERO);
    }

    /// Hands a message to raft-rs and notes a sign of life of the leader.
    pub fn step_raft(&mut self, message: Message, turn: &mut Turn<'_, R>) {
        let sender = message.from;
        if self.is_leader() && self.configuration().contains(ReplicaId(sender)) {
            self.heard.insert(ReplicaId(sender), turn.now);
        }
        let from_leader = matches!(
            message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        let term = message.term;
        // A message that raft-rs refuses, for instance from a replica it does not know, changes
        // nothing; its sender learns from the answers to others.
        let _ = self.raw.step(message);
        if from_leader && self.raw.raft.term == term && self.raw.raft.leader_id == sender {
            self.leadership.heard_from_leader(turn.now);
        }
        self.pin_election_timeout(turn.settings);
    }

    /// Sends a Raft message to the node of its receiver; drops it if that is not known.
    pub fn send(&self, message: Message, turn: &mut Turn<'_, R>) {
        let from_leader = matches!(
            message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        if turn.muted && from_leader {
            return;
        }
        let receiver = ReplicaId(message.to);
        let Some(to) = self.node_of(receiver) else { return };
        if message.get_msg_type() == MessageType::MsgAppend {
            if self.follows_as_learner(receiver) && !message.entries.is_empty() {
                let due = turn.now + self.learner_patience();
                turn.learner_mail.hold(to, self.group, message, due, turn.effects);
                return;
            }
            // It became a voter just now, or has to be probed: nothing may come after this.
            turn.learner_mail.release_group(to, self.group, turn.effects);
        }
        let message = PeerMessage::Raft { group: self.group, message };
        turn.effects.push(Effect::Send { to, message });
    }

    /// How long a learner's entries may wait beyond the next tick.
    fn learner_patience(&self) -> Duration {
        let at_leisure = self.learners_at_leisure && !self.verifier.is_busy();
        if at_leisure { LEISURE } else { Duration::ZERO }
    }

    /// Says whether no move waits for what the learners have; if one begins to, what is held for them
    /// leaves.
    pub fn set_leisure(&mut self, at_leisure: bool, turn: &mut Turn<'_, R>) {
        let was = std::mem::replace(&mut self.learners_at_leisure, at_leisure);
        if was && !at_leisure {
            self.hurry_learners(turn);
        }
    }

    /// Sends what is held for the learners.
    pub fn hurry_learners(&self, turn: &mut Turn<'_, R>) {
        for node in self.configuration().members.iter().map(|member| member.node) {
            turn.learner_mail.release_group(node, self.group, turn.effects);
        }
    }

    /// Whether a replica counts in no quorum, and raft-rs sends it entries without waiting for the
    /// acknowledgement of those before.
    fn follows_as_learner(&self, receiver: ReplicaId) -> bool {
        let progress = self.raw.raft.prs().get(receiver.get());
        self.group != GroupId::CLUSTER
            && self.configuration().learners.contains(&receiver)
            && progress.is_some_and(|progress| progress.state == ProgressState::Replicate)
    }
}

/// The last place among owners that has an election range of its own; later ones share it.
pub(crate) const RANK_MAX: u8 = 7;

/// Senders remembered per replica; more than any configuration has.
const SENDERS_MAX: usize = 16;
