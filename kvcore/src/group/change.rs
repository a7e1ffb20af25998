//! Changes of a group's configuration, one at a time, with explicit joint configurations.

use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};

use super::replica::Replica;
use super::turn::Turn;
use crate::codec;
use crate::event::{ConfigurationChange, NotLeader, Refusal, Reply};
use crate::ids::ReplicaId;
use crate::storage::{Configuration, Member};

impl<R> Replica<R> {
    /// Proposes a change of the configuration.
    pub fn propose_change(
        &mut self,
        change: &ConfigurationChange,
        reply: R,
        turn: &mut Turn<'_, R>,
    ) {
        if !self.is_leader() || !self.may_serve(turn) {
            let leader = if self.is_leader() { None } else { self.leader_node() };
            turn.reply(reply, Reply::NotLeader(NotLeader { leader }));
            return;
        }
        let fits = self.fits(change)
            && !self.raw.raft.has_pending_conf()
            && !self.leadership.is_transferring();
        let proposed = fits && {
            let (change, context) = to_raft(change);
            let mut change = change;
            change.context = context.into();
            self.raw.propose_conf_change(Vec::new(), change).is_ok()
        };
        if proposed {
            self.note_proposal(vec![Some(reply)]);
        } else {
            turn.reply(reply, Reply::Refused(Refusal::NotNow));
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
    pub fn configuration_changed(&mut self, state: &ConfState, added: &[Member]) {
        let log = self.raw.mut_store();
        let known: Vec<Member> =
            log.record.configuration.members.iter().chain(added).copied().collect();
        log.record.configuration = Configuration::from_conf_state(state, &known);
        self.record_dirty = true;
        self.end_lease();
    }
}

fn to_raft(change: &ConfigurationChange) -> (ConfChangeV2, Vec<u8>) {
    let mut raft = ConfChangeV2::default();
    let mut context = Vec::new();
    let single = |kind: ConfChangeType, replica: ReplicaId| {
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = replica.get();
        single
    };
    match change {
        ConfigurationChange::AddLearner(member) => {
            raft.mut_changes().push(single(ConfChangeType::AddLearnerNode, member.replica));
            context = codec::encode(&vec![*member]);
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
    (raft, context)
}
