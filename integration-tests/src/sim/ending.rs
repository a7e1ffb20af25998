//! A whole run: bad weather, then it clears and everything must work again.

use kvcore::store::{Command, Condition};
use kvcore::{Event, GroupId, Reply};

use super::cast::registration;
use super::conduct::describe;
use super::node::SimNode;
use super::report::{Outcome, Violation};
use super::weather::{MILLIS, SECONDS, Setup};
use super::world::{Asker, Happening, World};

/// By when every group must serve after the weather cleared.
const RECOVERY: u64 = 30 * SECONDS;

/// By when every plan must have ended after that: a node that flapped must be well for longer before
/// it counts again.
const PLANS_END: u64 = 90 * SECONDS;
/// How long the clearing waits between two looks.
const LOOK_EVERY: u64 = 50 * MILLIS;

/// Runs a setup to its end.
#[must_use]
pub fn run(setup: Setup) -> Outcome {
    let mut world = World::new(setup);
    let violation = world.run_to_the_end().err();
    Outcome { counters: world.counters, trace: world.trace(), simulated: world.now, violation }
}

impl World {
    /// Runs through the weather, clears it, and asks for everything that must hold then.
    ///
    /// # Errors
    /// The first violation.
    pub fn run_to_the_end(&mut self) -> Result<(), Violation> {
        self.run_for(self.setup.weather.length)?;
        self.clear()?;
        self.everything_serves_again()?;
        self.i2_every_key_is_linearizable()
    }

