//! What the core keeps on disk, and what it needs of the disk.
//!
//! All writes of a turn go into one [`WriteBatch`]: it is atomic, takes effect in order, is visible
//! to reads at once, and is durable once a sync requested after it has completed. A crash may lose
//! a suffix of the batches written since the last completed sync, never one from their middle.

use std::sync::Arc;

use bytes::Bytes;
pub use migration::Member;
use placement::{NodeId, PartitionId};
use raft::eraftpb::{ConfState, Entry};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::ClusterState;
use crate::event::BuiltSnapshot;
use crate::ids::{Generation, GroupId, LogIndex, LogPosition, ReplicaId, Revision, Term, Version};
use crate::message::SnapshotManifest;
use crate::store::PartitionState;

/// A group's applied configuration: who votes, who learns, and on which nodes they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Voters; while the configuration is joint, those of its incoming half.
    pub voters: Vec<ReplicaId>,
    /// Learners: they receive the log and count in no quorum.
    pub learners: Vec<ReplicaId>,
    /// Voters of the outgoing half; empty unless the configuration is joint.
    pub voters_outgoing: Vec<ReplicaId>,
    /// Outgoing voters that become learners when the joint configuration is left.
    pub learners_next: Vec<ReplicaId>,
    /// Where the replicas named above are, in order of replica id.
    pub members: Vec<Member>,
    /// The index at which it was changed last.
    pub changed_at: LogIndex,
    /// Revision of the view under which it was changed last: who has an older one takes no step.
    pub revision: Revision,
}

impl Configuration {
    /// A configuration of voters alone.
    #[must_use]
    pub fn of_voters(members: &[Member]) -> Self {
        let mut members = members.to_vec();
        members.sort_unstable();
        Self {
            voters: members.iter().map(|member| member.replica).collect(),
            members,
            ..Self::default()
        }
    }

    /// Whether a replica votes in either half.
    #[must_use]
    pub fn is_voter(&self, replica: ReplicaId) -> bool {
        self.voters.contains(&replica) || self.voters_outgoing.contains(&replica)
    }

    /// Whether a replica votes now and goes on voting when a joint configuration is left.
    #[must_use]
    pub fn is_staying_voter(&self, replica: ReplicaId) -> bool {
        self.voters.contains(&replica)
    }

    /// Whether a replica is part of the configuration in any role.
    #[must_use]
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.is_voter(replica)
            || self.learners.contains(&replica)
            || self.learners_next.contains(&replica)
    }

    /// Whether the configuration is joint.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// The node that holds a member.
    #[must_use]
    pub fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        self.members.iter().find(|member| member.replica == replica).map(|member| member.node)
    }

    /// raft-rs's form of the configuration.
    #[must_use]
    pub fn to_conf_state(&self) -> ConfState {
        let raw = |ids: &[ReplicaId]| ids.iter().map(|id| id.get()).collect::<Vec<_>>();
        let mut state = ConfState::default();
        state.set_voters(raw(&self.voters));
        state.set_learners(raw(&self.learners));
        state.set_voters_outgoing(raw(&self.voters_outgoing));
        state.set_learners_next(raw(&self.learners_next));
        state
    }

    /// The configuration in raft-rs's form, with the places of its members taken from `known`.
    #[must_use]
    pub fn from_conf_state(state: &ConfState, known: &[Member]) -> Self {
        // raft-rs keeps sets; sorted, equal configurations are equal on all replicas.
        let ids = |raw: &[u64]| {
            let mut ids: Vec<_> = raw.iter().copied().map(ReplicaId).collect();
            ids.sort_unstable();
            ids
        };
        let mut configuration = Self {
            voters: ids(state.get_voters()),
            learners: ids(state.get_learners()),
            voters_outgoing: ids(state.get_voters_outgoing()),
            learners_next: ids(state.get_learners_next()),
            ..Self::default()
        };
        configuration.members =
            known.iter().copied().filter(|member| configuration.contains(member.replica)).collect();
        configuration.members.sort_unstable();
        configuration.members.dedup();
        configuration
    }
}

/// The part of a replica's durable state that changes seldom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Raft id of this replica.
    pub replica: ReplicaId,
    /// Place among the owners; lower ranks campaign earlier.
    pub rank: u8,
    /// Installation of the data that is current.
    pub generation: Generation,
    /// The last entry that is no longer in the log.
    pub truncated: LogPosition,
    /// For each term in the log, the first index of it, in order.
    pub terms: Vec<LogPosition>,
    /// The applied configuration.
    pub configuration: Configuration,
}

