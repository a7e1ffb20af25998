//! `simulate cache`: the hit ratio of a fleet of LRU caches when a server goes or comes.

use std::thread;

use placement::simulate::cache::{CacheFleet, Hits};
use placement::simulate::strategy::{Placer, Strategy};
use placement::simulate::{FleetSpec, RingRules};
use placement::{NodeSpec, PartitionBits, ReplicationFactor, TokenPolicy};
use serde_json::json;

use super::chart::{self, Axis, Series};
use super::settings::{PolicyArg, PolicyArgs, refused};
use super::study::{Cell, Sheet, Study};
use super::workload::{Keys, Sizes, Synthetic};
use crate::exit::Failure;

/// Arguments of `simulate cache`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of cache servers.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub servers: u32,
    /// Keys that each server can hold.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub capacity: u32,
    /// Number of keys.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Requests; the change comes after half of them.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,
    /// Exponent of Zipf's law.
    #[arg(long, default_value_t = 0.99)]
    pub zipf_exponent: f64,
    /// Stretches of time that the hit ratio is shown for.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub windows: u32,
    /// Start of all pseudo-random sequences.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Partitions of the ring.
    #[arg(long, default_value_t = 4096)]
    pub partitions: u32,
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// One scheme through one change.
struct Run {
    scheme: &'static str,
    event: &'static str,
    windows: Vec<Hits>,
}

/// Runs modulo and the ring through both changes, on the same requests.
pub fn study(args: &Args) -> Result<Study, Failure> {
    let sizes = Sizes::Constant(1);
    let keys = Keys::Zipf(args.zipf_exponent);
    let requests = Synthetic::new(args.seed, args.keys, keys, sizes).map_err(Failure::usage)?;
    let rules = RingRules {
        partition_bits: PartitionBits::from_count(args.partitions).map_err(refused)?,
        replication_factor: ReplicationFactor::new(1).map_err(refused)?,
        policy: TokenPolicy::Balanced,
        vnodes_per_node: args.policy.vnodes,
    };
    let ring = match args.policy.policy {
        PolicyArg::Balanced => Strategy::RingBalanced,
        PolicyArg::Random => Strategy::RingRandom,
    };
    let spec = FleetSpec::equal(args.servers, 1, args.seed);
    let servers = spec.topology().map_err(refused)?.nodes().to_vec();
    let newcomer = spec.node(args.servers, 0, 1).map_err(refused)?;
    let mut plans = Vec::new();
    for event in ["goes", "comes"] {
        for strategy in [Strategy::Modulo, ring] {
            let placer = Placer::new(strategy, &servers, &rules).map_err(refused)?;
            let after = change(event, &placer, &servers, &newcomer, &rules)?;
            plans.push((strategy.name(), event, placer, after));
        }
    }
    // Each on a thread of its own: a cache needs its requests in their order.
    let runs: Vec<Run> = thread::scope(|scope| {
        let running: Vec<_> = plans
            .iter()
            .map(|(scheme, event, before, after)| {
                let requests = &requests;
                let run = move || run(args, requests, before, after);
                (scheme, event, scope.spawn(run))
            })
            .collect();
        let finished = running.into_iter().map(|(scheme, event, thread)| {
            let windows = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Run { scheme, event, windows }
        });
        finished.collect()
    });
    Ok(shown(args, &runs))
}

fn change(
    event: &str,
    placer: &Placer,
    servers: &[NodeSpec],
    newcomer: &NodeSpec,
    rules: &RingRules,
) -> Result<Placer, Failure> {
    let mut nodes = servers.to_vec();
    if event == "comes" {
        nodes.push(newcomer.clone());
        return placer.grown(&nodes, rules).map_err(refused);
    }
    let place = nodes.len() / 2;
    nodes.remove(place);
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    placer.shrunk(&nodes, place, rules).map_err(refused)
}

