//! The control loop of plans, on group 0's leader: every tick it holds what leaders of partitions
//! report against the records, and proposes what follows. All it keeps beside the records is what it
//! heard lately; a new leader starts with nothing and hears it again within a heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use migration::{
    Advance, Budget, Member, Move, MoveId, Phase, Plan, Signals, Standing, Step, Transition, admit,
    judge, may_publish,
};
use placement::{NodeId, PartitionId};

use super::core::Core;
use super::driver::staying_owners;
use crate::cluster::{ClusterCommand, ClusterState, Health};
use crate::faults::Hold;
use crate::group::{Machine, Turn, Work};
use crate::ids::{GroupId, Revision, Term};
use crate::message::GroupReport;
use crate::time::Time;

/// A report is believed for this many heartbeats.
const FRESH_HEARTBEATS: u32 = 3;
/// Moves that one command takes on.
const ADVANCES_MAX: usize = 512;
/// Signals are looked at this often.
const SIGNALS_EVERY: Duration = Duration::from_secs(1);
/// A command that did not show in the state after this long is proposed again.
const COMMAND_PATIENCE: Duration = Duration::from_secs(1);

/// What group 0's leader has heard lately.
#[derive(Debug, Default)]
pub(super) struct Control {
    reports: BTreeMap<PartitionId, Heard>,
    /// The state's revision when the last command was proposed, until that shows.
    proposed: Option<(Revision, Time)>,
    signals_due: Time,
}

#[derive(Debug)]
struct Heard {
    at: Time,
    term: Term,
    report: GroupReport,
}

impl Control {
    fn fresh(&self, partition: PartitionId, now: Time, within: Duration) -> Option<&GroupReport> {
        let heard = self.reports.get(&partition)?;
        (now.since(heard.at) < within).then_some(&heard.report)
    }
}

type Advances = Vec<(MoveId, Option<Step>, Advance)>;

impl<R> Core<R> {
    /// Takes reports, if this node leads group 0.
    pub(super) fn note_reports(&mut self, reports: Vec<GroupReport>, now: Time) {
        if !self.leads_group0() {
            return;
        }
        for report in reports {
            let known = self.control.reports.get(&report.partition);
            if known.is_none_or(|known| known.term <= report.term) {
                let heard = Heard { at: now, term: report.term, report };
                self.control.reports.insert(heard.report.partition, heard);
            }
        }
    }

    pub(super) fn leads_group0(&self) -> bool {
        self.replicas.get(&GroupId::CLUSTER).is_some_and(|it| it.is_leader())
    }

    /// One look at all plans, once per tick.
    pub(super) fn tend_plans(&mut self, turn: &mut Turn<'_, R>) {
        let Some(state) = self.own_state() else {
            self.control = Control::default();
            return;
        };
        if state.plans.iter().all(Plan::is_over) {
            self.control = Control::default();
            return;
        }
        if let Some((revision, at)) = self.control.proposed
            && revision == state.revision
            && turn.now.since(at) < COMMAND_PATIENCE
        {
            return;
        }
        let commands = self.plan_commands(&state, turn);
        if commands.is_empty() {
            return;
        }
        self.control.proposed = Some((state.revision, turn.now));
        for command in commands {
            if let Some(replica) = self.touch(GroupId::CLUSTER) {
                replica.submit(Work::Cluster(command), None, turn);
            }
        }
    }

    /// Group 0's state, if this node leads it and has applied all that earlier leaders committed.
    fn own_state(&self) -> Option<Arc<ClusterState>> {
        let replica = self.replicas.get(&GroupId::CLUSTER)?;
        if !replica.is_leader() || !replica.raw.raft.commit_to_current_term() {
            return None;
        }
        match &replica.machine {
            Machine::Cluster(state) => state.clone(),
            Machine::Partition { .. } => None,
        }
    }

