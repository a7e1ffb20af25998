//! A node comes back with an empty disk.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use integration_tests::caller::Caller;
use integration_tests::cluster::{Cluster, ClusterOptions, READY_DEADLINE};
use integration_tests::history::{Call, Outcome};
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::wait::{hold, wait_for};

/// The node that loses its disk, the one that dies later, and the one that stays.
const WIPED: usize = 2;
const KILLED: usize = 1;
const STAYS: usize = 0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_does_not_come_back_as_the_old_one() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let ledger = Arc::new(Ledger::default());
    let options = LoadOptions { prefix: "before", ..LoadOptions::default() };
    let load = Load::start(&cluster.addresses(), &options, &ledger);
    hold(Duration::from_secs(1)).await;
    load.stop().await?;
    let old = cluster.info(WIPED).await?;

    cluster.node(WIPED).kill()?;
    cluster.node(WIPED).wipe()?;
    cluster.node(WIPED).start()?;
    let new = wait_for("the wiped node's name to be refused", READY_DEADLINE, async || {
        cluster.node(WIPED).check_running().map_err(|error| error.to_string())?;
        let info = cluster.info(WIPED).await.map_err(|error| format!("{error:#}"))?;
        let is_refused = info
            .alarms
            .iter()
            .any(|alarm| alarm.code.contains("name") || alarm.detail.contains("name"));
        if is_refused { Ok(info) } else { Err(format!("{info:?}")) }
    })
    .await?;
    println!("the wiped node says: {:?}", new.alarms);
    ensure!(new.id != old.id, "it has the identity that was on the lost disk");
    ensure!(new.partitions == 0, "it holds replicas although it is no member: {new:?}");

    serves_on_two(&cluster, &ledger).await?;
    no_vote_comes_from_it(&cluster).await?;

    cluster.restart(KILLED).await?;
    for node in [STAYS, KILLED] {
        ledger.check_through(&cluster.addresses(), node).await?;
    }
    println!("writes: {:?}", ledger.totals());
    cluster.finish()
}

/// The two others take every write and have every earlier one.
async fn serves_on_two(cluster: &Cluster, ledger: &Arc<Ledger>) -> anyhow::Result<()> {
    let mut caller = Caller::new(&cluster.addresses());
    for number in 0..200_u64 {
        let key = format!("meanwhile-{number}");
        let node = if number % 2 == 0 { STAYS } else { KILLED };
        let call = Call::Put(number);
        let told = caller.call(node, key.as_bytes(), call, Duration::from_secs(10)).await?;
        ensure!(matches!(told.outcome, Outcome::Written(_)), "{key}: {told:?}");
        ledger.note(key, number, told.outcome)?;
    }
    ledger.check_through(&cluster.addresses(), STAYS).await
}

/// With one more node dead there is no majority. If the wiped one voted under the old one's name,
/// there would seem to be one.
async fn no_vote_comes_from_it(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.node(KILLED).kill()?;
    let mut caller = Caller::new(&cluster.addresses());
    // Longer than any lease and any election.
    let started = std::time::Instant::now();
    let mut tried = 0_u64;
    while started.elapsed() < Duration::from_secs(6) {
        for node in [STAYS, WIPED] {
            let key = format!("alone-{tried}");
            let timeout = Duration::from_millis(500);
            let told = caller.call(node, key.as_bytes(), Call::Put(tried), timeout).await?;
            if let Outcome::Written(_) = told.outcome {
                bail!("{key} was acknowledged by one node of three: {told:?}");
            }
            tried += 1;
        }
        hold(Duration::from_millis(20)).await;
    }
    println!("{tried} writes without a majority, none acknowledged");
    Ok(())
}
