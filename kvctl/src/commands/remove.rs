//! `kvctl remove`: a dead member is given up with its data.

use kvapi::plans::ChangeRequest;
use placement::NodeName;

use crate::cli::Globals;
use crate::commands::change::{When, stage};
use crate::exit::Failure;

/// Arguments of `remove`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of a dead member.
    node: NodeName,
    #[command(flatten)]
    when: When,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    stage(globals, vec![ChangeRequest::Remove { node: args.node }], args.when).await
}
