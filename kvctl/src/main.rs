//! `kvctl`: the operator's program, a client of the HTTP API and nothing more.
//!
//! Data goes to stdout, everything else to stderr; the exit code says what kind of end it was.

mod bench;
mod cli;
mod commands;
mod dev;
mod exit;
mod input;
mod interrupts;
mod output;
mod probe;
mod simulate;
mod survey;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return Failure::usage(cli::one_line(&error)).report(),
        Err(error) => error.exit(),
    };
    match cli.settle().and_then(commands::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
