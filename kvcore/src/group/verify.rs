//! Comparing the replicas of a partition: a logged command ends its batch, every replica computes
//! the digest of its state there, and the leader holds them against its own.

use std::collections::BTreeMap;
use std::time::Duration;

use migration::{Member, Verification};

use super::propose::Outcomes;
use super::replica::Replica;
use super::turn::Turn;
use crate::event::{Alarm, Effect};
use crate::ids::{LogIndex, ReplicaId, Term};
use crate::message::PeerMessage;
use crate::store::{Command, EntryPayload, PartitionDigest, WriteOutcome};
use crate::time::Time;

/// What is named where a replica's data cannot be read at all.
const UNREADABLE: &str = "all of its data: it cannot be read";

/// Comparisons of one replica.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    /// The digest of the state at this index is asked for at the end of the turn.
    boundary: Option<LogIndex>,
    asked: Option<Asked>,
    last: Option<Verification>,
    /// Comparisons in a row that did not come to an end.
    overdue: u32,
}

#[derive(Debug)]
struct Asked {
    term: Term,
    index: LogIndex,
    since: Time,
    replicas: Vec<Member>,
    digests: BTreeMap<ReplicaId, Option<PartitionDigest>>,
}

impl Verifier {
    /// Whether nothing more may be applied in this turn.
    pub fn is_at_boundary(&self) -> bool {
        self.boundary.is_some()
    }

    /// What the last comparison found.
    pub fn last(&self) -> Option<&Verification> {
        self.last.as_ref()
    }

    /// Whether a comparison is on its way.
    pub fn is_busy(&self) -> bool {
        self.asked.is_some()
    }
}

impl<R> Replica<R> {
    /// Notes an applied command that asks for the digest. Returns whether there was one.
    pub fn digest_if_asked(&mut self, index: LogIndex, outcomes: &Outcomes) -> bool {
        let asked = match outcomes {
            Outcomes::Partition(outcomes) => outcomes.contains(&WriteOutcome::Verify),
            Outcomes::Cluster(_) | Outcomes::Changed | Outcomes::Nothing => false,
        };
        if asked {
            self.verifier.boundary = Some(index);
        }
        asked
    }

    /// Asks the shell for the digest of what the turn's batch leaves behind.
    pub fn ask_for_digest(&mut self, turn: &mut Turn<'_, R>) {
        let Some(index) = self.verifier.boundary.take() else { return };
        let log = self.log();
        turn.effects.push(Effect::ComputeDigest {
            group: self.group,
            index,
            generation: log.record.generation,
            state: log.progress.state,
        });
    }

    /// Starts to compare these replicas with this leader, unless a comparison is on its way.
    pub fn start_verification(&mut self, replicas: Vec<Member>, turn: &mut Turn<'_, R>) {
        if self.verifier.asked.is_some()
            || !self.is_leader()
            || !self.may_serve(turn)
            || self.leadership.is_transferring()
        {
            return;
        }
        let payload = EntryPayload { commands: vec![Command::Verify] };
        if self.raw.propose(Vec::new(), payload.encode().to_vec()).is_err() {
            return;
        }
        self.note_proposal(vec![None]);
        self.verifier.asked = Some(Asked {
            term: self.term(),
            index: LogIndex(self.raw.raft.raft_log.last_index()),
            since: turn.now,
            replicas,
            digests: BTreeMap::new(),
        });
        self.hurry_learners(turn);
    }

    /// Gives a comparison up that another leader took the place of, or that takes too long.
    pub fn tend_verification(&mut self, turn: &Turn<'_, R>) {
        if !self.is_leader() {
            self.verifier.asked = None;
            self.verifier.last = None;
            return;
        }
        let patience: Duration =
            turn.settings.verify_patience * (1 << self.verifier.overdue.min(5));
        let Some(asked) = &self.verifier.asked else { return };
        let configuration = self.configuration();
        let silent = |member: &Member| {
            !configuration.contains(member.replica)
                || (!asked.digests.contains_key(&member.replica)
                    && !self.is_heard(member.replica, turn.now))
        };
        if asked.replicas.iter().any(silent) {
            // It was removed or died meanwhile, and will not answer.
            self.verifier.asked = None;
        } else if asked.term != self.term() {
            self.verifier.asked = None;
            self.verifier.last = None;
        } else if turn.now.since(asked.since) >= patience {
            self.verifier.asked = None;
            self.verifier.overdue += 1;
        }
    }

    /// The digest of this replica is computed: the leader holds it, all others send it.
    pub fn own_digest(
        &mut self,
        index: LogIndex,
        digest: Option<PartitionDigest>,
        turn: &mut Turn<'_, R>,
    ) {
        if self.is_leader() {
            self.digest_arrived(self.id, index, digest, turn);
        } else if let Some(to) = self.leader_node() {
            let (group, replica) = (self.group, self.id);
            let message =
                PeerMessage::Digest { group, replica, index, digest: digest.map(Box::new) };
            turn.effects.push(Effect::Send { to, message });
        }
    }

    /// Takes the digest of a replica, and compares when all are there. A difference is told at once,
    /// whether or not a move waits for the comparison.
    pub fn digest_arrived(
        &mut self,
        replica: ReplicaId,
        index: LogIndex,
        digest: Option<PartitionDigest>,
        turn: &mut Turn<'_, R>,
    ) {
        let own = self.id;
        let term = self.term();
        let leads = self.is_leader();
        let Some(asked) = &mut self.verifier.asked else { return };
        if !leads || asked.term != term || asked.index != index {
            return;
        }
        asked.digests.insert(replica, digest);
        let complete = asked.digests.contains_key(&own)
            && asked.replicas.iter().all(|member| asked.digests.contains_key(&member.replica));
        if complete {
            let asked = self.verifier.asked.take().expect("it was found above");
            self.verifier.overdue = 0;
            let found = self.compare(&asked);
            if let Verification::Differs { index: _, member, range } = &found {
                let (group, node, range) = (self.group, member.node, range.clone());
                turn.effects.push(Effect::Alarm(Alarm::ReplicasDiffer { group, node, range }));
            }
            self.verifier.last = Some(found);
        }
    }

    fn compare(&self, asked: &Asked) -> Verification {
        let index = asked.index;
        let here = self.configuration().node_of(self.id);
        let unreadable =
            |member: Member| Verification::Differs { index, member, range: UNREADABLE.to_owned() };
        let Some(Some(own)) = asked.digests.get(&self.id) else {
            let node = here.expect("a leader is part of its configuration");
            return unreadable(Member { replica: self.id, node });
        };
        for member in &asked.replicas {
            let Some(Some(digest)) = asked.digests.get(&member.replica) else {
                return unreadable(*member);
            };
            if let Some(range) = own.first_difference(digest) {
                return Verification::Differs { index, member: *member, range: range.to_string() };
            }
        }
        let asked_of = asked.replicas.iter().map(|member| member.replica);
        let replicas = asked_of.chain([self.id]).collect();
        Verification::Agreed { index, digest: own.whole.0, replicas }
    }
}
