//! How long partitions cannot be written to after the node that leads them is killed.
//!
//! For every partition that the victim leads there are writers at both surviving nodes, one write under
//! way each. Measured is the time from the signal to the first acknowledgement of a write that was
//! sent after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use placement::PartitionId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::caller::Caller;
use crate::cluster::{Cluster, ClusterOptions};
use crate::history::{Call, Outcome};
use crate::ledger::{Ledger, Totals};
use crate::measure::{Times, key_in};
use crate::wait::{hold, wait_for};

/// Time that a writer waits for one answer: a write that went the way of the dead leader is given up.
const WRITE_TIMEOUT: Duration = Duration::from_millis(300);
/// Shortest time between two writes of one writer.
const PACE: Duration = Duration::from_millis(20);
/// A partition that is not written to again within this time is dead.
const LIVENESS_DEADLINE: Duration = Duration::from_secs(30);

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
pub struct KillOptions {
    /// Number of kills.
    pub kills: usize,
    /// Number of partitions.
    pub partitions: u32,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Per partition that a victim led: time to its first acknowledgement.
    pub outages: Times,
    /// Per kill: the same of the partition that took longest.
    pub slowest: Times,
    /// What became of the writes.
    pub totals: Totals,
}

/// Kills leaders and measures.
///
/// # Errors
/// If an acknowledged write is lost, a partition does not come back, or a node ends by itself.
pub async fn run(options: KillOptions) -> anyhow::Result<Report> {
    let cluster_options =
        ClusterOptions { partitions: options.partitions, ..ClusterOptions::default() };
    let cluster = Cluster::start(cluster_options).await?;
    let ledger = Arc::new(Ledger::default());
    let mut outages = Vec::new();
    let mut slowest = Vec::new();
    for round in 0..options.kills {
        let victim = round % cluster.nodes().len();
        let led = wait_for_led(&cluster, victim).await?;
        let times = kill(&cluster, victim, &led, round, &ledger).await?;
        slowest.push(times.max());
        println!(
            "kill {round}: {} led {} partitions, {times}",
            cluster.node(victim).name,
            led.len()
        );
        outages.extend(times.all());
        cluster.restart(victim).await?;
    }
    cluster.wait_ready().await?;
    for node in 0..cluster.nodes().len() {
        ledger.check_through(&cluster.addresses(), node).await?;
    }
    let totals = ledger.totals();
    cluster.finish()?;
    Ok(Report { outages: Times::of(outages), slowest: Times::of(slowest), totals })
}

/// The partitions that a node leads, once it leads some: it takes its own back after a restart.
async fn wait_for_led(cluster: &Cluster, node: usize) -> anyhow::Result<Vec<PartitionId>> {
    let asked = (node + 1) % cluster.nodes().len();
    let name = cluster.node(node).name.as_str();
    let fair = cluster.partitions() as usize / cluster.nodes().len();
    let what = format!("{name} to lead {} partitions", fair / 2);
    let mut led = Vec::new();
    let waited = wait_for(&what, LIVENESS_DEADLINE, async || {
        led.clear();
        for number in 0..cluster.partitions() {
            let partition = PartitionId::new(number);
            let key = key_in(partition, cluster.partitions(), "led");
            let located = cluster.locate(asked, key.as_bytes()).await;
            let located = located.map_err(|error| format!("{error:#}"))?;
            if located.leader.is_some_and(|leader| leader.name.as_str() == name) {
                led.push(partition);
            }
        }
        if led.len() >= (fair / 2).max(1) { Ok(()) } else { Err(format!("it leads {led:?}")) }
    });
    waited.await?;
    Ok(led)
}

/// Kills a node and waits for an acknowledgement in each partition that it led.
async fn kill(
    cluster: &Cluster,
    victim: usize,
    led: &[PartitionId],
    round: usize,
    ledger: &Arc<Ledger>,
) -> anyhow::Result<Times> {
    let stop = Arc::new(AtomicBool::new(false));
    let (report, mut acknowledged) = mpsc::unbounded_channel();
    let mut writers = JoinSet::new();
    for partition in led {
        for node in (0..cluster.nodes().len()).filter(|node| *node != victim) {
            let writer = Writer {
                node,
                partition: *partition,
                partitions: cluster.partitions(),
                stem: format!("kill-{round}-{node}"),
                caller: Caller::new(&cluster.addresses()),
                ledger: Arc::clone(ledger),
                report: report.clone(),
            };
            writers.spawn(writer.run(Arc::clone(&stop)));
        }
    }
    drop(report);
    hold(Duration::from_millis(700)).await;
    let killed = Instant::now();
    cluster.node(victim).kill()?;
    let mut first: BTreeMap<PartitionId, Duration> = BTreeMap::new();
    while first.len() < led.len() {
        let left = LIVENESS_DEADLINE.saturating_sub(killed.elapsed());
        let received = tokio::time::timeout(left, acknowledged.recv()).await;
        let Ok(Some((partition, sent, told))) = received else { break };
        if sent >= killed {
            first.entry(partition).or_insert(told.duration_since(killed));
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    let silent: Vec<_> = led.iter().filter(|partition| !first.contains_key(partition)).collect();
    ensure!(
        silent.is_empty(),
        "{} was killed {:?} ago, and nothing is acknowledged in the partitions {silent:?}",
        cluster.node(victim).name,
        killed.elapsed()
    );
    Ok(Times::of(first.into_values().collect()))
}

struct Writer {
    node: usize,
    partition: PartitionId,
    partitions: u32,
    stem: String,
    caller: Caller,
    ledger: Arc<Ledger>,
    /// Partition, time of sending and time of acknowledgement.
    report: mpsc::UnboundedSender<(PartitionId, Instant, Instant)>,
}

impl Writer {
    async fn run(mut self, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0_u64.. {
            pace.tick().await;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let stem = format!("{}-{number}", self.stem);
            let key = key_in(self.partition, self.partitions, &stem);
            let sent = Instant::now();
            let call = Call::Put(number);
            let told = self.caller.call(self.node, key.as_bytes(), call, WRITE_TIMEOUT).await?;
            if let Outcome::Written(_) = told.outcome {
                // Nobody listens any longer once every partition has answered.
                let _ = self.report.send((self.partition, sent, Instant::now()));
            }
            self.ledger.note(key, number, told.outcome)?;
        }
        Ok(())
    }
}
