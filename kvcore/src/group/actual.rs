//! A group as its leader sees it.

use std::collections::BTreeSet;
use std::time::Duration;

use migration::{Actual, Copy, CopyTrouble, Follower, Member};
use placement::NodeId;
use raft::ProgressState;

use super::replica::Replica;
use crate::ids::{LogIndex, ReplicaId};
use crate::message::CopyFailure;
use crate::time::Time;

/// A follower that has answered within this time is alive: five heartbeats.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Voters of a group, summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Voters {
    /// Those that live and are caught up.
    pub healthy: usize,
    /// Log entries that they lack.
    pub backlog: u64,
}

impl<R> Replica<R> {
    /// The facts of this leader's group. `is_fit` tells which nodes are well, `gone` which replicas
    /// have said that their data is destroyed.
    pub fn actual(
        &self,
        is_fit: impl Fn(NodeId) -> bool,
        gone: &BTreeSet<ReplicaId>,
        now: Time,
    ) -> Actual {
        let configuration = self.configuration();
        let others = configuration.members.iter().filter(|member| member.replica != self.id);
        let learners = configuration.learners.iter().chain(&configuration.learners_next);
        Actual {
            leader: self.id,
            last: LogIndex(self.raw.raft.raft_log.last_index()),
            committed: LogIndex(self.raw.raft.raft_log.committed),
            voters: configuration.voters.clone(),
            outgoing: configuration.voters_outgoing.clone(),
            learners: learners.copied().collect(),
            changed_at: configuration.changed_at,
            followers: others.map(|member| self.follower(*member, &is_fit, now)).collect(),
            verification: self.verifier.last().cloned(),
            gone: gone.iter().copied().filter(|id| !configuration.contains(*id)).collect(),
        }
    }

    /// How the voters do, for a summary over many groups.
    pub fn voters_at_a_glance(&self, is_fit: impl Fn(NodeId) -> bool, now: Time) -> Voters {
        let last = self.raw.raft.raft_log.last_index();
        let mut voters = Voters::default();
        let configuration = self.configuration();
        for member in configuration.members.iter().filter(|it| configuration.is_voter(it.replica)) {
            let progress = self.raw.raft.prs().get(member.replica.get());
            let lacks = progress.map_or(last, |it| last.saturating_sub(it.matched));
            let lives = member.replica == self.id
                || (self.is_heard(member.replica, now) && is_fit(member.node));
            let healthy = lives && lacks <= migration::LAG_MAX;
            voters.healthy += usize::from(healthy);
            voters.backlog += if member.replica == self.id { 0 } else { lacks };
        }
        voters
    }

    /// Whether a follower has answered this leader lately.
    pub fn is_heard(&self, replica: ReplicaId, now: Time) -> bool {
        self.heard.get(&replica).is_some_and(|at| now.since(*at) < HEARD_WITHIN)
    }

    fn follower(&self, member: Member, is_fit: &impl Fn(NodeId) -> bool, now: Time) -> Follower {
        let progress = self.raw.raft.prs().get(member.replica.get());
        let matched = progress.map_or(0, |it| it.matched);
        Follower {
            member,
            matched: LogIndex(matched),
            active: self.is_heard(member.replica, now) && is_fit(member.node),
            copying: progress.is_some_and(|it| it.state == ProgressState::Snapshot),
            copy: self.copy_at(member.replica, now),
        }
    }

    fn copy_at(&self, replica: ReplicaId, now: Time) -> Copy {
        let Some(copy) = self.copy_of(replica) else { return Copy::default() };
        let trouble = copy.last_failure.map(|failure| match failure {
            CopyFailure::DiskFull => CopyTrouble::DiskFull,
            CopyFailure::FellOffTheLog { .. } => CopyTrouble::FellOff,
            other @ (CopyFailure::Damaged { .. }
            | CopyFailure::SourceGone
            | CopyFailure::Stalled
            | CopyFailure::Storage(_)) => CopyTrouble::Other(other.to_string()),
        });
        let wait = |at: Time| u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX);
        Copy {
            bytes_done: copy.bytes_done,
            bytes_total: copy.bytes_total,
            // The attempt under way has not failed.
            failures: copy.attempts.saturating_sub(u32::from(copy.next_attempt.is_none())),
            trouble,
            retry_in_ms: copy.next_attempt.map(wait),
        }
    }
}
