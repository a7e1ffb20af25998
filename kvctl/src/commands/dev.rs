//! `kvctl dev`: a cluster of local processes.

use std::path::PathBuf;
use std::process::Child;

use serde_json::json;
use tokio::time::Instant;

use crate::cli::Globals;
use crate::commands::init::parse_partitions;
use crate::dev::layout::{DevNode, Layout, Manifest, Shape};
use crate::dev::{process, up, wait};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, note};

/// Arguments of `dev`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Starts a cluster, or the one in the directory again, and runs it until ctrl-c.
    Up(Up),
    /// Starts one node again; it goes on when kvctl ends.
    Start {
        /// Name of the node.
        name: String,
        #[command(flatten)]
        place: Place,
        /// The program of a node; default: kvnode beside kvctl, then in PATH.
        #[arg(long, value_name = "PATH")]
        kvnode: Option<PathBuf>,
    },
    /// Stops one node.
    Stop {
        /// Name of the node.
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Starts one more node, as a spare.
    Add {
        /// Its zone; default: the next in turn.
        #[arg(long)]
        zone: Option<String>,
        #[command(flatten)]
        place: Place,
        /// The program of a node; default: kvnode beside kvctl, then in PATH.
        #[arg(long, value_name = "PATH")]
        kvnode: Option<PathBuf>,
    },
}

/// Where the local cluster is.
#[derive(Debug, clap::Args)]
struct Place {
    /// Directory of the local cluster.
    #[arg(long, default_value = "./ringkv-dev", value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Up {
    /// Number of nodes [default: 3].
    #[arg(long)]
    nodes: Option<usize>,
    /// Number of zones [default: 3].
    #[arg(long)]
    zones: Option<usize>,
    /// Client port of the first node [default: 7400].
    #[arg(long)]
    port: Option<u16>,
    /// Number of partitions, a power of two [default: 256].
    #[arg(long, value_parser = parse_partitions)]
    partitions: Option<u32>,
    #[command(flatten)]
    place: Place,
    /// The program of a node; default: kvnode beside kvctl, then in PATH.
    #[arg(long, value_name = "PATH")]
    kvnode: Option<PathBuf>,
    /// Further arguments of each node.
    #[arg(last = true)]
    node_arguments: Vec<String>,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Up(args) => run_up(globals, args).await,
        Command::Start { name, place, kvnode } => {
            let program = process::find_program(kvnode.as_deref())?;
            let layout = Layout::open(&place.dir)?;
            let manifest = layout.existing_manifest()?;
            let node = manifest.node(&name)?;
            let _change = layout.lock_for_change()?;
            if let Some(running) = process::find(&layout, &name) {
                let pid = running.pid.as_raw_nonzero().get();
                note(&format!("{name} runs already, pid {pid}"));
                return print_node(globals.output, node, u32::try_from(pid).unwrap_or(0));
            }
            let child = process::start(&layout, &manifest, node, &program)?;
            let pid = until_alive(&layout, node, child).await?;
            print_node(globals.output, node, pid)
        }
        Command::Stop { name, place } => {
            let layout = Layout::open(&place.dir)?;
            layout.existing_manifest()?.node(&name)?;
            let _change = layout.lock_for_change()?;
            if process::find(&layout, &name).is_none() {
                note(&format!("{name} does not run"));
                return Ok(());
            }
            wait::stop(&layout, std::slice::from_ref(&name), std::future::pending()).await;
            match process::find(&layout, &name) {
                None => Ok(()),
                Some(_) => Err(Failure::new(Exit::CheckFailed, format!("{name} does not end"))),
            }
        }
        Command::Add { zone, place, kvnode } => {
            let program = process::find_program(kvnode.as_deref())?;
            let layout = Layout::open(&place.dir)?;
            let _change = layout.lock_for_change()?;
            let before = layout.existing_manifest()?;
            let mut manifest = before.clone();
            let node = manifest.add(zone, false)?;
            layout.save(&manifest)?;
            let started = match process::start(&layout, &manifest, &node, &program) {
                Ok(child) => until_alive(&layout, &node, child).await,
                Err(failure) => Err(failure),
            };
            let pid = match started {
                Ok(pid) => pid,
                Err(failure) => {
                    let name = std::slice::from_ref(&node.name);
                    wait::stop(&layout, name, std::future::pending()).await;
                    layout.save(&before)?;
                    return Err(failure);
                }
            };
            note(&format!("{} is a spare; kvctl join {} gives it data", node.name, node.name));
            print_node(globals.output, &node, pid)
        }
    }
}