fn run(args: &Args, requests: &Synthetic, before: &Placer, after: &Placer) -> Vec<Hits> {
    let mut fleet = CacheFleet::new(before, args.capacity as usize);
    let mut requests = requests.requests();
    let per_window = (args.requests / u64::from(args.windows)).max(1);
    let mut windows = Vec::with_capacity(args.windows as usize);
    for window in 0..args.windows {
        if window == args.windows / 2 {
            fleet.change(after);
        }
        windows.push(fleet.ask_all(requests.by_ref().take(per_window as usize)));
    }
    windows
}

fn shown(args: &Args, runs: &[Run]) -> Study {
    let half = args.windows as usize / 2;
    let mut columns = vec!["window".to_owned()];
    columns.extend(runs.iter().map(|run| format!("{}, one {}", run.scheme, run.event)));
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut windows = Sheet::new("windows", &names);
    for window in 0..args.windows as usize {
        let ratios = runs.iter().map(|run| Cell::Percent(run.windows[window].ratio(), 2));
        windows.row([Cell::Count(window as u64)].into_iter().chain(ratios));
    }
    Study {
        name: "cache",
        title: format!("Hit ratio of {} LRU caches when one goes or comes", args.servers),
        lead: LEAD.to_owned(),
        settings: json!({
            "servers": args.servers, "capacity": args.capacity, "keys": args.keys,
            "requests": args.requests, "zipf_exponent": args.zipf_exponent, "seed": args.seed,
            "partitions": args.partitions,
        }),
        sheets: vec![summary(runs, half), windows],
        charts: charts(runs),
        notes: runs.iter().map(|run| remark(run, half)).collect(),
    }
}

impl Run {
    /// The hit ratio of a window.
    fn ratio(&self, window: usize) -> f64 {
        self.windows[window].ratio()
    }

    /// What is behind the caches gets this many times its load in the first window after the
    /// change.
    fn load_behind(&self, half: usize) -> f64 {
        (1.0 - self.ratio(half)) / (1.0 - self.ratio(half - 1)).max(1e-9)
    }

    /// Misses after the change beyond those of the last window's ratio.
    fn extra_misses(&self, half: usize) -> f64 {
        let last = self.ratio(self.windows.len() - 1);
        let extra = |window: &Hits| (last - window.ratio()).max(0.0) * window.requests as f64;
        self.windows[half..].iter().map(extra).sum()
    }
}

fn summary(runs: &[Run], half: usize) -> Sheet {
    let columns = [
        "scheme",
        "server",
        "hits before",
        "right after",
        "at the end",
        "extra misses",
        "misses then/before",
    ];
    let mut sheet = Sheet::new("summary", &columns);
    for run in runs {
        sheet.row([
            Cell::text(run.scheme),
            Cell::text(run.event),
            Cell::Percent(run.ratio(half - 1), 2),
            Cell::Percent(run.ratio(half), 2),
            Cell::Percent(run.ratio(run.windows.len() - 1), 2),
            Cell::Count(run.extra_misses(half) as u64),
            Cell::Number(run.load_behind(half), 2),
        ]);
    }
    sheet
}

fn remark(run: &Run, half: usize) -> String {
    format!(
        "{}: a server {}, hits fall from {:.1} % to {:.1} % in the window after, and what is behind the \
         caches gets {:.2} times its load",
        run.scheme,
        run.event,
        run.ratio(half - 1) * 100.0,
        run.ratio(half) * 100.0,
        run.load_behind(half),
    )
}

const LEAD: &str = "For people who run a cache; the store itself is none. Modulo finds nearly every key \
    at another server after the change, so the fleet starts cold; on the ring only the keys of the one \
    server do.";

fn charts(runs: &[Run]) -> Vec<String> {
    let chart = |event: &'static str, title: &str| {
        let of_event = runs.iter().filter(|run| run.event == event);
        let series: Vec<Series> = of_event
            .map(|run| Series {
                name: run.scheme.to_owned(),
                points: (0..).map(f64::from).zip(run.windows.iter().map(|w| w.ratio())).collect(),
                is_dashed: false,
            })
            .collect();
        chart::lines(title, "time, in windows", &series, [Axis::Even; 2], |y| {
            format!("{:.0} %", y * 100.0)
        })
    };
    vec![
        chart("goes", "Hit ratio when one server goes"),
        chart("comes", "Hit ratio when one comes"),
    ]
}
