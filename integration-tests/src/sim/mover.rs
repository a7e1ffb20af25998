//! The operator who changes configurations: one step at a time, by what the group has now.
//!
//! It remembers nothing but the replica ids it has given out, like the driver that it stands for:
//! each step compares a group's configuration with what may follow from it and takes one way on.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvcore::cluster::{ClusterCommand, ClusterState};
use kvcore::event::ConfigurationChange;
use kvcore::group::{GroupSummary, Role};
use kvcore::storage::Member;
use kvcore::{Event, GroupId, ReplicaId};

use super::cast::registration;
use super::weather::MILLIS;
use super::world::{Asker, Happening, World};

/// Voters that no change takes a group below.
const VOTERS_MIN: usize = 1;
/// Voters that no change takes a group above.
const VOTERS_MAX: usize = 4;

/// What the operator remembers.
#[derive(Debug)]
pub struct Mover {
    groups: Vec<GroupId>,
    next_replica: u64,
    registered: BTreeSet<usize>,
}

impl Mover {
    /// An operator of a cluster founded like this.
    #[must_use]
    pub fn new(founding: &Arc<ClusterState>) -> Self {
        Self {
            groups: founding.groups().collect(),
            next_replica: founding.next_replica.get() + 1000,
            registered: BTreeSet::new(),
        }
    }

    /// A replica id that was never given out.
    pub fn fresh_replica(&mut self) -> ReplicaId {
        self.next_replica += 1;
        ReplicaId(self.next_replica)
    }
}

impl World {
    pub(super) fn mover_acts(&mut self) {
        if self.clearing {
            return;
        }
        let wait = self.dice.within(&self.setup.weather.move_every);
        self.after(wait, Happening::Mover);
        self.register_spares();
        if self.dice.chance(300) {
            self.end_removed();
        }
        let groups = self.mover.groups.clone();
        if let Some(group) = self.dice.pick(&groups).copied() {
            self.move_on(group);
        }
    }

    /// Lets every group leave its joint configuration; part of the clearing.
    pub(super) fn finish_moves(&mut self) {
        self.end_removed();
        for group in self.mover.groups.clone() {
            if let Some((leader, summary)) = self.leader_of(group) {
                self.create_missing(&summary);
                if summary.configuration.is_joint() {
                    self.change(leader, group, ConfigurationChange::LeaveJoint);
                }
            }
        }
    }

    /// Ends replicas that were removed and did not hear of it.
    fn end_removed(&mut self) {
        let mut removed = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_running()) {
            let Some(process) = &node.process else { continue };
            for (group, seen) in &process.seen {
                if self.oracle.has_left(*group, seen.replica) {
                    removed.push((number, *group, seen.replica));
                }
            }
        }
        for (node, group, replica) in removed {
            self.tell(node, Event::EndReplica { group, replica });
        }
    }

    fn register_spares(&mut self) {
        let spares = self.setup.founders..self.nodes.len();
        let Some(leader) = self.leader(GroupId::CLUSTER) else { return };
        for spare in spares {
            if self.mover.registered.insert(spare) {
                let command = ClusterCommand::Register(registration(spare));
                self.ask(leader, GroupId::CLUSTER, Asker::Registration, |reply| Event::Cluster {
                    command,
                    reply,
                });
            }
        }
    }

    /// The leader of a group, if it runs, with what it thinks of the group.
    pub(super) fn leader_of(&self, group: GroupId) -> Option<(usize, GroupSummary)> {
        let leader = self.leader(group)?;
        if !self.nodes[leader].is_running() {
            return None;
        }
        self.summary(leader, group).map(|summary| (leader, summary))
    }

    /// A replica id that was never given out.
    pub fn fresh_replica(&mut self) -> ReplicaId {
        self.mover.fresh_replica()
    }

    /// The replica of a group on a node.
    #[must_use]
    pub fn summary(&self, node: usize, group: GroupId) -> Option<GroupSummary> {
        let process = self.nodes[node].process.as_ref()?;
        process.core.summaries().into_iter().find(|it| it.group == group)
    }

    /// Asks a leader for a change; it may refuse.
    pub fn change(&mut self, leader: usize, group: GroupId, change: ConfigurationChange) {
        self.ask(leader, group, Asker::Mover, |reply| Event::ChangeConfiguration {
            group,
            change,
            reply,
        });
    }

    /// Replicas that the configuration names and that a crash kept from being created.
    fn create_missing(&mut self, summary: &GroupSummary) {
        for member in summary.configuration.members.clone() {
            let Some(node) = self.nodes.iter().position(|node| node.id == member.node) else {
                continue;
            };
            if self.nodes[node].is_running() && self.summary(node, summary.group).is_none() {
                self.create(node, summary.group, member.replica);
            }
        }
    }

    fn create(&mut self, node: usize, group: GroupId, replica: ReplicaId) {
        let rank = u8::try_from(self.dice.index(5)).expect("below five");
        self.tell(node, Event::CreateReplica { group, replica, rank });
    }

    fn move_on(&mut self, group: GroupId) {
        let Some((leader, summary)) = self.leader_of(group) else { return };
        if summary.role != Role::Leader {
            return;
        }
        self.create_missing(&summary);
        let now = &summary.configuration;
        if now.is_joint() {
            if self.dice.chance(600) {
                self.change(leader, group, ConfigurationChange::LeaveJoint);
            }
            return;
        }
        let Some(learner) = self.dice.pick(&now.learners).copied() else {
            if self.dice.chance(700) {
                self.add_learner(leader, &summary);
            }
            return;
        };
        let change = match self.dice.index(10) {
            0..6 => self.swap(&summary, learner),
            6..8 => Some(ConfigurationChange::Remove(learner)),
            _ => None,
        };
        if let Some(change) = change {
            self.change(leader, group, change);
        } else if now.learners.len() < 2 && self.dice.chance(200) {
            self.add_learner(leader, &summary);
        }
    }

    /// A joint change that promotes a learner and demotes a voter, any of them, the leader too.
    fn swap(&mut self, summary: &GroupSummary, learner: ReplicaId) -> Option<ConfigurationChange> {
        let now = &summary.configuration;
        // A learner that lags is promoted now and then: the group must bear it.
        let node = now.node_of(learner)?;
        let node = self.nodes.iter().position(|it| it.id == node)?;
        let applied = self.summary(node, summary.group).map_or(0, |it| it.applied.get());
        if applied + 20 < summary.applied.get() && !self.dice.chance(50) {
            return None;
        }
        let voters = now.voters.len();
        let demote = voters >= VOTERS_MAX || (voters > VOTERS_MIN && self.dice.chance(800));
        let demote = if demote { self.dice.pick(&now.voters).copied() } else { None };
        Some(ConfigurationChange::Swap {
            promote: vec![learner],
            demote: demote.into_iter().collect(),
        })
    }

    fn add_learner(&mut self, leader: usize, summary: &GroupSummary) {
        let group = summary.group;
        let free: Vec<usize> = (0..self.nodes.len())
            .filter(|node| {
                self.nodes[*node].is_running()
                    && self.summary(*node, group).is_none()
                    && summary
                        .configuration
                        .members
                        .iter()
                        .all(|it| it.node != self.nodes[*node].id)
            })
            .collect();
        let Some(node) = self.dice.pick(&free).copied() else { return };
        let replica = self.mover.fresh_replica();
        self.create(node, group, replica);
        let member = Member { replica, node: self.nodes[node].id };
        self.change(leader, group, ConfigurationChange::AddLearner(member));
    }

    /// How long the clearing waits between two looks at the moves.
    pub(super) const MOVES_EVERY: u64 = 50 * MILLIS;
}
