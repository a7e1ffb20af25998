//! Plans and moves in the words of the API, with nodes by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use kvapi::plans::{
    Cause, ClusterSettings, GateRecord, Migrations, MoveRecord, PlanRecord, PlanSummary, PlanWhy,
    SignalsRecord, Why, WhyAnswer,
};
use kvcore::cluster;
use migration::{Gate, Move, MoveId, Phase, Plan, PlanId, PlanKind, Signals, Stage, Step};
use placement::{Change, NodeId, PartitionId};

use crate::view::View;

/// Most partitions that are named of those with one cause.
const CAUSE_PARTITIONS_MAX: usize = 8;

/// The name of a node, also of one that has left; its identity if it was never heard of.
pub fn name_of(view: &View, node: NodeId) -> String {
    let left = || view.state.departed.get(&node).map(|departure| &departure.name);
    view.name_of(node).or_else(left).map_or_else(|| node.to_string(), ToString::to_string)
}

/// A text with the names of nodes in place of their identities.
pub fn with_names(text: &impl Display, view: &View) -> String {
    let mut text = text.to_string();
    for (id, record) in &view.state.nodes {
        text = text.replace(&id.to_string(), record.registration.name.as_str());
    }
    text
}

/// A change in words.
pub fn change(view: &View, change: &Change) -> String {
    match change {
        Change::Join(spec) => format!("join {} in zone {}", spec.name, spec.zone),
        Change::Drain(node) => format!("drain {}", name_of(view, *node)),
        Change::Remove(node) => format!("remove {}", name_of(view, *node)),
        Change::Replace { old, new } => {
            format!("replace {} by {}", name_of(view, *old), new.name)
        }
        Change::Reweight { node, weight } => {
            format!("reweight {} to {weight}", name_of(view, *node))
        }
    }
}

/// The answer of `GET /v1/admin/migrations`.
pub fn migrations(view: &View) -> Migrations {
    Migrations { plans: view.state.plans.iter().rev().map(|it| plan(view, it)).collect() }
}

fn plan(view: &View, plan: &Plan) -> PlanRecord {
    let (epoch, reason) = match &plan.phase {
        Phase::Moving => (None, None),
        Phase::Published { epoch, .. } | Phase::Finished { epoch, .. } => (Some(*epoch), None),
        Phase::Aborted { reason, .. } => (None, Some(with_names(reason, view))),
    };
    let published = epoch.and_then(|epoch| view.state.history.iter().find(|it| it.epoch == epoch));
    let ended_at = match plan.phase {
        Phase::Finished { at_ms, .. } | Phase::Aborted { at_ms, .. } => Some(at_ms),
        Phase::Moving | Phase::Published { .. } => None,
    };
    let copied = Copied::of(view, plan);
    PlanRecord {
        id: plan.id.get(),
        kind: kind(plan),
        phase: plan.phase.name().to_owned(),
        reason,
        changes: plan.changes.iter().map(|it| change(view, it)).collect(),
        base_epoch: plan.base_epoch,
        epoch,
        applied_at: plan.applied_at_ms,
        published_at: published.map(|it| it.activated_at_ms),
        ended_at,
        paused: plan.paused,
        grace_ends_at: grace_ends_at(view, plan),
        bytes_done: copied.done,
        bytes_total: copied.total,
        bytes_per_second: copied.bytes_per_second,
        eta_ms: copied.eta_ms,
        copies_min: plan.copies_min,
        signals: plan.signals.map(|it| signals(view, &it)),
        moves: plan.numbered().map(|(id, it)| move_record(view, id, it)).collect(),
    }
}

/// What a plan is for, in words.
pub fn kind(plan: &Plan) -> String {
    match plan.kind {
        PlanKind::Changes => "changes".to_owned(),
        PlanKind::Rollback(of) => format!("rollback of plan {of}"),
    }
}

/// When old owners stop following, in unix milliseconds.
fn grace_ends_at(view: &View, plan: &Plan) -> Option<u64> {
    match plan.phase {
        Phase::Published { at_ms, .. } if !plan.grace_ended => {
            Some(at_ms.saturating_add(view.state.settings.grace_ms))
        }
        Phase::Published { .. }
        | Phase::Moving
        | Phase::Finished { .. }
        | Phase::Aborted { .. } => None,
    }
}

