//! `kvctl plan`: what is staged, what it leads to, and making it so.

use comfy_table::Cell;
use kvapi::plans::{
    Achieved, ApplyRequest, Done, DraftAnswer, PLAN_APPLY_PATH, PLAN_CLEAR_PATH, PLAN_PATH,
    PlanAnswer, PlanPreview,
};
use serde_json::json;

use crate::cli::Globals;
use crate::commands::migrate;
use crate::exit::{Exit, Failure, of_rule};
use crate::output::{self, Format, confirm, note};

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Shows what is staged and what it leads to.
    Show,
    /// Applies what is staged, if epoch and draft are still those just shown.
    Apply {
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// Follow the plan until it serves.
        #[arg(long)]
        follow: bool,
        /// Wait until the plan is finished: the grace has ended and all signals pass.
        #[arg(long)]
        wait: bool,
        /// The digest that `plan show` printed; what is staged now unless given.
        #[arg(long)]
        digest: Option<String>,
    },
    /// Forgets what is staged.
    Clear,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Show => {
            let draft: DraftAnswer = globals.client().ask(PLAN_PATH).await?;
            print(globals.output, &draft)
        }
        Command::Apply { yes, follow, wait, digest } => {
            let mut draft: DraftAnswer = globals.client().ask(PLAN_PATH).await?;
            if let (Some(preview), Some(digest)) = (&mut draft.preview, digest) {
                preview.digest = digest;
            }
            for warning in draft.preview.iter().flat_map(|preview| &preview.warnings) {
                note(&format!("warning: {}: {}", warning.code, warning.detail));
            }
            apply_draft(globals, &draft, yes, follow, wait).await
        }
        Command::Clear => {
            let done: Done = globals.client().order(PLAN_CLEAR_PATH, &json!({})).await?;
            match globals.output {
                Format::Json => output::json(&done),
                Format::Table => output::text("nothing is staged\n"),
            }
        }
    }
}

/// Applies a draft that was shown.
pub async fn apply_draft(
    globals: &Globals,
    draft: &DraftAnswer,
    yes: bool,
    follow: bool,
    wait: bool,
) -> Result<(), Failure> {
    if let Some(refusal) = &draft.refusal {
        let message = format!("{}: {}", refusal.code, refusal.detail);
        return Err(Failure::new(of_rule(&refusal.code), message).with_hint("kvctl plan clear"));
    }
    let Some(preview) = &draft.preview else {
        return Err(Failure::new(Exit::NotFound, "nothing is staged").with_hint("kvctl join NODE"));
    };
    let question = format!("Apply {}?", draft.changes.join(", "));
    confirm(&question, yes)?;
    let request = ApplyRequest { base_epoch: preview.base_epoch, digest: preview.digest.clone() };
    let answer: PlanAnswer = globals.client().order(PLAN_APPLY_PATH, &request).await?;
    // With JSON there is one document on stdout: the last one.
    match globals.output {
        Format::Json if follow || wait => {}
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&format!("plan {} is under way\n", answer.plan))?,
    }
    if follow || wait {
        return migrate::follow(globals, Some(answer.plan), wait).await;
    }
    note("`kvctl migrate watch` follows it");
    Ok(())
}

/// Prints a draft and what it leads to.
pub fn print(format: Format, draft: &DraftAnswer) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(draft);
    }
    if draft.changes.is_empty() {
        return output::text("nothing is staged\n");
    }
    let mut text = String::new();
    for change in &draft.changes {
        text.push_str(&format!("staged       {change}\n"));
    }
    if let Some(refusal) = &draft.refusal {
        text.push_str(&format!("refused      {}: {}\n", refusal.code, refusal.detail));
    }
    if let Some(preview) = &draft.preview {
        text.push_str(&in_words(preview));
    }
    output::text(&text)
}

fn in_words(preview: &PlanPreview) -> String {
    let time = match preview.seconds_at_throttle {
        Some(seconds) => format!("about {seconds} s at the throttle in force"),
        None => "the throttle is 0: nothing is copied".to_owned(),
    };
    let mut text = format!(
        "base         epoch {}, digest {}\n\
         copies       {} moved, at least {} must be; {} in all, {time}\n\
         primaries    {} change, at least {} must\n\
         balance      copies {:.3} -> {:.3}, primaries {:.3} -> {:.3} (busiest over mean)\n\
         redundancy   {} -> {} copies in at least {} -> {} zones; {} -> {}\n\n",
        preview.base_epoch,
        preview.digest,
        preview.copies_moved,
        preview.copies_moved_min,
        bytes(preview.bytes_moved),
        preview.primaries_moved,
        preview.primaries_moved_min,
        preview.before.copies_max_over_mean,
        preview.after.copies_max_over_mean,
        preview.before.primaries_max_over_mean,
        preview.after.primaries_max_over_mean,
        preview.before.copies,
        preview.after.copies,
        preview.before.zones_covered_min,
        preview.after.zones_covered_min,
        survives(&preview.before),
        survives(&preview.after),
    );
    text.push_str(&node_table(preview));
    text.push('\n');
    let mut flows = output::table(&["from", "to", "copies", "bytes"]);
    for flow in &preview.flows {
        flows.add_row([
            Cell::new(&flow.source),
            Cell::new(&flow.target),
            Cell::new(flow.copies),
            Cell::new(bytes(flow.bytes)),
        ]);
    }
    text.push_str(&output::render(&flows));
    if !preview.silent.is_empty() {
        let names = preview.silent.join(", ");
        text.push_str(&format!("\nunknown      what {names} hold: not counted, no answer in time"));
    }
    for warning in &preview.warnings {
        text.push_str(&format!("\nwarning      {}: {}", warning.code, warning.detail));
    }
    for risk in &preview.risks {
        text.push_str(&format!("\nmeanwhile    {risk}"));
    }
    text.push('\n');
    text
}

fn survives(achieved: &Achieved) -> &'static str {
    match (achieved.survives_zone_loss, achieved.survives_node_loss) {
        (true, _) => "any zone may be lost",
        (false, true) => "any node may be lost",
        (false, false) => "no node may be lost",
    }
}

fn node_table(preview: &PlanPreview) -> String {
    let columns = ["node", "zone", "copies", "primaries", "data", "free disk", "of"];
    let mut table = output::table(&columns);
    for node in &preview.nodes {
        let disk = node.disk.as_ref();
        let free = disk.map_or("?".to_owned(), |disk| {
            format!("{} -> {}", bytes(disk.available), bytes(disk.available_after))
        });
        let total = disk.map_or("?".to_owned(), |disk| bytes(disk.total));
        table.add_row([
            Cell::new(&node.node),
            Cell::new(&node.zone),
            Cell::new(format!("{} -> {}", node.copies_before, node.copies_after)),
            Cell::new(format!("{} -> {}", node.primaries_before, node.primaries_after)),
            Cell::new(format!("{} -> {}", bytes(node.bytes_before), bytes(node.bytes_after))),
            Cell::new(free),
            Cell::new(total),
        ]);
    }
    output::render(&table)
}

/// A number of bytes for people.
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
