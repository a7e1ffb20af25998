//! A target without room: refused when it is known beforehand, told when it shows later, and no
//! reason to begin anew once there is room.

use std::sync::Arc;

use anyhow::{Context, ensure};
use integration_tests::cluster::Cluster;
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::plans::{
    HoldFile, PLAN_DEADLINE, PlanSeen, finish, kvctl, kvctl_ok, wait_check, wait_plan,
};
use integration_tests::wait::wait_for;

/// A reserve that no disk has room for: to the guard, the disk is full.
const NO_ROOM: [&str; 2] = ["--disk-reserve-bytes", "1000000GiB"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_the_target_whose_disk_is_full_and_with_room_the_plan_goes_on()
-> anyhow::Result<()> {
    let hold = HoldFile::new("pending")?;
    let mut cluster = Cluster::start(hold.options()?).await?;
    let ledger = Arc::new(Ledger::default());
    let options = LoadOptions::default();
    let writes = Load::start(&cluster.addresses(), &options, &ledger);
    let target = cluster.add_spare_with("z1", &NO_ROOM).await?;
    let refusal = wait_for("the join to be refused", PLAN_DEADLINE, async || {
        // Until nodes have told how much they hold, a copy seems to need no room.
        let join = kvctl(&cluster, &["join", "n4"]).await.map_err(|error| format!("{error:#}"))?;
        kvctl_ok(&cluster, &["plan", "clear"]).await.map_err(|error| format!("{error:#}"))?;
        match join.status.code() {
            Some(5) => Ok(String::from_utf8_lossy(&join.stderr).into_owned()),
            other => Err(format!("kvctl ended with {other:?}")),
        }
    })
    .await?;
    println!("{refusal}");
    ensure!(refusal.contains("disk-space") && refusal.contains("n4"), "{refusal}");

    // There is room when the plan is made, and none when it begins to copy.
    restart_with(&mut cluster, target, &[]).await?;
    wait_for("the join to be allowed", PLAN_DEADLINE, async || {
        let join = kvctl_ok(&cluster, &["join", "n4"]).await;
        join.map_err(|error| format!("{error:#}"))
    })
    .await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    restart_with(&mut cluster, target, &NO_ROOM).await?;
    hold.release()?;
    let blocked = |plan: &PlanSeen| plan.moves.iter().any(|it| it.stage == "blocked");
    let plan = wait_plan(&cluster, "a blocked move", 0, PLAN_DEADLINE, blocked).await?;
    let subject = plan.moves.iter().find(|it| it.stage == "blocked").context("none is blocked")?;
    for arguments in [&["migrate", "why", &subject.partition.to_string()][..], &["migrate", "why"]]
    {
        let why = kvctl_ok(&cluster, arguments).await?;
        println!("{why}");
        for told in ["the disk of the target n4 is full", "free space on n4", "migrate cancel"] {
            ensure!(why.contains(told), "{told:?} is missing: {why}");
        }
    }
    let status = kvctl_ok(&cluster, &["status"]).await?;
    ensure!(status.contains("disk-full") && status.contains("kvctl migrate why"), "{status}");
    let epoch = cluster.info(0).await?.epoch.get();
    ensure!(epoch == 1, "epoch {epoch} was published");

    restart_with(&mut cluster, target, &[]).await?;
    wait_plan(&cluster, "a plan that serves", 0, PLAN_DEADLINE, PlanSeen::is_serving).await?;
    writes.stop().await?;
    finish(&cluster, 0).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

async fn restart_with(
    cluster: &mut Cluster,
    node: usize,
    arguments: &[&str],
) -> anyhow::Result<()> {
    cluster.node(node).kill()?;
    cluster.set_own_arguments(node, arguments);
    cluster.restart(node).await
}
