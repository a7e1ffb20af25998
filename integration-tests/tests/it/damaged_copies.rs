//! Copies that are damaged on their way, on the target's disk, or not what they were made from: found
//! before anything is published, told with the place, and without harm to what is there.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use integration_tests::caller::Caller;
use integration_tests::cluster::{Cluster, ClusterOptions, find_program};
use integration_tests::history::Outcome;
use integration_tests::ledger::Ledger;
use integration_tests::plans::{
    HoldFile, PLAN_DEADLINE, PlanSeen, finish, kvctl, kvctl_ok, newest_plan, serve, wait_check,
    wait_plan,
};
use integration_tests::wait::wait_for;
use serde_json::Value;

/// Keys that are there before a copy is made.
const KEYS: u64 = 400;

/// Table files smaller than this hold no copy of a partition with long names.
const PARTITION_BYTES_MIN: u64 = 32 << 10;

/// A cluster whose nodes damage the first so many chunks that they serve; all of them without a
/// number.
async fn damaging(chunks: &str) -> anyhow::Result<Cluster> {
    let fault = format!("corrupt-chunk{chunks}");
    Cluster::start(ClusterOptions {
        program: Some(find_program("kvnode-faults", "KVNODE_FAULTS")?),
        arguments: vec!["--fault".to_owned(), fault],
        ..ClusterOptions::default()
    })
    .await
}

async fn fill(cluster: &Cluster) -> anyhow::Result<Arc<Ledger>> {
    fill_with(cluster, |number| format!("copied-{number}")).await
}

async fn fill_with(cluster: &Cluster, name: impl Fn(u64) -> String) -> anyhow::Result<Arc<Ledger>> {
    let ledger = Arc::new(Ledger::default());
    let mut caller = Caller::new(&cluster.addresses());
    for number in 0..KEYS {
        let key = name(number);
        let version = caller.put_surely(key.as_bytes(), number).await?;
        ledger.note(key, number, Outcome::Written(version))?;
    }
    Ok(ledger)
}

/// A counter of a node's metrics.
async fn metric(cluster: &Cluster, node: usize, name: &str) -> anyhow::Result<u64> {
    let text = String::from_utf8(cluster.ask(node, "/metrics").await?)?;
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.map(|value| value.trim().parse::<u64>().context("a counter")).sum()
}

/// Nothing was published: the ring is the one that the cluster was founded with.
async fn check_unpublished(cluster: &Cluster) -> anyhow::Result<()> {
    for node in 0..cluster.nodes().len() {
        let epoch = cluster.info(node).await?.epoch.get();
        ensure!(epoch == 1, "{} is at epoch {epoch}", cluster.node(node).name);
    }
    Ok(())
}

