//! The command line. Each command's arguments stand with the command.

use std::time::Duration;

use clap::{Parser, Subcommand};
use kvapi::{Client, ClientOptions, Endpoint};

use crate::commands::{
    bench, completion, del, dev, drain, get, init, join, migrate, node, plan, put, remove, replace,
    reweight, ring, simulate,
};
use crate::exit::Failure;
use crate::input::parse_duration;
use crate::output::Format;

/// Operates and uses a ringkv cluster.
#[derive(Debug, Parser)]
#[command(name = "kvctl", version, about, propagate_version = true)]
pub struct Cli {
    /// What holds for all commands.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of all commands.
#[derive(Clone, Debug, clap::Args)]
pub struct Globals {
    /// Addresses of nodes, separated by commas.
    #[arg(
        long,
        global = true,
        env = "KVCTL_ENDPOINTS",
        default_value = "http://127.0.0.1:7400",
        value_delimiter = ',',
        value_name = "URLS"
    )]
    pub endpoints: Vec<Endpoint>,
    /// Form of the data on stdout; csv is for tables of numbers.
    #[arg(short = 'o', long = "output", global = true, value_enum, default_value_t)]
    pub form: Form,
    /// The form again, for the commands that know two.
    #[arg(skip)]
    pub output: Format,
    /// Time for a call, repetitions included.
    #[arg(long, global = true, default_value = "5s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Forms of the data on stdout, of which most commands know the first two ([`Format`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For spreadsheets.
    Csv,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a cluster of local processes.
    Dev(dev::Args),
    /// Founds a cluster.
    Init(init::Args),
    /// Shows the cluster on one screen, and what to do next.
    Status,
    /// Shows nodes.
    Node(node::Args),
    /// Shows and checks the ring.
    Ring(ring::Args),
    /// Checks that all is well; one line per check.
    Check,
    /// Stages that spares become members.
    Join(join::Args),
    /// Stages that members leave.
    Drain(drain::Args),
    /// Stages that a dead member is given up with its data.
    Remove(remove::Args),
    /// Stages that a spare takes a member's place.
    Replace(replace::Args),
    /// Stages another weight for a member.
    Reweight(reweight::Args),
    /// Shows, applies or forgets what is staged.
    Plan(plan::Args),
    /// Follows and steers plans under way.
    Migrate(migrate::Args),
    /// Reads a key; its raw bytes go to stdout.
    Get(get::Args),
    /// Writes a key; its version goes to stdout.
    Put(put::Args),
    /// Deletes a key.
    Del(del::Args),
    /// Measures throughput and latency.
    Bench(bench::Args),
    /// Measures placement: balance, movement, hot keys.
    Simulate(simulate::Args),
    /// Prints a completion script for a shell.
    Completion(completion::Args),
}

impl Cli {
    /// Settles the form of the output; only simulations speak CSV.
    pub fn settle(mut self) -> Result<Self, Failure> {
        self.globals.output = match (self.globals.form, &self.command) {
            (Form::Table, _) | (Form::Csv, Command::Simulate(_)) => Format::Table,
            (Form::Json, _) => Format::Json,
            (Form::Csv, _) => {
                return Err(Failure::usage("only simulate prints csv: use table or json"));
            }
        };
        Ok(self)
    }
}

impl Globals {
    /// A client that asks the endpoints, without a ring yet.
    pub fn client(&self) -> Client {
        let options = ClientOptions { deadline: self.timeout, ..ClientOptions::default() };
        Client::new(&self.endpoints, options)
    }
}

/// What is wrong with a command line, on one line.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let reason = text.split("\n\nUsage:").next().unwrap_or_default();
    let reason = reason.split("\n\nFor more information").next().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    format!("{} (see --help)", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_explained_on_one_line() {
        let wrong: [&[&str]; 6] = [
            &["kvctl"],
            &["kvctl", "frobnicate"],
            &["kvctl", "get"],
            &["kvctl", "get", "k", "--consistency", "maybe"],
            &["kvctl", "--endpoints", "https://a:1", "status"],
            &["kvctl", "--timeout", "soon", "status"],
        ];
        for arguments in wrong {
            let error = Cli::try_parse_from(arguments).expect_err("wrong");
            let line = one_line(&error);
            assert!(!line.contains('\n') && line.len() > 20, "{arguments:?}: {line}");
        }
    }
}
