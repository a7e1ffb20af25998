//! A node that was away for so long that the log it needs is gone: it comes back by snapshot, in
//! bounded memory, also if it is killed in the middle of taking it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use kvapi::ReplicaInfo;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::cluster::{Cluster, ClusterOptions, READY_DEADLINE};
use crate::wait::wait_for;
use crate::wire::{Exchange, Request, Wire};

/// Writers that fill the partition.
const WRITERS: u64 = 4;
/// Time for one write or read.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts of one write or read; the cluster is degraded, not broken.
const ATTEMPTS: usize = 20;
/// Time for the node to catch up again, for each attempt at a snapshot.
const CATCH_UP_DEADLINE: Duration = Duration::from_secs(120);
/// Time between two looks at the memory of the processes.
const SAMPLE: Duration = Duration::from_millis(50);
/// The node that is away, and one that stays.
const AWAY: usize = 2;
const STAYS: usize = 0;

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
pub struct AbsenceOptions {
    /// Number of values.
    pub values: u64,
    /// Length of each.
    pub value_bytes: usize,
    /// How often every value is written: the log grows with each, the snapshot does not.
    pub rounds: u64,
    /// Whether the node is killed while it takes the snapshot, and started once more.
    pub is_killed_midway: bool,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of values that the snapshot carried.
    pub bytes: u64,
    /// Time from the last start of the node until it had caught up.
    pub caught_up: Duration,
    /// Bytes in the data directory of the node when it was killed midway; 0 if it was not.
    pub killed_at_bytes: u64,
    /// Installations of the partition on the node, before and after.
    pub generations: (u64, u64),
    /// Largest resident memory of each node while it stood by: the source, the other, the one away.
    pub memory_before: [u64; 3],
    /// Largest resident memory of each node while the snapshot was under way.
    pub memory_peak: [u64; 3],
}

/// Takes a node away, writes more than the log keeps, and lets it come back.
///
/// # Errors
/// If the node does not catch up, was not brought up to date by a snapshot, or holds other data.
pub async fn run(options: AbsenceOptions) -> anyhow::Result<Report> {
    // One partition, so that its log alone outgrows what is kept.
    let cluster_options = ClusterOptions { partitions: 1, ..ClusterOptions::default() };
    let cluster = Cluster::start(cluster_options).await?;
    let before = replica(&cluster, AWAY).await?;
    cluster.node(AWAY).kill()?;
    for round in 0..options.rounds {
        fill(&cluster, options, round).await?;
    }
    let memory_before = memory(&cluster);

    let peak = Arc::new([const { AtomicU64::new(0) }; 3]);
    let is_done = AtomicBool::new(false);
    let sampling = sample(&cluster, &peak, &is_done);
    let returning = async {
        let returned = come_back(&cluster, options).await;
        is_done.store(true, Ordering::Relaxed);
        returned
    };
    let ((), returned) = tokio::join!(sampling, returning);
    let (killed_at_bytes, caught_up) = returned?;

    let after = replica(&cluster, AWAY).await?;
    ensure!(
        after.generation > before.generation,
        "the node caught up without a snapshot: its log was kept, and nothing was shown ({after:?})"
    );
    check_values(&cluster, options).await?;
    let report = Report {
        bytes: options.values * options.value_bytes as u64,
        caught_up,
        killed_at_bytes,
        generations: (before.generation, after.generation),
        memory_before,
        memory_peak: std::array::from_fn(|node| peak[node].load(Ordering::Relaxed)),
    };
    cluster.finish()?;
    Ok(report)
}

