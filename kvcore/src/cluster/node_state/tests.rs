use migration::{Advance, MoveId, PlanId, PlanKind, Signals, Stage, Step, Transition};
use placement::{
    Change, NodeId, NodeName, NodeSpec, NodeState, PartitionBits, ReplicationFactor, TokenPolicy,
    Weight, Zone,
};

use super::node_state;
use crate::cluster::{
    ClusterCommand, ClusterOutcome, ClusterState, Founding, PlanOrder, Registration, apply, found,
    rollback_order,
};
use crate::ids::{ClusterId, Revision};

const SPARE: u128 = 4;

/// Three members in three zones, and a spare.
struct Cluster(ClusterState);

impl Cluster {
    fn new() -> Self {
        let founding = Founding {
            cluster: ClusterId(7),
            founders: (1..=3).map(registration).collect(),
            partition_bits: PartitionBits::new(4).unwrap(),
            replication_factor: ReplicationFactor::new(3).unwrap(),
            vnodes_per_node: 16,
            policy: TokenPolicy::Balanced,
            now_ms: 1000,
        };
        let mut cluster = Self(found(&founding).unwrap());
        cluster.order(ClusterCommand::Register(registration(SPARE)));
        cluster
    }

    fn order(&mut self, command: ClusterCommand) -> ClusterOutcome {
        let revision = Revision(self.0.revision.get() + 1);
        let outcome = apply(&mut self.0, revision, command);
        assert!(!matches!(outcome, ClusterOutcome::Refused(_)), "{outcome:?}");
        outcome
    }

    fn state(&self, number: u128) -> NodeState {
        node_state(&self.0, NodeId::from_u128(number))
    }

    /// Stages and applies a change.
    fn plan(&mut self, change: Change) -> PlanId {
        self.order(ClusterCommand::Stage(change));
        let rules = self.0.settings.rules();
        let plan = placement::plan(&self.0.ring, &self.0.draft, &rules).unwrap();
        let parts = plan.parts(0);
        self.apply(PlanOrder {
            kind: PlanKind::Changes,
            base_epoch: plan.base_epoch,
            digest: plan.digest,
            changes: plan.changes,
            topology: parts.topology,
            tokens: parts.tokens,
            copies_min: 0,
            at_ms: 2000,
        })
    }

    fn apply(&mut self, order: PlanOrder) -> PlanId {
        match self.order(ClusterCommand::Apply(Box::new(order))) {
            ClusterOutcome::Planned(plan) => plan,
            other => panic!("{other:?}"),
        }
    }

    /// Takes all moves of the last plan that are in a step on.
    fn advance(&mut self, from: Step, transition: &Transition) {
        let plan = self.0.last_plan().unwrap();
        let at: Vec<MoveId> = plan
            .numbered()
            .filter(|(_, it)| it.stage == Stage::Running(from))
            .map(|(id, _)| id)
            .collect();
        self.advance_some(&at, from, transition);
    }

    fn advance_some(&mut self, moves: &[MoveId], from: Step, transition: &Transition) {
        let advance = |id: &MoveId| (*id, Some(from), Advance::to(transition.clone()));
        let moves = moves.iter().map(advance).collect();
        let epoch = self.0.epoch();
        self.order(ClusterCommand::Advance { moves, epoch, at_ms: 3000 });
    }

    fn verify_all(&mut self) {
        self.advance(Step::Pending, &Transition::Admit);
        self.advance(Step::Copying, &Transition::Installed);
        self.advance(Step::CatchingUp, &Transition::Verified);
    }

    fn publish(&mut self, plan: PlanId) {
        let base_epoch = self.0.epoch();
        self.order(ClusterCommand::Publish { plan, base_epoch, at_ms: 4000 });
    }

    /// From the publication to the end.
    fn finish(&mut self, plan: PlanId) {
        self.advance(Step::Swapping, &Transition::Swapped);
        self.order(ClusterCommand::EndGrace { plan });
        self.advance(Step::Serving, &Transition::Retire);
        self.advance(Step::Retiring, &Transition::Retired);
        let signals = Signals::default();
        self.order(ClusterCommand::NoteSignals { plan, signals, at_ms: 5000 });
    }
}

