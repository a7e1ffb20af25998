//! `dev up`: starts or restarts a local cluster, founds it, and watches it until told to end.

use std::path::Path;
use std::time::Duration;

use comfy_table::Cell;
use kvapi::{Client, ClientError, ClientOptions, Endpoint, InitRequest, ProblemCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::layout::{DevNode, Layout, Manifest};
use super::{process, wait};
use crate::exit::{Exit, Failure};
use crate::interrupts::Interrupts;
use crate::output::{self, Format, note};

/// Pause between two looks at the children.
const REAP: Duration = Duration::from_millis(100);

/// A child that ended.
struct Ended {
    name: String,
    pid: u32,
    how: String,
}

/// Runs the cluster of a directory until told to end; on any way out no node is left behind.
pub async fn run(
    layout: &Layout,
    manifest: &Manifest,
    program: &Path,
    format: Format,
) -> Result<(), Failure> {
    let mut interrupts = Interrupts::listen()?;
    let (report, mut ended) = mpsc::channel(manifest.nodes.len().max(1));
    let ready = tokio::select! {
        ready = bring_up(layout, manifest, program, &report) => ready,
        failure = first_end(layout, &mut ended) => Err(failure),
        () = interrupts.next() => Err(Failure::new(Exit::Ok, "")),
    };
    let ready = ready.and_then(|()| announce(layout, manifest, format));
    if ready.is_ok() {
        watch(&mut interrupts, &mut ended).await;
        note("ending all nodes");
    }
    wait::stop_all(layout, manifest, interrupts.next()).await;
    ready
}

async fn bring_up(
    layout: &Layout,
    manifest: &Manifest,
    program: &Path,
    report: &mpsc::Sender<Ended>,
) -> Result<(), Failure> {
    let started = Instant::now();
    {
        let _change = layout.lock_for_change()?;
        for node in &manifest.nodes {
            if let Some(running) = process::find(layout, &node.name) {
                note(&format!("{} runs already, pid {}", node.name, running.pid.as_raw_nonzero()));
                continue;
            }
            let child = process::start(layout, manifest, node, program)?;
            tokio::spawn(reap(node.name.clone(), child, report.clone()));
        }
    }
    let deadline = started + wait::READY_TIMEOUT;
    wait::until_all_ok(&manifest.nodes, "/livez", deadline).await?;
    check_processes(layout, manifest)?;
    found_unless_founded(manifest, deadline).await?;
    wait::until_all_ok(&manifest.nodes, "/readyz", deadline).await?;
    check_processes(layout, manifest)?;
    note(&format!("ready after {:.1} s; ctrl-c ends all nodes", started.elapsed().as_secs_f64()));
    Ok(())
}

/// What answers on a port may be a foreign program that had taken it before.
fn check_processes(layout: &Layout, manifest: &Manifest) -> Result<(), Failure> {
    for node in &manifest.nodes {
        if process::find(layout, &node.name).is_none() {
            return Err(process::ended_early(layout, &node.name, "its port taken by another"));
        }
    }
    Ok(())
}

/// Founds the cluster, unless some node has belonged to one since an earlier run.
async fn found_unless_founded(manifest: &Manifest, deadline: Instant) -> Result<(), Failure> {
    let founders: Vec<&DevNode> = manifest.nodes.iter().filter(|node| node.is_founder).collect();
    let endpoints: Vec<Endpoint> = founders
        .iter()
        .map(|node| node.client_address().parse())
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::usage(format!("{error}")))?;
    let left = deadline.saturating_duration_since(Instant::now());
    let options = ClientOptions { deadline: left, ..ClientOptions::default() };
    let client = Client::new(&endpoints, options);
    for node in &founders {
        if client.node_info(&node.client_address()).await?.cluster_id.is_some() {
            return Ok(());
        }
    }
    let mut request = InitRequest::new(manifest.founders());
    request.partitions = manifest.partitions;
    match client.init(&request).await {
        Ok(answer) => {
            note(&format!("founded cluster {}, epoch {}", answer.cluster_id, answer.epoch));
            Ok(())
        }
        Err(ClientError::Problem(problem)) if problem.code == ProblemCode::AlreadyInitialised => {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits for a child's end without a thread of its own.
async fn reap(name: String, mut child: std::process::Child, report: mpsc::Sender<Ended>) {
    let pid = child.id();
    let how = loop {
        match child.try_wait() {
            Ok(Some(status)) => break process::describe_end(status),
            Ok(None) => tokio::time::sleep(REAP).await,
            Err(error) => break error.to_string(),
        }
    };
    // Nobody listens any longer once all nodes are being ended.
    let _ = report.send(Ended { name, pid, how }).await;
}

async fn first_end(layout: &Layout, ended: &mut mpsc::Receiver<Ended>) -> Failure {
    match ended.recv().await {
        Some(end) => process::ended_early(layout, &end.name, &end.how),
        None => std::future::pending().await,
    }
}

async fn watch(interrupts: &mut Interrupts, ended: &mut mpsc::Receiver<Ended>) {
    loop {
        tokio::select! {
            () = interrupts.next() => return,
            Some(end) = ended.recv() => note(&format!(
                "{name} (pid {pid}) ended with {how}; kvctl dev start {name} starts it again",
                name = end.name, pid = end.pid, how = end.how,
            )),
        }
    }
}

fn announce(layout: &Layout, manifest: &Manifest, format: Format) -> Result<(), Failure> {
    let pid_of = |node: &DevNode| {
        process::find(layout, &node.name).map(|running| running.pid.as_raw_nonzero().get())
    };
    if format == Format::Json {
        let nodes = manifest.nodes.iter().map(|node| {
            json!({
                "name": node.name,
                "zone": node.zone,
                "client_address": node.client_address(),
                "peer_address": node.peer_address(),
                "pid": pid_of(node),
            })
        });
        return output::json(&json!({ "dir": layout.root(), "nodes": nodes.collect::<Vec<_>>() }));
    }
    let mut table = output::table(&["node", "zone", "client", "peer", "pid"]);
    for node in &manifest.nodes {
        table.add_row([
            Cell::new(&node.name),
            Cell::new(&node.zone),
            Cell::new(format!("http://{}", node.client_address())),
            Cell::new(node.peer_address()),
            Cell::new(pid_of(node).map_or("-".to_owned(), |pid| pid.to_string())),
        ]);
    }
    output::print_table(&table)
}
