//! Commands on their way into the log and answers on their way back.

use std::collections::VecDeque;

use super::replica::{Machine, Replica};
use super::turn::Turn;
use crate::cluster::{ClusterCommand, ClusterOutcome};
use crate::codec;
use crate::event::{NotLeader, Refusal, Reply};
use crate::ids::{LogIndex, Term};
use crate::store::{Command, EntryPayload};

/// A command of either kind of group.
#[derive(Debug)]
pub(crate) enum Work {
    Partition(Command),
    Cluster(ClusterCommand),
}

/// Commands that will share the next entry, each with whom to answer, if anybody waits.
#[derive(Debug)]
pub(crate) struct Waiting<R> {
    commands: VecDeque<(Work, Option<R>)>,
}

impl<R> Waiting<R> {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

impl<R> Default for Waiting<R> {
    fn default() -> Self {
        Self { commands: VecDeque::new() }
    }
}

/// An entry that this replica proposed.
#[derive(Debug)]
pub(crate) struct Proposal<R> {
    pub index: LogIndex,
    pub term: Term,
    pub replies: Vec<Option<R>>,
}

/// Entries that this replica proposed and that are not resolved.
#[derive(Debug)]
pub(crate) struct Proposals<R> {
    /// Those of the current leadership, by index.
    current: VecDeque<Proposal<R>>,
    /// Those of earlier leaderships. They are resolved by what is applied at their index, or by the
    /// first entry of a later term that is applied: until then, an entry that was overwritten here
    /// can still be committed from another replica's log.
    orphans: Vec<Proposal<R>>,
}

impl<R> Default for Proposals<R> {
    fn default() -> Self {
        Self { current: VecDeque::new(), orphans: Vec::new() }
    }
}

/// What became of the commands of an entry.
pub(crate) enum Outcomes {
    /// One outcome per command of a partition.
    Partition(Vec<crate::store::WriteOutcome>),
    /// One outcome per command of group 0.
    Cluster(Vec<ClusterOutcome>),
    /// A configuration change was applied.
    Changed,
    /// An empty entry: a new leader's, or a configuration change that was refused.
    Nothing,
}

impl<R> Proposals<R> {
    pub fn push(&mut self, proposal: Proposal<R>) {
        self.current.push_back(proposal);
    }

    /// The replica does not lead any more.
    pub fn orphan_all(&mut self) {
        self.orphans.extend(self.current.drain(..));
    }

    /// Answers what the entry applied at this place decides.
    pub fn resolve(
        &mut self,
        index: LogIndex,
        term: Term,
        outcomes: &Outcomes,
        turn: &mut Turn<'_, R>,
    ) {
        while self.current.front().is_some_and(|proposal| proposal.index <= index) {
            let proposal = self.current.pop_front().expect("it has a front");
            answer(proposal, index, term, outcomes, turn);
        }
        if self.orphans.is_empty() {
            return;
        }
        // Terms never go down along a log: after this entry none of an earlier term can follow.
        let (resolved, orphans) = std::mem::take(&mut self.orphans)
            .into_iter()
            .partition(|it| it.index <= index || it.term < term);
        self.orphans = orphans;
        let resolved: Vec<Proposal<R>> = resolved;
        for proposal in resolved {
            answer(proposal, index, term, outcomes, turn);
        }
    }

    /// A snapshot took the place of the log up to an index: what became of the entries before it
    /// cannot be known here.
    pub fn forget_through(&mut self, index: LogIndex, turn: &mut Turn<'_, R>) {
        self.orphan_all();
        let (gone, orphans) =
            std::mem::take(&mut self.orphans).into_iter().partition(|it| it.index <= index);
        self.orphans = orphans;
        let gone: Vec<Proposal<R>> = gone;
        for proposal in gone {
            turn.reply_all(proposal.replies.into_iter().flatten(), &Reply::Unknown);
        }
    }