    /// The weather clears: every node runs, every link and disk is well, nobody asks for more.
    ///
    /// # Errors
    /// What a start on what is on disk breaks.
    pub fn clear(&mut self) -> Result<(), Violation> {
        self.clearing = true;
        self.network.mend();
        self.network.whole = true;
        self.network.late_order = None;
        self.network.ambush = None;
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            node.stalled_until = 0;
            node.down_until = 0;
            let incarnation = node.incarnation;
            self.at(self.now, Happening::Resume { node: number, incarnation, one_by_one: false });
            self.at(self.now, Happening::Start { node: number });
            self.tell(number, Event::Hold(None));
        }
        // Deeds that are on their way still end; cuts are mended once more after them.
        self.run_for(3 * SECONDS)?;
        self.network.mend();
        for number in 0..self.nodes.len() {
            self.at(self.now, Happening::Start { node: number });
        }
        Ok(())
    }

    /// Liveness: every group has a leader, takes a write, and brings all its replicas to one state.
    ///
    /// # Errors
    /// What did not happen in time.
    pub fn everything_serves_again(&mut self) -> Result<(), Violation> {
        let until = self.now + RECOVERY;
        let groups: Vec<GroupId> = self.founding.groups().collect();
        for group in &groups {
            self.takes_a_write(*group, until)?;
        }
        self.i12_every_plan_ends()?;
        let until = self.now + RECOVERY;
        for group in &groups {
            self.takes_a_write(*group, until)?;
        }
        self.run_until("one state everywhere", until.saturating_sub(self.now), |world| {
            groups.iter().all(|group| world.has_settled(*group))
        })?;
        let unanswered = self.asked.values().next();
        if let Some(asked) = unanswered {
            let seen = format!("{asked:?} was never answered; {}", self.picture());
            return Err(Violation::new("answers", seen));
        }
        Ok(())
    }

    /// I12: every plan ends, every group has the configuration that is wanted, and no replica is
    /// left without a place.
    fn i12_every_plan_ends(&mut self) -> Result<(), Violation> {
        let until = self.now + PLANS_END;
        loop {
            let Some(open) = self.left_to_do() else { return Ok(()) };
            if self.now >= until {
                let seen = format!("{open}; {}", self.picture());
                return Err(Violation::new("I12", seen));
            }
            self.finish_plans();
            self.run_for(10 * LOOK_EVERY)?;
        }
    }

    /// What keeps the cluster from being at rest, if anything does.
    fn left_to_do(&self) -> Option<String> {
        let state = self.oracle.cluster()?;
        let open: Vec<String> =
            state.plans.iter().filter(|plan| !plan.is_over()).map(describe).collect();
        if !open.is_empty() {
            let health: Vec<_> = state.nodes.iter().map(|(id, it)| (*id, it.health)).collect();
            return Some(format!("{open:?}, group 0 {:?}, health {health:?}", state.group0));
        }
        let lost_member =
            |node: &&SimNode| node.lost && state.ring.topology().get(node.id).is_some();
        if let Some(node) = self.nodes.iter().find(lost_member) {
            return Some(format!("{} is lost and a member", node.id));
        }
        for group in state.groups() {
            let wanted = state.wanted(group);
            let Some(now) = self.oracle.configuration(group) else { continue };
            let mut voters: Vec<_> = wanted.voters.iter().map(|it| it.replica).collect();
            voters.sort_unstable();
            let mut has = now.voters.clone();
            has.sort_unstable();
            if now.is_joint() || has != voters || now.learners.len() != wanted.learners.len() {
                return Some(format!("group {group} has {now:?}, wanted is {wanted:?}"));
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let barred = state.departed.get(&node.id).is_some_and(|it| it.is_lost);
            let replicas = node.disk.visible().replicas.iter();
            let orphan = replicas
                .map(|(group, table)| (*group, table.record.replica))
                .find(|(_, replica)| !state.has_place(*replica));
            if let Some((group, replica)) = orphan.filter(|_| !barred && !node.lost) {
                return Some(format!("n{number} still holds replica {replica} of group {group}"));
            }
        }
        None
    }

    fn takes_a_write(&mut self, group: GroupId, until: u64) -> Result<(), Violation> {
        loop {
            if self.now >= until {
                let seen = format!("group {group} takes no write: {}", self.picture());
                return Err(Violation::new("liveness", seen));
            }
            self.finish_plans();
            let Some(leader) = self.leader(group) else {
                self.run_for(LOOK_EVERY)?;
                continue;
            };
            let request = match group.partition() {
                Some(partition) => {
                    self.put(leader, partition, &format!("end of {group}"), "reached")
                }
                None => self.register_again(leader),
            };
            let asked_at = self.now;
            while !self.answers.contains_key(&request) && self.now < asked_at + 2 * SECONDS {
                self.run_for(MILLIS)?;
            }
            let answer = self.answers.get(&request);
            if matches!(answer, Some(Reply::Written(_) | Reply::Cluster(_))) {
                return Ok(());
            }
            self.run_for(LOOK_EVERY)?;
        }
    }

    fn register_again(&mut self, leader: usize) -> u64 {
        let registration = registration(leader, self.nodes[leader].id, &self.setup);
        let command = kvcore::cluster::ClusterCommand::Register(registration);
        self.ask(leader, GroupId::CLUSTER, Asker::Script, |reply| Event::Cluster { command, reply })
    }

    /// Asks a node to store a value; the answer will be found under the number.
    pub fn put(
        &mut self,
        node: usize,
        partition: placement::PartitionId,
        key: &str,
        value: &str,
    ) -> u64 {
        let command = Command::Put {
            key: bytes::Bytes::copy_from_slice(key.as_bytes()),
            value: bytes::Bytes::copy_from_slice(value.as_bytes()),
            content_type: None,
            condition: Condition::Always,
        };
        self.write(node, partition, command)
    }

    /// Asks a node for a write; the answer will be found under the number.
    pub fn write(
        &mut self,
        node: usize,
        partition: placement::PartitionId,
        command: Command,
    ) -> u64 {
        let group = GroupId::of_partition(partition);
        self.ask(node, group, Asker::Script, |reply| Event::Write { partition, command, reply })
    }

    /// Whether all members of a group have applied what its leader has.
    fn has_settled(&self, group: GroupId) -> bool {
        let Some((_, leader)) = self.leader_of(group) else { return false };
        if leader.configuration.is_joint() || leader.applied != leader.last {
            return false;
        }
        leader.configuration.members.iter().all(|member| {
            let node = self.nodes.iter().position(|node| node.id == member.node);
            let summary = node.and_then(|node| self.summary(node, group));
            summary.is_some_and(|it| {
                it.replica == member.replica
                    && it.applied == leader.applied
                    && it.state == leader.state
            })
        })
    }
}
