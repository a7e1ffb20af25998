//! Nodes that all carry the same zone's label: it works, and nobody can overlook what it is worth.

use anyhow::ensure;
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::plans::{PLAN_DEADLINE, finish, kvctl, kvctl_ok, serve, wait_check};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_in_one_zone_is_told_so_wherever_it_is_looked_at() -> anyhow::Result<()> {
    let options = ClusterOptions { zones: 1, ..ClusterOptions::default() };
    let mut cluster = Cluster::start_unfounded(options).await?;
    let founded = kvctl(&cluster, &["init", "--partitions", "16", "--yes"]).await?;
    let said = String::from_utf8_lossy(&founded.stderr);
    println!("{said}");
    ensure!(founded.status.success(), "{founded:?}");
    ensure!(said.contains("WARNING") && said.contains("one zone"), "{said}");
    cluster.wait_ready().await?;

    let status = kvctl_ok(&cluster, &["status"]).await?;
    println!("{status}");
    ensure!(status.contains("copies in 1 of 1 zones"), "{status}");
    ensure!(status.contains("the loss of a zone may"), "{status}");
    ensure!(status.contains("start nodes in another zone"), "{status}");
    let check = kvctl_ok(&cluster, &["check"]).await?;
    let zones = check.lines().find(|line| line.contains(" zones ")).unwrap_or_default();
    ensure!(zones.starts_with("WARN"), "{check}");

    // One more node of the same zone mends nothing.
    cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    let show = kvctl_ok(&cluster, &["plan", "show"]).await?;
    println!("{show}");
    ensure!(show.contains("one-zone") && show.contains("at least 1 -> 1 zones"), "{show}");
    kvctl_ok(&cluster, &["plan", "clear"]).await?;
    let now = kvctl(&cluster, &["join", "n4", "--now", "--yes"]);
    let now = tokio::time::timeout(PLAN_DEADLINE, now).await??;
    let said = String::from_utf8_lossy(&now.stdout);
    ensure!(now.status.success() && said.contains("one-zone"), "{now:?}");
    let plan = finish(&cluster, 0).await?;

    // Nodes of other zones do, and the warnings go.
    cluster.add_spare("z2").await?;
    cluster.add_spare("z3").await?;
    kvctl_ok(&cluster, &["join", "n5", "n6"]).await?;
    let show = kvctl_ok(&cluster, &["plan", "show"]).await?;
    println!("{show}");
    ensure!(!show.contains("one-zone") && show.contains("at least 1 -> 3 zones"), "{show}");
    let spread = serve(&cluster, plan.id).await?;
    finish(&cluster, spread.id - 1).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    let status = kvctl_ok(&cluster, &["status"]).await?;
    ensure!(status.contains("copies in 3 of 3 zones"), "{status}");
    let check = kvctl_ok(&cluster, &["check"]).await?;
    ensure!(!check.contains("WARN"), "{check}");

    // The way back is one of the plans that are refused.
    let refused = kvctl(&cluster, &["drain", "n5"]).await?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(5) && said.contains("zone-cover"), "{refused:?}");
    cluster.finish()
}
