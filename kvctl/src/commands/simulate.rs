//! `kvctl simulate`: what placement does to a load, without a cluster or with the live one's numbers.

use std::path::PathBuf;

use clap::Parser;

use crate::cli::{Form, Globals};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::simulate::study::{self, Study};
use crate::simulate::{balance, cache, change, hot_key, html, strategies};

/// Arguments of `simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Print this sheet alone.
    #[arg(long, global = true, value_name = "NAME")]
    sheet: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// How even rings are at 1, 2, 4, ... vnodes.
    Balance(Box<balance::Args>),
    /// What a join, drain, failure, zone loss or new weight moves.
    Change(Box<change::Args>),
    /// The ring beside other ways to place keys.
    Strategies(Box<strategies::Args>),
    /// One key with a large part of all requests.
    HotKey(Box<hot_key::Args>),
    /// The hit ratio of a fleet of caches when a server goes or comes.
    Cache(Box<cache::Args>),
    /// All of them as one HTML document.
    Report(ReportArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ReportArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 120)]
    nodes: u32,
    /// Number of zones.
    #[arg(long, default_value_t = 3)]
    zones: u32,
    /// Number of partitions, a power of two.
    #[arg(long, default_value_t = 4096)]
    partitions: u32,
    /// Number of keys to make up.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Start of all pseudo-random sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the document; default: stdout.
    #[arg(long)]
    file: Option<PathBuf>,
}

/// Runs the command.
pub fn run(globals: &Globals, args: &Args) -> Result<(), Failure> {
    let study = match &args.command {
        Command::Balance(args) => balance::study(globals, args)?,
        Command::Change(args) => change::study(globals, args)?,
        Command::Strategies(args) => strategies::study(args)?,
        Command::HotKey(args) => hot_key::study(globals, args)?,
        Command::Cache(args) => cache::study(args)?,
        Command::Report(args) => return report(globals, args),
    };
    let sheet = args.sheet.as_deref();
    match globals.form {
        Form::Table => study::print_tables(&study, sheet),
        Form::Json => study::print_json(&study),
        Form::Csv => study::print_csv(&study, sheet),
    }
}

/// The subcommands of the report, as they would be typed.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Typed {
    #[command(subcommand)]
    command: Command,
}

fn report(globals: &Globals, args: &ReportArgs) -> Result<(), Failure> {
    let ReportArgs { nodes, zones, partitions, keys, seed, .. } = args;
    let draw = format!("--keys {keys} --seed {seed}");
    let fleet = format!("--nodes {nodes} --zones {zones} --partitions {partitions} {draw}");
    let small = format!("--nodes 6 --zones 3 --partitions 64 {draw}");
    let typed = [
        format!("balance {fleet}"),
        format!("strategies --nodes {nodes} --partitions {partitions} --data 24TiB {draw}"),
        format!("change {fleet} --join"),
        format!("change {fleet} --fail n1"),
        format!("change {fleet} --lose-zone z1"),
        format!("change {small} --join"),
        format!("hot-key {fleet} --dist uniform"),
        format!("cache --seed {seed}"),
    ];
    let studies: Result<Vec<Study>, Failure> =
        typed.iter().map(|line| run_line(globals, line)).collect();
    let lead = "What one seed gave, beside what to expect. An expectation is the mean over all draws of \
        random tokens; a single ring lies around it, and no number here is a bound. Marks show their \
        values under the mouse.";
    let document = html::report("ringkv: placement, measured", lead, &studies?);
    match &args.file {
        None => output::text(&document),
        Some(path) => std::fs::write(path, document).map_err(|error| {
            Failure::new(Exit::CheckFailed, format!("cannot write {}: {error}", path.display()))
        }),
    }
}

fn run_line(globals: &Globals, line: &str) -> Result<Study, Failure> {
    let typed = Typed::try_parse_from(line.split_whitespace());
    let typed = typed.map_err(|error| Failure::usage(crate::cli::one_line(&error)))?;
    output::note(&format!("simulate {line}"));
    let mut study = match &typed.command {
        Command::Balance(args) => balance::study(globals, args),
        Command::Change(args) => change::study(globals, args),
        Command::Strategies(args) => strategies::study(args),
        Command::HotKey(args) => hot_key::study(globals, args),
        Command::Cache(args) => cache::study(args),
        Command::Report(_) => Err(Failure::usage("a report does not hold itself")),
    }?;
    study.settings["command"] = format!("kvctl simulate {line}").into();
    Ok(study)
}
