//! What goes into the core and what comes out of it.

use std::sync::Arc;

use placement::{NodeId, PartitionId};
use raft::eraftpb::Entry;
use thiserror::Error;

use crate::cluster::{ClusterCommand, ClusterOutcome, ClusterState};
use crate::faults::Hold;
use crate::group::ReadGate;
use crate::ids::{Generation, GroupId, LogIndex, LogPosition, SyncId};
use crate::message::{CopyFailure, PeerMessage, SnapshotManifest};
use crate::store::{Command, PartitionDigest, PartitionState, WriteOutcome};

/// Something that happened. `R` is the shell's handle for an answer; the core gives each back
/// exactly once, in [`Effect::Reply`], unless the node stops first.
#[derive(Debug)]
pub enum Event<R> {
    /// Messages from another node.
    Peer {
        /// The sender, as its connection proved it.
        from: NodeId,
        /// The messages, in order.
        messages: Vec<PeerMessage>,
    },
    /// A client's command for a partition.
    Write {
        /// The key's partition.
        partition: PartitionId,
        /// The command.
        command: Command,
        /// Whom to answer.
        reply: R,
    },
    /// A linearizable read that could not be served under the lease.
    Read {
        /// The key's partition.
        partition: PartitionId,
        /// Whom to answer.
        reply: R,
    },
    /// Reads use the lease of this partition, and it will end soon.
    RenewLease {
        /// The partition.
        partition: PartitionId,
    },
    /// A command for group 0.
    Cluster {
        /// The command.
        command: ClusterCommand,
        /// Whom to answer.
        reply: R,
    },
    /// Everything written before this sync was requested is durable.
    Synced {
        /// The sync.
        sync: SyncId,
    },
    /// Entries that [`Effect::FetchEntries`] asked for.
    EntriesFetched {
        /// The group.
        group: GroupId,
        /// The first index asked for.
        low: LogIndex,
        /// The entries from there on; empty if the log was truncated meanwhile.
        entries: Vec<Entry>,
    },
    /// The snapshot that [`Effect::BuildSnapshot`] asked for, or `None` if that failed.
    SnapshotBuilt {
        /// The group.
        group: GroupId,
        /// The snapshot.
        snapshot: Option<BuiltSnapshot>,
    },
    /// A replica took a chunk of this node's snapshot.
    SnapshotProgress {
        /// The group.
        group: GroupId,
        /// The node of the replica that takes it.
        to: NodeId,
        /// Bytes of the snapshot up to the end of that chunk, in this attempt or an earlier one.
        bytes: u64,
    },
    /// A chunk of the snapshot that this node takes has arrived and is kept.
    SnapshotTaken {
        /// The group.
        group: GroupId,
        /// The generation it will be installed into.
        generation: Generation,
        /// Bytes of chunks that are here now.
        bytes: u64,
    },
    /// A snapshot asked for by [`Effect::ReceiveSnapshot`] is complete and checked, or failed; what
    /// was received until then is kept until the generation is swept.
    SnapshotReceived {
        /// The group.
        group: GroupId,
        /// The generation it was installed into.
        generation: Generation,
        /// Whether all of it is there.
        outcome: Result<(), CopyFailure>,
    },
    /// What stood in the way of failed copies may be gone: they are tried again at once.
    RetryCopies,
    /// The digest that [`Effect::ComputeDigest`] asked for.
    DigestComputed {
        /// The group.
        group: GroupId,
        /// The applied index whose state it is of.
        index: LogIndex,
        /// The digest; none if the data cannot be read.
        digest: Option<PartitionDigest>,
    },
    /// A view that came by another way than from a peer's core: the founding one, or one fetched.
    AdoptView(Arc<ClusterState>),
    /// Give the leadership of a group to the replica on another node.
    TransferLeadership {
        /// The group.
        group: GroupId,
        /// The node to lead it.
        to: NodeId,
        /// Whom to answer.
        reply: R,
    },
    /// The node is about to stop: give every leadership away and take none.
    HandOver,
    /// How many of the requests that reached this node lately came by an outdated route.
    Misrouted {
        /// Their share, per mille.
        per_mille: u32,
    },
    /// Hold plans back in one place, or let them go on; only tests do.
    Hold(Option<Hold>),
}

/// A partition's snapshot, ready to be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltSnapshot {
    /// The entry whose effects are the last in it.
    pub position: LogPosition,
    /// Where to take it from.
    pub manifest: SnapshotManifest,
}

