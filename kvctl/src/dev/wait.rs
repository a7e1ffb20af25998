//! Waiting for nodes: until they answer, until they are gone.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::layout::{DevNode, Layout, Manifest};
use super::process::{self, Running};
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::probe;

/// Time for all nodes to become ready.
pub const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a node to leave after SIGTERM before it is killed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a killed process to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(50);
/// Time for one answer while waiting.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits until a node's path answers 200; otherwise the last thing that was seen.
pub async fn until_ok(node: &DevNode, path: &str, deadline: Instant) -> Result<(), String> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = probe::get(&node.client_address(), path, PROBE_TIMEOUT.min(left)).await;
        let seen = match answer {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => format!("{} {}", answer.status.as_u16(), answer.body),
            Err(error) => error,
        };
        if Instant::now() + POLL >= deadline {
            return Err(format!("{} {path}: {seen}", node.name));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until all nodes answer 200 on a path; otherwise a failure that says what was seen.
pub async fn until_all_ok(nodes: &[DevNode], path: &str, deadline: Instant) -> Result<(), Failure> {
    let waits = nodes.iter().map(|node| until_ok(node, path, deadline));
    let results = futures_util::future::join_all(waits).await;
    let seen: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if seen.is_empty() {
        return Ok(());
    }
    let seconds = READY_TIMEOUT.as_secs();
    let message = format!("not ready within {seconds} s; last seen: {}", seen.join("; "));
    Err(Failure::new(Exit::Unreachable, message))
}

/// Ends the nodes' processes: SIGTERM, and SIGKILL for those that have not left in time, or at
/// once when `hurry` completes.
pub async fn stop(layout: &Layout, names: &[String], hurry: impl Future<Output = ()>) {
    let mut left: Vec<(&String, Running)> = names
        .iter()
        .filter_map(|name| process::find(layout, name).map(|running| (name, running)))
        .filter(|(name, running)| process::signal(layout, name, *running, Signal::TERM))
        .collect();
    tokio::select! {
        () = until_gone(layout, &mut left, LEAVE_TIMEOUT) => {}
        () = hurry => {}
    }
    left.retain(|(name, running)| process::find(layout, name) == Some(*running));
    for (name, running) in &left {
        note(&format!("{name} (pid {}) does not leave: killed", running.pid.as_raw_nonzero()));
        process::signal(layout, name, *running, Signal::KILL);
    }
    until_gone(layout, &mut left, KILL_TIMEOUT).await;
    for (name, running) in left {
        note(&format!("{name} (pid {}) is still there", running.pid.as_raw_nonzero()));
    }
}

/// Ends every process of the directory, also those started elsewhere since.
pub async fn stop_all(layout: &Layout, manifest: &Manifest, hurry: impl Future<Output = ()>) {
    let newest = layout.manifest().ok().flatten();
    let nodes = &newest.as_ref().unwrap_or(manifest).nodes;
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    stop(layout, &names, hurry).await;
}

async fn until_gone(layout: &Layout, left: &mut Vec<(&String, Running)>, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    loop {
        left.retain(|(name, running)| process::find(layout, name) == Some(*running));
        if left.is_empty() || Instant::now() >= deadline {
            return;
        }
        tokio::time::sleep(POLL / 2).await;
    }
}
