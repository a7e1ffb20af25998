//! A small stage for stories: a world in which nothing goes wrong unless the story says so.

use std::time::Duration;

use std::sync::Arc;

use bytes::Bytes;
use kvcore::cluster::{ClusterCommand, ClusterOutcome, ClusterState, PlanOrder};
use kvcore::faults::Hold;
use kvcore::group::Role;
use kvcore::store::{Command, Condition, Record, WriteOutcome};
use kvcore::{Event, GroupId, ReplicaId, Reply, Version};
use migration::{Plan, PlanId, Step};
use placement::{Change, NodeId, PartitionId};

use crate::sim::operator::spec;
use crate::sim::weather::{MILLIS, SECONDS};
use crate::sim::world::Asker;
use crate::sim::{Setup, Violation, World};

pub const PARTITION: PartitionId = PartitionId::new(0);
pub const FOR_EVER: u64 = u64::MAX;

pub fn group() -> GroupId {
    GroupId::of_partition(PARTITION)
}

fn expect<T>(result: Result<T, Violation>) -> T {
    result.unwrap_or_else(|violation| panic!("{violation}"))
}

pub struct Stage {
    pub world: World,
}

impl Stage {
    /// So many founders and spares, each group with a leader.
    pub fn of(founders: usize, spares: usize) -> Self {
        Self::with(Setup { founders, spares, ..Setup::scripted(1) })
    }

    pub fn with(setup: Setup) -> Self {
        let mut stage = Self { world: World::new(setup) };
        let groups: Vec<GroupId> = stage.world.founding.groups().collect();
        for group in groups {
            stage.until("a leader that serves", |world| serving_leader(world, group).is_some());
        }
        stage.world.register_spares();
        // Long enough for the primaries to have taken over.
        stage.run(3 * SECONDS);
        stage
    }

    pub fn run(&mut self, length: u64) {
        expect(self.world.run_for(length));
    }

    /// Lets time go by until something holds; five seconds at most.
    pub fn until(&mut self, what: &str, holds: impl FnMut(&World) -> bool) {
        expect(self.world.run_until(what, 5 * SECONDS, holds));
    }

    pub fn within(&mut self, length: u64, what: &str, holds: impl FnMut(&World) -> bool) {
        expect(self.world.run_until(what, length, holds));
    }

    pub fn start(&mut self, node: usize) {
        expect(self.world.start(node));
    }

    pub fn leader(&self) -> usize {
        self.world.leader(group()).expect("the group has a leader")
    }

    /// The nodes that follow, in order.
    pub fn followers(&self) -> Vec<usize> {
        let leader = self.leader();
        (0..self.world.nodes.len())
            .filter(|node| *node != leader && self.world.summary(*node, group()).is_some())
            .collect()
    }

    pub fn replica(&self, node: usize) -> ReplicaId {
        self.world.summary(node, group()).expect("it holds a replica").replica
    }

    /// Cuts a node off from all others, for ever.
    pub fn isolate(&mut self, node: usize) {
        for other in (0..self.world.nodes.len()).filter(|other| *other != node) {
            self.world.network.cut(node, other, FOR_EVER);
            self.world.network.cut(other, node, FOR_EVER);
        }
    }

    pub fn answer(&self, request: u64) -> Option<&Reply> {
        self.world.answers.get(&request)
    }

    pub fn await_answer(&mut self, request: u64) -> Reply {
        self.until("an answer", |world| world.answers.contains_key(&request));
        self.world.answers[&request].clone()
    }

    pub fn ask(&mut self, node: usize, event: impl FnOnce(u64) -> Event<u64>) -> u64 {
        self.world.ask(node, group(), Asker::Script, event)
    }

    /// Asks for a write and does not wait.
    pub fn put(&mut self, node: usize, key: &str, value: &str) -> u64 {
        self.world.put(node, PARTITION, key, value)
    }

    /// Writes and waits for the acknowledgement.
    pub fn write(&mut self, node: usize, key: &str, value: &str) -> Version {
        let request = self.put(node, key, value);
        match self.await_answer(request) {
            Reply::Written(WriteOutcome::Put(version)) => version,
            reply => panic!("not written: {reply:?}"),
        }
    }

