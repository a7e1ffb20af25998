//! What commands do to plans: who wins, what is refused, what is taken over.

use migration::{
    AbortReason, Advance, Gate, LogIndex, Member, MoveId, Phase, PlanId, ReplicaId, Signals, Stage,
    Step, Transition,
};
use placement::{Change, Epoch, NodeId, NodeSpec, NodeState};

use super::*;

/// A cluster state under a log of commands.
struct Log {
    state: ClusterState,
    index: u64,
}

fn id(number: u128) -> NodeId {
    NodeId::from_u128(number)
}

impl Log {
    /// So many founders in zones a, b and c, and one spare in each zone.
    fn new(founders: usize) -> Self {
        let zones = ["a", "b", "c", "a", "b", "c"];
        let mut log = Self { state: founded(&zones[..founders]), index: 1 };
        for (number, zone) in (11..).zip(["a", "b", "c"]) {
            assert_eq!(log.give(ClusterCommand::Register(registration(number, zone))), done());
        }
        log
    }

    fn give(&mut self, command: ClusterCommand) -> ClusterOutcome {
        self.index += 1;
        let outcome = apply(&mut self.state, Revision(self.index), command);
        self.state.check().unwrap();
        outcome
    }

    fn spec(&self, number: u128) -> NodeSpec {
        let registration = &self.state.nodes[&id(number)].registration;
        NodeSpec {
            id: registration.id,
            name: registration.name.clone(),
            zone: registration.zone.clone(),
            weight: registration.weight,
            state: NodeState::Spare,
        }
    }

    fn replace(&self, old: u128, new: u128) -> Change {
        Change::Replace { old: id(old), new: self.spec(new) }
    }

    fn order(&self, changes: &[Change]) -> PlanOrder {
        let rules = self.state.settings.rules();
        PlanOrder::of(&placement::plan(&self.state.ring, changes, &rules).unwrap(), 5_000)
    }

    fn stage(&mut self, changes: &[Change]) {
        for change in changes {
            assert_eq!(self.give(ClusterCommand::Stage(change.clone())), done());
        }
    }

    fn apply(&mut self, order: PlanOrder) -> ClusterOutcome {
        self.give(ClusterCommand::Apply(Box::new(order)))
    }