/// Waits until a node holds no copy any more.
async fn wait_empty(cluster: &Cluster, node: usize) -> anyhow::Result<()> {
    wait_for("the copies to be gone", PLAN_DEADLINE, async || {
        let info = cluster.info(node).await.map_err(|error| format!("{error:#}"))?;
        match info.partitions {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await
}

/// The alarms of this kind that some node raises, with the node.
async fn alarms(cluster: &Cluster, code: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let alarms = cluster.info(index).await?.alarms;
        let of_kind = alarms.into_iter().filter(|alarm| alarm.code == code);
        found.extend(of_kind.map(|alarm| format!("{}: {}", node.name, alarm.detail)));
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_arrive_damaged_are_asked_for_again_and_the_join_ends_well()
-> anyhow::Result<()> {
    let mut cluster = damaging("=3").await?;
    let ledger = fill(&cluster).await?;
    let target = cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    let plan = serve(&cluster, 0).await?;
    let damaged = metric(&cluster, target, "ringkv_copy_damaged_chunks_total").await?;
    println!("{damaged} chunks came damaged, {} moves serve", plan.moves.len());
    ensure!(damaged > 0, "no chunk came damaged, so nothing was shown");
    finish(&cluster, 0).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_damages_every_chunk_holds_the_plan_up_and_the_record_says_so()
-> anyhow::Result<()> {
    let mut cluster = damaging("").await?;
    let ledger = fill(&cluster).await?;
    let target = cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    let blocked = |plan: &PlanSeen| plan.moves.iter().any(|it| it.stage == "blocked");
    let plan = wait_plan(&cluster, "a blocked move", 0, PLAN_DEADLINE, blocked).await?;
    let subject = plan.moves.iter().find(|it| it.stage == "blocked").context("none is blocked")?;
    ensure!(subject.step == "copying", "{subject:?}");

    let why = kvctl_ok(&cluster, &["migrate", "why", &subject.partition.to_string()]).await?;
    println!("{why}");
    for said in ["n4", "arrived damaged every time", "kvctl migrate cancel"] {
        ensure!(why.contains(said), "{said:?} is missing: {why}");
    }
    let record = kvctl_ok(&cluster, &["migrate", "show", "-o", "json"]).await?;
    let record: Value = serde_json::from_str(&record)?;
    let moves = record["moves"].as_array().context("the plan lists no moves")?;
    let same = |it: &&Value| it["partition"].as_u64() == Some(subject.partition.into());
    let it = moves.iter().find(same).context("the move is not on record")?;
    let last = it["last_error"].as_str().unwrap_or_default();
    ensure!(last.contains("arrived damaged") && it["failures"].as_u64() >= Some(3), "{it}");
    check_unpublished(&cluster).await?;

    kvctl_ok(&cluster, &["migrate", "cancel", "--yes"]).await?;
    let given_up = |plan: &PlanSeen| plan.phase == "aborted";
    wait_plan(&cluster, "the end of the plan", 0, PLAN_DEADLINE, given_up).await?;
    wait_empty(&cluster, target).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    check_unpublished(&cluster).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_whose_digest_differs_is_never_published_and_an_alarm_names_the_sub_range()
-> anyhow::Result<()> {
    let faulty = find_program("kvnode-faults", "KVNODE_FAULTS")?;
    let options = ClusterOptions { program: Some(faulty), ..ClusterOptions::default() };
    let mut cluster = Cluster::start(options).await?;
    let ledger = fill(&cluster).await?;
    let target = cluster.add_spare_with("z1", &["--fault", "corrupt-digest"]).await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    let given_up = |plan: &PlanSeen| plan.phase == "aborted";
    let plan = wait_plan(&cluster, "the end of the plan", 0, PLAN_DEADLINE, given_up).await?;
    told_of_the_difference(&cluster, &plan, "n4 differs in key hashes").await?;
    check_unpublished(&cluster).await?;
    wait_empty(&cluster, target).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

/// A plan that was given up for a difference says which, wherever an operator may look: in its record,
/// in the explanation of the move, among the alarms and in the verdict of `kvctl check`.
async fn told_of_the_difference(
    cluster: &Cluster,
    plan: &PlanSeen,
    difference: &str,
) -> anyhow::Result<()> {
    let record = kvctl_ok(cluster, &["migrate", "show", "-o", "json"]).await?;
    let record: Value = serde_json::from_str(&record)?;
    let reason = record["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains(difference), "the plan's record says {reason:?}");
    let moves = record["moves"].as_array().context("the plan lists no moves")?;
    let differs = |it: &&Value| it["reason"].as_str().is_some_and(|it| it.contains(difference));
    let subject = moves.iter().find(differs).context("no move's record names the difference")?;
    ensure!(subject["stage"].as_str() == Some("aborted"), "{subject}");
    ensure!(plan.moves.iter().all(|it| it.stage == "aborted"), "{}", plan.stages());

    let partition = subject["partition"].as_u64().context("a move without a partition")?;
    let why = kvctl_ok(cluster, &["migrate", "why", &partition.to_string()]).await?;
    println!("{why}");
    ensure!(why.contains(difference) && why.contains("try"), "{why}");
    let alarms = alarms(cluster, "replicas-differ").await?;
    println!("{alarms:#?}");
    ensure!(alarms.iter().any(|alarm| alarm.contains(difference)), "{alarms:?}");
    let check = kvctl(cluster, &["check"]).await?;
    let said = String::from_utf8_lossy(&check.stdout);
    ensure!(check.status.code() == Some(1) && said.contains("replicas-differ"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_file_that_rots_on_the_target_is_found_at_the_gate() -> anyhow::Result<()> {
    let hold = HoldFile::new("copying")?;
    let mut cluster = Cluster::start(hold.options()?).await?;
    let ledger = fill_with(&cluster, long_name).await?;
    // One copy at a time: compactions would put several into one file.
    kvctl_ok(&cluster, &["migrate", "throttle", "--moves-per-node", "1"]).await?;
    let target = cluster.add_spare("z1").await?;
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    wait_for("copies in place on the target", PLAN_DEADLINE, async || {
        let info = cluster.info(target).await.map_err(|error| format!("{error:#}"))?;
        let replicas = info.replicas.unwrap_or_default();
        let installed = replicas.iter().filter(|it| it.applied_index > 1).count();
        match installed == replicas.len() && installed > 0 {
            true => Ok(()),
            false => Err(format!("{installed} of {} replicas are installed", replicas.len())),
        }
    })
    .await?;
    // Blocks that are in memory hide what is on the disk.
    cluster.node(target).kill()?;
    let damaged = damage_tables(&cluster.node(target).data_dir.join("db"))?;
    ensure!(damaged > 0, "the target has no table file");
    cluster.node(target).start()?;
    cluster.wait_node_ready(target).await?;
    check_unpublished(&cluster).await?;
    let plan = newest_plan(&cluster).await?;
    ensure!(plan.phase == "moving" && plan.at("copying").count() > 0, "{}", plan.stages());

    hold.release()?;
    let given_up = |plan: &PlanSeen| plan.phase == "aborted";
    let plan = wait_plan(&cluster, "the end of the plan", 0, PLAN_DEADLINE, given_up).await?;
    println!("{damaged} table files were damaged");
    told_of_the_difference(&cluster, &plan, "n4 differs in all of its data: it cannot be read")
        .await?;
    let unreadable = alarms(&cluster, "unreadable-data").await?;
    println!("{unreadable:#?}");
    ensure!(unreadable.iter().any(|alarm| alarm.starts_with("n4")), "{unreadable:?}");
    check_unpublished(&cluster).await?;
    wait_empty(&cluster, target).await?;
    ledger.check_everywhere(&cluster).await?;
    cluster.finish()
}

/// A name so long, and so hard to compress, that the keys of a partition take several blocks of a table
/// file.
fn long_name(number: u64) -> String {
    let noise: String = (0..120)
        .map(|part| format!("{:016x}", placement::key_hash(format!("{number} {part}").as_bytes())))
        .collect();
    format!("copied-{number}-{noise}")
}

/// Flips a bit in the middle of every table file that holds a copied partition; returns how many there
/// were. A node reads the first block of each partition when it starts, and whatever describes a file;
/// it would not start if it were one of these.
fn damage_tables(store: &Path) -> anyhow::Result<usize> {
    let mut damaged = 0;
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "sst") {
            continue;
        }
        let file = File::options().read(true).write(true).open(&path)?;
        let length = file.metadata()?.len();
        if length < PARTITION_BYTES_MIN {
            continue;
        }
        let middle = length / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle)?;
        file.write_all_at(&[byte[0] ^ 1], middle)?;
        damaged += 1;
    }
    Ok(damaged)
}
