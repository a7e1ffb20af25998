//! Who may lead, vote, serve and hold a lease; and how leadership is handed on.
//!
//! The promise behind a lease: a follower that heard from its leader at time t neither votes nor
//! campaigns before t + `Settings::vote_refusal`, on its own clock, whatever its ticks say; a
//! restarted node, which remembers no t, waits one election timeout from its start. The one message
//! that breaks the promise on purpose is an order to campaign, and a leader that has started a
//! transfer has no lease until the term changes.

use std::hash::Hasher;

use raft::eraftpb::{Message, MessageType};
use raft::{CAMPAIGN_TRANSFER, StateRole};
use xxhash_rust::xxh3::Xxh3;

use super::replica::{RANK_MAX, Replica};
use super::turn::Turn;
use crate::event::{NotLeader, Refusal, Reply};
use crate::ids::{ReplicaId, Term};
use crate::settings::Settings;
use crate::time::Time;

/// A transfer of leadership under way.
#[derive(Debug)]
struct Transfer<R> {
    since: Time,
    reply: Option<R>,
}

/// What a replica remembers beside raft-rs's own state.
#[derive(Debug)]
pub(crate) struct Leadership<R> {
    pub rank: u8,
    started: Time,
    heard: Option<Time>,
    led_since: Option<(Term, Time)>,
    transfer: Option<Transfer<R>>,
    /// The term in which a transfer was started: no lease in it.
    no_lease_in: Option<Term>,
}

impl<R> Leadership<R> {
    pub fn new(now: Time, rank: u8) -> Self {
        Self { rank, started: now, heard: None, led_since: None, transfer: None, no_lease_in: None }
    }

    pub fn heard_from_leader(&mut self, now: Time) {
        self.heard = Some(now);
    }

    pub fn is_transferring(&self) -> bool {
        self.transfer.is_some()
    }

    /// Whether the replica has led long enough to judge whether another should.
    pub fn settled(&self, now: Time, settings: &Settings) -> bool {
        self.led_since.is_some_and(|(_, since)| now.since(since) >= settings.vote_refusal())
    }

    /// Whether a promise forbids to vote or campaign now.
    fn promised(&self, turn: &Turn<'_, R>) -> bool {
        let settings = turn.settings;
        let restarted =
            settings.tick * u32::try_from(settings.election_ticks).expect("a handful of ticks");
        let just_started =
            !turn.faults.no_vote_refusal_after_restart && turn.now.since(self.started) < restarted;
        let just_heard = !turn.faults.tick_bursts
            && self.heard.is_some_and(|heard| turn.now.since(heard) < settings.vote_refusal());
        just_started || just_heard
    }

    /// Whether a message asks for what this replica has promised not to do.
    pub fn refuses(&self, message: &Message, turn: &Turn<'_, R>) -> bool {
        match message.get_msg_type() {
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                message.context.as_ref() != CAMPAIGN_TRANSFER && self.promised(turn)
            }
            MessageType::MsgTimeoutNow => {
                !turn.faults.no_vote_refusal_after_restart && self.heard.is_none()
            }
            _ => false,
        }
    }
}

impl<R> Replica<R> {
    /// Whether this leader may propose and answer: it votes in its own applied configuration.
    pub fn may_serve(&self, turn: &Turn<'_, R>) -> bool {
        turn.faults.leader_outside_serves || self.configuration().is_voter(self.id)
    }

    /// Whether this leader may hold a lease.
    pub fn may_hold_lease(&self, turn: &Turn<'_, R>) -> bool {
        self.may_serve(turn)
            && self.leadership.transfer.is_none()
            && (turn.faults.lease_after_aborted_transfer
                || self.leadership.no_lease_in != Some(self.term()))
    }

    /// Whether all of the log is durable here. raft-rs campaigns only then without a panic: a sole
    /// voter leads at once and counts on its log, and a snapshot that is not durable leaves a gap
    /// behind the applied index that raft-rs knows.
    pub fn is_log_durable(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.persisted == log.last_index()
    }

    /// One tick of raft-rs's clock.
    pub fn tick(&mut self, turn: &mut Turn<'_, R>) {
        let raft = &self.raw.raft;
        let would_campaign = raft.state != StateRole::Leader
            && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        if would_campaign && (self.leadership.promised(turn) || !self.is_log_durable()) {
            return;
        }
        self.raw.tick();
        self.pin_election_timeout(turn.settings);
        self.end_overdue_transfer(turn);
    }

