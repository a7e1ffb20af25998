//! One module per command, and the dispatch between them.

pub mod bench;
mod change;
pub mod check;
pub mod completion;
pub mod del;
pub mod dev;
pub mod drain;
pub mod get;
pub mod init;
pub mod join;
pub mod migrate;
pub mod node;
pub mod plan;
pub mod put;
pub mod remove;
pub mod replace;
pub mod reweight;
pub mod ring;
pub mod simulate;
pub mod status;

use std::future::Future;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};

/// Runs a parsed command line.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let globals = &cli.globals;
    match cli.command {
        Command::Dev(args) => block_on(dev::run(globals, args)),
        Command::Init(args) => block_on(init::run(globals, args)),
        Command::Status => block_on(status::run(globals)),
        Command::Node(args) => block_on(node::run(globals, args)),
        Command::Ring(args) => block_on(ring::run(globals, args)),
        Command::Check => block_on(check::run(globals)),
        Command::Join(args) => block_on(join::run(globals, args)),
        Command::Drain(args) => block_on(drain::run(globals, args)),
        Command::Remove(args) => block_on(remove::run(globals, args)),
        Command::Replace(args) => block_on(replace::run(globals, args)),
        Command::Reweight(args) => block_on(reweight::run(globals, args)),
        Command::Plan(args) => block_on(plan::run(globals, args)),
        Command::Migrate(args) => block_on(migrate::run(globals, args)),
        Command::Get(args) => block_on(get::run(globals, args)),
        Command::Put(args) => block_on(put::run(globals, args)),
        Command::Del(args) => block_on(del::run(globals, args)),
        Command::Bench(args) => bench::run(globals, args),
        Command::Simulate(args) => simulate::run(globals, &args),
        Command::Completion(args) => completion::run(&args),
    }
}

/// One thread is enough for everything but the benchmark, which makes its own.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::CheckFailed, format!("cannot start: {error}")))?;
    runtime.block_on(command)
}