    fn plan_commands(
        &mut self,
        state: &ClusterState,
        turn: &mut Turn<'_, R>,
    ) -> Vec<ClusterCommand> {
        let at_ms = self.unix_ms(turn.now);
        let down: BTreeSet<NodeId> = state
            .nodes
            .iter()
            .filter(|(_, record)| record.health == Health::Down)
            .map(|(node, _)| *node)
            .collect();
        let mut commands = Vec::new();
        let mut moves: Advances = Vec::new();
        for plan in state.plans.iter().filter(|plan| !plan.is_over()) {
            moves.extend(self.admissions(state, plan));
            moves.extend(self.advances(state, plan, &down, at_ms, turn));
            if self.is_publishable(state, plan, &down, turn) {
                let base_epoch = plan.base_epoch;
                commands.push(ClusterCommand::Publish { plan: plan.id, base_epoch, at_ms });
            }
        }
        moves.truncate(ADVANCES_MAX);
        if !moves.is_empty() {
            let epoch = state.epoch();
            commands.insert(0, ClusterCommand::Advance { epoch, moves, at_ms });
        }
        if !state.group0_former.is_empty() && self.has_group0_swapped(state) {
            commands.push(ClusterCommand::RetireGroup0 { epoch: state.epoch() });
        }
        if turn.now >= self.control.signals_due {
            self.control.signals_due = turn.now + SIGNALS_EVERY;
            commands.extend(self.signal_commands(state, at_ms));
        }
        commands
    }

    fn admissions(&self, state: &ClusterState, plan: &Plan) -> Advances {
        if self.hold == Some(Hold::At(Step::Pending)) || state.settings.copy.bytes_per_second == 0 {
            return Vec::new();
        }
        let budget = Budget { moves_per_node: state.settings.copy.moves_per_node };
        let source = |it: &Move| state.replicas_of(it.partition).first().map(|member| member.node);
        admit(plan, budget, source)
            .into_iter()
            .map(|(id, transition)| (id, Some(Step::Pending), Advance::to(transition)))
            .collect()
    }

    /// What the reports say of a plan's moves.
    fn advances(
        &self,
        state: &ClusterState,
        plan: &Plan,
        down: &BTreeSet<NodeId>,
        now_ms: u64,
        turn: &Turn<'_, R>,
    ) -> Advances {
        let grace_over = plan.is_grace_over(state.settings.grace_ms, now_ms);
        let lost: Vec<NodeId> = plan.lost().collect();
        let mut advances = Vec::new();
        for (id, it) in plan.numbered().filter(|(_, it)| !it.is_over()) {
            let Some(report) = self.fresh_report(it.partition, turn) else { continue };
            let owners = state.replicas_of(it.partition);
            let staying = staying(plan, it.partition, owners, &lost);
            let comes_back = it.lose.is_some_and(|lose| state.comes_back(lose));
            let grace_over = grace_over && !comes_back;
            let standing = Standing { owners, staying: &staying, down, grace_over, now_ms };
            let mut advance = judge(it, &report.actual, &standing);
            self.commit_faults(it, &mut advance, turn);
            if self.is_step_held(it, &advance) {
                advance.transition = None;
            }
            if !advance.is_nothing() {
                advances.push((id, it.stage.step(), advance));
            }
        }
        advances
    }

    fn fresh_report(&self, partition: PartitionId, turn: &Turn<'_, R>) -> Option<&GroupReport> {
        let within = self.settings.node_heartbeat * FRESH_HEARTBEATS;
        self.control.fresh(partition, turn.now, within)
    }

    fn is_step_held(&self, it: &Move, advance: &Advance) -> bool {
        let leaves = match &advance.transition {
            None | Some(Transition::Block(_) | Transition::Unblock | Transition::Abort(_)) => false,
            Some(_) => true,
        };
        match self.hold {
            Some(Hold::At(step)) => leaves && it.stage.step() == Some(step),
            Some(Hold::Joint) | None => false,
        }
    }

    /// Deliberate faults of tests.
    fn commit_faults(&self, it: &Move, advance: &mut Advance, turn: &Turn<'_, R>) {
        let step = it.stage.step();
        if turn.faults.publish_unverified {
            match step {
                Some(Step::Copying) => advance.transition = Some(Transition::Installed),
                Some(Step::CatchingUp) => advance.transition = Some(Transition::Verified),
                Some(Step::Verified) => advance.transition = None,
                _ => {}
            }
        }
        if turn.faults.retire_unchecked
            && matches!(step, Some(Step::Swapping | Step::Serving))
            && it.lose.is_some()
        {
            advance.transition = Some(match step {
                Some(Step::Swapping) => Transition::Swapped,
                _ => Transition::Retire,
            });
        }
    }

