//! Whom the core answers, and how much memory requests may hold while they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvcore::{NotLeader, Refusal, Reply};
use placement::Epoch;
use tokio::sync::oneshot;

use crate::transport::{Answerer, PeerAnswer, PeerRefusal};

/// The handle that goes into the core with a request and comes back with the answer.
#[derive(Debug)]
pub struct ReplyTo {
    destination: Destination,
    _reservation: Option<Reservation>,
}

#[derive(Debug)]
enum Destination {
    /// A task of this node.
    Task(oneshot::Sender<Reply>),
    /// Another node: the core's thread answers it without a task in between.
    Peer(Answerer),
}

impl ReplyTo {
    /// A handle for a task of this node, and the end at which the task waits.
    #[must_use]
    pub fn task(reservation: Option<Reservation>) -> (Self, oneshot::Receiver<Reply>) {
        let (sender, receiver) = oneshot::channel();
        (Self { destination: Destination::Task(sender), _reservation: reservation }, receiver)
    }

    /// A handle for another node.
    #[must_use]
    pub fn peer(answerer: Answerer, reservation: Reservation) -> Self {
        Self { destination: Destination::Peer(answerer), _reservation: Some(reservation) }
    }

    /// Answers; `epoch` is the one in force.
    pub fn answer(self, reply: Reply, epoch: Epoch) {
        match self.destination {
            // A task that gave up does not mind.
            Destination::Task(sender) => drop(sender.send(reply)),
            Destination::Peer(answerer) => answerer.answer(peer_answer(reply, epoch)),
        }
    }
}

/// The core's answer as another node, or the router, understands it.
pub(crate) fn peer_answer(reply: Reply, epoch: Epoch) -> PeerAnswer {
    PeerAnswer::Refused(match reply {
        Reply::Written(outcome) => return PeerAnswer::Written(outcome),
        Reply::Cluster(outcome) => return PeerAnswer::Cluster(outcome),
        Reply::NotLeader(NotLeader { leader }) => PeerRefusal::NotLeader { leader, epoch },
        Reply::Refused(Refusal::NoReplica) => PeerRefusal::NoReplica { epoch },
        Reply::Done => return PeerAnswer::Transferred,
        Reply::Refused(Refusal::Overloaded) => PeerRefusal::Overloaded,
        Reply::Refused(Refusal::NotNow) => PeerRefusal::NotNow,
        Reply::Refused(Refusal::Overwritten) => PeerRefusal::Overwritten,
        // A read is answered with the value, by whoever waits for this.
        Reply::Unknown | Reply::Readable => PeerRefusal::OutcomeUnknown,
    })
}

/// Bytes that requests on their way through the core may hold together.
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Budget {
    /// A budget of which nothing is used.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { used: Arc::new(AtomicUsize::new(0)), bytes_max }
    }

    /// Takes a part of the budget; none if that much is not left.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let reservation = Reservation { used: Arc::clone(&self.used), bytes };
        (used.saturating_add(bytes) <= self.bytes_max).then_some(reservation)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
