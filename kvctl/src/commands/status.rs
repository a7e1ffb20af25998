//! `kvctl status`: the cluster on one screen, and what to do next.

use comfy_table::Cell;
use kvapi::{Alarm, Client, ClusterStatus, Health, NodeInfo, NodeStage, NodeStatus};
use serde::Serialize;

use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::survey;

/// The whole answer as JSON: what the cluster says, and what each node says about itself.
#[derive(Debug, Serialize)]
struct Document<'a> {
    initialised: bool,
    cluster: Option<&'a ClusterStatus>,
    nodes: Vec<Surveyed<'a>>,
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
struct Surveyed<'a> {
    address: &'a str,
    reachable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a NodeInfo>,
}

/// Runs the command.
pub async fn run(globals: &Globals) -> Result<(), Failure> {
    let client = globals.client();
    match client.status().await {
        Ok(status) => show(globals.output, &status).await,
        Err(error) if error.is_not_initialised() => show_uninitialised(globals, &client).await,
        Err(error) => Err(error.into()),
    }
}

async fn show(format: Format, status: &ClusterStatus) -> Result<(), Failure> {
    let mut nodes: Vec<&NodeStatus> = status.nodes.iter().collect();
    nodes.sort_by(|left, right| (&left.zone, &left.name).cmp(&(&right.zone, &right.name)));
    let addresses: Vec<String> = nodes.iter().map(|node| node.client_address.clone()).collect();
    let answers = survey::ask_all(&addresses).await;
    let hint = status.hint.clone().or_else(|| next_step(&nodes, &answers));
    match format {
        Format::Json => output::json(&document(Some(status), &addresses, &answers, hint)),
        Format::Table => {
            let rows: Vec<_> = nodes.into_iter().zip(&answers).collect();
            output::text(&screen(status, &rows, hint.as_deref()))
        }
    }
}

fn screen(
    status: &ClusterStatus,
    rows: &[(&NodeStatus, &Result<NodeInfo, String>)],
    hint: Option<&str>,
) -> String {
    let mut text = heading(status);
    let columns =
        ["node", "zone", "health", "state", "partitions", "leaders", "weight", "client", "epoch"];
    let mut table = output::table(&columns);
    for (node, answer) in rows {
        let mut row = vec![Cell::new(node.name.as_str()), Cell::new(node.zone.as_str())];
        row.push(health_cell(node, answer));
        row.push(Cell::new(node.state));
        match answer {
            Ok(info) => row.extend([Cell::new(info.partitions), Cell::new(info.leaders)]),
            Err(_) => row.extend([Cell::new(node.replicas), Cell::new("-")]),
        }
        row.extend([Cell::new(node.weight), Cell::new(&node.client_address)]);
        let epoch = answer.as_ref().map(|info| info.epoch.to_string());
        row.push(Cell::new(epoch.unwrap_or_else(|_| "-".to_owned())));
        table.add_row(row);
    }
    text.push_str(&output::render(&table));
    text.push('\n');
    text.push_str(&plan_lines(status));
    text.push_str(&alarm_lines(status, rows));
    text.push_str(&format!("next         {}\n", hint.unwrap_or("nothing to do")));
    text
}

fn heading(status: &ClusterStatus) -> String {
    let names = |names: &[placement::NodeName]| {
        names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let group0 = &status.group0;
    let leader = group0.leader.as_ref().map_or("no leader known", |name| name.as_str());
    let redundancy = &status.redundancy;
    let lacking = match redundancy.under_replicated_partitions {
        0 => String::new(),
        count => format!(", {count} partitions have too few copies"),
    };
    let detail = match redundancy.detail.as_str() {
        "" => String::new(),
        detail => format!(" ({detail})"),
    };
    format!(
        "cluster      {id}\n\
         ring         epoch {epoch}, {partitions} partitions x {copies} copies\n\
         view         revision {revision}, confirmed {age} ms ago\n\
         group 0      leader {leader}, term {term}, voters {voters}\n\
         redundancy   copies in {achieved} of {possible} zones{lacking}{detail}\n\n",
        id = status.cluster_id,
        epoch = status.epoch,
        partitions = status.partitions,
        copies = status.replication_factor,
        revision = status.revision,
        age = status.view_age_ms,
        term = group0.term,
        voters = names(&group0.voters),
        achieved = redundancy.zones_achieved_min,
        possible = redundancy.zones_possible,
    )
}

/// What is staged, and the plan under way.
fn plan_lines(status: &ClusterStatus) -> String {
    let mut text = String::new();
    for change in &status.staged {
        text.push_str(&format!("staged       {change}\n"));
    }
    let Some(plan) = &status.plan else { return text };
    let what = if plan.changes.is_empty() { plan.kind.clone() } else { plan.changes.join(", ") };
    let paused = if plan.paused { ", paused" } else { "" };
    let stages: Vec<String> =
        plan.stages.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
    text.push_str(&format!(
        "plan         {} ({what}), {}{paused}: {}\n",
        plan.id,
        plan.phase,
        stages.join(", ")
    ));
    if plan.phase == "moving" {
        let left = plan.eta_ms.map(|left| format!(", {} left", output::span(left)));
        text.push_str(&format!(
            "copied       {} of {}{}\n",
            bytes(plan.bytes_done),
            bytes(plan.bytes_total),
            left.unwrap_or_default()
        ));
    }
    if let Some(at) = plan.grace_ends_at {
        text.push_str(&format!("grace ends   {}\n", output::utc(at)));
    }
    text
}

fn health_cell(node: &NodeStatus, answer: &Result<NodeInfo, String>) -> Cell {
    match (answer, node.health) {
        (Err(_), health) => output::alarming(&format!("unreachable ({})", health_name(health))),
        (Ok(info), _) if !info.disk_ok => output::alarming("disk"),
        (Ok(_), Health::Up) => Cell::new("up"),
        (Ok(_), health @ (Health::Suspect | Health::Down)) => output::alarming(health_name(health)),
    }
}

fn alarm_lines(
    status: &ClusterStatus,
    rows: &[(&NodeStatus, &Result<NodeInfo, String>)],
) -> String {
    // What the node that was asked says of itself, it says again when all are asked.
    let told = |alarm: &&Alarm| {
        rows.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|info| info.alarms.contains(alarm)))
    };
    let untold = status.alarms.iter().filter(|alarm| !told(alarm));
    let mut lines: Vec<String> =
        untold.map(|alarm| format!("{}: {}", alarm.code, alarm.detail)).collect();
    for (node, answer) in rows {
        match answer {
            Ok(info) => lines.extend(
                info.alarms
                    .iter()
                    .map(|alarm| format!("{}: {}: {}", node.name, alarm.code, alarm.detail)),
            ),
            Err(error) => lines.push(format!("{}: {error}", node.name)),
        }
    }
    if lines.is_empty() {
        return "alarms       none\n".to_owned();
    }
    lines.iter().map(|line| format!("alarm        {line}\n")).collect()
}