    /// The replica ends: nothing more can be known.
    pub fn abandon(&mut self, turn: &mut Turn<'_, R>) {
        self.orphan_all();
        for proposal in std::mem::take(&mut self.orphans) {
            turn.reply_all(proposal.replies.into_iter().flatten(), &Reply::Unknown);
        }
    }
}

fn answer<R>(
    proposal: Proposal<R>,
    index: LogIndex,
    term: Term,
    outcomes: &Outcomes,
    turn: &mut Turn<'_, R>,
) {
    if proposal.term != term || proposal.index != index {
        let overwritten = Reply::Refused(Refusal::Overwritten);
        turn.reply_all(proposal.replies.into_iter().flatten(), &overwritten);
        return;
    }
    for (position, reply) in proposal.replies.into_iter().enumerate() {
        let Some(to) = reply else { continue };
        let reply = match outcomes {
            Outcomes::Partition(outcomes) => {
                outcomes.get(position).map_or(Reply::Unknown, |outcome| Reply::Written(*outcome))
            }
            Outcomes::Cluster(outcomes) => outcomes
                .get(position)
                .map_or(Reply::Unknown, |outcome| Reply::Cluster(outcome.clone())),
            Outcomes::Changed => Reply::Done,
            Outcomes::Nothing => Reply::Refused(Refusal::NotNow),
        };
        turn.reply(to, reply);
    }
}

impl<R> Replica<R> {
    /// Takes a command; it is proposed when the turn drives the group.
    pub fn submit(&mut self, work: Work, reply: Option<R>, turn: &mut Turn<'_, R>) {
        let refusal = if !self.is_leader() {
            Some(Reply::NotLeader(NotLeader { leader: self.leader_node() }))
        } else if !self.may_serve(turn) {
            Some(Reply::NotLeader(NotLeader { leader: None }))
        } else if self.waiting.commands.len() >= turn.settings.proposals_per_group_max {
            Some(Reply::Refused(Refusal::Overloaded))
        } else {
            None
        };
        match (refusal, reply) {
            (None, reply) => self.waiting.commands.push_back((work, reply)),
            (Some(refusal), Some(to)) => turn.reply(to, refusal),
            (Some(_), None) => self.truncating = None,
        }
    }

    /// Puts waiting commands into entries.
    pub fn propose_waiting(&mut self, turn: &mut Turn<'_, R>) {
        if self.waiting.commands.is_empty() || self.leadership.is_transferring() {
            return;
        }
        if !self.is_leader() || !self.may_serve(turn) {
            self.refuse_waiting(turn);
            return;
        }
        while !self.waiting.commands.is_empty() {
            let (data, replies) = self.next_payload(turn.settings.entry_bytes_max);
            match self.raw.propose(Vec::new(), data) {
                Ok(()) => self.note_proposal(replies),
                Err(_) => {
                    self.truncating = None;
                    let overloaded = Reply::Refused(Refusal::Overloaded);
                    turn.reply_all(replies.into_iter().flatten(), &overloaded);
                }
            }
        }
    }

    /// Remembers whom the entry that raft-rs took last answers.
    pub fn note_proposal(&mut self, replies: Vec<Option<R>>) {
        let index = LogIndex(self.raw.raft.raft_log.last_index());
        let term = self.term();
        self.proposals.push(Proposal { index, term, replies });
    }

    /// This replica does not lead: nothing that waits here was proposed.
    pub fn refuse_waiting(&mut self, turn: &mut Turn<'_, R>) {
        let elsewhere = Reply::NotLeader(NotLeader { leader: self.leader_node() });
        self.truncating = None;
        let waiting = std::mem::take(&mut self.waiting.commands);
        turn.reply_all(waiting.into_iter().filter_map(|(_, reply)| reply), &elsewhere);
    }

    fn next_payload(&mut self, bytes_max: usize) -> (Vec<u8>, Vec<Option<R>>) {
        let mut replies = Vec::new();
        match self.machine {
            Machine::Cluster(_) => {
                let mut commands = Vec::new();
                while let Some((work, reply)) = self.waiting.commands.pop_front() {
                    if let Work::Cluster(command) = work {
                        commands.push(command);
                        replies.push(reply);
                    }
                }
                (codec::encode(&commands), replies)
            }
            Machine::Partition { .. } => {
                let mut payload = EntryPayload::default();
                let mut bytes = 0;
                while let Some((work, reply)) = self.waiting.commands.pop_front() {
                    let Work::Partition(command) = work else { continue };
                    let size = command.size();
                    if bytes + size > bytes_max && !payload.commands.is_empty() {
                        self.waiting.commands.push_front((Work::Partition(command), reply));
                        break;
                    }
                    bytes += size;
                    payload.commands.push(command);
                    replies.push(reply);
                }
                (payload.encode().to_vec(), replies)
            }
        }
    }
}
