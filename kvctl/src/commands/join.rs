//! `kvctl join`: spares become members.

use kvapi::plans::ChangeRequest;
use kvapi::{Client, Health, NodeStatus};
use placement::{NodeName, NodeState};

use crate::cli::Globals;
use crate::commands::change::{When, stage};
use crate::exit::{Exit, Failure};

/// Arguments of `join`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Names of spares.
    #[arg(required_unless_present = "all_spares")]
    nodes: Vec<NodeName>,
    /// All spares that are up.
    #[arg(long, conflicts_with = "nodes")]
    all_spares: bool,
    #[command(flatten)]
    when: When,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let nodes = match args.all_spares {
        true => spares(&globals.client()).await?,
        false => args.nodes,
    };
    let changes = nodes.into_iter().map(|node| ChangeRequest::Join { node }).collect();
    stage(globals, changes, args.when).await
}

async fn spares(client: &Client) -> Result<Vec<NodeName>, Failure> {
    let nodes = client.status().await?.nodes;
    let is_spare = |node: &NodeStatus| node.state == NodeState::Spare && node.health == Health::Up;
    let spares: Vec<NodeName> = nodes.into_iter().filter(is_spare).map(|node| node.name).collect();
    match spares.is_empty() {
        true => {
            let failure = Failure::new(Exit::NotFound, "there is no spare that is up");
            Err(failure.with_hint("start a kvnode; a local one with `kvctl dev add`"))
        }
        false => Ok(spares),
    }
}
