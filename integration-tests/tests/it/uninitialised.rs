//! Nodes that were started and not founded.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::wire::{Exchange, Reply, Request, Wire};
use kvapi::{Outcome, ProblemCode, Retry};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_it_is_founded_a_cluster_names_the_command_that_founds_it() -> anyhow::Result<()> {
    let cluster = Cluster::start_unfounded(ClusterOptions::default()).await?;
    let requests = [
        Request::get("/v1/kv/k"),
        Request::put("/v1/kv/k", "v"),
        Request::new("DELETE", "/v1/kv/k"),
        Request::get("/v1/kv/k?consistency=stale"),
        Request::get("/v1/kv64/aw"),
        Request::get("/v1/locate/k"),
        Request::get("/v1/ring"),
    ];
    for node in cluster.nodes() {
        let mut wire = Wire::new(node.client_address());
        for request in &requests {
            let reply = answer(&mut wire, request).await?;
            let what = format!("{} {} at {}: {reply}", request.method, request.path, node.name);
            check_refusal(&reply).context(what)?;
        }
        let live = answer(&mut wire, &Request::get("/livez")).await?;
        ensure!(live.status == 200, "a node that waits to be founded lives: {live}");
        let ready = answer(&mut wire, &Request::get("/readyz")).await?;
        ensure!(ready.status == 503, "it is not ready: {ready}");
    }

    cluster.found().await?;
    cluster.wait_ready().await?;
    for node in cluster.nodes() {
        let mut wire = Wire::new(node.client_address());
        let written = answer(&mut wire, &Request::put("/v1/kv/k", "v")).await?;
        ensure!(written.status == 204, "a founded cluster takes writes: {written}");
        ensure!(written.header("kv-ring-epoch") == Some("1"), "{written:?}");
    }
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_founded_once() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let before = cluster.client().status().await?;
    let error = cluster.found().await.expect_err("it was founded before");
    let problem = error.downcast_ref::<kvapi::ClientError>().and_then(|error| error.problem());
    let code = problem.map(|problem| problem.code);
    ensure!(code == Some(ProblemCode::AlreadyInitialised), "{error:#}");
    let after = cluster.client().status().await?;
    ensure!(before.cluster_id == after.cluster_id && before.epoch == after.epoch, "{after:?}");
    cluster.finish()
}

fn check_refusal(reply: &Reply) -> anyhow::Result<()> {
    ensure!(reply.status == 503, "503 was expected");
    let problem = reply.problem().context("no problem document")?;
    ensure!(problem.code == ProblemCode::ClusterNotInitialised, "{problem:?}");
    ensure!(problem.outcome == Outcome::NotApplied && problem.retry == Retry::Safe, "{problem:?}");
    let hint = problem.hint.context("no hint")?;
    ensure!(hint.contains("kvctl init"), "the hint names the command: {hint}");
    ensure!(reply.header("retry-after").is_some(), "no Retry-After");
    ensure!(reply.header("kv-ring-epoch") == Some("0"), "no epoch 0");
    Ok(())
}

async fn answer(wire: &mut Wire, request: &Request) -> anyhow::Result<Reply> {
    match wire.exchange(request, Duration::from_secs(5)).await {
        Exchange::Answered(reply) => Ok(reply),
        other => anyhow::bail!("{} {}: {other:?}", request.method, request.path),
    }
}
