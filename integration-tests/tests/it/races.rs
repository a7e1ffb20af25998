//! Many clients with conditions on the same key at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{bail, ensure};
use integration_tests::caller::Caller;
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::history::{Call, Outcome};
use tokio::task::JoinSet;

const CLIENTS: u64 = 24;
const ROUNDS: u64 = 40;
const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racing_conditional_writes_exactly_one_wins_per_version() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let mut callers: Vec<Caller> =
        (0..CLIENTS).map(|_| Caller::new(&cluster.addresses())).collect();
    let mut versions = BTreeSet::new();
    let mut refused = 0;
    let mut current = None;
    for round in 0..ROUNDS {
        // The key is created in the first round, and in every tenth after it was deleted.
        if round % 10 == 0
            && let Some(version) = current.take()
        {
            let told = callers[0].call(0, b"raced", Call::DeleteIf(version), TIMEOUT).await?;
            ensure!(told.outcome == Outcome::Deleted, "round {round}: {told:?}");
        }
        let (winner, losers) = race(&mut callers, current, round).await?;
        refused += losers;
        ensure!(versions.last().is_none_or(|last| winner > *last), "{winner} after {versions:?}");
        versions.insert(winner);
        current = Some(winner);
    }
    println!("{ROUNDS} rounds of {CLIENTS} clients: {} winners, {refused} refused", versions.len());
    ensure!(versions.len() == usize::try_from(ROUNDS)?, "{versions:?}");
    cluster.finish()
}

/// All clients write under the same condition, each through another node than its neighbours. The
/// version of the winner, and the number of others.
async fn race(
    callers: &mut Vec<Caller>,
    current: Option<u64>,
    round: u64,
) -> anyhow::Result<(u64, u64)> {
    let mut racers = JoinSet::new();
    for (number, mut caller) in (0..).zip(callers.drain(..)) {
        let value = round * CLIENTS + number;
        let call = match current {
            None => Call::Create(value),
            Some(version) => Call::Swap { version, value },
        };
        racers.spawn(async move {
            let node = usize::try_from(number % 3)?;
            let told = caller.call(node, b"raced", call, TIMEOUT).await?;
            anyhow::Ok((caller, value, told))
        });
    }
    let mut won = Vec::new();
    let mut lost = Vec::new();
    while let Some(racer) = racers.join_next().await {
        let (caller, value, told) = racer??;
        callers.push(caller);
        match told.outcome {
            Outcome::Written(version) => won.push((version, value)),
            Outcome::Refused(version) => lost.push(version),
            _ => bail!("round {round}: a racer has neither won nor lost: {told:?}"),
        }
    }
    ensure!(won.len() == 1, "round {round}: the winners are {won:?}");
    let (version, value) = won[0];
    // A refusal names the version that stood in the way: the winner's, as there was one before.
    ensure!(lost.iter().all(|other| *other == Some(version)), "round {round}: {lost:?}");
    let told = callers[0].call(1, b"raced", Call::Get, TIMEOUT).await?;
    ensure!(told.outcome == Outcome::Found { value, version }, "round {round}: {told:?}");
    Ok((version, u64::try_from(lost.len())?))
}