    /// Sets the election timeout that raft-rs drew at random to one that depends on rank, group and
    /// term alone: the owners' ranges are disjoint, so that the first attempt wins, and equal
    /// inputs give equal traces.
    pub fn pin_election_timeout(&mut self, settings: &Settings) {
        let mut hasher = Xxh3::new();
        hasher.write_u32(self.group.get());
        hasher.write_u64(self.id.get());
        hasher.write_u64(self.raw.raft.term);
        let spread = usize::try_from(hasher.finish() % settings.election_rank_ticks as u64)
            .expect("smaller than a usize");
        let rank = usize::from(self.leadership.rank.min(RANK_MAX));
        let ticks = settings.election_ticks + rank * settings.election_rank_ticks + spread;
        self.raw.raft.set_randomized_election_timeout(ticks);
    }

    /// raft-rs says that leadership or term changed.
    pub fn role_changed(&mut self, turn: &mut Turn<'_, R>) {
        let led = self.leadership.led_since.map(|(term, _)| term);
        let leads = self.is_leader().then(|| self.term());
        if led == leads {
            return;
        }
        // A leadership that was lost and won again within a turn is another one, too.
        if led.is_some() || leads.is_none() {
            self.gate.set_lease(Time::ZERO);
            self.proposals.orphan_all();
            self.refuse_waiting(turn);
            self.refuse_reads(turn);
            self.truncating = None;
            self.finish_transfer(turn);
        }
        self.leadership.led_since = leads.map(|term| (term, turn.now));
    }

    /// Starts to give leadership to another voter.
    pub fn transfer(&mut self, to: ReplicaId, reply: Option<R>, turn: &mut Turn<'_, R>) {
        let refusal = if !self.is_leader() {
            Some(Reply::NotLeader(NotLeader { leader: self.leader_node() }))
        } else if to == self.id {
            Some(Reply::Done)
        } else if self.leadership.transfer.is_some()
            || !self.configuration().is_staying_voter(to)
            || !self.is_active(to)
        {
            Some(Reply::Refused(Refusal::NotNow))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            turn.reply_all(reply, &refusal);
            return;
        }
        self.gate.set_lease(Time::ZERO);
        self.leadership.no_lease_in = Some(self.term());
        self.leadership.transfer = Some(Transfer { since: turn.now, reply });
        self.raw.transfer_leader(to.get());
    }

    /// Whether a follower has everything and has acknowledged lately.
    pub fn is_caught_up(&self, replica: ReplicaId) -> bool {
        let last = self.raw.raft.raft_log.last_index();
        self.raw
            .raft
            .prs()
            .get(replica.get())
            .is_some_and(|progress| progress.recent_active && progress.matched == last)
    }

    /// Whether a follower has acknowledged anything lately.
    pub fn is_active(&self, replica: ReplicaId) -> bool {
        self.raw.raft.prs().get(replica.get()).is_some_and(|progress| progress.recent_active)
    }

    /// Gives a transfer up that has not succeeded in time, so that proposals go on.
    pub fn end_overdue_transfer(&mut self, turn: &mut Turn<'_, R>) {
        let overdue = self.leadership.transfer.as_ref().is_some_and(|transfer| {
            turn.now.since(transfer.since) >= turn.settings.transfer_patience
        });
        if overdue && self.is_leader() {
            self.raw.raft.abort_leader_transfer();
            let transfer = self.leadership.transfer.take().expect("an overdue one exists");
            turn.reply_all(transfer.reply, &Reply::Refused(Refusal::NotNow));
        }
    }

    fn finish_transfer(&mut self, turn: &mut Turn<'_, R>) {
        if let Some(transfer) = self.leadership.transfer.take() {
            turn.reply_all(transfer.reply, &Reply::Done);
        }
    }

    /// The best voter to hand leadership to: of the staying ones that `fit`, the one that has most.
    pub fn successor(&self, fit: impl Fn(ReplicaId) -> bool) -> Option<ReplicaId> {
        self.configuration()
            .voters
            .iter()
            .copied()
            .filter(|&voter| voter != self.id && self.is_active(voter) && fit(voter))
            .max_by_key(|voter| self.raw.raft.prs().get(voter.get()).map(|it| it.matched))
    }
}