/// Starts the node, kills it midway if asked to, and waits until it has applied what the others have.
async fn come_back(cluster: &Cluster, options: AbsenceOptions) -> anyhow::Result<(u64, Duration)> {
    let node = cluster.node(AWAY);
    let mut killed_at = 0;
    if options.is_killed_midway {
        node.start()?;
        let enough = options.values * options.value_bytes as u64 * 2 / 5;
        killed_at = wait_for("half a snapshot", CATCH_UP_DEADLINE, async || {
            let bytes = bytes_below(&node.data_dir);
            if bytes >= enough { Ok(bytes) } else { Err(format!("{bytes} bytes are there")) }
        })
        .await?;
        node.kill()?;
    }
    let started = Instant::now();
    node.start()?;
    let mark = replica(cluster, STAYS).await?.applied_index;
    wait_for("the node to catch up", CATCH_UP_DEADLINE, async || {
        node.check_running().map_err(|error| error.to_string())?;
        let replica = replica(cluster, AWAY).await.map_err(|error| format!("{error:#}"))?;
        if replica.applied_index >= mark { Ok(()) } else { Err(format!("{replica:?}")) }
    })
    .await?;
    let caught_up = started.elapsed();
    cluster.wait_node_ready(AWAY).await?;
    Ok((killed_at, caught_up))
}

/// Every value is there: by the node's own state, and with the node as part of the only majority.
async fn check_values(cluster: &Cluster, options: AbsenceOptions) -> anyhow::Result<()> {
    read_all(cluster, AWAY, options, "?consistency=stale").await?;
    cluster.node(STAYS).kill()?;
    read_all(cluster, AWAY, options, "").await?;
    cluster.restart(STAYS).await
}

async fn fill(cluster: &Cluster, options: AbsenceOptions, round: u64) -> anyhow::Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let mut wire = Wire::new(cluster.node(STAYS).client_address());
        writers.spawn(async move {
            for number in (writer..options.values).step_by(usize::try_from(WRITERS)?) {
                let body = value(number, round, options.value_bytes);
                let request = Request::put(format!("/v1/kv/absent-{number}"), body);
                surely(&mut wire, &request, 204).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(())
}

async fn read_all(
    cluster: &Cluster,
    node: usize,
    options: AbsenceOptions,
    query: &str,
) -> anyhow::Result<()> {
    let mut wire = Wire::new(cluster.node(node).client_address());
    for number in 0..options.values {
        let request = Request::get(format!("/v1/kv/absent-{number}{query}"));
        let read = surely(&mut wire, &request, 200).await?;
        let want = value(number, options.rounds - 1, options.value_bytes);
        ensure!(read == want, "absent-{number} has another value{query}");
    }
    Ok(())
}

/// Sends a request until it is answered with a status; what it does is the same each time.
async fn surely(wire: &mut Wire, request: &Request, status: u16) -> anyhow::Result<Bytes> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match wire.exchange(request, TIMEOUT).await {
            Exchange::Answered(reply) if reply.status == status => return Ok(reply.body.into()),
            Exchange::Answered(reply) => last = reply.to_string(),
            Exchange::NotSent(why) | Exchange::Lost(why) => last = why,
        }
    }
    anyhow::bail!("{} {}: {last}", request.method, request.path)
}

/// Bytes that cannot be compressed, the same for the same number and round.
fn value(number: u64, round: u64, bytes: usize) -> Bytes {
    let mut value = vec![0; bytes];
    SmallRng::seed_from_u64(number << 8 | round).fill_bytes(&mut value);
    value.into()
}

async fn replica(cluster: &Cluster, node: usize) -> anyhow::Result<ReplicaInfo> {
    let info = wait_for("a node's replicas", READY_DEADLINE, async || {
        cluster.info(node).await.map_err(|error| format!("{error:#}"))
    })
    .await?;
    let replicas = info.replicas.context("the node does not list its replicas")?;
    replicas.into_iter().next().context("the node has no replica")
}

async fn sample(cluster: &Cluster, peak: &[AtomicU64; 3], is_done: &AtomicBool) {
    let mut pace = interval(SAMPLE);
    while !is_done.load(Ordering::Relaxed) {
        pace.tick().await;
        for (peak, now) in peak.iter().zip(memory(cluster)) {
            peak.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// Resident memory of each node; 0 for one that is down.
fn memory(cluster: &Cluster) -> [u64; 3] {
    std::array::from_fn(|node| cluster.node(node).resident_bytes().unwrap_or(0))
}

/// Bytes of all files below a directory. Files may come and go meanwhile.
fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
