//! Changes of membership as an operator makes them: with kvctl, and looking at the records.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::cluster::{Cluster, ClusterOptions, find_program};
use crate::wait::wait_for;

/// Time for a plan to come to where it is waited for.
pub const PLAN_DEADLINE: Duration = Duration::from_secs(90);
/// Path of the records of plans and moves.
const MIGRATIONS_PATH: &str = "/v1/admin/migrations";

/// One plan as a node's view records it.
#[derive(Clone, Debug)]
pub struct PlanSeen {
    /// Its id.
    pub id: u64,
    /// Its phase.
    pub phase: String,
    /// Its moves.
    pub moves: Vec<MoveSeen>,
}

/// One move as a node's view records it.
#[derive(Clone, Debug)]
pub struct MoveSeen {
    /// The partition.
    pub partition: u32,
    /// Name of the stage.
    pub stage: String,
    /// The step it is in or held up at; empty when it has ended.
    pub step: String,
    /// Name of the node that gains a copy.
    pub gain: Option<String>,
    /// Name of the node that loses one.
    pub lose: Option<String>,
}

impl PlanSeen {
    /// Moves in this step.
    pub fn at<'a>(&'a self, step: &'a str) -> impl Iterator<Item = &'a MoveSeen> {
        self.moves.iter().filter(move |it| it.step == step)
    }

    /// How many moves are in which stage and step, in words.
    pub fn stages(&self) -> String {
        let mut counts = BTreeMap::new();
        for it in &self.moves {
            let stage = match it.stage == it.step {
                true => it.stage.clone(),
                false => format!("{} {}", it.stage, it.step).trim_end().to_owned(),
            };
            *counts.entry(stage).or_insert(0) += 1;
        }
        let counts: Vec<String> =
            counts.iter().map(|(it, count)| format!("{it} {count}")).collect();
        counts.join(", ")
    }

    /// Whether every group has its new voters.
    pub fn is_serving(&self) -> bool {
        self.phase == "published"
            && self.moves.iter().all(|it| matches!(it.step.as_str(), "serving" | "retiring" | ""))
    }
}

/// Runs kvctl against a cluster.
pub async fn kvctl(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<Output> {
    let program = find_program("kvctl", "KVCTL")?;
    let running = cluster.nodes().iter().filter(|node| node.is_started());
    let endpoints: Vec<String> =
        running.map(|node| format!("http://{}", node.client_address())).collect();
    let output = Command::new(program)
        .args(["--endpoints", &endpoints.join(",")])
        .args(arguments)
        .output()
        .await
        .context("cannot start kvctl")?;
    Ok(output)
}

/// Runs kvctl and expects success.
pub async fn kvctl_ok(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<String> {
    let output = kvctl(cluster, arguments).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "kvctl {arguments:?} ended with {}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Applies what was staged and waits until every group has its new voters.
pub async fn serve(cluster: &Cluster, after: u64) -> anyhow::Result<PlanSeen> {
    kvctl_ok(cluster, &["plan", "apply", "--yes"]).await?;
    wait_plan(cluster, "a plan that serves", after, PLAN_DEADLINE, PlanSeen::is_serving).await
}

/// Ends the grace and waits until nothing is left to do.
pub async fn finish(cluster: &Cluster, after: u64) -> anyhow::Result<PlanSeen> {
    kvctl_ok(cluster, &["migrate", "finish"]).await?;
    let finished = |plan: &PlanSeen| plan.phase == "finished";
    wait_plan(cluster, "the plan's end", after, PLAN_DEADLINE, finished).await
}

/// A file that tells nodes in which step they hold plans back. It goes when dropped.
#[derive(Debug)]
pub struct HoldFile {
    directory: TempDir,
}

impl HoldFile {
    /// Holds plans back in this step; nowhere, if it is empty.
    pub fn new(step: &str) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("ringkv-hold-").tempdir()?;
        let file = Self { directory };
        file.set(step)?;
        Ok(file)
    }

    /// A cluster whose nodes follow the file.
    pub fn options(&self) -> anyhow::Result<ClusterOptions> {
        let path = self.directory.path().join("hold");
        Ok(ClusterOptions {
            program: Some(find_program("kvnode-faults", "KVNODE_FAULTS")?),
            arguments: vec!["--hold".to_owned(), path.display().to_string()],
            ..ClusterOptions::default()
        })
    }

    /// Names another step. No node reads anything in between, so that a plan that is held goes no
    /// further than to the new step.
    pub fn set(&self, step: &str) -> anyhow::Result<()> {
        let next = self.directory.path().join("next");
        fs::write(&next, step)?;
        fs::rename(next, self.directory.path().join("hold")).context("cannot set the hold file")
    }

    /// Lets plans go on.
    pub fn release(&self) -> anyhow::Result<()> {
        self.set("")
    }
}

/// The plans on record at a node, newest first.
pub async fn plans(cluster: &Cluster, node: usize) -> anyhow::Result<Vec<PlanSeen>> {
    let reply = cluster.ask(node, MIGRATIONS_PATH).await?;
    let told: Value = serde_json::from_slice(&reply)?;
    let plans = told["plans"].as_array().context("the answer lists no plans")?;
    plans.iter().map(plan_of).collect()
}

fn plan_of(told: &Value) -> anyhow::Result<PlanSeen> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let moves = told["moves"].as_array().context("a plan lists no moves")?;
    let moves = moves.iter().map(|it| {
        let stage = text(&it["stage"]).context("a move has no stage")?;
        let step = text(&it["step"]).unwrap_or_default();
        let partition = it["partition"].as_u64().context("a move names no partition")?;
        anyhow::Ok(MoveSeen {
            partition: u32::try_from(partition)?,
            stage,
            step,
            gain: text(&it["gain"]),
            lose: text(&it["lose"]),
        })
    });
    Ok(PlanSeen {
        id: told["id"].as_u64().context("a plan has no id")?,
        phase: text(&told["phase"]).context("a plan has no phase")?,
        moves: moves.collect::<anyhow::Result<_>>()?,
    })
}

/// The newest plan at any node that answers.
pub async fn newest_plan(cluster: &Cluster) -> anyhow::Result<PlanSeen> {
    let mut last = anyhow::anyhow!("no node runs");
    for (index, node) in cluster.nodes().iter().enumerate() {
        if !node.is_started() {
            continue;
        }
        match plans(cluster, index).await {
            Ok(plans) => match plans.into_iter().max_by_key(|plan| plan.id) {
                Some(plan) => return Ok(plan),
                None => last = anyhow::anyhow!("{} knows no plan", node.name),
            },
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Waits until the newest plan, later than `after`, is as wanted.
pub async fn wait_plan(
    cluster: &Cluster,
    what: &str,
    after: u64,
    deadline: Duration,
    wanted: impl Fn(&PlanSeen) -> bool,
) -> anyhow::Result<PlanSeen> {
    wait_for(what, deadline, async || {
        let plan = newest_plan(cluster).await.map_err(|error| format!("{error:#}"))?;
        if plan.id > after && wanted(&plan) {
            return Ok(plan);
        }
        Err(format!("plan {} is {}, its moves {}", plan.id, plan.phase, plan.stages()))
    })
    .await
}

/// Waits until `kvctl check` passes.
pub async fn wait_check(cluster: &Cluster, deadline: Duration) -> anyhow::Result<()> {
    wait_for("kvctl check to pass", deadline, async || {
        let output = kvctl(cluster, &["check"]).await.map_err(|error| format!("{error:#}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
    })
    .await
}
