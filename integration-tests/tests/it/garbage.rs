//! Strangers on the port where nodes talk to each other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::wire::Connection;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time within which a stranger's connection is closed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(30);
/// Connections that say nothing or stop half-way.
const SILENT: usize = 200;
/// Memory that all of this may cost a node.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Lines that a node may log about one stranger.
const LINES_PER_STRANGER_MAX: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_peer_port_is_closed_and_disturbs_nobody() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let node = cluster.node(0);
    let memory_before = node.resident_bytes()?;
    let lines_before = node.log().lines().count();
    let ledger = Arc::new(Ledger::default());
    let load = Load::start(&cluster.addresses(), &LoadOptions::default(), &ledger);

    let mut random = vec![0; 1 << 20];
    SmallRng::seed_from_u64(33).fill_bytes(&mut random);
    let talk: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nhost: h\r\n\r\n".to_vec(),
        // A TLS client's greeting, the largest length in either byte order, and nothing but zeros.
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(50),
        vec![0xff; 4096],
        vec![0; 4096],
        random,
    ];
    let mut strangers = JoinSet::new();
    for said in talk.iter().cycle().take(50) {
        let said = said.clone();
        let mut connection = Connection::open(&node.peer_address()).await?;
        strangers.spawn(async move {
            // It may be closed while we are still talking.
            let _ = connection.send(&said).await;
            timeout(CLOSE_DEADLINE, connection.read_to_end()).await.map(drop)
        });
    }
    let mut silent = Vec::new();
    for number in 0..SILENT {
        let mut connection = Connection::open(&node.peer_address()).await?;
        if number % 2 == 1 {
            // A refusal at once is as good as one later.
            let _ = connection.send(&[0]).await;
        }
        silent.push(connection);
    }
    for mut connection in silent {
        strangers.spawn(async move {
            timeout(CLOSE_DEADLINE, connection.read_to_end()).await.map(drop)
        });
    }
    let all = strangers.len();
    let mut open = 0;
    while let Some(stranger) = strangers.join_next().await {
        open += usize::from(stranger?.is_err());
    }
    let memory_peak = node.resident_bytes()?;
    let gap = load.stop().await?;

    let lines = node.log().lines().count() - lines_before;
    println!(
        "{all} strangers: {open} still open after {CLOSE_DEADLINE:?}, {lines} lines of log, memory \
         {} -> {} MiB, longest wait of a writer {gap:?}, writes {:?}",
        memory_before >> 20,
        memory_peak >> 20,
        ledger.totals()
    );
    ensure!(open == 0, "{open} of {all} strangers were not shown the door");
    ensure!(memory_peak < memory_before + GROWTH_BYTES_MAX, "memory grew by too much");
    ensure!(lines <= LINES_PER_STRANGER_MAX * all, "{lines} lines of log about {all} strangers");
    let totals = ledger.totals();
    ensure!(totals.unknown == 0 && totals.not_applied == 0, "writes failed: {totals:?}");
    ensure!(gap < Duration::from_secs(2), "a writer waited for {gap:?}");
    ledger.check_through(&cluster.addresses(), 0).await?;
    cluster.finish()
}
