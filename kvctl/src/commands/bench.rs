//! `kvctl bench`: throughput and latency under a reproducible load.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use kvapi::{Client, ClientOptions, Consistency, VALUE_BYTES_MAX_CAP};
use serde_json::json;

use crate::bench::plan::{Distribution, Plan, PlanOptions};
use crate::bench::run::{self, Intensity, Schedule};
use crate::bench::tally::Report;
use crate::bench::worker::{Route, Routes};
use crate::cli::Globals;
use crate::commands::get::parse_consistency;
use crate::exit::{Exit, Failure};
use crate::input::parse_duration;
use crate::interrupts::Interrupts;
use crate::output::{self, Format, note};

/// What shells report of a program that ctrl-c ended: 128 and the signal's number.
const EXIT_INTERRUPTED: i32 = 130;

/// Arguments of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long to measure; ctrl-c ends it earlier, with the results so far.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// Operations per second, started in time whether or not others have ended; default: each
    /// connection starts the next operation when it is free.
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Requests in flight at the most.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Number of keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Bytes of each value.
    #[arg(long, default_value_t = 256, value_parser = parse_value_bytes)]
    value_size: usize,
    /// Share of reads, from 0 to 1.
    #[arg(long, default_value_t = 0.5, value_parser = parse_share)]
    read_share: f64,
    /// How often each key is chosen.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    distribution: Distribution,
    /// Where requests go: by the ring straight to the leader, or to any endpoint.
    #[arg(long, value_enum, default_value_t = RouteArg::Ring)]
    route: RouteArg,
    /// Consistency of reads.
    #[arg(long, default_value = "linearizable", value_parser = parse_consistency)]
    consistency: Consistency,
    /// Write every key once before measuring.
    #[arg(long)]
    preload: bool,
    /// Start of the pseudo-random sequence of operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// First characters of every key.
    #[arg(long, default_value = "bench-")]
    key_prefix: String,
    /// Threads of the load generator; default: one per core, at most two.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RouteArg {
    /// Straight to the leader.
    Ring,
    /// To any endpoint.
    Any,
}

/// Runs the command.
pub fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    if args.key_prefix.len() > 1024 {
        return Err(Failure::usage("--key-prefix has at most 1024 bytes"));
    }
    let is_ended = end_on_interrupt()?;
    let routing = Routing::start(globals, args.route)?;
    let intensity = intensity_of(globals, &args, Arc::clone(&is_ended));
    let preloaded = match args.preload {
        false => None,
        true => {
            note(&format!("writing {} keys", args.keys));
            let plan = plan_of(&args);
            let report = run::run(plan, routing.route.clone(), Schedule::Preload, &intensity)?;
            if is_ended.load(Ordering::Relaxed) {
                return Err(Failure::new(Exit::CheckFailed, "interrupted while keys were written"));
            }
            if report.operations < args.keys {
                let missing = args.keys - report.operations;
                let message = format!("{missing} of {} keys could not be written", args.keys);
                return Err(Failure::new(Exit::Unreachable, message));
            }
            Some(report)
        }
    };
    let schedule = match args.rate {
        None => Schedule::Closed(args.duration),
        Some(rate) => Schedule::Open(rate, args.duration),
    };
    let progress = Progress::start(args.duration);
    let report = run::run(plan_of(&args), routing.route.clone(), schedule, &intensity);
    progress.end();
    let report = report?;
    routing.end();
    print(globals, &args, preloaded.as_ref(), &report)?;
    if report.operations == 0 {
        return Err(Failure::new(Exit::Unreachable, "no operation succeeded"));
    }
    Ok(())
}

/// A flag that the first interrupt sets; the second one ends the process.
fn end_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let failed = |error| Failure::new(Exit::CheckFailed, format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let mut interrupts = runtime.block_on(async { Interrupts::listen() })?;
    let is_ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_ended);
    std::thread::spawn(move || {
        runtime.block_on(async {
            interrupts.next().await;
            flag.store(true, Ordering::Relaxed);
            interrupts.next().await;
            std::process::exit(EXIT_INTERRUPTED);
        });
    });
    Ok(is_ended)
}

