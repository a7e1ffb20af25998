//! A plan and one group on a bench: facts are set by hand, records and steps follow.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use placement::{Checksum, Epoch, NodeId, NodeName, NodeSpec, NodeState, Topology, Weight, Zone};

use crate::actual::{Actual, Copy, Follower, Verification};
use crate::budget::{Budget, admit};
use crate::gate::may_publish;
use crate::ids::{LogIndex, Member, PlanId, ReplicaId};
use crate::judge::{Advance, Standing, judge, verification_wanted};
use crate::moves::Move;
use crate::plan::{Phase, Plan, PlanKind};
use crate::reconcile::{GroupStep, Next, Wanted, reconcile};
use crate::stage::{AbortReason, Stage, Step, Transition};

pub fn node(number: u64) -> NodeId {
    NodeId::from_u128(u128::from(number))
}

pub fn member(number: u64) -> Member {
    Member { replica: ReplicaId(number), node: node(number) }
}

pub fn plan_of(moves: Vec<Move>) -> Plan {
    let spec = NodeSpec {
        id: node(1),
        name: NodeName::parse("n1").unwrap(),
        zone: Zone::parse("z").unwrap(),
        weight: Weight::ONE,
        state: NodeState::Active,
    };
    Plan {
        id: PlanId(1),
        kind: PlanKind::Changes,
        changes: Vec::new(),
        base_epoch: Epoch::new(1),
        digest: Checksum::of(b"a plan"),
        topology: Topology::new(vec![spec]).unwrap(),
        tokens: Vec::new(),
        base: None,
        copies_min: 0,
        applied_at_ms: 0,
        phase: Phase::Moving,
        paused: false,
        grace_ended: false,
        moves,
        signals: None,
    }
}

/// Replica n is on node n. All moves are of one partition.
pub struct Bench {
    pub plan: Plan,
    pub owners: Vec<Member>,
    pub actual: Actual,
    pub down: BTreeSet<NodeId>,
    now_ms: u64,
}

impl Bench {
    /// A group of these owners, led by the first.
    pub fn new(owners: &[u64], moves: &[(Option<u64>, Option<u64>)]) -> Self {
        let partition = placement::PartitionId::new(0);
        let moves = moves
            .iter()
            .map(|(gain, lose)| Move::new(partition, gain.map(member), lose.map(member), 0));
        let follower = |number: &u64| Follower {
            member: member(*number),
            matched: LogIndex(10),
            active: true,
            copying: false,
            copy: Copy::default(),
        };
        Self {
            plan: plan_of(moves.collect()),
            owners: owners.iter().copied().map(member).collect(),
            actual: Actual {
                leader: ReplicaId(owners[0]),
                last: LogIndex(10),
                committed: LogIndex(10),
                voters: owners.iter().copied().map(ReplicaId).collect(),
                outgoing: Vec::new(),
                learners: Vec::new(),
                changed_at: LogIndex(1),
                followers: owners[1..].iter().map(follower).collect(),
                verification: None,
                gone: Vec::new(),
            },
            down: BTreeSet::new(),
            now_ms: 0,
        }
    }

    pub fn wanted(&self) -> Wanted {
        let open = self.plan.moves.iter().filter(|it| !it.is_over());
        Wanted::of(&self.owners, open)
    }

    fn staying(&self) -> Vec<Member> {
        let loses = |owner: &&Member| self.plan.moves.iter().any(|it| it.lose == Some(**owner));
        self.owners.iter().filter(|owner| !loses(owner)).copied().collect()
    }

    pub fn follower(&mut self, number: u64) -> Option<&mut Follower> {
        self.actual.followers.iter_mut().find(|it| it.member == member(number))
    }

    /// Entries are written and reach all followers that are whole.
    pub fn write(&mut self, entries: u64) {
        self.actual.last = LogIndex(self.actual.last.get() + entries);
        self.actual.committed = self.actual.last;
        let last = self.actual.last;
        let reached = |it: &&mut Follower| it.active && !it.copying;
        self.actual.followers.iter_mut().filter(reached).for_each(|it| it.matched = last);
    }

    /// Lets group 0 admit, then holds every move against the facts.
    pub fn facts(&mut self) {
        self.now_ms += 1000;
        let admitted = admit(&self.plan, Budget { moves_per_node: 1 }, |_| Some(node(1)));
        for (id, transition) in admitted {
            let it = self.plan.move_mut(id.number).unwrap();
            it.advance(&Advance::to(transition), self.now_ms).unwrap();
        }
        let staying = self.staying();
        let grace_over = self.plan.is_grace_over(u64::MAX, self.now_ms);
        let standing = Standing {
            owners: &self.owners,
            staying: &staying,
            down: &self.down,
            grace_over,
            now_ms: self.now_ms,
        };
        let advances: Vec<Advance> =
            self.plan.moves.iter().map(|it| judge(it, &self.actual, &standing)).collect();
        for (number, advance) in advances.into_iter().enumerate() {
            let it = &mut self.plan.moves[number];
            it.advance(&advance, self.now_ms).expect("a judgement follows from the stage");
            if let Stage::Aborted(reason) = it.stage.clone()
                && self.plan.is_moving()
            {
                self.plan.abort(&reason, self.now_ms);
            }
        }
    }