    pub fn write_if(&mut self, node: usize, key: &str, value: &str, condition: Condition) -> u64 {
        let command = Command::Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
            content_type: None,
            condition,
        };
        self.world.write(node, PARTITION, command)
    }

    pub fn read(&mut self, node: usize) -> u64 {
        self.ask(node, |reply| Event::Read { partition: PARTITION, reply })
    }

    pub fn transfer(&mut self, from: usize, to: usize) -> u64 {
        let to = self.world.nodes[to].id;
        self.ask(from, |reply| Event::TransferLeadership { group: group(), to, reply })
    }

    /// What group 0 has committed.
    pub fn cluster(&self) -> Arc<ClusterState> {
        self.world.oracle.cluster().cloned().expect("there is a cluster")
    }

    /// Gives an order to group 0's leader and does not wait.
    pub fn order(&mut self, command: ClusterCommand) -> u64 {
        let leader = self.world.leader(GroupId::CLUSTER).expect("group 0 has a leader");
        let event = |reply| Event::Cluster { command, reply };
        self.world.ask(leader, GroupId::CLUSTER, Asker::Script, event)
    }

    pub fn ordered(&mut self, command: ClusterCommand) -> ClusterOutcome {
        let request = self.order(command);
        match self.await_answer(request) {
            Reply::Cluster(outcome) => outcome,
            reply => panic!("not decided: {reply:?}"),
        }
    }

    pub fn id(&self, node: usize) -> NodeId {
        self.world.nodes[node].id
    }

    pub fn join(&self, node: usize) -> Change {
        Change::Join(spec(&self.cluster(), self.id(node)))
    }

    pub fn replace(&self, old: usize, new: usize) -> Change {
        Change::Replace { old: self.id(old), new: spec(&self.cluster(), self.id(new)) }
    }

    /// The order for a plan of changes to the ring in force.
    pub fn order_of(&self, changes: &[Change]) -> ClusterCommand {
        let state = self.cluster();
        let plan = placement::plan(&state.ring, changes, &state.settings.rules());
        let plan = plan.unwrap_or_else(|refusal| panic!("{refusal}"));
        ClusterCommand::Apply(Box::new(PlanOrder::of(&plan, self.world.now / MILLIS)))
    }

    /// Stages changes and applies them as a plan.
    pub fn plan(&mut self, changes: &[Change]) -> PlanId {
        for change in changes {
            assert_eq!(self.ordered(ClusterCommand::Stage(change.clone())), ClusterOutcome::Done);
        }
        let order = self.order_of(changes);
        match self.ordered(order) {
            ClusterOutcome::Planned(plan) => plan,
            outcome => panic!("not planned: {outcome:?}"),
        }
    }

    /// Holds plans back on every node that runs, or lets them go on.
    pub fn hold(&mut self, hold: Option<Hold>) {
        for node in 0..self.world.nodes.len() {
            self.world.tell(node, Event::Hold(hold));
        }
    }

    /// Waits for all moves of the last plan to come to a step.
    pub fn await_step(&mut self, step: Step) {
        self.within(20 * SECONDS, step.name(), |world| {
            let plan = world.oracle.cluster().and_then(|state| state.last_plan());
            plan.is_some_and(|plan| plan.moves.iter().all(|it| it.stage.step() == Some(step)))
        });
    }

    /// Waits for a plan to be finished.
    pub fn await_end(&mut self, plan: PlanId) {
        self.within(30 * SECONDS, "the plan to end", |world| {
            let plan = world.oracle.cluster().and_then(|state| state.plan(plan));
            plan.is_some_and(Plan::is_over)
        });
    }

    pub fn end_grace(&mut self, plan: PlanId) {
        assert_eq!(self.ordered(ClusterCommand::EndGrace { plan }), ClusterOutcome::Done);
    }

    /// The voters of the group, as its leader has applied them.
    pub fn voters(&self) -> Vec<ReplicaId> {
        let summary = self.world.summary(self.leader(), group());
        summary.map(|it| it.configuration.voters).unwrap_or_default()
    }

    /// What a node's store has under a key.
    pub fn stored(&self, node: usize, key: &str) -> Option<Record> {
        stored(&self.world, node, key)
    }

    /// Whether a node would serve a read under its lease.
    pub fn holds_lease(&self, node: usize) -> bool {
        let node = &self.world.nodes[node];
        let Some(process) = &node.process else { return false };
        let local = node.clock.local(self.world.now);
        process.gates.get(&group()).is_some_and(|it| it.arrive(local, Duration::ZERO).is_some())
    }

    /// Everything recovers, and every invariant holds to the end.
    pub fn ends_well(mut self) {
        expect(self.world.clear());
        expect(self.world.everything_serves_again());
        expect(self.world.i2_every_key_is_linearizable());
    }
}

/// The leader of a group that has applied all of its log.
pub fn serving_leader(world: &World, group: GroupId) -> Option<usize> {
    let leader = world.leader(group)?;
    let summary = world.summary(leader, group)?;
    (summary.role == Role::Leader && summary.applied == summary.last).then_some(leader)
}

pub fn stored(world: &World, node: usize, key: &str) -> Option<Record> {
    let (_, records) = world.nodes[node].disk.visible().current(PARTITION)?;
    records.get(key.as_bytes()).map(|it| Record::decode(it.clone()).expect("it was encoded"))
}

/// Two seconds: within it, others must have taken over.
pub const TAKE_OVER: u64 = 2 * SECONDS;
/// A moment: enough for messages and syncs, far below any timeout.
pub const MOMENT: u64 = 40 * MILLIS;
