//! Disks whose syncs hang, and how often they are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::caller::Caller;
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::history::{Call, Outcome};
use integration_tests::ledger::Ledger;
use integration_tests::measure::{Times, key_in};
use integration_tests::shim::{Shim, Syncs};
use integration_tests::wait::hold;
use placement::PartitionId;
use tokio::task::JoinSet;

/// Time in which writes go on although one disk hangs.
const GOES_ON: Duration = Duration::from_secs(2);
/// A cluster that does not serve by then does not recover.
const LIVENESS_DEADLINE: Duration = Duration::from_secs(30);

async fn start(shim: &Shim) -> anyhow::Result<Cluster> {
    let options = ClusterOptions { preload: Some(shim.clone()), ..ClusterOptions::default() };
    Cluster::start(options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_two_of_three_disks_hang_nothing_is_acknowledged() -> anyhow::Result<()> {
    let shim = Shim::build()?;
    let cluster = start(&shim).await?;
    let ledger = Arc::new(Ledger::default());
    write_everywhere(&cluster, "before", &ledger).await?;

    for node in &cluster.nodes()[1..] {
        shim.hold(&node.name, true)?;
    }
    let mut writers = JoinSet::new();
    for number in 0..48_u64 {
        let mut caller = Caller::new(&cluster.addresses());
        let ledger = Arc::clone(&ledger);
        writers.spawn(async move {
            let key = format!("during-{number}");
            let node = usize::try_from(number % 3)?;
            let call = Call::Put(number);
            let told = caller.call(node, key.as_bytes(), call, Duration::from_secs(4)).await?;
            ledger.note(key, number, told.outcome)?;
            anyhow::Ok(told)
        });
    }
    while let Some(told) = writers.join_next().await {
        let told = told??;
        let is_acknowledged = matches!(told.outcome, Outcome::Written(_));
        ensure!(!is_acknowledged, "acknowledged without a majority of disks: {told:?}");
    }
    for node in &cluster.nodes()[1..] {
        ensure!(
            shim.held(&node.name)? > 0,
            "no sync of {} was held, so nothing was shown",
            node.name
        );
        shim.hold(&node.name, false)?;
    }
    println!("two disks hung: {:?}", ledger.totals());

    cluster.wait_ready().await?;
    write_everywhere(&cluster, "after", &ledger).await?;
    for node in 0..cluster.nodes().len() {
        ledger.check_through(&cluster.addresses(), node).await?;
    }
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_disk_that_hangs_holds_up_no_write_for_long() -> anyhow::Result<()> {
    let shim = Shim::build()?;
    let cluster = start(&shim).await?;
    let ledger = Arc::new(Ledger::default());
    write_everywhere(&cluster, "before", &ledger).await?;
    let mut slow = Vec::new();
    // Each node in turn, and so the leader of group 0 as well, leads some partitions and follows in
    // the others.
    for victim in 0..cluster.nodes().len() {
        let name = cluster.node(victim).name.clone();
        let asked = (victim + 1) % cluster.nodes().len();
        let leads_cluster = cluster.cluster_leader(asked).await? == victim;
        let mut led = Vec::new();
        for partition in (0..cluster.partitions()).map(PartitionId::new) {
            let key = key_in(partition, cluster.partitions(), "led");
            led.push(cluster.leader_of(asked, key.as_bytes()).await? == victim);
        }
        shim.hold(&name, true)?;
        let waited = first_acknowledgements(&cluster, victim, &ledger).await;
        let held = shim.held(&name)?;
        shim.hold(&name, false)?;
        let waited = waited.with_context(|| format!("while the disk of {name} hangs"))?;
        ensure!(held > 0, "no sync of {name} was held, so nothing was shown");
        let of_role = |is_led: bool| {
            let chosen = waited.iter().zip(&led).filter(|(_, led)| **led == is_led);
            Times::of(chosen.map(|(time, _)| *time).collect())
        };
        println!("the disk of {name} hangs, leader of group 0: {leads_cluster}");
        println!("  partitions that it leads:  {}", of_role(true));
        println!("  partitions that it follows: {}", of_role(false));
        slow.extend(waited.iter().copied().filter(|time| *time > GOES_ON));
        cluster.wait_ready().await?;
        write_everywhere(&cluster, &format!("after-{victim}"), &ledger).await?;
    }
    ensure!(slow.is_empty(), "writes went on only after {slow:?}");
    for node in 0..cluster.nodes().len() {
        ledger.check_through(&cluster.addresses(), node).await?;
    }
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledgement_rests_on_syncs_and_many_share_one() -> anyhow::Result<()> {
    let shim = Shim::build()?;
    let cluster = start(&shim).await?;
    write_everywhere(&cluster, "before", &Arc::new(Ledger::default())).await?;
    for connections in [1_u64, 128] {
        let before = all_syncs(&cluster, &shim)?;
        let acknowledged = write_over(&cluster, connections).await?;
        let after = all_syncs(&cluster, &shim)?;
        let durable = after.durable() - before.durable();
        println!(
            "{connections} connections: {acknowledged} acknowledged writes, {durable} syncs on all \
             nodes together ({} fdatasync, {} fsync, {} sync_file_range)",
            after.fdatasyncs - before.fdatasyncs,
            after.fsyncs - before.fsyncs,
            after.ranges - before.ranges,
        );
        ensure!(acknowledged > 20, "hardly anything was written");
        if connections == 1 {
            ensure!(durable >= 2 * acknowledged, "fewer syncs than two per acknowledged write");
        } else {
            ensure!(durable < acknowledged, "writes do not share syncs");
        }
    }
    cluster.finish()
}

/// One write to every partition, through every node in turn.
async fn write_everywhere(
    cluster: &Cluster,
    stem: &str,
    ledger: &Arc<Ledger>,
) -> anyhow::Result<()> {
    let mut caller = Caller::new(&cluster.addresses());
    for number in 0..cluster.partitions() {
        let key = key_in(PartitionId::new(number), cluster.partitions(), stem);
        let version = caller.put_surely(key.as_bytes(), u64::from(number)).await?;
        ledger.note(key, u64::from(number), Outcome::Written(version))?;
    }
    Ok(())
}

/// Per partition, the time until a write through a node whose disk works is acknowledged.
async fn first_acknowledgements(
    cluster: &Cluster,
    victim: usize,
    ledger: &Arc<Ledger>,
) -> anyhow::Result<Vec<Duration>> {
    let started = Instant::now();
    let mut writers = JoinSet::new();
    for number in 0..cluster.partitions() {
        let partitions = cluster.partitions();
        let mut caller = Caller::new(&cluster.addresses());
        let node = (victim + 1 + number as usize % 2) % cluster.nodes().len();
        let ledger = Arc::clone(ledger);
        writers.spawn(async move {
            for attempt in 0_u64.. {
                let stem = format!("hung-{victim}-{attempt}");
                let key = key_in(PartitionId::new(number), partitions, &stem);
                let call = Call::Put(attempt);
                let timeout = Duration::from_millis(300);
                let told = caller.call(node, key.as_bytes(), call, timeout).await?;
                ledger.note(key, attempt, told.outcome)?;
                if let Outcome::Written(_) = told.outcome {
                    break;
                }
                ensure!(started.elapsed() < LIVENESS_DEADLINE, "partition {number}: {told:?}");
                hold(Duration::from_millis(10)).await;
            }
            anyhow::Ok((number, started.elapsed()))
        });
    }
    let mut waited = vec![Duration::ZERO; cluster.partitions() as usize];
    while let Some(writer) = writers.join_next().await {
        let (number, time) = writer??;
        waited[number as usize] = time;
    }
    Ok(waited)
}

fn all_syncs(cluster: &Cluster, shim: &Shim) -> anyhow::Result<Syncs> {
    let mut all = Syncs::default();
    for node in cluster.nodes() {
        let syncs = shim.syncs(&node.name)?;
        all.fdatasyncs += syncs.fdatasyncs;
        all.fsyncs += syncs.fsyncs;
        all.ranges += syncs.ranges;
    }
    Ok(all)
}

/// Writes over this many connections, one write at a time on each; the acknowledgements.
async fn write_over(cluster: &Cluster, connections: u64) -> anyhow::Result<u64> {
    let acknowledged = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for connection in 0..connections {
        let mut caller = Caller::new(&cluster.addresses());
        let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
        writers.spawn(async move {
            let node = usize::try_from(connection % 3)?;
            for number in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("counted-{connection}-{}", number % 1000);
                let timeout = Duration::from_secs(5);
                let told = caller.call(node, key.as_bytes(), Call::Put(number), timeout).await?;
                ensure!(matches!(told.outcome, Outcome::Written(_)), "{key}: {told:?}");
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    hold(Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(acknowledged.load(Ordering::Relaxed))
}
