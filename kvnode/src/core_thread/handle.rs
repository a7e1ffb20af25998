//! The way into the core: one bounded queue.
//!
//! Clients' requests are refused while the queue is half full, so that the other half is left to
//! what keeps groups alive: messages of peers, completed syncs, fetched entries.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use kvcore::cluster::ClusterCommand;
use kvcore::group::{CopyState, GroupSummary};
use kvcore::message::PeerMessage;
use kvcore::store::Command;
use kvcore::{Event, GroupId, Refusal, ReplicaId, Reply};
use metrics::{Counter, counter};
use placement::{Epoch, NodeId, PartitionId};
use tokio::sync::oneshot;

use super::reply::{Budget, ReplyTo};

/// Inputs that may wait for the core.
const INPUTS_MAX: usize = 16 << 10;
/// Inputs that may wait for the core before a client's request is refused.
const INPUTS_BEFORE_CLIENTS_MAX: usize = INPUTS_MAX / 2;
/// Bytes of commands that may be on their way through the core, from queue to answer.
const COMMAND_BYTES_MAX: usize = 256 << 20;
/// Pause between attempts to hand over an event that must not be lost.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// What the core's thread takes from its queue.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every input is an event")]
pub enum Input {
    /// Something that happened.
    Event(Event<ReplyTo>),
    /// Somebody wants to know how the replicas are.
    Summaries(oneshot::Sender<Vec<GroupSummary>>),
    /// Somebody wants to know how the copies are to replicas of groups that are led here.
    Copies(oneshot::Sender<Vec<(GroupId, ReplicaId, CopyState)>>),
    /// The thread is to end.
    Stop,
}

/// Hands events to the core. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    inputs: Sender<Input>,
    budget: Budget,
    refused: Counter,
    dropped: Counter,
}

impl CoreHandle {
    /// A handle and the end from which the core's thread takes.
    #[must_use]
    pub fn new() -> (Self, Receiver<Input>) {
        let (inputs, receiver) = bounded(INPUTS_MAX);
        let handle = Self {
            inputs,
            budget: Budget::new(COMMAND_BYTES_MAX),
            refused: counter!("ringkv_core_requests_refused_total"),
            dropped: counter!("ringkv_core_messages_dropped_total"),
        };
        (handle, receiver)
    }

    /// The memory that commands may hold.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Hands over a client's command. If there is no room, `reply` says so at once.
    pub fn write(&self, partition: PartitionId, command: Command, reply: ReplyTo) {
        self.request(Event::Write { partition, command, reply });
    }

    /// Hands over a linearizable read. If there is no room, `reply` says so at once.
    pub fn read(&self, partition: PartitionId, reply: ReplyTo) {
        self.request(Event::Read { partition, reply });
    }

    /// Hands over a command for group 0. If there is no room, `reply` says so at once.
    pub fn cluster(&self, command: ClusterCommand, reply: ReplyTo) {
        self.request(Event::Cluster { command, reply });
    }

    /// Hands over any request with a reply. If there is no room, the reply says so at once.
    pub fn request(&self, event: Event<ReplyTo>) {
        let event = if self.inputs.len() >= INPUTS_BEFORE_CLIENTS_MAX {
            event
        } else {
            match self.inputs.try_send(Input::Event(event)) {
                Ok(()) => return,
                Err(TrySendError::Full(input) | TrySendError::Disconnected(input)) => {
                    let Input::Event(event) = input else { return };
                    event
                }
            }
        };
        self.refused.increment(1);
        if let Some(reply) = into_reply(event) {
            // The epoch matters to answers that name a leader only.
            reply.answer(Reply::Refused(Refusal::Overloaded), Epoch::ZERO);
        }
    }

    /// Hands over messages of another node's core; they are dropped if there is no room.
    pub fn messages(&self, from: NodeId, messages: Vec<PeerMessage>) {
        let count = messages.len() as u64;
        if self.inputs.try_send(Input::Event(Event::Peer { from, messages })).is_err() {
            self.dropped.increment(count);
        }
    }

    /// Hands over an event that may be lost.
    pub fn hint(&self, event: Event<ReplyTo>) {
        // Without room the core has other things to do.
        let _ = self.inputs.try_send(Input::Event(event));
    }

    /// Hands over an event that must not be lost, waiting for room. For threads of their own only.
    pub fn tell(&self, event: Event<ReplyTo>) {
        // Without a core there is nobody to tell.
        let _ = self.inputs.send(Input::Event(event));
    }

    /// As [`CoreHandle::tell`], for tasks.
    pub async fn deliver(&self, event: Event<ReplyTo>) {
        let mut input = Input::Event(event);
        while let Err(TrySendError::Full(back)) = self.inputs.try_send(input) {
            input = back;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// The replicas at a glance; empty if the core has stopped.
    pub async fn summaries(&self) -> Vec<GroupSummary> {
        let (sender, receiver) = oneshot::channel();
        if self.inputs.try_send(Input::Summaries(sender)).is_err() {
            return Vec::new();
        }
        receiver.await.unwrap_or_default()
    }

    /// The copies to replicas of groups that are led here; empty if the core has stopped.
    pub async fn copies(&self) -> Vec<(GroupId, ReplicaId, CopyState)> {
        let (sender, receiver) = oneshot::channel();
        if self.inputs.try_send(Input::Copies(sender)).is_err() {
            return Vec::new();
        }
        receiver.await.unwrap_or_default()
    }

    /// Ends the core's thread when it comes to this.
    pub(crate) async fn stop(&self) {
        while let Err(TrySendError::Full(_)) = self.inputs.try_send(Input::Stop) {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

fn into_reply(event: Event<ReplyTo>) -> Option<ReplyTo> {
    match event {
        Event::Write { reply, .. }
        | Event::Read { reply, .. }
        | Event::Cluster { reply, .. }
        | Event::TransferLeadership { reply, .. } => Some(reply),
        Event::Peer { .. }
        | Event::RenewLease { .. }
        | Event::Synced { .. }
        | Event::EntriesFetched { .. }
        | Event::SnapshotBuilt { .. }
        | Event::SnapshotProgress { .. }
        | Event::SnapshotTaken { .. }
        | Event::SnapshotReceived { .. }
        | Event::RetryCopies
        | Event::DigestComputed { .. }
        | Event::AdoptView(_)
        | Event::HandOver
        | Event::Misrouted { .. }
        | Event::Hold(_) => None,
    }
}
