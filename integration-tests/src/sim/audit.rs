//! The invariants, looked at after every turn of a core and after every start.

use std::time::Duration;

use kvcore::group::{GroupSummary, Role};
use kvcore::storage::Configuration;
use kvcore::{GroupId, LogIndex, ReplicaId};

use super::node::Seen;
use super::oracle::digest_of_cluster;
use super::report::Violation;
use super::world::World;

impl World {
    /// What a node finds on its disk must be a state that its groups have been in.
    pub(super) fn audit_start(&mut self, number: usize) -> Result<(), Violation> {
        let Some(process) = &self.nodes[number].process else { return Ok(()) };
        for summary in process.core.summaries() {
            self.audit_state(number, &summary)?;
            let process = self.nodes[number].process.as_mut().expect("it runs");
            process.seen.insert(summary.group, seen(&summary));
        }
        Ok(())
    }

    /// Looks at everything that a turn may have changed on a node.
    pub(super) fn audit(&mut self, number: usize, installing: &[GroupId]) -> Result<(), Violation> {
        let Some(process) = &self.nodes[number].process else { return Ok(()) };
        let summaries = process.core.summaries();
        for summary in &summaries {
            let before =
                self.nodes[number].process.as_ref().and_then(|it| it.seen.get(&summary.group));
            let before = before.copied().filter(|before| before.replica == summary.replica);
            if before == Some(seen(summary)) {
                continue;
            }
            if before.is_none() {
                self.i10_replicas_come_by_moves_alone(number, summary.group, summary.replica)?;
            }
            self.audit_entries(number, summary, before, installing)?;
            if before.is_none_or(|before| before.applied != summary.applied) {
                self.audit_state(number, summary)?;
            }
            self.audit_leader(number, summary, before)?;
            i8_a_removed_replica_ends(number, summary)?;
            let process = self.nodes[number].process.as_mut().expect("it runs");
            process.seen.insert(summary.group, seen(summary));
        }
        let holds = |group: GroupId, seen: &Seen| {
            summaries.iter().any(|it| it.group == group && it.replica == seen.replica)
        };
        let process = self.nodes[number].process.as_mut().expect("it runs");
        let ended: Vec<(GroupId, Seen)> =
            process.seen.extract_if(.., |group, seen| !holds(*group, seen)).collect();
        for (group, seen) in ended {
            self.i9_only_what_has_no_place_is_destroyed(number, group, seen.replica)?;
        }
        i6_epochs_only_go_up(self, number)
    }

    fn audit_entries(
        &mut self,
        number: usize,
        summary: &GroupSummary,
        before: Option<Seen>,
        installing: &[GroupId],
    ) -> Result<(), Violation> {
        let group = summary.group;
        let truncated = LogIndex(summary.first.get() - 1);
        let applied_before = before.map_or(truncated, |before| before.applied);
        let installed = installing.contains(&group) && truncated > applied_before;
        for index in applied_before.get() + 1..=summary.applied.get() {
            let by_snapshot = installed && index <= truncated.get();
            if by_snapshot && index <= self.oracle.last(group) {
                continue;
            }
            let Some(entry) = self.nodes[number].disk.entry(group, index).cloned() else {
                let seen = format!("n{number} applied {index} of group {group}, not in its log");
                return Err(Violation::new("I4", seen));
            };
            if entry.get_entry_type() != raft::eraftpb::EntryType::EntryNormal
                && index > self.oracle.last(group)
            {
                self.counters.configuration_changes += 1;
            }
            let is_news = index > self.oracle.last(group);
            self.oracle.applied(group, &entry)?;
            if is_news && group == GroupId::CLUSTER {
                for pair in self.oracle.cluster_steps().windows(2) {
                    self.audit_plans(&pair[0], &pair[1])?;
                }
            }
        }
        i10_data_moves_by_snapshots_alone(number, summary, before, installed)?;
        if installed {
            self.counters.snapshots_installed += 1;
        } else if before.is_some_and(|before| before.first < summary.first) {
            self.counters.truncations += 1;
        }
        Ok(())
    }

