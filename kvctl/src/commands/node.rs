//! `kvctl node`: the nodes, and one of them in full.

use comfy_table::Cell;
use kvapi::NodeInfo;
use serde_json::json;

use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::commands::status::{find_node, health_name, stage_name};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::survey;

/// Arguments of `node`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists the nodes.
    Ls,
    /// Shows what a node says about itself.
    Show {
        /// Name of the node.
        name: String,
    },
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Ls => list(globals).await,
        Command::Show { name } => show(globals, &name).await,
    }
}

async fn list(globals: &Globals) -> Result<(), Failure> {
    let status = globals.client().status().await?;
    if globals.output == Format::Json {
        return output::json(&status.nodes);
    }
    let columns =
        ["node", "zone", "weight", "health", "state", "replicas", "primaries", "client", "peer"];
    let mut table = output::table(&columns);
    for node in &status.nodes {
        table.add_row([
            Cell::new(node.name.as_str()),
            Cell::new(node.zone.as_str()),
            Cell::new(node.weight),
            Cell::new(health_name(node.health)),
            Cell::new(node.state),
            Cell::new(node.replicas),
            Cell::new(node.primaries),
            Cell::new(&node.client_address),
            Cell::new(&node.peer_address),
        ]);
    }
    output::print_table(&table)
}

async fn show(globals: &Globals, name: &str) -> Result<(), Failure> {
    let status = globals.client().status().await?;
    let address = find_node(&status, name)?.client_address.clone();
    let mut answers = survey::ask_all(std::slice::from_ref(&address)).await;
    let info = match answers.pop() {
        Some(Ok(info)) => info,
        Some(Err(error)) => {
            let message = format!("{name} at {address} does not answer: {error}");
            return Err(Failure::new(Exit::Unreachable, message));
        }
        None => return Err(Failure::new(Exit::Unreachable, "nobody was asked")),
    };
    match globals.output {
        Format::Json => output::json(&json!(info)),
        Format::Table => output::text(&in_words(&info)),
    }
}

fn in_words(info: &NodeInfo) -> String {
    let cluster = info.cluster_id.as_deref().unwrap_or("none");
    let disk = if info.disk_ok { "ok" } else { "not ok: its last probe was late or failed" };
    let mut text = format!(
        "node         {name} ({id})\n\
         cluster      {cluster}\n\
         zone         {zone}, weight {weight}\n\
         addresses    client {client}, peer {peer}\n\
         stage        {stage}\n\
         view         epoch {epoch}, revision {revision}, confirmed {age} ms ago\n\
         partitions   {partitions} held, {leaders} led\n\
         disk         {disk}; {data} of data, {log} of logs, {free} of {total} free\n\
         version      {version}\n",
        name = info.name,
        id = info.id,
        zone = info.zone,
        weight = info.weight,
        client = info.client_address,
        peer = info.peer_address,
        stage = stage_name(info.stage),
        epoch = info.epoch,
        revision = info.view_revision,
        age = info.view_age_ms,
        partitions = info.partitions,
        leaders = info.leaders,
        data = bytes(info.data_bytes),
        log = bytes(info.log_bytes),
        free = bytes(info.disk_available),
        total = bytes(info.disk_total),
        version = info.version,
    );
    for alarm in &info.alarms {
        text.push_str(&format!("alarm        {}: {}\n", alarm.code, alarm.detail));
    }
    text
}
