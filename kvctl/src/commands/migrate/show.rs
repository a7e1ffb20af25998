//! `kvctl migrate show`: a plan with its moves.

use comfy_table::Cell;
use kvapi::plans::{GateRecord, MoveRecord, PlanRecord};

use super::{find, purpose, stages};
use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Runs the command.
pub async fn run(globals: &Globals, id: Option<u64>) -> Result<(), Failure> {
    let plan = find(globals, id).await?;
    if globals.output == Format::Json {
        return output::json(&plan);
    }
    output::text(&summary(&plan))?;
    let columns = [
        "partition",
        "from",
        "to",
        "stage",
        "since",
        "copied",
        "rate",
        "left",
        "failures",
        "watermark",
        "gate",
        "after",
        "note",
    ];
    let mut table = output::table(&columns);
    for it in &plan.moves {
        table.add_row(row(it));
    }
    output::print_table(&table)
}

fn row(it: &MoveRecord) -> Vec<Cell> {
    let stage = match (it.stage.as_str(), &it.step) {
        ("blocked", Some(step)) => format!("blocked at {step}"),
        (stage, _) => stage.to_owned(),
    };
    let rate = match it.stage.as_str() {
        "copying" => format!("{}/s", bytes(it.bytes_per_second)),
        _ => "-".to_owned(),
    };
    let gate = |gate: &Option<GateRecord>| {
        gate.as_ref().map_or("-".to_owned(), |it| format!("{}@{}", short(&it.digest), it.index))
    };
    vec![
        Cell::new(it.partition),
        Cell::new(it.lose.as_deref().unwrap_or("-")),
        Cell::new(it.gain.as_deref().unwrap_or("-")),
        Cell::new(stage),
        Cell::new(output::utc(it.since)),
        Cell::new(format!("{} of {}", bytes(it.bytes_done), bytes(it.bytes_total))),
        Cell::new(rate),
        Cell::new(it.eta_ms.map_or("-".to_owned(), output::span)),
        Cell::new(it.failures),
        Cell::new(it.watermark.map_or("-".to_owned(), |index| index.to_string())),
        Cell::new(gate(&it.gate)),
        Cell::new(gate(&it.after_swap)),
        Cell::new(remark(it)),
    ]
}

/// The first digits of a digest, enough to see that two agree.
fn short(digest: &str) -> &str {
    digest.get(..8).unwrap_or(digest)
}

fn remark(it: &MoveRecord) -> String {
    let retry = it.retry_at.map(|at| format!("tried again at {}", output::utc(at)));
    let residue = it.residue.then(|| "its copy is being destroyed".to_owned());
    let parts = [it.reason.clone(), it.last_error.clone(), retry, residue];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn summary(plan: &PlanRecord) -> String {
    let epoch = plan.epoch.map_or("not published".to_owned(), |epoch| format!("epoch {epoch}"));
    let paused = if plan.paused { ", paused" } else { "" };
    let mut text = format!(
        "plan         {} ({}), {}{paused}, {epoch}\n\
         applied      {}, from epoch {}\n\
         moves        {} (at least {} copies must be made): {}\n\
         copied       {} of {}",
        plan.id,
        purpose(plan),
        plan.phase,
        output::utc(plan.applied_at),
        plan.base_epoch,
        plan.moves.len(),
        plan.copies_min,
        stages(plan),
        bytes(plan.bytes_done),
        bytes(plan.bytes_total),
    );
    if let Some(left) = plan.eta_ms {
        text.push_str(&format!(
            ", {}/s, {} left",
            bytes(plan.bytes_per_second),
            output::span(left)
        ));
    }
    text.push('\n');
    let moments = [
        ("published", plan.published_at),
        ("ended", plan.ended_at),
        ("grace ends", plan.grace_ends_at),
    ];
    for (what, at) in moments {
        if let Some(at) = at {
            text.push_str(&format!("{what:12} {}\n", output::utc(at)));
        }
    }
    if let Some(reason) = &plan.reason {
        text.push_str(&format!("reason       {reason}\n"));
    }
    if let Some(signals) = &plan.signals {
        text.push_str(&format!(
            "signals      {}: {} nodes behind, {} partitions under-replicated, backlog {}, \
             {} per mille misrouted, {} unverified, {} old copies left\n",
            if signals.pass { "pass" } else { "not yet" },
            signals.nodes_behind,
            signals.under_replicated,
            signals.backlog,
            signals.misrouted_per_mille,
            signals.unverified,
            signals.copies_left,
        ));
    }
    text.push('\n');
    text
}