/// A plan at a glance.
pub fn summary(view: &View, plan: &Plan) -> PlanSummary {
    let mut stages: BTreeMap<String, u32> = BTreeMap::new();
    for it in &plan.moves {
        *stages.entry(it.stage.name().to_owned()).or_default() += 1;
    }
    let copied = Copied::of(view, plan);
    PlanSummary {
        id: plan.id.get(),
        kind: kind(plan),
        changes: plan.changes.iter().map(|it| change(view, it)).collect(),
        phase: plan.phase.name().to_owned(),
        paused: plan.paused,
        stages,
        bytes_done: copied.done,
        bytes_total: copied.total,
        eta_ms: copied.eta_ms,
        grace_ends_at: grace_ends_at(view, plan),
        signals: plan.signals.map(|it| signals(view, &it)),
    }
}

/// How far all copies of a plan are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Copied {
    done: u64,
    total: u64,
    bytes_per_second: u64,
    eta_ms: Option<u64>,
}

impl Copied {
    /// A copy that has not begun is taken for as large as the mean of those that have.
    fn of(view: &View, plan: &Plan) -> Self {
        let copies = plan.moves.iter().filter(|it| it.gain.is_some());
        let mut copied = Self::default();
        let (mut known, mut unknown) = (0, 0);
        let mut targets = BTreeSet::new();
        for it in copies {
            let progress = &it.progress;
            copied.done += progress.bytes_done;
            copied.total += progress.bytes_total;
            match (progress.bytes_total, it.stage.step()) {
                (0, Some(Step::Pending | Step::Copying)) => unknown += 1,
                _ => known += 1,
            }
            if it.stage == Stage::Running(Step::Copying) {
                copied.bytes_per_second += progress.bytes_per_second;
                targets.extend(it.gain.map(|gain| gain.node));
            }
        }
        // Rates are those of the last records, which come in bursts; the throttle holds on the whole.
        let throttle = view.state.settings.copy.bytes_per_second;
        let at_most = throttle.saturating_mul(targets.len() as u64);
        copied.bytes_per_second = copied.bytes_per_second.min(at_most);
        copied.total += (copied.total / u64::max(known, 1)).saturating_mul(unknown);
        if plan.is_moving() && !plan.paused {
            copied.eta_ms = eta_ms(copied.done, copied.total, copied.bytes_per_second);
        }
        copied
    }
}

/// Milliseconds until everything is copied at this rate; none if nothing is copied.
fn eta_ms(done: u64, total: u64, bytes_per_second: u64) -> Option<u64> {
    let left = total.saturating_sub(done);
    left.saturating_mul(1000).checked_div(bytes_per_second)
}

fn signals(view: &View, signals: &Signals) -> SignalsRecord {
    SignalsRecord {
        pass: signals.pass(view.state.ring.partition_bits().count()),
        nodes_behind: signals.nodes_behind,
        under_replicated: signals.under_replicated,
        backlog: signals.backlog,
        misrouted_per_mille: signals.misrouted_per_mille,
        unverified: signals.unverified,
        copies_left: signals.copies_left,
    }
}

fn move_record(view: &View, id: MoveId, it: &Move) -> MoveRecord {
    let name = |member: Option<migration::Member>| member.map(|it| name_of(view, it.node));
    let reason = match &it.stage {
        Stage::Blocked { reason, .. } => Some(with_names(reason, view)),
        Stage::Aborted(reason) => Some(with_names(reason, view)),
        Stage::Running(_) | Stage::Done => None,
    };
    MoveRecord {
        number: id.number,
        partition: it.partition,
        gain: name(it.gain),
        lose: name(it.lose),
        stage: it.stage.name().to_owned(),
        step: it.stage.step().map(|step| step.name().to_owned()),
        reason,
        since: it.since_ms,
        bytes_done: it.progress.bytes_done,
        bytes_total: it.progress.bytes_total,
        bytes_per_second: it.progress.bytes_per_second,
        eta_ms: match it.stage {
            Stage::Running(Step::Copying) if it.progress.bytes_total > 0 => {
                let progress = &it.progress;
                eta_ms(progress.bytes_done, progress.bytes_total, progress.bytes_per_second)
            }
            Stage::Running(_) | Stage::Blocked { .. } | Stage::Done | Stage::Aborted(_) => None,
        },
        failures: it.progress.failures,
        last_error: it.progress.last_error.clone(),
        retry_at: it.progress.retry_at_ms,
        watermark: it.watermark.map(|index| index.get()),
        gate: it.gate.map(gate),
        after_swap: it.after_swap.map(gate),
        residue: it.residue.is_some(),
    }
}

fn gate(gate: Gate) -> GateRecord {
    GateRecord { index: gate.index.get(), digest: format!("{:032x}", gate.digest) }
}

