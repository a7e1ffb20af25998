//! The network between nodes: which links are cut, and what becomes of a message.

use std::collections::BTreeMap;

use kvcore::GroupId;
use kvcore::message::PeerMessage;
use raft::eraftpb::MessageType;

use super::dice::Dice;
use super::report::Counters;
use super::weather::{MILLIS, SECONDS, Weather};

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Its place among all that was sent over this link.
    pub sequence: u64,
    /// Whether it is a second copy.
    pub copy: bool,
    /// The message.
    pub message: PeerMessage,
}

/// An order to campaign that is to arrive late, once.
#[derive(Clone, Copy, Debug)]
pub struct LateOrder {
    /// The leader that sends it.
    pub from: usize,
    /// How long it takes.
    pub delay: u64,
}

/// What the nemesis waits for: the next message of a kind that a node sends in a group.
#[derive(Clone, Copy, Debug)]
pub struct Ambush {
    /// The sender.
    pub from: usize,
    /// The group.
    pub group: GroupId,
    /// Messages sent earlier do not count.
    pub not_before: u64,
    /// What happens then.
    pub deed: AmbushDeed,
}

/// What happens when the message that the nemesis waits for is sent.
#[derive(Clone, Copy, Debug)]
pub enum AmbushDeed {
    /// A leader that has just sent a round stops for a while; it wakes to the answers, to reads, and
    /// to nothing that came later.
    PauseLeader {
        /// For how long.
        length: u64,
    },
    /// One follower has just confirmed a round and hears no more; the other, asleep, wakes when the
    /// first is ready for an election, with the next round in its mail.
    WakeSleeper {
        /// The one that will hear no more.
        deaf: usize,
        /// The one that sleeps.
        sleeper: usize,
        /// How long after the round it wakes.
        delay: u64,
    },
    /// A follower that wants to be elected has just asked; the other restarts, out of the leader's
    /// sight, in time to be asked.
    RestartVoter {
        /// The leader.
        leader: usize,
        /// The one that restarts.
        voter: usize,
    },
}

impl Ambush {
    /// Whether this is the message.
    #[must_use]
    pub fn is_met_by(&self, from: usize, message: &PeerMessage, now: u64) -> bool {
        let PeerMessage::Raft { group, message } = message else { return false };
        if *group != self.group || from != self.from || now < self.not_before {
            return false;
        }
        match self.deed {
            AmbushDeed::PauseLeader { .. } | AmbushDeed::WakeSleeper { .. } => {
                message.get_msg_type() == MessageType::MsgHeartbeat && !message.context.is_empty()
            }
            AmbushDeed::RestartVoter { .. } => {
                message.get_msg_type() == MessageType::MsgRequestPreVote
            }
        }
    }
}

/// The links between nodes.
#[derive(Debug, Default)]
pub struct Network {
    cut_until: BTreeMap<(usize, usize), u64>,
    sent: BTreeMap<(usize, usize), u64>,
    arrived: BTreeMap<(usize, usize), u64>,
    /// Set by the nemesis.
    pub late_order: Option<LateOrder>,
    /// Set by the nemesis.
    pub ambush: Option<Ambush>,
    /// Requests for votes to a node are held until then.
    pub hold_votes: Option<(usize, u64)>,
    /// Appends of a node are lost until then, while its heartbeats arrive: the logs of its followers
    /// stay equal, and it goes on leading.
    pub no_appends: Option<(usize, u64)>,
    /// Nothing goes wrong any more.
    pub whole: bool,
}

impl Network {
    /// Cuts a link in one direction.
    pub fn cut(&mut self, from: usize, to: usize, until: u64) {
        let cut = self.cut_until.entry((from, to)).or_insert(0);
        *cut = until.max(*cut);
    }

    /// Mends every link.
    pub fn mend(&mut self) {
        self.cut_until.clear();
    }

    /// Whether a link is cut in this direction.
    #[must_use]
    pub fn is_cut(&self, from: usize, to: usize, now: u64) -> bool {
        self.cut_until.get(&(from, to)).is_some_and(|until| now < *until)
    }

    /// Decides when a message and its copies arrive; nowhere in the list if it is lost.
    pub fn send(
        &mut self,
        (from, to): (usize, usize),
        message: PeerMessage,
        now: u64,
        weather: &Weather,
        dice: &mut Dice,
        counters: &mut Counters,
    ) -> Vec<(u64, Parcel)> {
        if self.is_cut(from, to, now) {
            counters.messages_lost += 1;
            return Vec::new();
        }
        let sequence = self.sent.entry((from, to)).or_insert(0);
        *sequence += 1;
        let parcel = Parcel { from, to, sequence: *sequence, copy: false, message };
        if self.whole {
            return vec![(now + dice.within(&weather.delay), parcel)];
        }
        if let Some(late) = self.late_order
            && late.from == from
            && raft_type(&parcel.message) == Some(MessageType::MsgTimeoutNow)
        {
            self.late_order = None;
            return vec![(now + late.delay, parcel)];
        }
        if let Some((voter, until)) = self.hold_votes
            && voter == to
            && now < until
            && raft_type(&parcel.message) == Some(MessageType::MsgRequestPreVote)
        {
            return vec![(until, parcel)];
        }
        if let Some((leader, until)) = self.no_appends
            && leader == from
            && now < until
            && raft_type(&parcel.message) == Some(MessageType::MsgAppend)
        {
            counters.messages_lost += 1;
            return Vec::new();
        }
        let mut arrivals = Vec::new();
        if dice.chance(weather.duplicate_per_mille) {
            let at = now + dice.within(&weather.delay) + dice.within(&(0..20 * MILLIS));
            arrivals.push((at, Parcel { copy: true, ..parcel.clone() }));
        }
        if dice.chance(weather.late_per_mille) {
            let at = now + dice.within(&(SECONDS / 2..4 * SECONDS));
            arrivals.push((at, Parcel { copy: true, ..parcel.clone() }));
        }
        if dice.chance(weather.loss_per_mille) {
            counters.messages_lost += 1;
            return arrivals;
        }
        let slow = dice.chance(weather.slow_per_mille);
        let range = if slow { &weather.slow } else { &weather.delay };
        arrivals.push((now + dice.within(range), parcel));
        arrivals
    }

    /// Takes note of an arrival. Returns false if the link was cut meanwhile.
    pub fn arrives(&mut self, parcel: &Parcel, now: u64, counters: &mut Counters) -> bool {
        if self.is_cut(parcel.from, parcel.to, now) {
            counters.messages_lost += 1;
            return false;
        }
        counters.messages += 1;
        let latest = self.arrived.entry((parcel.from, parcel.to)).or_insert(0);
        if parcel.copy {
            counters.messages_duplicated += 1;
            counters.messages_late += u64::from(*latest > parcel.sequence + 50);
        } else if parcel.sequence < *latest {
            counters.messages_reordered += 1;
        }
        *latest = parcel.sequence.max(*latest);
        true
    }
}

fn raft_type(message: &PeerMessage) -> Option<MessageType> {
    match message {
        PeerMessage::Raft { message, .. } => Some(message.get_msg_type()),
        PeerMessage::Heartbeat(_)
        | PeerMessage::View(_)
        | PeerMessage::ViewRequest { .. }
        | PeerMessage::Report(_)
        | PeerMessage::Digest { .. }
        | PeerMessage::Destroy { .. }
        | PeerMessage::Destroyed { .. }
        | PeerMessage::Orphan { .. }
        | PeerMessage::SnapshotFailed { .. }
        | PeerMessage::SnapshotTaking { .. } => None,
    }
}
