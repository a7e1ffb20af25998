//! `kvctl ring history`: the rings that were published, and why.

use comfy_table::Cell;

use crate::cli::Globals;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Runs the command.
pub async fn run(globals: &Globals) -> Result<(), Failure> {
    let history = globals.client().ring_history().await?;
    if globals.output == Format::Json {
        return output::json(&history);
    }
    let columns = ["epoch", "published", "plan", "kind", "kept", "checksum", "changes"];
    let mut table = output::table(&columns);
    for entry in history.entries.iter().rev() {
        table.add_row([
            Cell::new(entry.epoch),
            Cell::new(output::utc(entry.activated_at)),
            Cell::new(entry.plan.map_or("-".to_owned(), |plan| plan.to_string())),
            Cell::new(&entry.kind),
            Cell::new(if entry.kept { "yes" } else { "no" }),
            Cell::new(&entry.checksum),
            Cell::new(entry.changes.join(", ")),
        ]);
    }
    output::print_table(&table)
}
