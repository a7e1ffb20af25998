//! Nodes come and go while clients write.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use integration_tests::cluster::{Cluster, ClusterOptions, READY_DEADLINE};
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::plans::{
    HoldFile, PLAN_DEADLINE, PlanSeen, finish, kvctl, kvctl_ok, newest_plan, plans, serve,
    wait_check, wait_plan,
};
use integration_tests::wait::wait_for;

fn load(cluster: &Cluster, prefix: &'static str, ledger: &Arc<Ledger>) -> Load {
    let options = LoadOptions { prefix, ..LoadOptions::default() };
    Load::start(&cluster.addresses(), &options, ledger)
}

fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let entries = entries.filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_join_under_load_and_two_leave_at_once() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    let ledger = Arc::new(Ledger::default());
    let growing = load(&cluster, "growing", &ledger);
    for zone in ["z1", "z2", "z3"] {
        cluster.add_spare(zone).await?;
    }
    kvctl_ok(&cluster, &["join", "n4", "n5", "n6"]).await?;
    let plan = serve(&cluster, 0).await?;
    let plan = finish(&cluster, plan.id - 1).await?;
    // Each zone holds one copy of each partition, and half of them go to its second node.
    ensure!(plan.moves.len() == 3 * 8, "{} copies were moved", plan.moves.len());
    growing.stop().await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    ledger.check_everywhere(&cluster).await?;

    let shrinking = load(&cluster, "shrinking", &ledger);
    kvctl_ok(&cluster, &["drain", "n5", "n6"]).await?;
    let drained = serve(&cluster, plan.id).await?;
    finish(&cluster, drained.id - 1).await?;
    for name in ["n5", "n6"] {
        let node = cluster.node(cluster.index_of(name)?);
        let status = node.ended(READY_DEADLINE).await?;
        ensure!(status.success(), "{name} ended with {status}");
        let left = bytes_below(&node.data_dir.join("db"));
        println!("{name} keeps {left} bytes");
    }
    shrinking.stop().await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    ledger.check_everywhere(&cluster).await?;
    println!("writes: {:?}", ledger.totals());
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_after_the_cut_over_keeps_what_was_written_since() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    cluster.add_spare("z1").await?;
    let ledger = Arc::new(Ledger::default());
    let before = load(&cluster, "before", &ledger);
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    let plan = serve(&cluster, 0).await?;
    before.stop().await?;
    let after = load(&cluster, "after", &ledger);
    kvctl_ok(&cluster, &["migrate", "rollback", "--yes"]).await?;
    let back =
        wait_plan(&cluster, "the way back", plan.id, PLAN_DEADLINE, PlanSeen::is_serving).await?;
    after.stop().await?;
    finish(&cluster, back.id - 1).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_cancel_and_join_again_bring_no_stale_key_back() -> anyhow::Result<()> {
    let hold = HoldFile::new("catching_up")?;
    let mut cluster = Cluster::start(hold.options()?).await?;
    cluster.add_spare("z1").await?;
    let ledger = Arc::new(Ledger::default());
    let writes = load(&cluster, "first", &ledger);
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    let there = |plan: &PlanSeen| plan.at("catching_up").count() > 0;
    let plan = wait_plan(&cluster, "a copy", 0, PLAN_DEADLINE, there).await?;
    kvctl_ok(&cluster, &["migrate", "cancel", "--yes"]).await?;
    let given_up = |plan: &PlanSeen| plan.phase == "aborted";
    wait_plan(&cluster, "the end of the plan", plan.id - 1, PLAN_DEADLINE, given_up).await?;
    wait_for("the copies to be gone", PLAN_DEADLINE, async || {
        let info = cluster.info(3).await.map_err(|error| format!("{error:#}"))?;
        match info.partitions {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await?;
    writes.stop().await?;
    hold.release()?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    let again = serve(&cluster, plan.id).await?;
    finish(&cluster, again.id - 1).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_the_middle_of_a_migration_only_delays_it() -> anyhow::Result<()> {
    for step in ["copying", "verified", "joint"] {
        let hold = HoldFile::new(step)?;
        let mut cluster = Cluster::start(hold.options()?).await?;
        cluster.add_spare("z2").await?;
        let ledger = Arc::new(Ledger::default());
        let writes = load(&cluster, "load", &ledger);
        kvctl_ok(&cluster, &["join", "n4"]).await?;
        kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
        let recorded = if step == "joint" { "swapping" } else { step };
        let there = |plan: &PlanSeen| plan.at(recorded).count() > 0;
        wait_plan(&cluster, "the step", 0, PLAN_DEADLINE, there).await?;
        for node in cluster.nodes() {
            node.kill()?;
        }
        writes.stop().await?;
        hold.release()?;
        for node in cluster.nodes() {
            node.start()?;
        }
        cluster.wait_ready().await?;
        wait_plan(&cluster, "a plan that serves", 0, PLAN_DEADLINE, PlanSeen::is_serving).await?;
        finish(&cluster, 0).await?;
        wait_check(&cluster, PLAN_DEADLINE).await?;
        ledger.check_everywhere(&cluster).await?;
        cluster.finish()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_operators_who_apply_at_once_one_wins() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    let apply = ["plan", "apply", "--yes"];
    let (one, two) = tokio::join!(kvctl(&cluster, &apply), kvctl(&cluster, &apply));
    let mut codes = [one?.status.code(), two?.status.code()];
    codes.sort_unstable();
    ensure!(codes == [Some(0), Some(4)], "{codes:?}");
    wait_plan(&cluster, "a plan that serves", 0, PLAN_DEADLINE, PlanSeen::is_serving).await?;
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_would_cost_redundancy_or_a_zone_is_refused_by_the_rules_name()
-> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let refused = kvctl(&cluster, &["drain", "n1"]).await?;
    ensure!(refused.status.code() == Some(5), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(text.contains("redundancy") || text.contains("zone-cover"), "{text}");
    ensure!(plans(&cluster, 0).await?.is_empty());
    cluster.finish()?;

    // Four nodes hold enough copies, but the only node of a zone may not go.
    let four = ClusterOptions { nodes: 4, ..ClusterOptions::default() };
    let cluster = Cluster::start(four).await?;
    let refused = kvctl(&cluster, &["drain", "n2"]).await?;
    ensure!(refused.status.code() == Some(5), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(text.contains("zone-cover"), "{text}");
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_grows_to_three_and_spares_never_hold_an_epoch_up() -> anyhow::Result<()> {
    let alone = ClusterOptions { nodes: 1, ..ClusterOptions::default() };
    let mut cluster = Cluster::start(alone).await?;
    let ledger = Arc::new(Ledger::default());
    let writes = load(&cluster, "load", &ledger);
    for zone in ["z2", "z3", "z1"] {
        cluster.add_spare(zone).await?;
    }
    // The fourth stays a spare, and is killed besides.
    cluster.node(3).kill()?;
    kvctl_ok(&cluster, &["join", "n2", "n3"]).await?;
    let plan = serve(&cluster, 0).await?;
    finish(&cluster, plan.id - 1).await?;
    writes.stop().await?;
    for node in 0..3 {
        let epoch = cluster.info(node).await?.epoch;
        ensure!(epoch.get() == 2, "node {node} is at epoch {epoch}");
    }
    ledger.check_everywhere(&cluster).await?;
    cluster.node(3).start()?;
    cluster.wait_registered(3).await?;
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_can_be_asked_for_at_any_time() -> anyhow::Result<()> {
    let hold = HoldFile::new("pending")?;
    let mut cluster = Cluster::start(hold.options()?).await?;
    cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    let pending = |plan: &PlanSeen| plan.at("pending").count() == plan.moves.len();
    wait_plan(&cluster, "a plan that waits", 0, PLAN_DEADLINE, pending).await?;
    kvctl_ok(&cluster, &["migrate", "ls"]).await?;

    // Without a quorum of group 0.
    cluster.node(1).kill()?;
    cluster.node(2).kill()?;
    let ask = ["migrate", "ls", "-o", "json"];
    let told = kvctl_ok(&cluster, &ask).await?;
    ensure!(told.contains("pending"), "{told}");
    cluster.node(1).start()?;
    cluster.node(2).start()?;
    cluster.wait_ready().await?;

    hold.release()?;
    wait_plan(&cluster, "a plan that serves", 0, PLAN_DEADLINE, PlanSeen::is_serving).await?;
    finish(&cluster, 0).await?;
    ensure!(newest_plan(&cluster).await?.phase == "finished");

    for node in cluster.nodes() {
        node.kill()?;
    }
    for node in cluster.nodes() {
        node.start()?;
    }
    cluster.wait_ready().await?;
    let plan = newest_plan(&cluster).await?;
    ensure!(plan.phase == "finished" && !plan.moves.is_empty(), "{plan:?}");
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_what_holds_a_move_up_and_what_to_do() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["migrate", "throttle", "--bytes-per-second", "0"]).await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    let plan = wait_plan(&cluster, "a plan", 0, PLAN_DEADLINE, |_| true).await?;
    let partition = plan.moves.first().context("the plan moves nothing")?.partition.to_string();
    let throttled = kvctl_ok(&cluster, &["migrate", "why", &partition]).await?;
    ensure!(throttled.contains("throttle is 0"), "{throttled}");
    ensure!(throttled.contains("kvctl migrate throttle"), "{throttled}");

    // A voter that stays is dead: no move of its partitions can be verified.
    cluster.node(1).kill()?;
    kvctl_ok(&cluster, &["migrate", "throttle", "--bytes-per-second", "100000000"]).await?;
    let blocked = |plan: &PlanSeen| plan.moves.iter().any(|it| it.stage == "blocked");
    let plan = wait_plan(&cluster, "a blocked move", 0, PLAN_DEADLINE, blocked).await?;
    let subject = plan.moves.iter().find(|it| it.stage == "blocked").context("none is blocked")?;
    let partition = subject.partition.to_string();
    let held_up = kvctl_ok(&cluster, &["migrate", "why", &partition]).await?;
    ensure!(held_up.contains("n2") && held_up.contains("down"), "{held_up}");
    cluster.restart(1).await?;
    wait_plan(&cluster, "a plan that serves", 0, PLAN_DEADLINE, PlanSeen::is_serving).await?;
    cluster.finish()
}
