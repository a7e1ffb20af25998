//! `kvctl check`: one line per check, and an exit code.

use comfy_table::Cell;
use kvapi::plans::{MIGRATIONS_PATH, Migrations};
use kvapi::{ClusterStatus, Health, NodeInfo, NodeStage};
use serde::Serialize;

use crate::cli::Globals;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::survey;

/// Wall clocks may differ by this much; the survey itself takes some of it.
const CLOCKS_APART_MS: u64 = 2000;

/// One check.
#[derive(Debug, Serialize)]
struct Line {
    check: &'static str,
    pass: bool,
    detail: String,
}

type Answers<'a> = [(&'a str, &'a Result<NodeInfo, String>)];

/// Runs the command.
pub async fn run(globals: &Globals) -> Result<(), Failure> {
    let client = globals.client();
    let status = client.status().await?;
    let told: Migrations = client.ask(MIGRATIONS_PATH).await?;
    let addresses: Vec<String> =
        status.nodes.iter().map(|node| node.client_address.clone()).collect();
    let answers = survey::ask_all(&addresses).await;
    let named: Vec<_> = status.nodes.iter().map(|node| node.name.as_str()).zip(&answers).collect();
    let lines = [
        nodes(&status, &named),
        epochs(&status, &named),
        replicas(&status, &named, &told),
        leaders(&status, &named),
        zones(&status),
        plans(&told),
        digests(&told),
        disks(&named),
        clocks(&named),
        alarms(&named),
    ];
    let failed = lines.iter().filter(|line| !line.pass).count();
    match globals.output {
        Format::Json => output::json(&lines)?,
        Format::Table => {
            let mut table = output::table(&["verdict", "check", "detail"]);
            for line in &lines {
                let verdict = match line.pass {
                    true => Cell::new("PASS"),
                    false => output::alarming("FAIL"),
                };
                table.add_row([verdict, Cell::new(line.check), Cell::new(&line.detail)]);
            }
            output::print_table(&table)?;
        }
    }
    match failed {
        0 => Ok(()),
        count => Err(Failure::new(Exit::CheckFailed, format!("{count} checks failed"))),
    }
}

/// A check that passes unless there are complaints.
fn line(check: &'static str, complaints: &[String], fine: String) -> Line {
    let pass = complaints.is_empty();
    Line { check, pass, detail: if pass { fine } else { complaints.join("; ") } }
}

fn nodes(status: &ClusterStatus, answers: &Answers<'_>) -> Line {
    let mut complaints = Vec::new();
    for (name, answer) in answers {
        if let Err(error) = answer {
            complaints.push(format!("{name} does not answer: {error}"));
        }
    }
    let down = status.nodes.iter().filter(|node| node.health != Health::Up);
    complaints.extend(down.map(|node| format!("{} is not up", node.name)));
    line("nodes", &complaints, format!("all {} answer and are up", answers.len()))
}

fn epochs(status: &ClusterStatus, answers: &Answers<'_>) -> Line {
    let behind = answers.iter().filter_map(|(name, answer)| {
        let info = answer.as_ref().ok()?;
        let differs = info.epoch != status.epoch;
        differs.then(|| format!("{name} is at epoch {}", info.epoch))
    });
    let complaints: Vec<String> = behind.collect();
    line("epochs", &complaints, format!("all nodes have adopted epoch {}", status.epoch))
}

/// Every node holds what the ring gives it, and nothing else once no plan is in its grace.
fn replicas(status: &ClusterStatus, answers: &Answers<'_>, told: &Migrations) -> Line {
    let settled = told.plans.iter().all(|plan| {
        plan.phase == "finished"
            || (plan.phase == "aborted" && plan.moves.iter().all(|it| !it.residue))
    });
    let mut complaints = Vec::new();
    for (node, (name, answer)) in status.nodes.iter().zip(answers) {
        let Ok(info) = answer else { continue };
        let wrong =
            info.partitions < node.replicas || (settled && info.partitions != node.replicas);
        if wrong {
            complaints.push(format!("{name} holds {} of {}", info.partitions, node.replicas));
        }
    }
    let under = status.redundancy.under_replicated_partitions;
    if under > 0 {
        complaints.push(format!("{under} partitions have too few owners"));
    }
    let fine =
        format!("{} copies of each partition where the ring has them", status.replication_factor);
    line("replicas", &complaints, fine)
}

