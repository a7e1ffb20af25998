//! Everything dies at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{Cluster, ClusterOptions, READY_DEADLINE};
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::wait::{hold, wait_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_cut_under_load_every_acknowledged_write_is_there() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let ledger = Arc::new(Ledger::default());
    for prefix in ["first", "second"] {
        let options = LoadOptions { prefix, ..LoadOptions::default() };
        let load = Load::start(&cluster.addresses(), &options, &ledger);
        hold(Duration::from_secs(2)).await;
        for node in cluster.nodes() {
            node.kill()?;
        }
        load.stop().await?;
        for node in cluster.nodes() {
            node.start()?;
        }
        cluster.wait_ready().await?;
        for node in 0..cluster.nodes().len() {
            ledger.check_through(&cluster.addresses(), node).await?;
        }
    }
    let totals = ledger.totals();
    println!("writes over two power cuts: {totals:?}");
    ensure!(totals.acknowledged > 200, "hardly anything was at stake: {totals:?}");
    replicas_agree(&cluster).await?;
    cluster.finish()
}

/// Once nothing is written any more, all replicas of a partition are at the same index.
async fn replicas_agree(cluster: &Cluster) -> anyhow::Result<()> {
    wait_for("replicas at the same index", READY_DEADLINE, async || {
        let applied = applied_indexes(cluster).await.map_err(|error| format!("{error:#}"))?;
        let differ = applied.iter().find(|of_partition| {
            of_partition.len() != cluster.nodes().len()
                || of_partition.iter().any(|index| *index != of_partition[0])
        });
        match differ {
            None => Ok(()),
            Some(differ) => Err(format!("{differ:?}")),
        }
    })
    .await
}

/// The applied indexes of each partition's replicas.
async fn applied_indexes(cluster: &Cluster) -> anyhow::Result<Vec<Vec<u64>>> {
    let mut applied = vec![Vec::new(); cluster.partitions() as usize];
    for node in 0..cluster.nodes().len() {
        let info = cluster.info(node).await?;
        for replica in info.replicas.context("a node does not list its replicas")? {
            applied[replica.partition.as_usize()].push(replica.applied_index);
        }
    }
    Ok(applied)
}
