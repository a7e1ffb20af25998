//! `kvctl completion`: a script for the user's shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Failure;
use crate::output;

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kvctl", &mut script);
    output::raw(&script)
}
