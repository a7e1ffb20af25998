//! How long a partition cannot be written to while its voters change and its leadership moves.
//!
//! One writer per partition sends one write after the other through a node that owns nothing of the
//! change. Its largest gap between two acknowledgements is compared: before a plan is published, and
//! around its publication. Both contain what the machine itself does; the difference is the pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use placement::PartitionId;
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::cluster::{Cluster, ClusterOptions};
use crate::history::{Call, Outcome};
use crate::measure::{Times, key_in};
use crate::plans::{PlanSeen, kvctl_ok, wait_plan};
use crate::wait::hold;

const DEADLINE: Duration = Duration::from_secs(120);
/// Time for which gaps are measured while nothing happens.
const QUIET: Duration = Duration::from_secs(10);
/// Time that a writer waits for an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a run measured: the largest gap of each partition, in three stretches.
#[derive(Clone, Debug)]
pub struct Report {
    /// While nothing happened.
    pub quiet: Times,
    /// From the application of the plan until its ring was published: copies are made.
    pub copying: Times,
    /// From the publication until every group had its new voters and leaders.
    pub cutting_over: Times,
}

/// Joins a node to a cluster of three and measures.
///
/// # Errors
/// If the plan does not come to serve.
pub async fn run(partitions: u32) -> anyhow::Result<Report> {
    let program = crate::cluster::find_program("kvnode-faults", "KVNODE_FAULTS")?;
    let control = tempfile::NamedTempFile::new()?;
    let mut cluster = Cluster::start(ClusterOptions {
        partitions,
        program: Some(program),
        arguments: vec!["--hold".to_owned(), control.path().display().to_string()],
        ..ClusterOptions::default()
    })
    .await?;
    for zone in ["z1", "z2", "z3"] {
        cluster.add_spare(zone).await?;
    }
    let writers = Writers::start(&cluster);
    hold(QUIET).await;
    let quiet = writers.stop().await?;

    std::fs::write(control.path(), "verified")?;
    let writers = Writers::start(&cluster);
    kvctl_ok(&cluster, &["join", "n4", "n5", "n6"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    let verified = |plan: &PlanSeen| plan.at("verified").count() == plan.moves.len();
    wait_plan(&cluster, "verified copies", 0, DEADLINE, verified).await?;
    let copying = writers.stop().await?;

    let writers = Writers::start(&cluster);
    hold(Duration::from_secs(1)).await;
    std::fs::write(control.path(), "")?;
    wait_plan(&cluster, "a plan that serves", 0, DEADLINE, PlanSeen::is_serving).await?;
    // The last leaderships move to the primaries a moment later.
    hold(Duration::from_secs(3)).await;
    let cutting_over = writers.stop().await?;
    cluster.finish()?;
    Ok(Report { quiet, copying, cutting_over })
}

struct Writers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<anyhow::Result<Duration>>,
}

impl Writers {
    fn start(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let addresses = cluster.addresses();
        for number in 0..cluster.partitions() {
            let key = key_in(PartitionId::new(number), cluster.partitions(), "cutover");
            let caller = Caller::new(&addresses);
            let node = number as usize % 3;
            tasks.spawn(write_on(caller, node, key, Arc::clone(&stop)));
        }
        Self { stop, tasks }
    }

    /// The largest gap of each writer.
    async fn stop(mut self) -> anyhow::Result<Times> {
        self.stop.store(true, Ordering::Relaxed);
        let mut gaps = Vec::new();
        while let Some(gap) = self.tasks.join_next().await {
            gaps.push(gap??);
        }
        Ok(Times::of(gaps))
    }
}

async fn write_on(
    mut caller: Caller,
    node: usize,
    key: String,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Duration> {
    /// Longest pace of one writer: with many of them the machine is not kept busy by waiting.
    const PACE: Duration = Duration::from_millis(5);
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut largest = Duration::ZERO;
    let mut last: Option<Instant> = None;
    for round in 0_u64.. {
        pace.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let told = caller.call(node, key.as_bytes(), Call::Put(round), WRITE_TIMEOUT).await?;
        if let Outcome::Written(_) = told.outcome {
            let now = Instant::now();
            if let Some(last) = last {
                largest = largest.max(now.duration_since(last));
            }
            last = Some(now);
        }
    }
    Ok(largest)
}