/// What an operator would do next, where the cluster itself names nothing.
fn next_step(nodes: &[&NodeStatus], answers: &[Result<NodeInfo, String>]) -> Option<String> {
    let dead = nodes.iter().zip(answers).find(|(_, answer)| answer.is_err());
    if let Some((node, _)) = dead {
        let name = &node.name;
        return Some(format!("start {name} again (a local one with `kvctl dev start {name}`)"));
    }
    let spare = nodes.iter().find(|node| node.stage == NodeStage::Spare)?;
    Some(format!("give {} data: kvctl join {}", spare.name, spare.name))
}

async fn show_uninitialised(globals: &Globals, client: &Client) -> Result<(), Failure> {
    let addresses: Vec<String> =
        client.endpoints().iter().map(|endpoint| endpoint.authority().to_string()).collect();
    let answers = survey::ask_all(&addresses).await;
    let endpoints: Vec<String> = client.endpoints().iter().map(ToString::to_string).collect();
    let hint = format!("kvctl init --endpoints {}", endpoints.join(","));
    if globals.output == Format::Json {
        return output::json(&document(None, &addresses, &answers, Some(hint)));
    }
    let mut table = output::table(&["node", "zone", "stage", "client", "peer"]);
    for (address, answer) in addresses.iter().zip(&answers) {
        match answer {
            Ok(info) => table.add_row([
                Cell::new(info.name.as_str()),
                Cell::new(info.zone.as_str()),
                Cell::new(stage_name(info.stage)),
                Cell::new(&info.client_address),
                Cell::new(&info.peer_address),
            ]),
            Err(_) => table.add_row([
                Cell::new("?"),
                Cell::new("?"),
                output::alarming("unreachable"),
                Cell::new(address),
                Cell::new("?"),
            ]),
        };
    }
    let nodes = output::render(&table);
    output::text(&format!(
        "cluster      not initialised: no data can be read or written yet\n\n{nodes}\nnext         {hint}\n"
    ))
}

fn document<'a>(
    cluster: Option<&'a ClusterStatus>,
    addresses: &'a [String],
    answers: &'a [Result<NodeInfo, String>],
    hint: Option<String>,
) -> Document<'a> {
    let nodes = addresses.iter().zip(answers).map(|(address, answer)| Surveyed {
        address,
        reachable: answer.is_ok(),
        error: answer.as_ref().err().map(String::as_str),
        info: answer.as_ref().ok(),
    });
    Document { initialised: cluster.is_some(), cluster, nodes: nodes.collect(), hint }
}

/// A stage in words.
pub fn stage_name(stage: NodeStage) -> &'static str {
    match stage {
        NodeStage::Uninitialised => "uninitialised",
        NodeStage::Registering => "registering",
        NodeStage::Spare => "spare",
        NodeStage::Member => "member",
    }
}

/// Health in words.
pub fn health_name(health: Health) -> &'static str {
    match health {
        Health::Up => "up",
        Health::Suspect => "suspect",
        Health::Down => "down",
    }
}

/// A node by name, or a clear failure.
pub fn find_node<'a>(status: &'a ClusterStatus, name: &str) -> Result<&'a NodeStatus, Failure> {
    let found = status.nodes.iter().find(|node| node.name.as_str() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = status.nodes.iter().map(|node| node.name.as_str()).collect();
        let message = format!("no node is named {name}; there are {}", names.join(", "));
        Failure::new(Exit::NotFound, message)
    })
}