    /// Holds the state of a replica to the reference.
    fn audit_state(&mut self, number: usize, summary: &GroupSummary) -> Result<(), Violation> {
        let who = format!("n{number}");
        let group = summary.group;
        let applied = summary.applied.get();
        let tables = self.nodes[number].disk.visible();
        let stored = tables.replicas.get(&group).map(|it| it.progress.applied.index);
        if stored != Some(summary.applied) {
            let seen = format!("{who}: group {group} applied {applied}, stored {stored:?}");
            return Err(Violation::new("I5", seen));
        }
        let digest = match group.partition() {
            Some(partition) => tables.digest(partition),
            None => tables.cluster.as_ref().map(|state| digest_of_cluster(state)),
        };
        if let Some(digest) = digest.filter(|_| applied > 0) {
            self.oracle.check_digest(group, applied, digest, &who)?;
        }
        if applied > 0 {
            let configuration = &summary.configuration;
            let known = self.oracle.configuration(group).cloned();
            if self.oracle.check_configuration(group, applied, configuration, &who)? {
                self.audit_configuration(summary, known.as_ref())?;
            }
        }
        Ok(())
    }

    fn audit_leader(
        &mut self,
        number: usize,
        summary: &GroupSummary,
        before: Option<Seen>,
    ) -> Result<(), Violation> {
        if summary.role != Role::Leader {
            return Ok(());
        }
        let group = summary.group;
        if summary.configuration.is_joint() {
            self.joint_leader_seen(number, summary);
        }
        let holder = *self.terms.entry((group, summary.term)).or_insert(summary.replica);
        i8_one_leader_per_term(summary, holder)?;
        if self.leaders.insert(group, summary.replica) != Some(summary.replica) {
            self.counters.leader_changes += 1;
        }
        let Some(before) = before else { return Ok(()) };
        if before.role == Role::Leader
            && before.term == summary.term
            && before.commit < summary.commit
        {
            self.i8_a_quorum_of_voters_has_it_durably(number, summary)?;
        }
        if is_outside(summary) {
            self.counters.leaders_outside += u64::from(!before.outside);
            self.i8_no_lease_outside(number, summary)?;
        }
        Ok(())
    }

    /// I8: what a leader commits is durable on a quorum of its voters; learners, and replicas that
    /// are not what they were, do not count.
    fn i8_a_quorum_of_voters_has_it_durably(
        &self,
        number: usize,
        summary: &GroupSummary,
    ) -> Result<(), Violation> {
        let (group, index) = (summary.group, summary.commit.get());
        let Some(entry) = self.nodes[number].disk.entry(group, index) else { return Ok(()) };
        if entry.get_entry_type() != raft::eraftpb::EntryType::EntryNormal {
            // It may have been counted by the configuration that it ends.
            return Ok(());
        }
        let term = entry.term;
        let has_it = |replica: ReplicaId| {
            self.nodes.iter().any(|node| node.disk.durable().holds(group, replica, index, term))
        };
        let quorum = |voters: &[ReplicaId]| {
            let holders = voters.iter().filter(|replica| has_it(**replica)).count();
            voters.is_empty() || 2 * holders > voters.len()
        };
        let Configuration { voters, voters_outgoing, .. } = &summary.configuration;
        if quorum(voters) && quorum(voters_outgoing) {
            return Ok(());
        }
        // A change applied in this very turn: what came before it was counted without it.
        if summary.applied.get() > 0 && self.changed_within(number, summary) {
            return Ok(());
        }
        let seen = format!(
            "n{number} committed {index} of group {group} in term {term} without a quorum of \
             {voters:?} and {voters_outgoing:?}: {}",
            self.picture()
        );
        Err(Violation::new("I8", seen))
    }

