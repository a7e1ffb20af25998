//! Nodes that are asked to leave: in time, and without a failed write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use integration_tests::cluster::{Cluster, ClusterOptions, describe};
use integration_tests::history::Outcome;
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::measure::Times;
use integration_tests::wait::hold;
use integration_tests::wire::Connection;
use kvapi::{Client, ClientError, PutOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Time that a node has to leave.
const LEAVE_DEADLINE: Duration = Duration::from_secs(10);
/// Clients of the rolling restart.
const CLIENTS: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_fails_no_write() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let ledger = Arc::new(Ledger::default());
    let stop = Arc::new(AtomicBool::new(false));
    let unknown = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let writer = RoutingWriter {
            number,
            client: cluster.routing_client(Duration::from_secs(10)).await?,
            ledger: Arc::clone(&ledger),
            unknown: Arc::clone(&unknown),
        };
        clients.spawn(writer.run(Arc::clone(&stop)));
    }
    hold(Duration::from_secs(1)).await;
    for (index, node) in cluster.nodes().iter().enumerate() {
        let (took, status) = node.terminate(LEAVE_DEADLINE).await?;
        println!("{} left within {took:?} under load", node.name);
        ensure!(status.success(), "{} left with {}", node.name, describe(status));
        cluster.restart(index).await?;
        cluster.wait_ready().await?;
        hold(Duration::from_secs(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client??);
    }
    println!("writes during a rolling restart: {:?}, {}", ledger.totals(), Times::of(times));
    println!("of unknown outcome: {}", unknown.load(Ordering::Relaxed));
    for node in 0..cluster.nodes().len() {
        ledger.check_through(&cluster.addresses(), node).await?;
    }
    cluster.finish()
}

struct RoutingWriter {
    number: u64,
    client: Client,
    ledger: Arc<Ledger>,
    unknown: Arc<AtomicUsize>,
}

impl RoutingWriter {
    /// Writes until told to stop. Every write succeeds or its outcome is unknown; nothing else may
    /// come of it, as the client sends again what was not applied. The times of the successful ones.
    async fn run(self, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<Duration>> {
        let mut pace = interval(Duration::from_millis(5));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut times = Vec::new();
        for round in 0_u64.. {
            pace.tick().await;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("rolling-{}-{round}", self.number);
            let value = Bytes::from(round.to_string());
            let started = Instant::now();
            let outcome = match self.client.put(key.as_bytes(), value, &PutOptions::default()).await
            {
                Ok(answer) => {
                    times.push(started.elapsed());
                    Outcome::Written(answer.version.context("a write without version")?)
                }
                Err(error) if is_unknown(&error) => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                    println!("{key}: {error}");
                    Outcome::Unknown
                }
                Err(error) => return Err(error).context(format!("{key} failed")),
            };
            self.ledger.note(key, round, outcome)?;
        }
        Ok(times)
    }
}

fn is_unknown(error: &ClientError) -> bool {
    error.outcome() == kvapi::Outcome::Unknown && !matches!(error, ClientError::Unexpected { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_leaves_in_time_although_clients_hold_on_to_it() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let ledger = Arc::new(Ledger::default());
    for (index, node) in cluster.nodes().iter().enumerate() {
        let load = Load::start(
            &cluster.addresses(),
            &LoadOptions { prefix: ["one", "two", "three"][index], ..LoadOptions::default() },
            &ledger,
        );
        let address = node.client_address();
        // Connections that say nothing, half a head, half a body, a long poll, and an answer that
        // nobody reads.
        let mut held = Vec::new();
        for said in [
            "",
            "GET /v1/kv/k HTTP/1.1\r\nhost: h\r\n",
            "PUT /v1/kv/k HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nhalf",
            "GET /v1/ring?after_epoch=1&wait=30s HTTP/1.1\r\nhost: h\r\n\r\n",
            "GET /v1/ring HTTP/1.1\r\nhost: h\r\n\r\n",
        ] {
            let mut connection = Connection::open(&address).await?;
            connection.send(said.as_bytes()).await?;
            held.push(connection);
        }
        hold(Duration::from_millis(300)).await;
        let (took, status) = node.terminate(LEAVE_DEADLINE).await?;
        println!("{} left within {took:?} with connections held open", node.name);
        ensure!(status.success(), "{} left with {}", node.name, describe(status));
        load.stop().await?;
        cluster.restart(index).await?;
    }
    cluster.wait_ready().await?;
    ledger.check_through(&cluster.addresses(), 0).await?;
    println!("writes: {:?}", ledger.totals());
    cluster.finish()
}
