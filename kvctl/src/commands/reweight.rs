//! `kvctl reweight`: another share for a member.

use kvapi::plans::ChangeRequest;
use placement::NodeName;

use crate::cli::Globals;
use crate::commands::change::{When, stage};
use crate::exit::Failure;

/// Arguments of `reweight`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The member.
    node: NodeName,
    /// Its share relative to the others'.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    weight: u32,
    #[command(flatten)]
    when: When,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let change = ChangeRequest::Reweight { node: args.node, weight: args.weight };
    stage(globals, vec![change], args.when).await
}