fn registration(number: u128) -> Registration {
    let zone = format!("z{}", (number - 1) % 3 + 1);
    Registration {
        id: NodeId::from_u128(number),
        name: NodeName::parse(&format!("n{number}")).unwrap(),
        zone: Zone::parse(&zone).unwrap(),
        weight: Weight::ONE,
        client_address: format!("127.0.0.1:{}", 7400 + number),
        peer_address: format!("127.0.0.1:{}", 8400 + number),
    }
}

fn spec(number: u128) -> NodeSpec {
    let said = registration(number);
    let Registration { id, name, zone, weight, .. } = said;
    NodeSpec { id, name, zone, weight, state: NodeState::Active }
}

#[test]
fn a_node_lives_from_spare_to_removed() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.state(1), NodeState::Active);
    assert_eq!(cluster.state(SPARE), NodeState::Spare);
    assert_eq!(cluster.state(99), NodeState::Removed, "nobody has heard of it");

    let join = cluster.plan(Change::Join(spec(SPARE)));
    assert_eq!(cluster.state(SPARE), NodeState::Joining);
    let first = MoveId { plan: join, number: 0 };
    cluster.advance_some(&[first], Step::Pending, &Transition::Admit);
    assert_eq!(cluster.state(SPARE), NodeState::Copying);
    cluster.advance_some(&[first], Step::Copying, &Transition::Installed);
    assert_eq!(cluster.state(SPARE), NodeState::Copying, "others wait for their turn");
    cluster.advance(Step::Pending, &Transition::Admit);
    cluster.advance(Step::Copying, &Transition::Installed);
    assert_eq!(cluster.state(SPARE), NodeState::CatchingUp);
    cluster.advance(Step::CatchingUp, &Transition::Verified);
    assert_eq!(cluster.state(SPARE), NodeState::CatchingUp, "it owns nothing before the epoch");
    assert_eq!(cluster.state(1), NodeState::Active);
    cluster.publish(join);
    assert_eq!(cluster.state(SPARE), NodeState::Active);
    cluster.finish(join);
    assert_eq!(cluster.state(SPARE), NodeState::Active);

    let drain = cluster.plan(Change::Drain(NodeId::from_u128(1)));
    assert_eq!(cluster.state(1), NodeState::Draining);
    assert_eq!(cluster.state(SPARE), NodeState::Active, "a member that gains copies is active");
    cluster.verify_all();
    cluster.publish(drain);
    assert_eq!(cluster.state(1), NodeState::Draining, "its copies follow until the grace ends");
    cluster.finish(drain);
    assert_eq!(cluster.state(1), NodeState::Removed);
}

#[test]
fn a_join_that_is_cancelled_leaves_a_spare_once_its_copies_are_gone() {
    let mut cluster = Cluster::new();
    let join = cluster.plan(Change::Join(spec(SPARE)));
    cluster.advance(Step::Pending, &Transition::Admit);
    cluster.order(ClusterCommand::Cancel { plan: join, at_ms: 3000 });
    assert_eq!(cluster.state(SPARE), NodeState::Draining);
    let gone = Advance { residue_gone: true, ..Advance::default() };
    let plan = cluster.0.last_plan().unwrap();
    let moves = plan.numbered().map(|(id, _)| (id, None, gone.clone())).collect();
    let epoch = cluster.0.epoch();
    cluster.order(ClusterCommand::Advance { moves, epoch, at_ms: 3500 });
    assert_eq!(cluster.state(SPARE), NodeState::Spare);
}

#[test]
fn a_rollback_drains_who_had_joined() {
    let mut cluster = Cluster::new();
    let join = cluster.plan(Change::Join(spec(SPARE)));
    cluster.verify_all();
    cluster.publish(join);
    cluster.advance(Step::Swapping, &Transition::Swapped);
    let order = rollback_order(&cluster.0, join, 4500).unwrap();
    cluster.apply(order);
    assert_eq!(cluster.state(SPARE), NodeState::Draining);
    assert_eq!(cluster.state(1), NodeState::Active);
}

#[test]
fn a_node_that_was_given_up_is_removed_at_once() {
    let mut cluster = Cluster::new();
    let join = cluster.plan(Change::Join(spec(SPARE)));
    cluster.verify_all();
    cluster.publish(join);
    cluster.finish(join);
    let remove = cluster.plan(Change::Remove(NodeId::from_u128(1)));
    assert_eq!(cluster.state(1), NodeState::Draining);
    cluster.verify_all();
    cluster.publish(remove);
    assert_eq!(cluster.state(1), NodeState::Removed);
}