fn leaders(status: &ClusterStatus, answers: &Answers<'_>) -> Line {
    let led: u32 = answers.iter().filter_map(|(_, it)| it.as_ref().ok()).map(|it| it.leaders).sum();
    let complaints = match led == status.partitions {
        true => Vec::new(),
        false => vec![format!("{led} of {} partitions are led", status.partitions)],
    };
    line("leaders", &complaints, format!("all {led} partitions are led"))
}

fn zones(status: &ClusterStatus) -> Line {
    let redundancy = &status.redundancy;
    let complaints = match redundancy.zones_achieved_min >= redundancy.zones_possible {
        true => Vec::new(),
        false => vec![redundancy.detail.clone()],
    };
    line("zones", &complaints, redundancy.detail.clone())
}

fn plans(told: &Migrations) -> Line {
    let mut complaints = Vec::new();
    for plan in &told.plans {
        let left = plan.moves.iter().filter(|it| it.residue).count();
        match plan.phase.as_str() {
            "finished" => {}
            "aborted" if left == 0 => {}
            "aborted" => complaints.push(format!("plan {} left {left} copies", plan.id)),
            phase => complaints.push(format!("plan {} is {phase}", plan.id)),
        }
    }
    line("plans", &complaints, format!("{} on record, none under way", told.plans.len()))
}

fn digests(told: &Migrations) -> Line {
    let mut complaints = Vec::new();
    let mut compared = 0;
    for plan in told.plans.iter().filter(|plan| plan.phase == "finished") {
        for it in &plan.moves {
            compared += usize::from(it.after_swap.is_some());
            if it.stage == "done"
                && it.after_swap.is_none()
                && it.lose.is_some()
                && it.gain.is_some()
            {
                complaints.push(format!("partition {} of plan {}", it.partition, plan.id));
            }
        }
    }
    // A move whose old replica a later plan took back ends without a comparison of its own.
    let rolled_back = told.plans.iter().any(|plan| plan.kind.starts_with("rollback"));
    if rolled_back {
        complaints.clear();
    }
    line("digests", &complaints, format!("all owners agreed after {compared} moves"))
}

fn disks(answers: &Answers<'_>) -> Line {
    let bad = answers.iter().filter_map(|(name, answer)| {
        let info = answer.as_ref().ok()?;
        (!info.disk_ok).then(|| format!("{name}: no room, or its last probe was late"))
    });
    line("disks", &bad.collect::<Vec<_>>(), "all have room".to_owned())
}

fn clocks(answers: &Answers<'_>) -> Line {
    let times = answers.iter().filter_map(|(_, it)| it.as_ref().ok()).map(|it| it.unix_ms);
    let (first, last) =
        times.fold((u64::MAX, 0), |(first, last), it| (first.min(it), last.max(it)));
    let apart = last.saturating_sub(first);
    let complaints = match apart <= CLOCKS_APART_MS {
        true => Vec::new(),
        false => vec![format!("wall clocks are {apart} ms apart")],
    };
    line("clocks", &complaints, format!("within {apart} ms"))
}

fn alarms(answers: &Answers<'_>) -> Line {
    let told = answers.iter().filter_map(|(name, it)| it.as_ref().ok().map(|info| (name, info)));
    let mut complaints = Vec::new();
    for (name, info) in told {
        let mine = info.stage != NodeStage::Uninitialised;
        let alarms = info.alarms.iter().filter(|alarm| mine && alarm.code != "peer-unreachable");
        complaints.extend(alarms.map(|alarm| format!("{name}: {}: {}", alarm.code, alarm.detail)));
    }
    line("alarms", &complaints, "none".to_owned())
}
