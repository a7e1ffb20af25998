//! `kvctl migrate`: plans under way and those that have ended; following and steering them.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::Cell;
use indicatif::{ProgressBar, ProgressStyle};
use kvapi::plans::{
    ClusterSettings, MIGRATIONS_PATH, Migrations, MoveRecord, ORDER_PATH, PlanAnswer,
    PlanOrderRequest, PlanRecord, PlanVerb, SETTINGS_PATH, SettingsRequest, WHY_PATH, WhyAnswer,
};

use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::{Exit, Failure};
use crate::input::parse_duration;
use crate::output::{self, Format, confirm, note};

/// Pause between two looks at a plan that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Looks in a row that may fail while a plan is followed: a minute.
const BLIND_LOOKS_MAX: u32 = 240;

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
    /// Says what a partition's moves wait for, and what to do.
    Why {
        /// The partition.
        partition: u32,
    },
    /// Follows a plan until it serves.
    Watch {
        /// The plan; the last one unless given.
        plan: Option<u64>,
        /// Wait until nothing of it is left to do, the grace included.
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
        /// Bytes per second, in and out of each node; 0 pauses all copies.
        #[arg(long)]
        bytes_per_second: Option<u64>,
        /// Moves at a time, to a node and from a node.
        #[arg(long)]
        moves_per_node: Option<u32>,
        /// How long old owners follow after a cut-over, such as `1h`.
        #[arg(long, value_parser = parse_duration)]
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
        Command::Ls => list(globals).await,
        Command::Show { plan } => show(globals, plan).await,
        Command::Why { partition } => why(globals, partition).await,
        Command::Watch { plan, wait } => follow(globals, plan, wait).await,
        Command::Pause(which) => order(globals, PlanVerb::Pause, &which, None).await,
        Command::Resume(which) => order(globals, PlanVerb::Resume, &which, None).await,
        Command::Cancel(which) => {
            order(globals, PlanVerb::Cancel, &which, Some("Give the plan up?")).await
        }
        Command::Rollback(which) => {
            order(globals, PlanVerb::Rollback, &which, Some("Go back to the ring before?")).await
        }
        Command::Finish(which) => order(globals, PlanVerb::Finish, &which, None).await,
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

async fn order(
    globals: &Globals,
    order: PlanVerb,
    which: &Which,
    question: Option<&str>,
) -> Result<(), Failure> {
    if let Some(question) = question {
        confirm(question, which.yes)?;
    }
    let request = PlanOrderRequest { order, plan: which.plan };
    let answer: PlanAnswer = globals.client().order(ORDER_PATH, &request).await?;
    match globals.output {
        Format::Json => output::json(&answer),
        Format::Table => output::text(&format!("plan {}\n", answer.plan)),
    }
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

async fn list(globals: &Globals) -> Result<(), Failure> {
    let told: Migrations = globals.client().ask(MIGRATIONS_PATH).await?;
    if globals.output == Format::Json {
        return output::json(&told);
    }
    let mut table = output::table(&["plan", "phase", "moves", "stages", "copied", "changes"]);
    for plan in &told.plans {
        let copied: u64 = plan.moves.iter().map(|it| it.bytes_done).sum();
        let phase = match plan.paused {
            true => format!("{}, paused", plan.phase),
            false => plan.phase.clone(),
        };
        let what =
            if plan.changes.is_empty() { plan.kind.clone() } else { plan.changes.join(", ") };
        table.add_row([
            Cell::new(plan.id),
            Cell::new(phase),
            Cell::new(plan.moves.len()),
            Cell::new(stages(plan)),
            Cell::new(bytes(copied)),
            Cell::new(what),
        ]);
    }
    output::print_table(&table)
}

fn stages(plan: &PlanRecord) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in &plan.moves {
        *counts.entry(&it.stage).or_default() += 1;
    }
    let parts = counts.into_iter().map(|(stage, count)| format!("{stage} {count}"));
    parts.collect::<Vec<_>>().join(", ")
}

async fn find(globals: &Globals, id: Option<u64>) -> Result<PlanRecord, Failure> {
    let told: Migrations = globals.client().ask(MIGRATIONS_PATH).await?;
    let mut plans = told.plans.into_iter();
    let found = match id {
        Some(id) => plans.find(|plan| plan.id == id),
        None => plans.next(),
    };
    found.ok_or_else(|| Failure::new(Exit::NotFound, "there is no such plan on record"))
}

async fn show(globals: &Globals, id: Option<u64>) -> Result<(), Failure> {
    let plan = find(globals, id).await?;
    if globals.output == Format::Json {
        return output::json(&plan);
    }
    output::text(&summary(&plan))?;
    let columns =
        ["partition", "from", "to", "stage", "copied", "rate", "failures", "gate", "after", "note"];
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
    let gate = |gate: &Option<kvapi::plans::GateRecord>| {
        gate.as_ref().map_or("-".to_owned(), |it| format!("{}@{}", &it.digest[..8], it.index))
    };
    vec![
        Cell::new(it.partition),
        Cell::new(it.lose.as_deref().unwrap_or("-")),
        Cell::new(it.gain.as_deref().unwrap_or("-")),
        Cell::new(stage),
        Cell::new(format!("{} of {}", bytes(it.bytes_done), bytes(it.bytes_total))),
        Cell::new(rate),
        Cell::new(it.failures),
        Cell::new(gate(&it.gate)),
        Cell::new(gate(&it.after_swap)),
        Cell::new(it.reason.as_deref().or(it.last_error.as_deref()).unwrap_or("")),
    ]
}

fn summary(plan: &PlanRecord) -> String {
    let epoch = plan.epoch.map_or("not published".to_owned(), |epoch| format!("epoch {epoch}"));
    let mut text = format!(
        "plan         {} ({}), {}, {epoch}\n\
         changes      {}\n\
         moves        {} (at least {} copies must be made): {}\n",
        plan.id,
        plan.kind,
        plan.phase,
        plan.changes.join(", "),
        plan.moves.len(),
        plan.copies_min,
        stages(plan),
    );
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

async fn why(globals: &Globals, partition: u32) -> Result<(), Failure> {
    let told: WhyAnswer =
        globals.client().ask(&format!("{WHY_PATH}?partition={partition}")).await?;
    if globals.output == Format::Json {
        return output::json(&told);
    }
    if told.moves.is_empty() {
        return output::text(&format!("no plan on record moves partition {partition}\n"));
    }
    for it in &told.moves {
        let mut text = format!("plan {}  {}: {}\n", it.plan, it.record.stage, it.reason);
        if let Some(command) = &it.command {
            text.push_str(&format!("try     {command}\n"));
        }
        output::text(&text)?;
    }
    Ok(())
}

/// Follows a plan until it serves, or until nothing of it is left to do; with a bar on a terminal, with
/// a line for each change elsewhere.
pub async fn follow(globals: &Globals, id: Option<u64>, to_the_end: bool) -> Result<(), Failure> {
    let plan = find(globals, id).await?;
    let id = Some(plan.id);
    let bar = ProgressBar::new(plan.moves.len() as u64 * STEPS);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}") {
        bar.set_style(style);
    }
    let mut last = String::new();
    let mut blind = 0;
    loop {
        let plan = match find(globals, id).await {
            Ok(plan) => plan,
            Err(failure) => {
                blind += 1;
                if blind >= BLIND_LOOKS_MAX {
                    return Err(failure);
                }
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
        };
        blind = 0;
        let line = format!("plan {}: {}; {}", plan.id, plan.phase, stages(&plan));
        bar.set_position(plan.moves.iter().map(steps_done).sum());
        bar.set_message(line.clone());
        if bar.is_hidden() && line != last {
            note(&line);
            last = line;
        }
        if let Some(end) = ended(&plan, to_the_end) {
            bar.finish_and_clear();
            return end;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Steps of a move, for a bar.
const STEPS: u64 = 7;

fn steps_done(it: &MoveRecord) -> u64 {
    match it.step.as_deref() {
        Some("pending") => 0,
        Some("copying") => 1,
        Some("catching_up") => 2,
        Some("verified") => 3,
        Some("swapping") => 4,
        Some("serving") => 5,
        Some("retiring") => 6,
        Some(_) | None => STEPS,
    }
}

fn ended(plan: &PlanRecord, to_the_end: bool) -> Option<Result<(), Failure>> {
    let serving =
        |it: &MoveRecord| matches!(it.step.as_deref(), None | Some("serving" | "retiring"));
    match plan.phase.as_str() {
        "finished" => Some(output::text(&format!("plan {} is finished\n", plan.id))),
        "aborted" => {
            let reason = plan.reason.as_deref().unwrap_or("no reason is recorded");
            let message = format!("plan {} was given up: {reason}", plan.id);
            Some(Err(Failure::new(Exit::CheckFailed, message)))
        }
        "published" if !to_the_end && plan.moves.iter().all(serving) => {
            note(
                "old owners follow until the grace ends: `kvctl migrate rollback` goes back, `kvctl migrate finish` ends it",
            );
            Some(output::text(&format!("plan {} serves\n", plan.id)))
        }
        _ => None,
    }
}