async fn run_up(globals: &Globals, args: Up) -> Result<(), Failure> {
    let program = process::find_program(args.kvnode.as_deref())?;
    let layout = Layout::create(&args.place.dir)?;
    let _watching = layout.lock_for_up()?;
    let manifest = match layout.manifest()? {
        Some(mut manifest) => {
            refuse_other_shape(&manifest, &args)?;
            if !args.node_arguments.is_empty() {
                manifest.node_arguments = args.node_arguments;
            }
            manifest
        }
        None => {
            let shape = Shape {
                nodes: args.nodes.unwrap_or(3),
                zones: args.zones.unwrap_or(3),
                port: args.port.unwrap_or(7400),
                partitions: args.partitions.unwrap_or(256),
            };
            Manifest::new(&shape, args.node_arguments)?
        }
    };
    layout.save(&manifest)?;
    up::run(&layout, &manifest, &program, globals.output).await
}

/// A cluster keeps its shape; flags that say otherwise are a mistake about the directory.
fn refuse_other_shape(manifest: &Manifest, args: &Up) -> Result<(), Failure> {
    let founders = manifest.nodes.iter().filter(|node| node.is_founder).count();
    let told = |flag, asked: Option<u64>, has: u64| match asked {
        Some(asked) if asked != has => Some(format!("{flag} {has}, not {asked}")),
        Some(_) | None => None,
    };
    let differences = [
        told("--nodes", args.nodes.map(|nodes| nodes as u64), founders as u64),
        told("--zones", args.zones.map(|zones| zones as u64), manifest.zones as u64),
        told("--port", args.port.map(u64::from), u64::from(manifest.port)),
        told("--partitions", args.partitions.map(u64::from), u64::from(manifest.partitions)),
    ];
    let differences: Vec<String> = differences.into_iter().flatten().collect();
    if differences.is_empty() {
        return Ok(());
    }
    let place = args.place.dir.display();
    let message = format!("the cluster in {place} was made with {}", differences.join(" and "));
    Err(Failure::usage(message).with_hint("leave the flags out, or use another --dir"))
}

/// Waits until a started node answers, or says why it ended; its pid.
async fn until_alive(layout: &Layout, node: &DevNode, mut child: Child) -> Result<u32, Failure> {
    let deadline = Instant::now() + wait::READY_TIMEOUT;
    let pid = child.id();
    let ended = async {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return process::describe_end(status),
                Ok(None) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                Err(error) => return error.to_string(),
            }
        }
    };
    tokio::select! {
        how = ended => Err(process::ended_early(layout, &node.name, &how)),
        alive = wait::until_ok(node, "/livez", deadline) => match alive {
            Ok(()) => Ok(pid),
            Err(seen) => {
                let message = format!("{} runs but does not answer; last seen: {seen}", node.name);
                Err(Failure::new(Exit::Unreachable, message))
            }
        },
    }
}

fn print_node(format: Format, node: &DevNode, pid: u32) -> Result<(), Failure> {
    let (name, zone, address) = (&node.name, &node.zone, node.client_address());
    match format {
        Format::Json => output::json(&json!({
            "name": name,
            "zone": zone,
            "client_address": address,
            "peer_address": node.peer_address(),
            "pid": pid,
        })),
        Format::Table => output::text(&format!("{name} {zone} http://{address} pid {pid}\n")),
    }
}
