//! Keys that are deleted, and keys that are deleted and written again, in every stage of a join.

use anyhow::{Context, bail, ensure};
use integration_tests::caller::Caller;
use integration_tests::cluster::{Cluster, READY_DEADLINE};
use integration_tests::history::{Call, Outcome};
use integration_tests::matrix::Place;
use integration_tests::measure::key_in;
use integration_tests::plans::{
    HoldFile, PLAN_DEADLINE, PlanSeen, kvctl_ok, newest_plan, wait_check, wait_plan,
};
use placement::PartitionId;

/// Places in which the source is killed and returns.
const DEADLY: [Place; 4] = [Place::Copying, Place::CatchingUp, Place::AfterPublish, Place::Grace];

/// A key of each partition for one place: one that is deleted there, one that comes back.
#[derive(Debug)]
struct Pair {
    doomed: String,
    reborn: String,
    /// The value that the second must have, and the last version seen with it.
    value: u64,
    version: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_in_any_stage_of_a_join_stays_deleted_and_versions_go_on()
-> anyhow::Result<()> {
    let hold = HoldFile::new("pending")?;
    let mut cluster = Cluster::start(hold.options()?).await?;
    let guest = cluster.add_spare("z1").await?;
    let mut caller = Caller::new(&cluster.addresses());
    let mut pairs = Vec::new();
    for place in Place::ALL {
        pairs.push((place, prepare(&cluster, &mut caller, place).await?));
    }
    kvctl_ok(&cluster, &["join", &cluster.node(guest).name]).await?;
    kvctl_ok(&cluster, &["plan", "apply", "--yes"]).await?;
    for number in 0..pairs.len() {
        let place = pairs[number].0;
        reach(&cluster, &hold, place).await?;
        let source = match DEADLY.contains(&place) {
            true => Some(source(&cluster, place).await?),
            false => None,
        };
        if let Some(source) = source {
            cluster.node(source).kill()?;
        }
        for pair in &mut pairs[number].1 {
            delete_and_write_again(&mut caller, pair, source).await?;
        }
        if let Some(source) = source {
            cluster.restart(source).await?;
        }
        for (_, pairs) in &mut pairs[..=number] {
            // The one that returned is asked first of all.
            check(&mut caller, pairs, source.unwrap_or(number % 4)).await?;
        }
        let reached = newest_plan(&cluster).await?;
        println!("{place:?}: {}; source killed: {}", reached.stages(), source.is_some());
    }
    hold.release()?;
    let finished = |plan: &PlanSeen| plan.phase == "finished";
    wait_plan(&cluster, "the plan's end", 0, PLAN_DEADLINE, finished).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    for node in 0..cluster.nodes().len() {
        for (_, pairs) in &mut pairs {
            check(&mut caller, pairs, node).await?;
        }
    }
    cluster.finish()
}

/// Writes a pair of keys for each partition.
async fn prepare(
    cluster: &Cluster,
    caller: &mut Caller,
    place: Place,
) -> anyhow::Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for number in 0..cluster.partitions() {
        let key = |what: &str| {
            let stem = format!("{what}-{place:?}");
            key_in(PartitionId::new(number), cluster.partitions(), &stem)
        };
        let (doomed, reborn) = (key("doomed"), key("reborn"));
        caller.put_surely(doomed.as_bytes(), 1).await?;
        let version = caller.put_surely(reborn.as_bytes(), 1).await?;
        pairs.push(Pair { doomed, reborn, version, value: 1 });
    }
    Ok(pairs)
}

/// Lets the plan go on to a place, and no further.
async fn reach(cluster: &Cluster, hold: &HoldFile, place: Place) -> anyhow::Result<()> {
    match place {
        // It stays there until it is told to finish.
        Place::Grace => hold.release()?,
        Place::Retiring => {
            hold.set(place.held())?;
            kvctl_ok(cluster, &["migrate", "finish"]).await?;
        }
        _ => hold.set(place.held())?,
    }
    let reached = |plan: &PlanSeen| place.is_reached(plan);
    wait_plan(cluster, &format!("{place:?}"), 0, PLAN_DEADLINE, reached).await?;
    Ok(())
}

/// A node that loses a copy by a move that is in this place.
async fn source(cluster: &Cluster, place: Place) -> anyhow::Result<usize> {
    let plan = newest_plan(cluster).await?;
    let subject = plan.at(place.step()).next().context("no move is there")?;
    cluster.index_of(subject.lose.as_deref().context("the move has no source")?)
}

/// Deletes both keys of a pair and writes the second anew, by nodes that live.
async fn delete_and_write_again(
    caller: &mut Caller,
    pair: &mut Pair,
    dead: Option<usize>,
) -> anyhow::Result<()> {
    delete_surely(caller, &pair.doomed, dead).await?;
    delete_surely(caller, &pair.reborn, dead).await?;
    let version = caller.put_surely(pair.reborn.as_bytes(), 2).await?;
    ensure!(
        version > pair.version,
        "{} was written again with version {version}, after {}",
        pair.reborn,
        pair.version
    );
    (pair.version, pair.value) = (version, 2);
    Ok(())
}

/// Deletes a key until that is acknowledged. A delete may be sent again: it is absent either way.
async fn delete_surely(caller: &mut Caller, key: &str, dead: Option<usize>) -> anyhow::Result<()> {
    let mut last = String::new();
    for attempt in 0..60 {
        let node = attempt % 3;
        if dead == Some(node) {
            continue;
        }
        let told = caller.call(node, key.as_bytes(), Call::Delete, READY_DEADLINE).await?;
        match told.outcome {
            Outcome::Deleted => return Ok(()),
            _ => last = told.reason,
        }
    }
    bail!("{key} cannot be deleted: {last}")
}

async fn check(caller: &mut Caller, pairs: &mut [Pair], node: usize) -> anyhow::Result<()> {
    for pair in pairs {
        let read = read_surely(caller, &pair.doomed, node).await?;
        ensure!(read == Outcome::Absent, "{} came back: {read:?}", pair.doomed);
        let read = read_surely(caller, &pair.reborn, node).await?;
        match read {
            // A write whose first answer was lost may have been carried out twice.
            Outcome::Found { value, version } if value == pair.value && version >= pair.version => {
                pair.version = version;
            }
            other => bail!("{pair:?} is {other:?}"),
        }
    }
    Ok(())
}

/// Reads a key through a node until it is answered: leaders may be changing.
async fn read_surely(caller: &mut Caller, key: &str, node: usize) -> anyhow::Result<Outcome> {
    let mut last = String::new();
    for _ in 0..60 {
        let told = caller.call(node, key.as_bytes(), Call::Get, READY_DEADLINE).await?;
        match told.outcome {
            Outcome::Found { .. } | Outcome::Absent => return Ok(told.outcome),
            _ => last = told.reason,
        }
    }
    bail!("{key} cannot be read: {last}")
}
