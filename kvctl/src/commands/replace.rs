//! `kvctl replace`: a spare takes exactly what a member has.

use kvapi::plans::ChangeRequest;
use placement::NodeName;

use crate::cli::Globals;
use crate::commands::change::{When, stage};
use crate::exit::Failure;

/// Arguments of `replace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The member that goes.
    old: NodeName,
    /// The spare that takes its place.
    new: NodeName,
    #[command(flatten)]
    when: When,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let change = ChangeRequest::Replace { old: args.old, new: args.new };
    stage(globals, vec![change], args.when).await
}
