//! Plans that follow one another while clients and faults go on: three nodes join, two of them leave,
//! and join again.

use std::mem;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::cluster::{Cluster, READY_DEADLINE};
use crate::plans::{PLAN_DEADLINE, PlanSeen, kvctl, newest_plan, wait_plan};
use crate::wait::wait_for;

/// Spares that the plans need.
pub const SPARES: usize = 3;
/// Time for kvctl to get an order through: group 0 may just have lost its leader.
const ORDER_DEADLINE: Duration = Duration::from_secs(60);

/// Plans, one at a time.
#[derive(Debug, Default)]
pub struct Growth {
    /// Plans that have been started.
    started: usize,
    /// Id of the last one.
    last: u64,
    under_way: Option<UnderWay>,
    told: Vec<String>,
}

#[derive(Debug)]
struct UnderWay {
    what: String,
    /// Nodes that stop by themselves when the plan has ended.
    leaving: Vec<usize>,
    since: Instant,
    /// What happened meanwhile.
    meanwhile: Vec<String>,
}

impl Growth {
    /// A line about each plan that has ended.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Brings the plan under way to its end and starts the next one.
    pub async fn go_on(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        self.end(cluster).await?;
        let spares = cluster.nodes().len() - SPARES..cluster.nodes().len();
        let (verb, nodes) = match self.started {
            0 => ("join", spares.collect::<Vec<_>>()),
            odd if odd % 2 == 1 => ("drain", spares.skip(1).collect()),
            _ => ("join", spares.skip(1).collect()),
        };
        let mut order = vec![verb];
        order.extend(nodes.iter().map(|node| cluster.node(*node).name.as_str()));
        let since = Instant::now();
        self.last = apply(cluster, &order, self.last).await?.id;
        self.started += 1;
        let leaving = if verb == "drain" { nodes } else { Vec::new() };
        let what = order.join(" ");
        self.under_way = Some(UnderWay { what, leaving, since, meanwhile: Vec::new() });
        Ok(())
    }

    /// Notes what is about to happen to the cluster, with the stages in which it finds the moves.
    pub async fn note(&mut self, cluster: &Cluster, what: &str) {
        let Some(under_way) = &mut self.under_way else { return };
        // Nobody may be there to ask.
        let stages = newest_plan(cluster).await.map_or("unknown".to_owned(), |plan| plan.stages());
        under_way.meanwhile.push(format!("{what} ({stages})"));
    }

    /// Brings the plan under way to its end. Who leaves stops by itself, and comes back as a spare.
    pub async fn end(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let Some(under_way) = &mut self.under_way else { return Ok(()) };
        let before = self.last - 1;
        let serving = PlanSeen::is_serving;
        let what = format!("`{}` to serve", under_way.what);
        wait_plan(cluster, &what, before, PLAN_DEADLINE, serving).await?;
        order(cluster, &["migrate", "finish"]).await?;
        let finished = |plan: &PlanSeen| plan.phase == "finished";
        let plan = wait_plan(cluster, "the plan's end", before, PLAN_DEADLINE, finished).await?;
        for node in &under_way.leaving {
            let status = cluster.node(*node).ended(READY_DEADLINE).await?;
            ensure!(status.success(), "{} left with {status}", cluster.node(*node).name);
            cluster.node(*node).start()?;
            cluster.wait_registered(*node).await?;
        }
        self.told.push(format!(
            "plan {}, {}: {} moves in {:.1} s; meanwhile {}",
            plan.id,
            under_way.what,
            plan.moves.len(),
            under_way.since.elapsed().as_secs_f64(),
            mem::take(&mut under_way.meanwhile).join(", ")
        ));
        self.under_way = None;
        Ok(())
    }
}

/// Stages a change and applies it. An order may be lost with the leader that took it; the records say
/// whether it was.
async fn apply(cluster: &Cluster, change: &[&str], after: u64) -> anyhow::Result<PlanSeen> {
    wait_for(&format!("{change:?} to be under way"), ORDER_DEADLINE, async || {
        match newest_plan(cluster).await {
            Ok(plan) if plan.id > after => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        for arguments in [&["plan", "clear"], change, &["plan", "apply", "--yes"]] {
            run(cluster, arguments).await.map_err(|error| format!("{error:#}"))?;
        }
        Ok(())
    })
    .await?;
    wait_plan(cluster, "the plan on record", after, PLAN_DEADLINE, |_| true).await
}

/// Gives an order until it is taken.
async fn order(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<()> {
    wait_for(&format!("{arguments:?} to be taken"), ORDER_DEADLINE, async || {
        run(cluster, arguments).await.map_err(|error| format!("{error:#}"))
    })
    .await
}

async fn run(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<()> {
    let output = kvctl(cluster, arguments).await.context("kvctl cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kvctl {arguments:?} ended with {}: {said}", output.status);
    Ok(())
}
