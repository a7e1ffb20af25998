//! `kvctl ring`: the published ring, where a key lives, and whether all nodes agree.

mod diff;
mod history;

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;

use comfy_table::Cell;
use futures_util::future::join_all;
use kvapi::{Client, ClientOptions, Endpoint, LocateAnswer, RingDocument};
use placement::{OwnerRole, Ring};
use serde::Serialize;
use serde_json::json;

use crate::cli::Globals;
use crate::exit::{Exit, Failure};
use crate::input::key_of;
use crate::output::{self, Format};

/// Arguments of `ring`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Shows the published ring.
    Show {
        /// Show each partition's owners, too.
        #[arg(long)]
        partitions: bool,
    },
    /// Shows where a key lives.
    Locate {
        /// The key.
        key: OsString,
        /// KEY is base64url without padding.
        #[arg(long)]
        key_base64: bool,
    },
    /// Lists the rings that were published, with the plans behind them.
    History,
    /// Shows what changed between two rings, or would change on made-up nodes.
    Diff(diff::Args),
    /// Checks that every node holds the same ring with the right checksum.
    Verify,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Show { partitions } => show(globals, partitions).await,
        Command::Locate { key, key_base64 } => {
            let key = key_of(key, key_base64)?;
            let answer = globals.client().locate(&key).await?;
            match globals.output {
                Format::Json => output::json(&answer),
                Format::Table => print_location(&answer),
            }
        }
        Command::History => history::run(globals).await,
        Command::Diff(args) => diff::run(globals, args).await,
        Command::Verify => verify(globals).await,
    }
}

async fn show(globals: &Globals, with_partitions: bool) -> Result<(), Failure> {
    let document = globals.client().ring().await?;
    if globals.output == Format::Json {
        return output::json(&document);
    }
    let snapshot = Arc::new(document.snapshot);
    let ring = Ring::new(Arc::clone(&snapshot));
    let mut tokens: HashMap<_, usize> = HashMap::new();
    snapshot.tokens().for_each(|token| *tokens.entry(token.node).or_default() += 1);
    output::text(&format!(
        "epoch        {}\nchecksum     {}\npartitions   {} x {} copies\n\n",
        snapshot.epoch(),
        snapshot.checksum(),
        snapshot.partition_bits().count(),
        snapshot.replication_factor(),
    ))?;
    let columns = ["node", "zone", "weight", "state", "tokens", "replicas", "primaries", "client"];
    let mut table = output::table(&columns);
    let mut nodes: Vec<_> = ring.nodes().iter().collect();
    nodes.sort_by(|left, right| (&left.zone, &left.name).cmp(&(&right.zone, &right.name)));
    for node in nodes {
        let owned: Vec<OwnerRole> = ring.partitions_of(node.id).map(|(_, role)| role).collect();
        let primaries = owned.iter().filter(|role| **role == OwnerRole::Primary).count();
        let address = document.directory.by_id(node.id).map(|node| node.client_address.as_str());
        table.add_row([
            Cell::new(node.name.as_str()),
            Cell::new(node.zone.as_str()),
            Cell::new(node.weight),
            Cell::new(node.state),
            Cell::new(tokens.get(&node.id).copied().unwrap_or_default()),
            Cell::new(owned.len()),
            Cell::new(primaries),
            Cell::new(address.unwrap_or("-")),
        ]);
    }
    output::print_table(&table)?;
    if with_partitions { print_partitions(&ring) } else { Ok(()) }
}

fn print_partitions(ring: &Ring) -> Result<(), Failure> {
    let mut table = output::table(&["partition", "owners"]);
    for partition in ring.partition_bits().partitions() {
        let owners = ring.owners(partition).iter().map(|owner| ring.node(*owner).name.as_str());
        let owners = owners.collect::<Vec<_>>().join(" ");
        table.add_row([Cell::new(partition), Cell::new(owners)]);
    }
    output::text(&format!("\n{}", output::render(&table)))
}

fn print_location(answer: &LocateAnswer) -> Result<(), Failure> {
    let leader = answer.leader.as_ref();
    let leader = leader.map_or("not known".to_owned(), |leader| {
        format!("{} at {}", leader.name, leader.client_address)
    });
    output::text(&format!(
        "key hash     {:016x}\npartition    {}\nepoch        {}\nleader       {leader}\n\n",
        answer.key_hash, answer.partition, answer.epoch,
    ))?;
    let mut table = output::table(&["owner", "zone", "role", "client"]);
    for owner in &answer.owners {
        table.add_row([
            Cell::new(owner.name.as_str()),
            Cell::new(owner.zone.as_str()),
            Cell::new(owner.role),
            Cell::new(&owner.client_address),
        ]);
    }
    output::print_table(&table)
}

/// One node's ring, or why there is none.
#[derive(Debug, Serialize)]
struct Held {
    address: String,
    epoch: Option<u64>,
    checksum: Option<String>,
    error: Option<String>,
}

async fn verify(globals: &Globals) -> Result<(), Failure> {
    let document = globals.client().ring().await?;
    let mut addresses: Vec<String> =
        globals.endpoints.iter().map(|endpoint| endpoint.authority().to_string()).collect();
    addresses.extend(document.directory.nodes.into_iter().map(|node| node.client_address));
    addresses.sort();
    addresses.dedup();
    let held = join_all(addresses.into_iter().map(|address| held_by(globals, address))).await;
    let newest = held.iter().filter_map(|held| held.epoch).max().unwrap_or_default();
    let agrees = |held: &Held| {
        held.epoch == Some(newest)
            && held.checksum == Some(document.snapshot.checksum().to_string())
    };
    let is_agreed = held.iter().all(agrees);
    match globals.output {
        Format::Json => output::json(&json!({ "agreed": is_agreed, "nodes": held }))?,
        Format::Table => {
            let mut table = output::table(&["client", "epoch", "checksum", "verdict"]);
            for held in &held {
                let verdict = match (&held.error, agrees(held)) {
                    (Some(error), _) => output::alarming(error),
                    (None, true) => Cell::new("ok"),
                    (None, false) => output::alarming("differs"),
                };
                let epoch = held.epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
                let checksum = held.checksum.as_deref().unwrap_or("-");
                table.add_row([
                    Cell::new(&held.address),
                    Cell::new(epoch),
                    Cell::new(checksum),
                    verdict,
                ]);
            }
            output::print_table(&table)?;
        }
    }
    if is_agreed {
        return Ok(());
    }
    Err(Failure::new(Exit::CheckFailed, "not every node holds the same verified ring"))
}

async fn held_by(globals: &Globals, address: String) -> Held {
    let fetched = fetch(globals, &address).await;
    let snapshot = fetched.as_ref().ok().map(|document| &document.snapshot);
    Held {
        epoch: snapshot.map(|snapshot| snapshot.epoch().get()),
        checksum: snapshot.map(|snapshot| snapshot.checksum().to_string()),
        error: fetched.as_ref().err().cloned(),
        address,
    }
}

async fn fetch(globals: &Globals, address: &str) -> Result<RingDocument, String> {
    let endpoint: Endpoint = address.parse().map_err(|error| format!("{error}"))?;
    let deadline = globals.timeout.min(std::time::Duration::from_secs(2));
    let options = ClientOptions { deadline, backoff_min: deadline * 2, ..ClientOptions::default() };
    let client = Client::new(&[endpoint], options);
    client.ring().await.map_err(|error| error.to_string())
}
