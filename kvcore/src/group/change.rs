//! Changes of a group's configuration, one at a time, with explicit joint configurations.

use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};
use serde::{Deserialize, Serialize};

use super::replica::Replica;
use super::turn::Turn;
use crate::codec;
use crate::ids::{LogIndex, ReplicaId, Revision};
use crate::storage::{Configuration, Member};

/// A change of a group's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationChange {
    /// Add a replica as learner.
    AddLearner(Member),
    /// Enter a joint configuration in which `promote` vote and `demote` are on their way to being
    /// learners.
    Swap {
        /// Learners that become voters.
        promote: Vec<ReplicaId>,
        /// Voters that become learners.
        demote: Vec<ReplicaId>,
    },
    /// Leave the joint configuration.
    LeaveJoint,
    /// Remove a learner.
    Remove(ReplicaId),
}

/// What a change carries beside raft-rs's own form of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ChangeContext {
    /// Where the replicas that it adds are.
    added: Vec<Member>,
    /// Revision of the view that it was made under.
    revision: Revision,
}

impl<R> Replica<R> {
    /// Proposes a change of the configuration, made under a view of this revision, if this leader
    /// may and the configuration allows it now.
    pub fn propose_change(
        &mut self,
        change: &ConfigurationChange,
        revision: Revision,
        turn: &Turn<'_, R>,
    ) {
        let may = self.is_leader()
            && self.may_serve(turn)
            && self.fits(change)
            && !self.raw.raft.has_pending_conf()
            && !self.leadership.is_transferring();
        if !may {
            return;
        }
        let mut context = ChangeContext { added: Vec::new(), revision };
        let mut raft = to_raft(change, turn.faults.learner_counts);
        if let ConfigurationChange::AddLearner(member) = change {
            context.added.push(*member);
        }
        raft.context = codec::encode(&context).into();
        if self.raw.propose_conf_change(Vec::new(), raft).is_ok() {
            self.note_proposal(vec![None]);
        }
    }

    fn fits(&self, change: &ConfigurationChange) -> bool {
        let now = self.configuration();
        match change {
            ConfigurationChange::AddLearner(member) => {
                !now.is_joint() && !now.contains(member.replica)
            }
            ConfigurationChange::Swap { promote, demote } => {
                !now.is_joint()
                    && promote.len() + demote.len() > 0
                    && promote.iter().all(|id| now.learners.contains(id))
                    && demote.iter().all(|id| now.voters.contains(id))
                    && now.voters.len() + promote.len() > demote.len()
            }
            ConfigurationChange::LeaveJoint => now.is_joint(),
            ConfigurationChange::Remove(replica) => {
                !now.is_joint() && now.learners.contains(replica)
            }
        }
    }

    /// Takes over a configuration that raft-rs has applied.
    pub fn configuration_changed(
        &mut self,
        state: &ConfState,
        context: &ChangeContext,
        index: LogIndex,
    ) {
        let log = self.raw.mut_store();
        let before = &log.record.configuration;
        let known: Vec<Member> = before.members.iter().chain(&context.added).copied().collect();
        let revision = before.revision.max(context.revision);
        log.record.configuration = Configuration {
            changed_at: index,
            revision,
            ..Configuration::from_conf_state(state, &known)
        };
        self.record_dirty = true;
        self.end_lease();
    }
}

fn to_raft(change: &ConfigurationChange, learner_counts: bool) -> ConfChangeV2 {
    let mut raft = ConfChangeV2::default();
    let single = |kind: ConfChangeType, replica: ReplicaId| {
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = replica.get();
        single
    };
    match change {
        ConfigurationChange::AddLearner(member) => {
            let kind = match learner_counts {
                true => ConfChangeType::AddNode,
                false => ConfChangeType::AddLearnerNode,
            };
            raft.mut_changes().push(single(kind, member.replica));
        }
        ConfigurationChange::Swap { promote, demote } => {
            raft.set_transition(ConfChangeTransition::Explicit);
            let promoted = promote.iter().map(|id| single(ConfChangeType::AddNode, *id));
            let demoted = demote.iter().map(|id| single(ConfChangeType::AddLearnerNode, *id));
            raft.mut_changes().extend(promoted.chain(demoted));
        }
        ConfigurationChange::LeaveJoint => {}
        ConfigurationChange::Remove(replica) => {
            raft.mut_changes().push(single(ConfChangeType::RemoveNode, *replica));
        }
    }
    raft
}
