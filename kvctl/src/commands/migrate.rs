//! `kvctl migrate`: plans under way and those that have ended; following and steering them.

mod list;
mod show;
mod watch;
mod why;

use std::collections::BTreeMap;
use std::time::Duration;

use kvapi::plans::{
    ClusterSettings, MIGRATIONS_PATH, Migrations, ORDER_PATH, PlanAnswer, PlanOrderRequest,
    PlanRecord, PlanVerb, SETTINGS_PATH, SettingsRequest,
};

use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::{Exit, Failure};
use crate::input::{parse_amount, parse_duration};
use crate::output::{self, Format, confirm, note};

pub use watch::follow;

/// Arguments of `migrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists the plans on record.
    Ls,
    /// Shows a plan with its moves.
    Show {
        /// The plan; the last one unless given.
        plan: Option<u64>,
    },
    /// Says what a plan and its moves wait for, and what to do.
    Why {
        /// Only this partition's moves.
        partition: Option<u32>,
        /// The plan; the last one unless given.
        #[arg(long)]
        plan: Option<u64>,
    },
    /// Follows a plan until it serves.
    Watch {
        /// The plan; the last one unless given.
        plan: Option<u64>,
        /// Wait until it is finished: the grace has ended and all signals pass.
        #[arg(long)]
        wait: bool,
    },
    /// Stops a plan where it is.
    Pause(Which),
    /// Lets a paused plan go on.
    Resume(Which),
    /// Gives a plan up before its ring is published.
    Cancel(Which),
    /// Goes back to the ring before a plan, with every write made since.
    Rollback(Which),
    /// Ends a plan's grace: old copies go, and a rollback would have to copy again.
    Finish(Which),
    /// Shows or changes how fast copies may be made.
    Throttle {
        /// Bytes per second, such as 32MiB, in and out of each node; 0 pauses all copies.
        #[arg(long, value_parser = parse_amount)]
        bytes_per_second: Option<u64>,
        /// Moves at a time, to a node and from a node.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        moves_per_node: Option<u32>,
        /// How long old owners follow after a cut-over, such as `1h`.
        #[arg(long, value_parser = parse_grace)]
        grace: Option<Duration>,
    },
}

/// Which plan an order is for.
#[derive(Debug, clap::Args)]
struct Which {
    /// The plan; the last one unless given.
    plan: Option<u64>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Ls => list::run(globals).await,
        Command::Show { plan } => show::run(globals, plan).await,
        Command::Why { partition, plan } => why::run(globals, partition, plan).await,
        Command::Watch { plan, wait } => follow(globals, plan, wait).await,
        Command::Pause(which) => order(globals, PlanVerb::Pause, &which).await,
        Command::Resume(which) => order(globals, PlanVerb::Resume, &which).await,
        Command::Cancel(which) => order(globals, PlanVerb::Cancel, &which).await,
        Command::Rollback(which) => order(globals, PlanVerb::Rollback, &which).await,
        Command::Finish(which) => order(globals, PlanVerb::Finish, &which).await,
        Command::Throttle { bytes_per_second, moves_per_node, grace } => {
            let grace_ms = grace.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
            let change = SettingsRequest {
                copy_bytes_per_second: bytes_per_second,
                moves_per_node,
                grace_ms,
            };
            throttle(globals, change).await
        }
    }
}

/// Parses a grace, which may be none at all.
fn parse_grace(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

async fn order(globals: &Globals, order: PlanVerb, which: &Which) -> Result<(), Failure> {
    let (question, next) = match order {
        PlanVerb::Pause => (None, "`kvctl migrate resume` lets it go on"),
        PlanVerb::Resume => (None, "`kvctl migrate watch` follows it"),
        PlanVerb::Cancel => (
            Some("Give the plan up? Its copies are destroyed."),
            "copies are destroyed in the background: `kvctl migrate ls`",
        ),
        PlanVerb::Rollback => (
            Some("Go back to the ring before? What was written since is kept."),
            "`kvctl migrate watch` follows the way back",
        ),
        PlanVerb::Finish => (
            Some("End the grace? Old copies are destroyed; going back would copy again."),
            "`kvctl migrate watch --wait` waits for the end",
        ),
    };
    if let Some(question) = question {
        confirm(question, which.yes)?;
    }
    let request = PlanOrderRequest { order, plan: which.plan };
    let answer: PlanAnswer = globals.client().order(ORDER_PATH, &request).await?;
    match globals.output {
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&format!("plan {}\n", answer.plan))?,
    }
    note(next);
    Ok(())
}

async fn throttle(globals: &Globals, change: SettingsRequest) -> Result<(), Failure> {
    let client = globals.client();
    let settings: ClusterSettings = match change == SettingsRequest::default() {
        true => client.ask(SETTINGS_PATH).await?,
        false => client.order(SETTINGS_PATH, &change).await?,
    };
    if globals.output == Format::Json {
        return output::json(&settings);
    }
    output::text(&format!(
        "copies       {}/s in and out of each node, {} moves at a time per node\n\
         grace        {} s\n",
        bytes(settings.copy_bytes_per_second),
        settings.moves_per_node,
        settings.grace_ms / 1000,
    ))
}

/// How many moves there are in each stage.
fn stages(plan: &PlanRecord) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in &plan.moves {
        *counts.entry(&it.stage).or_default() += 1;
    }
    let parts = counts.into_iter().map(|(stage, count)| format!("{stage} {count}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// A plan on record; the newest unless one is named.
async fn find(globals: &Globals, id: Option<u64>) -> Result<PlanRecord, Failure> {
    let told: Migrations = globals.client().ask(MIGRATIONS_PATH).await?;
    let mut plans = told.plans.into_iter();
    let found = match id {
        Some(id) => plans.find(|plan| plan.id == id),
        None => plans.next(),
    };
    found.ok_or_else(|| Failure::new(Exit::NotFound, "there is no such plan on record"))
}

/// What a plan is for: its changes, or the plan that it takes back.
fn purpose(plan: &PlanRecord) -> String {
    if plan.changes.is_empty() { plan.kind.clone() } else { plan.changes.join(", ") }
}
