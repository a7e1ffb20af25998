//! Linearizable reads that need a round: a quorum confirms the leader, then the read waits until
//! what was committed at its arrival is applied. A confirmed round also grants the lease.

use super::replica::Replica;
use super::turn::Turn;
use crate::event::{NotLeader, Refusal, Reply};
use crate::ids::{LogIndex, Term};
use crate::time::Time;

/// Reads of one group.
#[derive(Debug)]
pub(crate) struct Reads<R> {
    /// Reads that arrived after the round under way was sent.
    waiting: Vec<R>,
    /// A renewal of the lease is wanted even without reads.
    renewal_wanted: bool,
    round: Option<Round<R>>,
    /// Reads that are confirmed and wait for an index to be applied.
    confirmed: Vec<(LogIndex, Vec<R>)>,
    rounds: u64,
}

#[derive(Debug)]
struct Round<R> {
    context: Vec<u8>,
    term: Term,
    /// When it was sent; `None` if the configuration changed since, which bars it from granting a
    /// lease.
    sent: Option<Time>,
    reads: Vec<R>,
}

impl<R> Default for Reads<R> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            renewal_wanted: false,
            round: None,
            confirmed: Vec::new(),
            rounds: 0,
        }
    }
}

impl<R> Replica<R> {
    /// Takes a linearizable read.
    pub fn read(&mut self, reply: R, turn: &mut Turn<'_, R>) {
        if !self.is_leader() || !self.may_serve(turn) {
            let leader = if self.is_leader() { None } else { self.leader_node() };
            turn.reply(reply, Reply::NotLeader(NotLeader { leader }));
        } else if self.reads.waiting.len() >= turn.settings.reads_per_group_max {
            turn.reply(reply, Reply::Refused(Refusal::Overloaded));
        } else {
            self.reads.waiting.push(reply);
        }
    }

    /// Readers under the lease ask for it to be renewed.
    pub fn renew_lease(&mut self) {
        self.reads.renewal_wanted = true;
    }

    /// Sends the next round if one is wanted and possible. raft-rs drops a round asked for before
    /// the leader has committed in its own term, so that is awaited; a context is never used twice.
    pub fn start_round(&mut self, turn: &mut Turn<'_, R>) {
        if self.is_leader() && !self.may_serve(turn) {
            self.refuse_reads(turn);
            return;
        }
        let wanted = self.reads.renewal_wanted || !self.reads.waiting.is_empty();
        if let Some(round) = &self.reads.round
            && round.term == self.term()
        {
            return;
        }
        if let Some(lost) = self.reads.round.take() {
            self.reads.waiting.splice(0..0, lost.reads);
        }
        if !wanted || !self.is_leader() || !self.raw.raft.commit_to_current_term() {
            return;
        }
        self.reads.rounds += 1;
        let context = [self.term().get().to_be_bytes(), self.reads.rounds.to_be_bytes()].concat();
        self.reads.round = Some(Round {
            context: context.clone(),
            term: self.term(),
            sent: Some(turn.now),
            reads: std::mem::take(&mut self.reads.waiting),
        });
        self.reads.renewal_wanted = false;
        self.raw.read_index(context);
    }

    /// The configuration changed: a lease rests on the refusals of a quorum of the configuration
    /// that is in force, so the next round must earn it again.
    pub fn end_lease(&mut self) {
        self.gate.set_lease(Time::ZERO);
        if let Some(round) = &mut self.reads.round {
            round.sent = None;
        }
    }

    /// A quorum has confirmed a round.
    pub fn round_confirmed(&mut self, context: &[u8], index: LogIndex, turn: &mut Turn<'_, R>) {
        let Some(round) = self.reads.round.take_if(|round| round.context == context) else {
            return;
        };
        if let Some(sent) = round.sent
            && round.term == self.term()
            && self.is_leader()
            && self.may_hold_lease(turn)
        {
            let counted_from = if turn.faults.lease_from_receipt { turn.now } else { sent };
            self.gate.set_lease(counted_from + turn.settings.lease());
        }
        if !round.reads.is_empty() {
            self.reads.confirmed.push((index, round.reads));
        }
    }

    /// Answers reads whose index is applied. The batch of this turn is written before effects are
    /// carried out, so what was applied in this turn counts.
    pub fn release_reads(&mut self, turn: &mut Turn<'_, R>) {
        if self.reads.confirmed.is_empty() {
            return;
        }
        let applied = self.log().progress.applied.index;
        let (ready, later) = std::mem::take(&mut self.reads.confirmed)
            .into_iter()
            .partition(|(index, _)| *index <= applied);
        self.reads.confirmed = later;
        let ready: Vec<(LogIndex, Vec<R>)> = ready;
        for (_, reads) in ready {
            turn.reply_all(reads, &Reply::Readable);
        }
    }

    /// This replica does not lead: reads go elsewhere. Confirmed ones stay, they are decided.
    pub fn refuse_reads(&mut self, turn: &mut Turn<'_, R>) {
        self.reads.renewal_wanted = false;
        let leader = if self.is_leader() { None } else { self.leader_node() };
        let elsewhere = Reply::NotLeader(NotLeader { leader });
        let round = self.reads.round.take().map(|round| round.reads).unwrap_or_default();
        let waiting = std::mem::take(&mut self.reads.waiting);
        turn.reply_all(round.into_iter().chain(waiting), &elsewhere);
    }

    /// The replica ends.
    pub fn abandon_reads(&mut self, turn: &mut Turn<'_, R>) {
        self.refuse_reads(turn);
        let elsewhere = Reply::NotLeader(NotLeader { leader: None });
        for (_, reads) in std::mem::take(&mut self.reads.confirmed) {
            turn.reply_all(reads, &elsewhere);
        }
    }
}