    fn plan(&mut self, changes: &[Change]) -> PlanId {
        self.stage(changes);
        let order = self.order(changes);
        match self.apply(order) {
            ClusterOutcome::Planned(plan) => plan,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// Takes all moves of a plan that are in a step on.
    fn advance(&mut self, plan: PlanId, from: Step, advance: &Advance) {
        let moves = self.state.plan(plan).unwrap().numbered();
        let moves = moves.filter(|(_, it)| it.stage.step() == Some(from));
        let moves = moves.map(|(id, _)| (id, Some(from), advance.clone())).collect();
        let epoch = self.state.epoch();
        assert_eq!(self.give(ClusterCommand::Advance { epoch, moves, at_ms: 6_000 }), done());
    }

    fn verify(&mut self, plan: PlanId) {
        let gate = Some(Gate { index: LogIndex(20), digest: 1 });
        self.advance(plan, Step::Pending, &Advance::to(Transition::Admit));
        let watermark = Some(LogIndex(10));
        let installed = Advance { watermark, ..Advance::to(Transition::Installed) };
        self.advance(plan, Step::Copying, &installed);
        let verified = Advance { gate, ..Advance::to(Transition::Verified) };
        self.advance(plan, Step::CatchingUp, &verified);
    }

    fn publish(&mut self, plan: PlanId) -> ClusterOutcome {
        let base_epoch = self.state.plan(plan).unwrap().base_epoch;
        self.give(ClusterCommand::Publish { plan, base_epoch, at_ms: 7_000 })
    }

    fn serve(&mut self, plan: PlanId) {
        self.verify(plan);
        assert_eq!(self.publish(plan), done());
        self.advance(plan, Step::Swapping, &Advance::to(Transition::Swapped));
    }

    fn finish(&mut self, plan: PlanId) {
        let gate = Some(Gate { index: LogIndex(30), digest: 1 });
        let retire = Advance { after_swap: gate, ..Advance::to(Transition::Retire) };
        self.advance(plan, Step::Serving, &retire);
        self.advance(plan, Step::Retiring, &Advance::to(Transition::Retired));
        let signals = Signals::default();
        let noted = ClusterCommand::NoteSignals { plan, signals, at_ms: 8_000 };
        assert_eq!(self.give(noted), done());
    }

    fn phase(&self, plan: PlanId) -> &Phase {
        &self.state.plan(plan).unwrap().phase
    }
}

fn done() -> ClusterOutcome {
    ClusterOutcome::Done
}

fn refusal(outcome: ClusterOutcome) -> ClusterRefusal {
    match outcome {
        ClusterOutcome::Refused(refusal) => refusal,
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn a_plan_for_an_epoch_that_has_passed_is_refused() {
    let mut log = Log::new(3);
    let late = log.order(&[Change::Join(log.spec(12))]);
    let plan = log.plan(&[log.replace(1, 11)]);
    log.serve(plan);
    let refused = refusal(log.apply(late));
    assert_eq!(refused, ClusterRefusal::StaleEpoch { base: Epoch::new(1), epoch: Epoch::new(2) });
}

#[test]
fn a_plan_of_another_draft_is_refused_and_changes_nothing() {
    let mut log = Log::new(3);
    let order = log.order(&[Change::Join(log.spec(11))]);
    log.stage(&[Change::Join(log.spec(12))]);
    let before = log.state.clone();
    assert_eq!(refusal(log.apply(order)), ClusterRefusal::StaleDraft);
    assert_eq!(log.state, before);
}

#[test]
fn of_two_plans_for_one_epoch_the_second_is_refused() {
    let mut log = Log::new(3);
    let first = log.plan(&[Change::Join(log.spec(11))]);
    let change = [Change::Join(log.spec(12))];
    log.stage(&change);
    let second = log.order(&change);
    assert_eq!(refusal(log.apply(second)), ClusterRefusal::PlanUnderWay { plan: first });
    assert_eq!(
        refusal(log.publish(first)),
        ClusterRefusal::NotReady {
            plan: first,
            reason: format!(
                "{} moves are not verified",
                log.state.plan(first).unwrap().moves.len()
            ),
        }
    );
}

#[test]
fn an_advance_judged_under_an_earlier_epoch_takes_nothing_on() {
    let mut log = Log::new(3);
    let plan = log.plan(&[log.replace(1, 11)]);
    log.verify(plan);
    log.publish(plan);
    let moves =
        vec![(MoveId { plan, number: 0 }, Some(Step::Swapping), Advance::to(Transition::Swapped))];
    let before = log.state.clone();
    log.give(ClusterCommand::Advance { epoch: Epoch::new(1), moves, at_ms: 9_000 });
    assert_eq!(log.state, before);
}

#[test]
fn a_rollback_leads_to_the_old_ring_under_a_larger_epoch_and_copies_nothing() {
    let mut log = Log::new(3);
    let (ring, replicas) = (log.state.ring.clone(), log.state.replicas.clone());
    let plan = log.plan(&[log.replace(1, 11)]);
    log.serve(plan);
    assert_ne!(log.state.replicas, replicas);
    let order = rollback_order(&log.state, plan, 9_000).unwrap();
    let ClusterOutcome::Planned(back) = log.apply(order) else { panic!("not planned") };
    let returning = &log.state.plan(back).unwrap().moves;
    assert!(returning.iter().all(|it| it.stage == Stage::Running(Step::Copying)));
    assert!(returning.iter().all(|it| it.gain.is_some_and(|gain| gain.node == id(1))));
    log.serve(back);
    assert_eq!(log.state.epoch(), Epoch::new(3));
    assert_eq!(log.state.replicas, replicas, "the replicas are those from before");
    assert_eq!(log.state.ring.topology(), ring.topology());
    let earlier = &log.state.plan(plan).unwrap().moves;
    assert!(earlier.iter().all(|it| it.lose.is_none()), "nothing of it is left to retire");
    let forth = rollback_order(&log.state, back, 9_500).unwrap();
    assert!(matches!(log.apply(forth), ClusterOutcome::Planned(_)), "and back again");
}

#[test]
fn a_rollback_that_is_cancelled_leaves_the_old_copies_to_the_earlier_plan() {
    let mut log = Log::new(3);
    let plan = log.plan(&[log.replace(1, 11)]);
    log.serve(plan);
    let order = rollback_order(&log.state, plan, 9_000).unwrap();
    let ClusterOutcome::Planned(back) = log.apply(order) else { panic!("not planned") };
    let retire = Advance::to(Transition::Retire);
    log.advance(plan, Step::Serving, &retire);
    let serving = |log: &Log| {
        let moves = &log.state.plan(plan).unwrap().moves;
        moves.iter().all(|it| it.stage == Stage::Running(Step::Serving))
    };
    assert!(serving(&log), "nothing is retired that may come back");
    assert_eq!(log.give(ClusterCommand::Cancel { plan: back, at_ms: 9_500 }), done());
    assert!(log.state.plan(back).unwrap().is_over(), "it leaves nothing behind");
    log.advance(plan, Step::Serving, &retire);
    assert!(!serving(&log));
}

#[test]
fn a_repair_takes_the_place_of_a_moving_plan_and_stages_it_again() {
    let mut log = Log::new(6);
    let join = Change::Join(log.spec(11));
    let plan = log.plan(std::slice::from_ref(&join));
    let repair = log.plan(&[Change::Remove(id(2))]);
    let reason = AbortReason::Superseded(repair);
    assert!(matches!(log.phase(plan), Phase::Aborted { reason: it, .. } if *it == reason));
    assert_eq!(log.state.draft, [join], "to be applied after the repair");
}

#[test]
fn a_repair_folds_in_a_published_plan_whose_target_died() {
    let mut log = Log::new(3);
    let before = log.state.replicas.clone();
    let plan = log.plan(&[log.replace(1, 11)]);
    log.verify(plan);
    log.publish(plan);
    let other = refusal({
        let change = [Change::Join(log.spec(12))];
        log.stage(&change);
        let order = log.order(&change);
        log.apply(order)
    });
    assert_eq!(other, ClusterRefusal::PlanUnderWay { plan });
    log.give(ClusterCommand::ClearDraft);
    // Node 11 dies before any group took it as a voter; the old voters still vote.
    let repair = log.plan(&[Change::Remove(id(11))]);
    for it in &log.state.plan(repair).unwrap().moves {
        assert_eq!(it.lose.map(|lose| lose.node), Some(id(11)));
        assert!(it.lose_is_dead);
    }
    let sources: Vec<Member> =
        log.state.plan(plan).unwrap().moves.iter().filter_map(|it| it.lose).collect();
    assert!(sources.iter().all(|source| log.state.has_place(source.replica)));
    assert!(before.iter().flatten().any(|member| sources.contains(member)));
}

#[test]
fn a_node_that_owns_again_before_it_has_gone_keeps_its_replica() {
    let mut log = Log::new(3);
    let join = Change::Join(log.spec(11));
    let before = log.state.replicas.clone();
    let plan = log.plan(&[join]);
    log.verify(plan);
    log.publish(plan);
    let repair = log.plan(&[Change::Remove(id(11))]);
    let returning = log.state.plan(repair).unwrap().moves.clone();
    assert!(!returning.is_empty());
    log.verify(repair);
    assert_eq!(log.publish(repair), done());
    let sorted = |replicas: &[Vec<Member>]| -> Vec<Vec<Member>> {
        let sort = |members: &Vec<Member>| {
            let mut members = members.clone();
            members.sort_unstable();
            members
        };
        replicas.iter().map(sort).collect()
    };
    assert_eq!(sorted(&log.state.replicas), sorted(&before));
}

#[test]
fn a_lost_identity_is_barred_for_good() {
    let mut log = Log::new(6);
    let plan = log.plan(&[Change::Remove(id(1))]);
    log.serve(plan);
    let back = refusal(log.give(ClusterCommand::Register(registration(1, "a"))));
    assert_eq!(back, ClusterRefusal::Barred { node: id(1) });
    assert_eq!(
        rollback_order(&log.state, plan, 9_000),
        Err(ClusterRefusal::Barred { node: id(1) })
    );
    log.finish(plan);
    assert!(matches!(log.phase(plan), Phase::Finished { .. }));
    assert!(!log.state.nodes.contains_key(&id(1)));
    let mut wiped = registration(77, "a");
    wiped.name = placement::NodeName::parse("n1").unwrap();
    assert_eq!(log.give(ClusterCommand::Register(wiped)), done(), "its name is free again");
}

#[test]
fn a_drained_node_leaves_and_may_register_again() {
    let mut log = Log::new(6);
    let plan = log.plan(&[Change::Drain(id(4))]);
    log.serve(plan);
    log.finish(plan);
    assert!(!log.state.nodes.contains_key(&id(4)));
    assert_eq!(log.give(ClusterCommand::Register(registration(4, "a"))), done());
    assert!(!log.state.departed.contains_key(&id(4)));
}

#[test]
fn a_spare_that_is_lost_is_given_up_and_nobody_waits_for_it() {
    let mut log = Log::new(3);
    let plan = log.plan(&[log.replace(1, 11)]);
    log.advance(plan, Step::Pending, &Advance::to(Transition::Admit));
    let too_early = refusal(log.give(ClusterCommand::GiveUp(id(11))));
    assert_eq!(too_early, ClusterRefusal::InRing { node: id(11) });
    log.give(ClusterCommand::Cancel { plan, at_ms: 6_500 });
    assert!(!log.state.plan(plan).unwrap().is_over(), "half a copy waits to be destroyed");
    assert_eq!(log.give(ClusterCommand::GiveUp(id(11))), done());
    assert!(log.state.plan(plan).unwrap().is_over());
    let unknown = refusal(log.give(ClusterCommand::GiveUp(id(11))));
    assert_eq!(unknown, ClusterRefusal::NoSuchNode { node: id(11) });
}

#[test]
fn a_voter_of_group_0_is_replaced_when_its_node_leaves_and_follows_until_then() {
    let mut log = Log::new(3);
    let old = log.state.group0.clone();
    let plan = log.plan(&[log.replace(1, 11)]);
    log.serve(plan);
    let gone = old.iter().find(|member| member.node == id(1)).copied().unwrap();
    assert_eq!(log.state.group0_former, [gone]);
    assert!(log.state.group0.iter().any(|member| member.node == id(11)));
    assert!(log.state.has_place(gone.replica), "it may be the leader");
    let late = ClusterCommand::RetireGroup0 { epoch: Epoch::new(1) };
    assert!(matches!(refusal(log.give(late)), ClusterRefusal::StaleEpoch { .. }));
    assert_eq!(log.give(ClusterCommand::RetireGroup0 { epoch: Epoch::new(2) }), done());
    assert!(!log.state.has_place(gone.replica));
}

#[test]
fn a_plan_without_moves_is_published_and_finished() {
    let mut log = Log::new(3);
    let weight = placement::Weight::new(2).unwrap();
    let changes: Vec<Change> =
        (1..=3).map(|number| Change::Reweight { node: id(number), weight }).collect();
    let plan = log.plan(&changes);
    assert!(log.state.plan(plan).unwrap().moves.iter().all(|it| it.gain.is_none()));
    log.serve(plan);
    log.finish(plan);
    assert!(matches!(log.phase(plan), Phase::Finished { .. }));
}

#[test]
fn a_state_with_plans_keeps_its_bytes() {
    let mut log = Log::new(3);
    let plan = log.plan(&[log.replace(1, 11)]);
    log.serve(plan);
    let bytes = codec::encode(&log.state);
    assert_eq!(codec::decode::<ClusterState>(&bytes).unwrap(), log.state);
    // A change here is a change of the stored format: it needs a new version of it.
    let golden = xxhash_rust::xxh3::xxh3_128(&bytes);
    assert_eq!(
        (bytes.len(), format!("{golden:032x}")),
        (9041, "d9e283074376ecd7d5708972b1ce34ec".to_owned())
    );
    assert!(log.state.next_replica > ReplicaId(50));
}
