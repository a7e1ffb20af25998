//! `kvctl migrate watch`: follows a plan, with a bar on a terminal and lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use kvapi::plans::{MoveRecord, PlanRecord};

use super::{find, stages};
use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, note};

/// Pause between two looks at a plan that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Without a terminal, a line is printed this often at the most while the phase stays.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Looks in a row that may fail while a plan is followed: a minute.
const BLIND_LOOKS_MAX: u32 = 240;

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
    let mut told = Instant::now();
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
        let line = progress(&plan);
        bar.set_position(plan.moves.iter().map(steps_done).sum());
        bar.set_message(line.clone());
        let is_due = told.elapsed() >= TELL_EVERY || !last.starts_with(&plan.phase);
        if bar.is_hidden() && line != last && is_due {
            note(&format!("plan {}: {line}", plan.id));
            last = line;
            told = Instant::now();
        }
        if let Some(end) = end_of(&plan, to_the_end) {
            bar.finish_and_clear();
            return tell(globals.output, &plan, end);
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

/// One line on how far a plan is.
fn progress(plan: &PlanRecord) -> String {
    let paused = if plan.paused { ", paused" } else { "" };
    let mut line = format!("{}{paused}; {}", plan.phase, stages(plan));
    if plan.phase == "moving" && plan.bytes_total > 0 {
        line.push_str(&format!("; {} of {}", bytes(plan.bytes_done), bytes(plan.bytes_total)));
    }
    if let Some(left) = plan.eta_ms {
        line.push_str(&format!(
            ", {}/s, {} left",
            bytes(plan.bytes_per_second),
            output::span(left)
        ));
    }
    let blocked = plan.moves.iter().find(|it| it.stage == "blocked");
    if let Some(reason) = blocked.and_then(|it| it.reason.as_deref()) {
        line.push_str(&format!("; {reason}: `kvctl migrate why`"));
    }
    line
}

/// How following a plan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Every group has its new voters; old owners follow.
    Serves,
    /// Nothing is left to do.
    Finished,
    /// It was given up.
    Aborted,
}

fn end_of(plan: &PlanRecord, to_the_end: bool) -> Option<End> {
    let serving =
        |it: &MoveRecord| matches!(it.step.as_deref(), None | Some("serving" | "retiring"));
    match plan.phase.as_str() {
        "finished" => Some(End::Finished),
        "aborted" => Some(End::Aborted),
        "published" if !to_the_end && plan.moves.iter().all(serving) => Some(End::Serves),
        _ => None,
    }
}

fn tell(format: Format, plan: &PlanRecord, end: End) -> Result<(), Failure> {
    let said = match end {
        End::Serves => "serves",
        End::Finished => "is finished",
        End::Aborted => {
            let reason = plan.reason.as_deref().unwrap_or("no reason is recorded");
            let message = format!("plan {} was given up: {reason}", plan.id);
            return Err(Failure::new(Exit::CheckFailed, message));
        }
    };
    match format {
        Format::Json => output::json(plan)?,
        Format::Table => output::text(&format!("plan {} {said}\n", plan.id))?,
    }
    if end == End::Serves && plan.grace_ends_at.is_some() {
        note(
            "old owners follow until the grace ends: `kvctl migrate rollback` goes back, `kvctl migrate finish` ends it",
        );
    }
    Ok(())
}
