//! `kvctl migrate ls`: the plans on record.

use comfy_table::Cell;
use kvapi::plans::{MIGRATIONS_PATH, Migrations, PlanRecord};

use super::{purpose, stages};
use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Runs the command.
pub async fn run(globals: &Globals) -> Result<(), Failure> {
    let told: Migrations = globals.client().ask(MIGRATIONS_PATH).await?;
    match globals.output {
        Format::Json => output::json(&told),
        Format::Table => output::text(&in_words(&told.plans)),
    }
}

fn in_words(plans: &[PlanRecord]) -> String {
    if plans.is_empty() {
        return "no plan is on record\n".to_owned();
    }
    let columns = ["plan", "phase", "epoch", "applied", "moves", "copied", "left", "stages", "for"];
    let mut table = output::table(&columns);
    for plan in plans {
        let phase = match plan.paused {
            true => format!("{}, paused", plan.phase),
            false => plan.phase.clone(),
        };
        table.add_row([
            Cell::new(plan.id),
            Cell::new(phase),
            Cell::new(plan.epoch.map_or("-".to_owned(), |epoch| epoch.to_string())),
            Cell::new(output::utc(plan.applied_at)),
            Cell::new(plan.moves.len()),
            Cell::new(bytes(plan.bytes_done)),
            Cell::new(plan.eta_ms.map_or("-".to_owned(), output::span)),
            Cell::new(stages(plan)),
            Cell::new(purpose(plan)),
        ]);
    }
    output::render(&table)
}
