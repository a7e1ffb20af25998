//! `kvctl drain`: live members leave.

use kvapi::plans::ChangeRequest;
use placement::NodeName;

use crate::cli::Globals;
use crate::commands::change::{When, stage};
use crate::exit::Failure;

/// Arguments of `drain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Names of members.
    #[arg(required = true)]
    nodes: Vec<NodeName>,
    #[command(flatten)]
    when: When,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let changes = args.nodes.into_iter().map(|node| ChangeRequest::Drain { node }).collect();
    stage(globals, changes, args.when).await
}