/// The answer of `GET /v1/admin/migrations/why?partition=P`: its moves, of one plan or of all.
pub fn why_partition(view: &View, partition: PartitionId, plan: Option<PlanId>) -> WhyAnswer {
    let mut moves = Vec::new();
    let plans = view.state.plans.iter().rev();
    for plan in plans.filter(|it| plan.is_none_or(|id| it.id == id)) {
        for (id, it) in plan.numbered().filter(|(_, it)| it.partition == partition) {
            let told = explain(view, plan, it);
            moves.push(Why {
                plan: plan.id.get(),
                record: move_record(view, id, it),
                reason: told.reason,
                command: told.command,
            });
        }
    }
    WhyAnswer { moves, ..WhyAnswer::default() }
}

/// The answer of `GET /v1/admin/migrations/why`: what the moves of a plan wait for, and the plan.
pub fn why_plan(view: &View, plan: &Plan) -> WhyAnswer {
    let mut causes: Vec<Cause> = Vec::new();
    for it in plan.moves.iter().filter(|it| !it.stage.is_ended()) {
        let told = explain(view, plan, it);
        let stage = it.stage.name();
        let known =
            causes.iter_mut().find(|cause| cause.stage == stage && cause.reason == told.reason);
        match known {
            Some(cause) => {
                cause.moves += 1;
                if cause.partitions.len() < CAUSE_PARTITIONS_MAX {
                    cause.partitions.push(it.partition);
                }
            }
            None => causes.push(Cause {
                plan: plan.id.get(),
                stage: stage.to_owned(),
                reason: told.reason,
                command: told.command,
                moves: 1,
                partitions: vec![it.partition],
            }),
        }
    }
    causes.sort_by_key(|cause| (cause.stage != "blocked", std::cmp::Reverse(cause.moves)));
    let (reason, command) = plan_waits_for(view, plan);
    let plan = PlanWhy {
        plan: plan.id.get(),
        phase: plan.phase.name().to_owned(),
        reason,
        command: command.map(str::to_owned),
    };
    WhyAnswer { causes, plan: Some(plan), ..WhyAnswer::default() }
}

fn explain(view: &View, plan: &Plan, it: &Move) -> migration::Explanation {
    let rate = view.state.settings.copy.bytes_per_second;
    migration::why(plan, it, rate, |node| name_of(view, node))
}

/// What a plan as a whole waits for, and the command that takes it on.
fn plan_waits_for(view: &View, plan: &Plan) -> (String, Option<&'static str>) {
    let blocked = plan.moves.iter().any(|it| matches!(it.stage, Stage::Blocked { .. }));
    let words = |text: &str| text.to_owned();
    match &plan.phase {
        Phase::Finished { .. } => (words("the plan is finished"), None),
        Phase::Aborted { reason, .. } => match plan.is_over() {
            true => (format!("the plan was given up: {}", with_names(reason, view)), None),
            false => (words("the plan was given up; its copies are being destroyed"), None),
        },
        Phase::Moving | Phase::Published { .. } if plan.paused => {
            (words("the plan is paused"), Some("kvctl migrate resume"))
        }
        Phase::Moving | Phase::Published { .. } if blocked => (words("moves are blocked"), None),
        Phase::Moving => (words("copies are made and compared; then the ring is published"), None),
        Phase::Published { .. } if !plan.is_serving() => {
            (words("the ring is published; groups change their voters"), None)
        }
        Phase::Published { .. }
            if !plan.grace_ended && plan.moves.iter().any(|it| !it.is_over()) =>
        {
            (
                words("it serves; old owners follow until the grace ends"),
                Some("kvctl migrate finish, or: kvctl migrate rollback"),
            )
        }
        Phase::Published { .. } => (unmet(plan.signals.as_ref()), None),
    }
}

/// The signals that do not pass, in words.
fn unmet(signals: Option<&Signals>) -> String {
    let Some(it) = signals else { return "the signals have not been looked at yet".to_owned() };
    let counts = [
        (u64::from(it.nodes_behind), "nodes have not adopted the epoch"),
        (u64::from(it.under_replicated), "partitions lack healthy voters"),
        (it.backlog, "log entries are missing on followers"),
        (u64::from(it.misrouted_per_mille), "per mille of requests go to outdated places"),
        (u64::from(it.unverified), "moves are not compared after the cut-over"),
        (u64::from(it.copies_left), "old copies are left"),
    ];
    let parts = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    match parts.is_empty() {
        true => "the last signals are being recorded".to_owned(),
        false => parts.join("; "),
    }
}

/// The answer of `GET /v1/admin/settings`.
pub fn settings(settings: &cluster::ClusterSettings) -> ClusterSettings {
    ClusterSettings {
        copy_bytes_per_second: settings.copy.bytes_per_second,
        moves_per_node: settings.copy.moves_per_node,
        grace_ms: settings.grace_ms,
    }
}