    /// Whether a plan's ring may be published by the records and by what was heard lately: a copy
    /// that fell back, or a voter that stays and is down, keeps it from that.
    fn is_publishable(
        &self,
        state: &ClusterState,
        plan: &Plan,
        down: &BTreeSet<NodeId>,
        turn: &Turn<'_, R>,
    ) -> bool {
        if self.hold == Some(Hold::At(Step::Verified)) || may_publish(plan).is_err() {
            return false;
        }
        let lost: Vec<NodeId> = plan.lost().collect();
        turn.faults.publish_unverified
            || plan.moves.iter().all(|it| {
                let owners = state.replicas_of(it.partition);
                let staying = staying(plan, it.partition, owners, &lost);
                self.fresh_report(it.partition, turn).is_some_and(|report| {
                    let mut needed = it.gain.iter().chain(&staying);
                    needed.all(|member| {
                        !down.contains(&member.node)
                            && report.actual.is_close(member.replica, migration::LAG_MAX)
                    })
                })
            })
    }

    fn signal_commands(&self, state: &ClusterState, at_ms: u64) -> Vec<ClusterCommand> {
        let published = |plan: &&Plan| matches!(plan.phase, Phase::Published { .. });
        let mut commands = Vec::new();
        for plan in state.plans.iter().filter(published) {
            let signals = self.signals(state, plan);
            let partitions = state.ring.partition_bits().count();
            let finishes = signals.pass(partitions) && plan.moves.iter().all(Move::is_over);
            // The backlog breathes with the load: it alone is no news.
            let told = plan.signals.map(|told| Signals { backlog: signals.backlog, ..told });
            if finishes || told != Some(signals) {
                commands.push(ClusterCommand::NoteSignals { plan: plan.id, signals, at_ms });
            }
        }
        commands
    }

    fn signals(&self, state: &ClusterState, plan: &Plan) -> Signals {
        let Phase::Published { epoch, .. } = plan.phase else { return Signals::default() };
        let mut led = 0;
        let mut signals = Signals::default();
        for (node, record) in &state.nodes {
            let Some(heartbeat) = self.last_heartbeat(*node) else {
                signals.nodes_behind += u32::from(record.health == Health::Up);
                continue;
            };
            if record.health != Health::Up {
                continue;
            }
            signals.nodes_behind += u32::from(heartbeat.epoch < epoch);
            signals.under_replicated += heartbeat.led.under_replicated;
            signals.backlog += heartbeat.led.backlog;
            signals.misrouted_per_mille =
                signals.misrouted_per_mille.max(heartbeat.misrouted_per_mille);
            led += heartbeat.led.count;
        }
        let partitions = state.ring.partition_bits().count();
        signals.under_replicated += partitions.saturating_sub(led);
        let open = |it: &&Move| !it.is_over();
        for it in plan.moves.iter().filter(open) {
            signals.unverified += u32::from(it.after_swap.is_none());
            signals.copies_left += u32::from(it.lose.is_some() || it.residue.is_some());
        }
        let settled = self.has_group0_swapped(state) && state.group0_former.is_empty();
        signals.under_replicated += u32::from(!settled);
        signals
    }

    /// Whether the voters of group 0 are those that were chosen.
    fn has_group0_swapped(&self, state: &ClusterState) -> bool {
        self.replicas.get(&GroupId::CLUSTER).is_some_and(|replica| {
            let now = replica.configuration();
            !now.is_joint()
                && now.voters.len() == state.group0.len()
                && state.group0.iter().all(|it| now.voters.contains(&it.replica))
        })
    }
}

fn staying(plan: &Plan, partition: PartitionId, owners: &[Member], lost: &[NodeId]) -> Vec<Member> {
    let loses = |owner: &Member| {
        plan.moves.iter().any(|it| it.partition == partition && it.lose == Some(*owner))
    };
    staying_owners(owners, loses, lost)
}