    pub fn next(&self) -> Next {
        reconcile(&self.wanted(), &self.actual)
    }

    /// The group takes its next step, if it can.
    pub fn step(&mut self) {
        let Next::Step(step) = self.next() else { return };
        self.write(1);
        let at = self.actual.last;
        let actual = &mut self.actual;
        match step {
            GroupStep::AddLearner(member) => {
                actual.learners.push(member.replica);
                let copy = Copy::default();
                let matched = LogIndex(0);
                let new = Follower { member, matched, active: true, copying: true, copy };
                actual.followers.push(new);
            }
            GroupStep::Swap { promote, demote } => {
                actual.outgoing = actual.voters.clone();
                actual.voters.retain(|id| !demote.contains(id));
                actual.learners.retain(|id| !promote.contains(id));
                actual.learners.extend(demote);
                actual.voters.extend(promote);
            }
            GroupStep::HandOver(to) => {
                let old = Member { replica: actual.leader, node: node(actual.leader.get()) };
                actual.followers.retain(|it| it.member.replica != to);
                let copy = Copy::default();
                let old = Follower { member: old, matched: at, active: true, copying: false, copy };
                actual.followers.push(old);
                actual.leader = to;
                actual.verification = None;
                return;
            }
            GroupStep::LeaveJoint => actual.outgoing.clear(),
            GroupStep::Remove(replica) => {
                actual.learners.retain(|id| *id != replica);
                actual.followers.retain(|it| it.member.replica != replica);
            }
        }
        actual.changed_at = at;
    }

    /// Compares the replicas that are close, if that is wanted now. Returns whether it was.
    pub fn verify(&mut self) -> bool {
        let staying = self.staying();
        let wanted = |it: &Move| verification_wanted(it, &self.actual, &self.owners, &staying);
        if !self.plan.moves.iter().any(wanted) {
            return false;
        }
        self.write(1);
        let close = self.actual.followers.iter().map(|it| it.member.replica);
        let close = close.filter(|id| self.actual.is_close(*id, 256));
        let replicas = close.chain([self.actual.leader]).collect();
        let index = self.actual.last;
        self.actual.verification = Some(Verification::Agreed { index, digest: 7, replicas });
        true
    }

    /// Publishes the plan's ring, if that may be. Returns whether it was.
    pub fn publish(&mut self) -> bool {
        if may_publish(&self.plan).is_err() {
            return false;
        }
        for it in &mut self.plan.moves {
            assert!(it.gain.is_none() || it.gate.is_some(), "published without a gate: {it:?}");
            self.owners.retain(|owner| Some(*owner) != it.lose);
            self.owners.extend(it.gain);
            it.advance(&Advance::to(Transition::Published), self.now_ms).unwrap();
        }
        self.plan.phase = Phase::Published { epoch: Epoch::new(2), at_ms: self.now_ms };
        true
    }

    /// A node says that a condemned replica of its is destroyed.
    pub fn destroy(&mut self, number: u64) {
        let condemned = self.plan.moves.iter().filter_map(Move::condemned);
        if condemned.into_iter().any(|it| it == member(number))
            && !self.actual.contains(ReplicaId(number))
        {
            self.actual.gone.push(ReplicaId(number));
        }
    }

    pub fn cancel(&mut self) {
        if self.plan.is_moving() {
            self.plan.abort(&AbortReason::Cancelled, self.now_ms);
        }
    }

    /// What must hold at any time.
    pub fn check(&self) {
        for it in &self.plan.moves {
            if it.stage.step() == Some(Step::Retiring) {
                assert!(it.after_swap.is_some(), "{it:?} retires unverified");
            }
            if it.condemned().is_some_and(|it| self.owners.contains(&it)) {
                panic!("an owner is condemned: {it:?}");
            }
        }
        let published = !matches!(self.plan.phase, Phase::Moving | Phase::Aborted { .. });
        for voter in &self.actual.voters {
            let source = |it: &Move| it.lose.is_some_and(|lose| lose.replica == *voter);
            let is_owner = self.owners.iter().any(|owner| owner.replica == *voter);
            assert!(is_owner || (published && self.plan.moves.iter().any(source)));
        }
    }

    /// The stages and the group's next step, for a person to read.
    pub fn show(&self) -> String {
        let mut text = String::new();
        for it in &self.plan.moves {
            match &it.stage {
                Stage::Blocked { at, reason } => write!(text, "{at} blocked: {reason}; "),
                Stage::Aborted(reason) => write!(text, "aborted: {reason}; "),
                Stage::Running(_) | Stage::Done => write!(text, "{}; ", it.stage.name()),
            }
            .unwrap();
        }
        let next = match self.next() {
            Next::Steady => "steady".to_owned(),
            Next::Wait(blocker) => format!("wait: {blocker}"),
            Next::Step(GroupStep::AddLearner(member)) => format!("add learner {}", member.replica),
            Next::Step(GroupStep::Swap { promote, demote }) => {
                format!("swap in {promote:?} for {demote:?}").replace("ReplicaId", "")
            }
            Next::Step(GroupStep::HandOver(to)) => format!("hand over to {to}"),
            Next::Step(GroupStep::LeaveJoint) => "leave joint".to_owned(),
            Next::Step(GroupStep::Remove(replica)) => format!("remove {replica}"),
        };
        text + &next
    }
}