/// The route, and the thread that keeps it current.
struct Routing {
    route: Route,
    is_over: Arc<AtomicBool>,
    renewal: Option<std::thread::JoinHandle<()>>,
}

impl Routing {
    fn start(globals: &Globals, route: RouteArg) -> Result<Self, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        if route == RouteArg::Any {
            let addresses =
                globals.endpoints.iter().map(|endpoint| endpoint.authority().to_string());
            let route = Route::Any(addresses.collect());
            return Ok(Self { route, is_over, renewal: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| Failure::new(Exit::CheckFailed, format!("cannot start: {error}")))?;
        let options = ClientOptions { deadline: globals.timeout, ..ClientOptions::default() };
        let client = Client::new(&globals.endpoints, options);
        let routes = Arc::new(Routes::new(runtime.block_on(client.refresh())?));
        let route = Route::Ring(Arc::clone(&routes));
        let told = Arc::clone(&is_over);
        let renewal = std::thread::spawn(move || {
            runtime.block_on(run::renew_routes(client, routes, told));
        });
        Ok(Self { route, is_over, renewal: Some(renewal) })
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(renewal) = self.renewal {
            // Its results are of no more use, whatever became of it.
            let _ = renewal.join();
        }
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn start(duration: Duration) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let style = ProgressStyle::with_template("measuring for {msg} {spinner} {elapsed}");
        let bar = ProgressBar::new_spinner();
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(format!("{} s", duration.as_secs_f64()));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(Some(bar))
    }

    fn end(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

fn plan_of(args: &Args) -> Plan {
    Plan::new(PlanOptions {
        seed: args.seed,
        keys: args.keys,
        read_share: args.read_share,
        distribution: args.distribution,
        value_bytes: args.value_size,
        key_prefix: args.key_prefix.clone(),
    })
}

fn intensity_of(globals: &Globals, args: &Args, is_ended: Arc<AtomicBool>) -> Intensity {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Intensity {
        connections: usize::from(args.connections),
        threads: args.threads.map_or(cores.min(2), usize::from),
        timeout: globals.timeout,
        read_query: match args.consistency {
            Consistency::Linearizable => "",
            Consistency::Stale => "?consistency=stale",
        },
        is_ended,
    }
}

fn print(
    globals: &Globals,
    args: &Args,
    preloaded: Option<&Report>,
    report: &Report,
) -> Result<(), Failure> {
    if globals.output == Format::Json {
        return output::json(&json!({
            "settings": {
                "duration_seconds": args.duration.as_secs_f64(),
                "rate": args.rate,
                "connections": args.connections,
                "keys": args.keys,
                "value_bytes": args.value_size,
                "read_share": args.read_share,
                "distribution": match args.distribution {
                    Distribution::Uniform => "uniform",
                    Distribution::Zipf => "zipf",
                },
                "route": match args.route { RouteArg::Ring => "ring", RouteArg::Any => "any" },
                "consistency": args.consistency.as_str(),
                "seed": args.seed,
            },
            "preload": preloaded,
            "result": report,
        }));
    }
    if let Some(preloaded) = preloaded {
        output::text(&format!("preload\n{}\n", preloaded.in_words()))?;
    }
    output::text(&report.in_words())?;
    let gets = report.gets.as_ref().map_or(0, |gets| gets.count);
    if report.misses * 10 > gets {
        note("note: more than a tenth of the reads found nothing; --preload writes all keys first");
    }
    Ok(())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e7 => Ok(rate),
        _ => Err("a rate is a number of operations per second up to ten million".to_owned()),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}

fn parse_value_bytes(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(bytes) if bytes <= VALUE_BYTES_MAX_CAP => Ok(bytes),
        _ => Err(format!("a value has 0 to {VALUE_BYTES_MAX_CAP} bytes")),
    }
}