/// Something the shell must do. Effects of one turn are carried out in order, after the turn's
/// batch was written.
#[derive(Debug)]
pub enum Effect<R> {
    /// Send a message; losing it is allowed.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// Answer whoever asked.
    Reply {
        /// The handle that came with the event.
        to: R,
        /// The answer.
        reply: Reply,
    },
    /// Make everything written so far durable, then say [`Event::Synced`]. Syncs may be merged: a
    /// later one completes the earlier ones.
    Sync {
        /// The sync.
        sync: SyncId,
    },
    /// Read entries from the log and say [`Event::EntriesFetched`].
    FetchEntries {
        /// The group.
        group: GroupId,
        /// First index.
        low: LogIndex,
        /// First index not wanted.
        high: LogIndex,
        /// Stop after this many bytes, but not before one entry.
        bytes_max: u64,
    },
    /// Write a partition's current state to a snapshot file and say [`Event::SnapshotBuilt`].
    BuildSnapshot {
        /// The group.
        group: GroupId,
    },
    /// The snapshot file is not needed any more.
    DropSnapshot {
        /// The group.
        group: GroupId,
        /// The file.
        manifest: SnapshotManifest,
    },
    /// Take a snapshot from its source into a generation of its own and say
    /// [`Event::SnapshotReceived`]. Takes the place of any other copy of the group; chunks of the
    /// same manifest and generation that are here already are not fetched again.
    ReceiveSnapshot {
        /// The group.
        group: GroupId,
        /// What to take, and where from.
        manifest: SnapshotManifest,
        /// The generation to install it into.
        generation: Generation,
    },
    /// Data of this generation will not be read any more, and a copy into it not go on.
    SweepGeneration {
        /// The partition.
        partition: PartitionId,
        /// The generation.
        generation: Generation,
    },
    /// Compute the digest of a partition's state as it is in the store now, before any later effect
    /// or turn, and say [`Event::DigestComputed`].
    ComputeDigest {
        /// The group.
        group: GroupId,
        /// The applied index.
        index: LogIndex,
        /// The generation of the data that is current.
        generation: Generation,
        /// The state beside the records at that index.
        state: PartitionState,
    },
    /// A replica exists on this node now.
    ReplicaCreated {
        /// Its group.
        group: GroupId,
        /// The gate through which reads of the partition may pass without the core.
        gate: Arc<ReadGate>,
    },
    /// A replica ended on this node.
    ReplicaRemoved {
        /// Its group.
        group: GroupId,
    },
    /// Another leader is known for a group, or none.
    LeaderChanged {
        /// The group.
        group: GroupId,
        /// The leader's node.
        leader: Option<NodeId>,
        /// Whether this node is it.
        here: bool,
    },
    /// A newer view is in force on this node; it is durable with the next sync.
    ViewChanged(Arc<ClusterState>),
    /// Something that an operator must know of.
    Alarm(Alarm),
}

/// A condition that needs an operator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Alarm {
    /// Two different ring snapshots of one epoch were seen.
    #[error("two different ring snapshots of epoch {epoch}: the one in force is kept")]
    ForkedEpoch {
        /// The epoch.
        epoch: placement::Epoch,
    },
    /// A view was refused.
    #[error("a view from another node was refused: {reason}")]
    BadView {
        /// Why.
        reason: String,
    },
    /// Data of a replica here cannot be read.
    #[error("data of group {group} on this node cannot be read: {reason}")]
    UnreadableData {
        /// The group.
        group: GroupId,
        /// The store's own words.
        reason: String,
    },
    /// Replicas were compared and are not alike.
    #[error("the replica of group {group} on {node} differs in {range}")]
    ReplicasDiffer {
        /// The group.
        group: GroupId,
        /// Where the replica is that differs from its leader.
        node: placement::NodeId,
        /// The first sub-range that differs.
        range: String,
    },
}

/// Who leads instead, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeader {
    /// The leader's node.
    pub leader: Option<NodeId>,
}

/// Why a request was refused; it has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No replica of the group is on this node.
    #[error("this node holds no replica of the group")]
    NoReplica,
    /// The queue of the group is full.
    #[error("the group's queue is full")]
    Overloaded,
    /// The entry was overwritten by another leader's.
    #[error("another leader's entry took the place of this command")]
    Overwritten,
    /// The change or transfer does not fit the state of the group now.
    #[error("this does not fit the state of the group now; try again")]
    NotNow,
}

/// The core's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command was applied, with this outcome.
    Written(WriteOutcome),
    /// A value read from the local store from now on is linearizable for this read.
    Readable,
    /// The cluster command was applied, with this outcome.
    Cluster(ClusterOutcome),
    /// The configuration change or transfer is done.
    Done,
    /// Not applied: this node does not lead the group.
    NotLeader(NotLeader),
    /// Not applied.
    Refused(Refusal),
    /// The outcome cannot be known here any more.
    Unknown,
}
