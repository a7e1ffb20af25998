//! What the leader of a partition knows of its group: the facts that records are held against.

use serde::{Deserialize, Serialize};

use crate::ids::{LogIndex, Member, ReplicaId};

/// A group as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actual {
    /// The leader.
    pub leader: ReplicaId,
    /// Its last log index.
    pub last: LogIndex,
    /// The last index that it knows to be committed: what lies beyond may be lost yet.
    pub committed: LogIndex,
    /// Voters; while the configuration is joint, those of its incoming half.
    pub voters: Vec<ReplicaId>,
    /// Voters of the outgoing half; empty unless the configuration is joint.
    pub outgoing: Vec<ReplicaId>,
    /// Learners, those on their way to being learners included.
    pub learners: Vec<ReplicaId>,
    /// The index at which the configuration was changed last.
    pub changed_at: LogIndex,
    /// All members but the leader.
    pub followers: Vec<Follower>,
    /// The last comparison of digests that this leader has finished.
    pub verification: Option<Verification>,
    /// Replicas outside the configuration whose data is destroyed.
    pub gone: Vec<ReplicaId>,
}

/// A follower as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    /// The replica and its node.
    pub member: Member,
    /// The last index that it is known to have; 0 while a new leader has not heard of it.
    pub matched: LogIndex,
    /// Whether it was heard lately and its disk is well.
    pub active: bool,
    /// Whether it needs or takes a snapshot.
    pub copying: bool,
    /// How its copy does, if there is one.
    pub copy: Copy,
}

/// A copy on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Bytes taken.
    pub bytes_done: u64,
    /// Bytes in all; 0 while unknown.
    pub bytes_total: u64,
    /// Attempts that failed.
    pub failures: u32,
    /// What went wrong last.
    pub trouble: Option<CopyTrouble>,
    /// Milliseconds until it is tried again, if it waits for that.
    pub retry_in_ms: Option<u64>,
}

/// Why a copy failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyTrouble {
    /// No room on the target's disk.
    DiskFull,
    /// The log it needs next was truncated, and its bound cannot grow any more.
    FellOff,
    /// Something else, in words.
    Other(String),
}

impl std::fmt::Display for CopyTrouble {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DiskFull => formatter.write_str("the target's disk is full"),
            Self::FellOff => formatter.write_str("the copy fell off the log"),
            Self::Other(words) => formatter.write_str(words),
        }
    }
}

/// What a comparison of digests found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verification {
    /// All asked replicas agree.
    Agreed {
        /// The index at which they were computed.
        index: LogIndex,
        /// The digest.
        digest: u128,
        /// Who was asked.
        replicas: Vec<ReplicaId>,
    },
    /// One differs from the leader.
    Differs {
        /// The index at which they were computed.
        index: LogIndex,
        /// The replica that differs.
        member: Member,
        /// The first sub-range that differs.
        range: String,
    },
}

impl Actual {
    /// Whether the configuration is joint.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether a replica is part of the configuration in any role.
    #[must_use]
    pub fn contains(&self, replica: ReplicaId) -> bool {
        [&self.voters, &self.outgoing, &self.learners].iter().any(|ids| ids.contains(&replica))
    }

    /// What the leader knows of a follower.
    #[must_use]
    pub fn follower(&self, replica: ReplicaId) -> Option<&Follower> {
        self.followers.iter().find(|follower| follower.member.replica == replica)
    }

    /// Whether a replica, be it the leader itself, is alive and at most `lag` entries behind.
    #[must_use]
    pub fn is_close(&self, replica: ReplicaId, lag: u64) -> bool {
        replica == self.leader
            || self.follower(replica).is_some_and(|it| {
                let whole = !it.copying && it.matched > LogIndex(0);
                it.active && whole && it.matched.get() + lag >= self.last.get()
            })
    }
}
