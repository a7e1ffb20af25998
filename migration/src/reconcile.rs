//! Reconciliation: the next step from the configuration that a group has to the one it should have.

use placement::NodeId;
use thiserror::Error;

use crate::actual::Actual;
use crate::ids::{Member, ReplicaId};
use crate::moves::Move;

/// Entries that a replica may be behind and still count as caught up: the log of about a heartbeat
/// under load. It bounds the work between a swap and the new voter's first acknowledgement.
pub const LAG_MAX: u64 = 256;

/// The configuration that a group should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Who votes, in the order of the owners: the first should lead.
    pub voters: Vec<Member>,
    /// Who follows without a vote.
    pub learners: Vec<Member>,
}

impl Wanted {
    /// What the published owners of a partition and its moves ask for.
    pub fn of<'a>(owners: &[Member], moves: impl Iterator<Item = &'a Move>) -> Self {
        let mut learners: Vec<Member> = Vec::new();
        for learner in moves.flat_map(Move::followers) {
            if !owners.contains(&learner) && !learners.contains(&learner) {
                learners.push(learner);
            }
        }
        Self { voters: owners.to_vec(), learners }
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.voters.iter().chain(&self.learners)
    }

    fn votes(&self, replica: ReplicaId) -> bool {
        self.voters.iter().any(|it| it.replica == replica)
    }
}

/// One change of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupStep {
    /// Add a replica that follows without a vote.
    AddLearner(Member),
    /// Enter the joint configuration: all moves of the partition at once.
    Swap {
        /// Learners that become voters.
        promote: Vec<ReplicaId>,
        /// Voters that become learners.
        demote: Vec<ReplicaId>,
    },
    /// Give the leadership to this voter of the incoming half, since the leader is on its way out.
    HandOver(ReplicaId),
    /// Leave the joint configuration.
    LeaveJoint,
    /// Remove a learner.
    Remove(ReplicaId),
}

/// What keeps a group from its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Blocker {
    /// A replica that is to vote is down, is not copied or is behind.
    #[error("the replica on {0} is down or behind")]
    Behind(NodeId),
    /// No voter of the incoming half can take the leadership.
    #[error("no new voter can lead")]
    NoSuccessor,
}

/// What a group does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It has the configuration that is wanted.
    Steady,
    /// A step can be taken.
    Step(GroupStep),
    /// A step is wanted and cannot be taken yet.
    Wait(Blocker),
}

/// Compares what a group has with what is wanted. Repeating the steps that this names, each once it
/// is applied, ends in [`Next::Steady`] from every configuration, as long as the wanted voters live.
#[must_use]
pub fn reconcile(wanted: &Wanted, actual: &Actual) -> Next {
    if actual.is_joint() {
        return leave_joint(wanted, actual);
    }
    // What has no place goes first: its node may hold no other replica of the group until it has.
    let extra = actual.learners.iter().find(|id| !wanted.members().any(|it| it.replica == **id));
    if let Some(extra) = extra {
        return Next::Step(GroupStep::Remove(*extra));
    }
    if let Some(missing) = wanted.members().find(|member| !actual.contains(member.replica)) {
        return Next::Step(GroupStep::AddLearner(*missing));
    }
    let promote: Vec<&Member> =
        wanted.voters.iter().filter(|it| !actual.voters.contains(&it.replica)).collect();
    let demote: Vec<ReplicaId> =
        actual.voters.iter().copied().filter(|it| !wanted.votes(*it)).collect();
    if promote.is_empty() && demote.is_empty() {
        return Next::Steady;
    }
    // All moves of a partition change hands together; a voter that is not ready would make the new
    // quorum weaker than the old one is.
    if let Some(behind) = wanted.voters.iter().find(|it| !actual.is_close(it.replica, LAG_MAX)) {
        return Next::Wait(Blocker::Behind(behind.node));
    }
    let promote = promote.iter().map(|it| it.replica).collect();
    Next::Step(GroupStep::Swap { promote, demote })
}

/// A leader that stays leaves the joint configuration; one on its way out first hands over, so that
/// the group is led without a gap.
fn leave_joint(wanted: &Wanted, actual: &Actual) -> Next {
    if actual.voters.contains(&actual.leader) {
        return Next::Step(GroupStep::LeaveJoint);
    }
    let in_order =
        wanted.voters.iter().map(|member| member.replica).chain(actual.voters.iter().copied());
    let ready = |replica: &ReplicaId| {
        actual.voters.contains(replica)
            && actual
                .follower(*replica)
                .is_some_and(|it| it.active && it.matched >= actual.changed_at)
    };
    match in_order.into_iter().find(ready) {
        Some(successor) => Next::Step(GroupStep::HandOver(successor)),
        None => Next::Wait(Blocker::NoSuccessor),
    }
}