    fn changed_within(&self, number: usize, summary: &GroupSummary) -> bool {
        let Some(process) = &self.nodes[number].process else { return false };
        let before = process.seen.get(&summary.group).map_or(0, |seen| seen.applied.get());
        (before + 1..=summary.applied.get()).any(|index| {
            self.nodes[number].disk.entry(summary.group, index).is_some_and(|entry| {
                entry.get_entry_type() != raft::eraftpb::EntryType::EntryNormal
            })
        })
    }

    /// I8: a leader outside its configuration holds no lease.
    fn i8_no_lease_outside(&self, number: usize, summary: &GroupSummary) -> Result<(), Violation> {
        let node = &self.nodes[number];
        let Some(process) = &node.process else { return Ok(()) };
        let Some(gate) = process.gates.get(&summary.group) else { return Ok(()) };
        if gate.arrive(node.clock.local(self.now), Duration::ZERO).is_none() {
            return Ok(());
        }
        let seen = format!("n{number} holds a lease of group {} from outside", summary.group);
        Err(Violation::new("I8", seen))
    }

    /// Whether a node leads a group whose applied configuration it is not a voter of.
    pub(super) fn leads_from_outside(&self, number: usize, group: GroupId) -> bool {
        let process = self.nodes[number].process.as_ref();
        process.and_then(|process| process.seen.get(&group)).is_some_and(|seen| seen.outside)
    }
}

fn seen(summary: &GroupSummary) -> Seen {
    Seen {
        replica: summary.replica,
        applied: summary.applied,
        commit: summary.commit,
        first: summary.first,
        term: summary.term,
        role: summary.role,
        outside: is_outside(summary),
        generation: summary.generation,
    }
}

/// I8: a replica that was removed goes on in nothing.
fn i8_a_removed_replica_ends(number: usize, summary: &GroupSummary) -> Result<(), Violation> {
    if summary.applied.get() == 0 || summary.configuration.contains(summary.replica) {
        return Ok(());
    }
    let seen = format!("n{number} goes on after its removal: {summary:?}");
    Err(Violation::new("I8", seen))
}

/// I10: the data of a replica that stays is the installation that it was, but for snapshots.
fn i10_data_moves_by_snapshots_alone(
    number: usize,
    summary: &GroupSummary,
    before: Option<Seen>,
    installed: bool,
) -> Result<(), Violation> {
    if installed || before.is_none_or(|before| before.generation == summary.generation) {
        return Ok(());
    }
    let seen = format!("n{number} changed its generation without a snapshot: {summary:?}");
    Err(Violation::new("I10", seen))
}

fn is_outside(summary: &GroupSummary) -> bool {
    summary.role == Role::Leader && !summary.configuration.is_voter(summary.replica)
}

/// At most one replica leads a group in a term.
fn i8_one_leader_per_term(summary: &GroupSummary, holder: ReplicaId) -> Result<(), Violation> {
    if holder == summary.replica {
        return Ok(());
    }
    let seen = format!(
        "replicas {holder} and {} both led group {} in term {}",
        summary.replica, summary.group, summary.term
    );
    Err(Violation::new("I8", seen))
}

/// I6: a node's epochs only go up, and each is the one that group 0 committed.
fn i6_epochs_only_go_up(world: &mut World, number: usize) -> Result<(), Violation> {
    let Some(process) = &mut world.nodes[number].process else { return Ok(()) };
    let Some(view) = process.core.view() else { return Ok(()) };
    let (epoch, checksum) = (view.epoch(), view.ring.checksum());
    let before = std::mem::replace(&mut process.epoch, epoch.get());
    let history = world.oracle.cluster().map_or(&[][..], |state| &state.history);
    let is_known = history.iter().any(|line| line.epoch == epoch && line.checksum == checksum);
    if is_known && before <= epoch.get() {
        return Ok(());
    }
    let revision = view.revision;
    let seen = format!("n{number} has epoch {epoch} at revision {revision} after {before}");
    Err(Violation::new("I6", seen))
}
