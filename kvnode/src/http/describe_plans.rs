//! Plans and moves in the words of the API, with nodes by their names.

use std::fmt::Display;

use kvapi::plans::{
    Achieved, ClusterSettings, DraftAnswer, Flow, GateRecord, Migrations, MoveRecord, NodeChange,
    PlanPreview, PlanRecord, Remark, SignalsRecord, Why, WhyAnswer,
};
use kvcore::cluster;
use migration::{Gate, Move, MoveId, Phase, Plan, PlanKind, Signals, Stage};
use placement::{Balance, Change, NodeId, PartitionId, PlanRefusal, Redundancy, RingPlan};

use crate::view::View;

/// The name of a node, also of one that has left; its identity if it was never heard of.
fn name_of(view: &View, node: NodeId) -> String {
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

fn change(view: &View, change: &Change) -> String {
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

/// The answer of `GET /v1/admin/plan`.
pub fn draft(
    view: &View,
    plan: Option<Result<RingPlan, PlanRefusal>>,
    bytes_per_copy: u64,
) -> DraftAnswer {
    let changes = view.state.draft.iter().map(|it| change(view, it)).collect();
    let (preview, refusal) = match plan {
        None => (None, None),
        Some(Ok(plan)) => (Some(preview(view, &plan, bytes_per_copy)), None),
        Some(Err(refusal)) => {
            let detail = with_names(&refusal, view);
            (None, Some(Remark { code: refusal.rule().to_owned(), detail }))
        }
    };
    DraftAnswer { changes, preview, refusal }
}

fn preview(view: &View, plan: &RingPlan, bytes_per_copy: u64) -> PlanPreview {
    let bytes = |copies: u32| u64::from(copies) * bytes_per_copy;
    let name = |node: NodeId| {
        let joins = plan.target.nodes().iter().find(|it| it.id == node);
        joins.map_or_else(|| name_of(view, node), |it| it.name.to_string())
    };
    let flows = plan.flows.iter().map(|flow| Flow {
        source: name(flow.source),
        target: name(flow.target),
        copies: flow.copies,
        bytes: bytes(flow.copies),
    });
    let nodes = plan.nodes.iter().map(|node| NodeChange {
        node: name(node.node),
        zone: node.zone.to_string(),
        copies_before: node.copies_before,
        copies_after: node.copies_after,
        primaries_before: node.primaries_before,
        primaries_after: node.primaries_after,
        bytes_before: bytes(node.copies_before),
        bytes_after: bytes(node.copies_after),
    });
    let busiest = plan.nodes.iter().map(|node| node.copies_gained.max(node.copies_lost)).max();
    let rate = view.state.settings.copy.bytes_per_second;
    let warning = |it: &placement::PlanWarning| Remark {
        code: it.code().to_owned(),
        detail: with_names(it, view),
    };
    PlanPreview {
        base_epoch: plan.base_epoch,
        digest: plan.digest.to_string(),
        copies_moved: plan.diff.copies_moved,
        copies_moved_min: plan.diff.copies_moved_min,
        primaries_moved: plan.diff.primaries_moved,
        primaries_moved_min: plan.diff.primaries_moved_min,
        bytes_per_copy,
        seconds_at_throttle: bytes(busiest.unwrap_or(0)).checked_div(rate),
        flows: flows.collect(),
        nodes: nodes.collect(),
        before: achieved(&plan.balance_before, &plan.redundancy_before),
        after: achieved(&plan.balance_after, &plan.redundancy_after),
        warnings: plan.warnings.iter().map(warning).collect(),
        risks: risks(plan),
    }
}

fn achieved(balance: &Balance, redundancy: &Redundancy) -> Achieved {
    Achieved {
        copies_max_over_mean: balance.copies_max_over_mean,
        primaries_max_over_mean: balance.primaries_max_over_mean,
        copies: u32::from(redundancy.owners_per_partition),
        zones_covered_min: u32::from(redundancy.zones_covered_min),
    }
}

fn risks(plan: &RingPlan) -> Vec<String> {
    let before = &plan.redundancy_before;
    let mut risks = vec![
        "a target that dies before the cut-over delays the plan and nothing else".to_owned(),
        "a voter that dies stops the moves of its partitions until it is back".to_owned(),
    ];
    if !before.survives_node_loss {
        risks.push("the loss of any node stops the partitions it holds, as it does now".to_owned());
    } else if !before.survives_zone_loss {
        risks.push("the loss of a zone may stop partitions, as it may now".to_owned());
    }
    risks
}

/// The answer of `GET /v1/admin/migrations`.
pub fn migrations(view: &View) -> Migrations {
    Migrations { plans: view.state.plans.iter().rev().map(|it| plan(view, it)).collect() }
}

fn plan(view: &View, plan: &Plan) -> PlanRecord {
    let grace_ms = view.state.settings.grace_ms;
    let (epoch, reason) = match &plan.phase {
        Phase::Moving => (None, None),
        Phase::Published { epoch, .. } | Phase::Finished { epoch, .. } => (Some(*epoch), None),
        Phase::Aborted { reason, .. } => (None, Some(with_names(reason, view))),
    };
    let grace_ends_at = match plan.phase {
        Phase::Published { at_ms, .. } if !plan.grace_ended => Some(at_ms.saturating_add(grace_ms)),
        Phase::Published { .. }
        | Phase::Moving
        | Phase::Finished { .. }
        | Phase::Aborted { .. } => None,
    };
    PlanRecord {
        id: plan.id.get(),
        kind: match plan.kind {
            PlanKind::Changes => "changes".to_owned(),
            PlanKind::Rollback(of) => format!("rollback of plan {of}"),
        },
        phase: plan.phase.name().to_owned(),
        reason,
        changes: plan.changes.iter().map(|it| change(view, it)).collect(),
        base_epoch: plan.base_epoch,
        epoch,
        applied_at: plan.applied_at_ms,
        paused: plan.paused,
        grace_ends_at,
        copies_min: plan.copies_min,
        signals: plan.signals.map(|it| signals(view, &it)),
        moves: plan.numbered().map(|(id, it)| move_record(view, id, it)).collect(),
    }
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

/// The answer of `GET /v1/admin/migrations/why`.
pub fn why(view: &View, partition: PartitionId) -> WhyAnswer {
    let rate = view.state.settings.copy.bytes_per_second;
    let mut moves = Vec::new();
    for plan in view.state.plans.iter().rev() {
        for (id, it) in plan.numbered().filter(|(_, it)| it.partition == partition) {
            let told = migration::why(plan, it, rate, |node| name_of(view, node));
            moves.push(Why {
                plan: plan.id.get(),
                record: move_record(view, id, it),
                reason: told.reason,
                command: told.command,
            });
        }
    }
    WhyAnswer { moves }
}

/// The answer of `GET /v1/admin/settings`.
pub fn settings(settings: &cluster::ClusterSettings) -> ClusterSettings {
    ClusterSettings {
        copy_bytes_per_second: settings.copy.bytes_per_second,
        moves_per_node: settings.copy.moves_per_node,
        grace_ms: settings.grace_ms,
    }
}