/// The part of a replica's durable state that changes with every entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Raft's current term.
    pub term: Term,
    /// Replica voted for in that term; 0 for none.
    pub vote: ReplicaId,
    /// Known committed index; at least the applied one.
    pub commit: LogIndex,
    /// The last applied entry.
    pub applied: LogPosition,
    /// State of the partition beside its records.
    pub state: PartitionState,
    /// Bytes of the entries in the log, roughly.
    pub log_bytes: u64,
}

/// One change of a batch.
#[derive(Clone, Debug)]
pub enum WriteOp {
    /// Append entries, contiguous and in order; equal indexes are overwritten.
    Append {
        /// The group whose log grows.
        group: GroupId,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Drop the entries with indexes in `from..to`.
    DropEntries {
        /// The group whose log shrinks.
        group: GroupId,
        /// First index dropped.
        from: LogIndex,
        /// First index kept.
        to: LogIndex,
    },
    /// Store a replica's record.
    Replica {
        /// The group.
        group: GroupId,
        /// Its record.
        record: ReplicaRecord,
    },
    /// Store a replica's progress.
    Progress {
        /// The group.
        group: GroupId,
        /// Its progress.
        progress: Progress,
    },
    /// Forget a replica for good: its record and progress go, its id is barred.
    Tombstone {
        /// The group.
        group: GroupId,
        /// The replica that ended here.
        replica: ReplicaId,
    },
    /// Store a key's record.
    PutRecord {
        /// The key's partition.
        partition: PartitionId,
        /// Installation that the record belongs to.
        generation: Generation,
        /// The key.
        key: Bytes,
        /// The record's stored bytes.
        record: Bytes,
    },
    /// Remove a key's record.
    DeleteRecord {
        /// The key's partition.
        partition: PartitionId,
        /// Installation that the record belongs to.
        generation: Generation,
        /// The key.
        key: Bytes,
    },
    /// Store group 0's state machine.
    Cluster {
        /// The state as applied.
        state: Arc<ClusterState>,
    },
    /// Store the last verified view of the cluster state.
    View {
        /// The view.
        state: Arc<ClusterState>,
    },
}

/// The changes of one turn: all of them happen or none does.
#[must_use = "a batch does nothing until it is written"]
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// The changes, in order.
    pub ops: Vec<WriteOp>,
}

impl WriteBatch {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// The store failed; the node must stop, since nothing is known of what is on disk.
#[derive(Clone, Debug, Error)]
#[error("{what}: {reason}")]
pub struct StoreError {
    /// What was being done.
    pub what: &'static str,
    /// The store's own words.
    pub reason: String,
}

/// What the core asks of the disk within a turn.
pub trait Store {
    /// Version of a key's current record in one installation of its partition.
    ///
    /// # Errors
    /// [`StoreError`] stops the node.
    fn version(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &[u8],
    ) -> Result<Option<Version>, StoreError>;

    /// Writes a batch, without waiting for it to be durable.
    ///
    /// # Errors
    /// [`StoreError`] stops the node.
    fn write(&mut self, batch: WriteBatch) -> Result<(), StoreError>;
}

/// What a node finds on its disk when it starts.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    /// The replicas held here.
    pub replicas: Vec<BootReplica>,
    /// Replicas that ended here.
    pub tombstones: Vec<(GroupId, ReplicaId)>,
    /// State machine of group 0, if one of its replicas is here.
    pub cluster: Option<Arc<ClusterState>>,
    /// The last verified view.
    pub view: Option<Arc<ClusterState>>,
    /// The newest whole snapshot file of each replica held here: a copy that was under way goes on.
    pub offers: Vec<(GroupId, BuiltSnapshot)>,
    /// Copies that replicas held here had begun to take.
    pub partial_copies: Vec<PartialCopy>,
}

/// A copy that was under way when the node stopped; its chunks are kept until it goes on or its
/// generation is swept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialCopy {
    /// The group.
    pub group: GroupId,
    /// The generation that it is taken into.
    pub generation: Generation,
    /// What is taken.
    pub manifest: SnapshotManifest,
}

/// One replica as found on disk.
#[derive(Clone, Debug)]
pub struct BootReplica {
    /// Its group.
    pub group: GroupId,
    /// Its record.
    pub record: ReplicaRecord,
    /// Its progress.
    pub progress: Progress,
    /// The entries after the applied index.
    pub tail: Vec<Entry>,
    /// The highest generation of which data may be on disk; later ones are free to use.
    pub generation_max: Generation,
}
