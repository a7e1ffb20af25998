//! Copies between whole nodes: paused, damaged, interrupted.

use std::path::PathBuf;

use super::*;
use crate::migrate::CopyLimits;

const KEYS: usize = 24;

fn value() -> Vec<u8> {
    vec![7; 32 << 10]
}

fn short_logs() -> Settings {
    Settings {
        log_cache_bytes: 4 << 10,
        log_truncate_bytes: 16 << 10,
        log_retain_bytes_max: 64 << 10,
        ..Settings::default()
    }
}

/// Two nodes of a cluster of three, whose logs do not reach back to where the third stopped.
async fn third_is_behind(faults: Faults) -> (Cluster, NodeConfig) {
    let mut cluster = cluster_with(&short_logs(), faults).await;
    let stopped = cluster.nodes.pop().unwrap();
    let back = NodeConfig {
        peer_listen: stopped.peer_address(),
        settings: short_logs(),
        ..config("n3", cluster.dir.path())
    };
    stopped.stop().await;
    for round in 0..3 {
        for key in 0..KEYS {
            write(&cluster.nodes[round % 2], &format!("large-{key}"), &value()).await;
        }
    }
    wait_for("logs are truncated", async || {
        let summaries = cluster.nodes[0].fresh_summaries().await;
        let partitions = summaries.iter().filter(|summary| summary.group != GroupId::CLUSTER);
        let untouched = partitions.filter(|it| it.applied.get() > 4 && it.first.get() <= 2).count();
        if untouched == 0 { Ok(()) } else { Err(untouched) }
    })
    .await;
    (cluster, back)
}

async fn has_everything(node: &Node) {
    wait_for("the copies are complete", async || {
        for key in 0..KEYS {
            let name = Bytes::from(format!("large-{key}"));
            let options = within(PATIENCE);
            let served = node.router().read(name, Consistency::Stale, options).await;
            let found = served.map_err(|error| error.to_string())?.value;
            if found.is_none_or(|record| record.value != value()) {
                return Err(format!("no large-{key}"));
            }
        }
        Ok(())
    })
    .await;
}

fn pause(cluster: &Cluster, bytes_per_second: u64) {
    for node in &cluster.nodes {
        node.copies().set(CopyLimits { bytes_per_second, copies_at_a_time: 4 });
    }
}

/// Bytes of chunks that copies have kept, for each copy that has begun.
fn kept(config: &NodeConfig) -> Vec<u64> {
    let Ok(copies) = std::fs::read_dir(config.data_dir.join("incoming")) else {
        return Vec::new();
    };
    let length = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    copies.map(|copy| length(copy.unwrap().path().join("TAIL"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn paused_copies_move_nothing_until_they_are_resumed_over_a_restart_too() {
    let (cluster, back) = third_is_behind(Faults::NONE).await;
    pause(&cluster, 0);
    let node = Node::start(back.clone()).await.unwrap();
    let begun = || match kept(&back) {
        copies if copies.is_empty() => Err("none"),
        copies => Ok(copies),
    };
    let copies = wait_for("copies begin", async || begun()).await;
    assert!(copies.iter().all(|bytes| *bytes == 0), "{copies:?}");
    node.stop().await;
    let node = Node::start(back.clone()).await.unwrap();
    let copies = wait_for("copies begin again", async || begun()).await;
    assert!(copies.iter().all(|bytes| *bytes == 0), "{copies:?}");
    pause(&cluster, u64::MAX);
    has_everything(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn chunks_that_arrive_damaged_are_asked_for_again() {
    // As many as one chunk may be damaged in a row, on each of two sources.
    let faults = Faults { corrupt_chunks: 3, ..Faults::NONE };
    let (_cluster, back) = third_is_behind(faults).await;
    let node = Node::start(back).await.unwrap();
    has_everything(&node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_receiver_without_room_takes_nothing_and_goes_on_when_there_is_some() {
    let (cluster, back) = third_is_behind(Faults::NONE).await;
    let full = NodeConfig { disk_reserve_bytes: u64::MAX / 2, ..back.clone() };
    let node = Node::start(full).await.unwrap();
    let refused = wait_for("a leader hears of the full disk", async || {
        for leader in &cluster.nodes {
            for (_, _, copy) in leader.core().copies().await {
                if copy.last_failure.is_some() {
                    return Ok(copy);
                }
            }
        }
        Err("no failure")
    })
    .await;
    assert_eq!(refused.last_failure, Some(kvcore::message::CopyFailure::DiskFull));
    assert!(refused.next_attempt.is_some());
    assert_eq!(kept(&back), Vec::<u64>::new());
    node.stop().await;
    let node = Node::start(back).await.unwrap();
    has_everything(&node).await;
}
