//! `simulate strategies`: the ring beside other ways to place keys, one copy of each.

use placement::simulate::strategy::{Comparison, Placer, Shares, Strategy};
use placement::simulate::{FleetSpec, Measure, RingRules, Spread, theory};
use placement::{NodeSpec, PartitionBits, ReplicationFactor, TokenPolicy};
use serde_json::json;

use super::chart::{self, Bar};
use super::latency;
use super::replay::Replay;
use super::settings::{WorkloadArgs, refused};
use super::study::{Cell, Sheet, Study};
use crate::exit::Failure;
use crate::input::parse_amount;

/// Arguments of `simulate strategies`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of nodes, all alike; one more comes, one of them goes.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(2..=4095))]
    pub nodes: u32,
    /// The node that goes: its place in the list, from 1; default: the middle.
    #[arg(long)]
    pub remove: Option<u32>,
    /// Weights of as many nodes, for the question whether shares follow them.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    pub weights: Vec<u32>,
    /// Partitions of the rings and of the fixed table.
    #[arg(long, default_value_t = 4096)]
    pub partitions: u32,
    /// Vnodes of a node of weight 1 on the random ring.
    #[arg(long, default_value_t = 128)]
    pub vnodes: u32,
    /// Amount of data, such as 24TiB, to say what the moved part of it is.
    #[arg(long, value_parser = parse_amount)]
    pub data: Option<u64>,
    #[command(flatten)]
    pub workload: WorkloadArgs,
}

/// What one strategy did.
struct Outcome {
    strategy: Strategy,
    spread: Spread,
    joined: Moved,
    left: Option<Moved>,
    /// The share of each weighted node.
    shares: Option<Vec<f64>>,
    memory_bytes: usize,
    nanoseconds: f64,
}

/// Parts of all keys.
#[derive(Clone, Copy)]
struct Moved {
    all: f64,
    between_others: f64,
}

/// Compares all strategies.
pub fn study(args: &Args) -> Result<Study, Failure> {
    let bits = PartitionBits::from_count(args.partitions).map_err(refused)?;
    let rules = RingRules {
        partition_bits: bits,
        replication_factor: ReplicationFactor::new(1).map_err(refused)?,
        policy: TokenPolicy::Balanced,
        vnodes_per_node: args.vnodes,
    };
    let replay = args.workload.replay()?;
    let nodes = list(&FleetSpec::equal(args.nodes, 1, args.workload.seed))?;
    let weighted_nodes = u32::try_from(args.weights.len()).unwrap_or(u32::MAX);
    let weighted = FleetSpec {
        nodes: weighted_nodes,
        zones: 1,
        weights: args.weights.clone(),
        seed: args.workload.seed,
    };
    let bench = Bench {
        place: place(args)?,
        newcomer: FleetSpec::equal(1, 1, args.workload.seed)
            .node(args.nodes, 0, 1)
            .map_err(refused)?,
        nodes,
        weighted: list(&weighted)?,
        rules,
        replay,
        hashes: latency::hashes(args.workload.seed),
    };
    let outcomes: Result<Vec<Outcome>, Failure> =
        Strategy::ALL.into_iter().map(|strategy| bench.measure(strategy)).collect();
    let outcomes = outcomes?;
    Ok(Study {
        name: "strategies",
        title: format!("Ways to place keys, {} to {} nodes", args.nodes, args.nodes + 1),
        lead: LEAD.to_owned(),
        settings: json!({
            "nodes": args.nodes, "removed": bench.place + 1, "weights": args.weights,
            "partitions": args.partitions, "vnodes": args.vnodes, "replication_factor": 1,
            "data_bytes": args.data, "workload": args.workload.record(),
        }),
        sheets: vec![
            overview(&outcomes),
            movement(args, &outcomes),
            weights_sheet(&args.weights, &outcomes),
        ],
        charts: charts(args, &outcomes),
        notes: remarks(args, &outcomes),
    })
}

const LEAD: &str = "One copy of each key, nodes of one weight. Moved is the part of all keys that has \
    another owner after one node more or less; between others is the part of it that goes from one \
    node that stays to another, which no change calls for. The tick is the expectation.";

fn place(args: &Args) -> Result<u32, Failure> {
    let number = args.remove.unwrap_or(args.nodes / 2);
    if (1..=args.nodes).contains(&number) {
        return Ok(number - 1);
    }
    Err(Failure::usage(format!("--remove {number}: there are nodes 1 to {}", args.nodes)))
}

/// The nodes in the order of their numbers, not of their identities.
fn list(spec: &FleetSpec) -> Result<Vec<NodeSpec>, Failure> {
    let mut nodes = spec.topology().map_err(refused)?.nodes().to_vec();
    nodes.sort_by_cached_key(|node| super::balance::by_number(node.name.as_str()));
    Ok(nodes)
}

/// What all strategies are measured with.
struct Bench {
    nodes: Vec<NodeSpec>,
    newcomer: NodeSpec,
    /// The place of the node that goes.
    place: u32,
    weighted: Vec<NodeSpec>,
    rules: RingRules,
    replay: Replay,
    hashes: Vec<u64>,
}

impl Bench {
    fn measure(&self, strategy: Strategy) -> Result<Outcome, Failure> {
        let rules = &self.rules;
        let placer = Placer::new(strategy, &self.nodes, rules).map_err(refused)?;
        let mut grown = self.nodes.clone();
        grown.push(self.newcomer.clone());
        let grown = placer.grown(&grown, rules).map_err(refused)?;
        let comparison = Comparison::new(&placer, &grown, self.newcomer.id);
        let comparison = self.replay.run(strategy.name(), &comparison)?;
        let left = match strategy.refuses_removal() {
            Some(_) => None,
            None => Some(self.remove(strategy, &placer)?),
        };
        let shares = match strategy.refuses_weights() {
            Some(_) => None,
            None => Some(self.weigh(strategy)?),
        };
        Ok(Outcome {
            strategy,
            spread: Spread::of(&self.nodes, &comparison.loads, Measure::Keys),
            joined: moved(&comparison),
            left,
            shares,
            memory_bytes: placer.memory_bytes(),
            nanoseconds: latency::nanoseconds(&self.hashes, |hash| placer.place(hash)),
        })
    }

    fn remove(&self, strategy: Strategy, placer: &Placer) -> Result<Moved, Failure> {
        let mut left = self.nodes.clone();
        let gone = left.remove(self.place as usize);
        let shrunk = placer.shrunk(&left, self.place, &self.rules).map_err(refused)?;
        let comparison = Comparison::new(placer, &shrunk, gone.id);
        Ok(moved(&self.replay.run(strategy.name(), &comparison)?))
    }

    fn weigh(&self, strategy: Strategy) -> Result<Vec<f64>, Failure> {
        let placer = Placer::new(strategy, &self.weighted, &self.rules).map_err(refused)?;
        let loads = self.replay.run(strategy.name(), &Shares::new(&placer))?.loads;
        let total: u64 = loads.iter().map(|load| load.keys).sum();
        Ok(loads.iter().map(|load| load.keys as f64 / total.max(1) as f64).collect())
    }
}

fn moved(comparison: &Comparison<'_>) -> Moved {
    let total: u64 = comparison.loads.iter().map(|load| load.keys).sum();
    let part = |keys: u64| keys as f64 / total.max(1) as f64;
    Moved {
        all: part(comparison.moved.keys),
        between_others: part(comparison.moved_between_others.keys),
    }
}

/// The expected part of the keys that moves when one node comes, and when one goes.
fn expected(strategy: Strategy, nodes: u32) -> (f64, f64) {
    match strategy {
        Strategy::Modulo => {
            (theory::modulo_moved(nodes, nodes + 1), theory::modulo_moved(nodes, nodes - 1))
        }
        Strategy::RingRandom
        | Strategy::RingBalanced
        | Strategy::Rendezvous
        | Strategy::WeightedRendezvous
        | Strategy::Jump
        | Strategy::FixedTable => (1.0 / f64::from(nodes + 1), 1.0 / f64::from(nodes)),
    }
}

fn overview(outcomes: &[Outcome]) -> Sheet {
    let columns = ["strategy", "max/mean", "min/mean", "cv", "memory", "lookup ns"];
    let mut sheet = Sheet::new("strategies", &columns);
    for outcome in outcomes {
        sheet.row([
            Cell::text(outcome.strategy.name()),
            Cell::Number(outcome.spread.max_over_mean, 3),
            Cell::Number(outcome.spread.min_over_mean, 3),
            Cell::Number(outcome.spread.variation, 4),
            Cell::Bytes(outcome.memory_bytes as u64),
            Cell::Number(outcome.nanoseconds, 1),
        ]);
    }
    sheet
}

fn movement(args: &Args, outcomes: &[Outcome]) -> Sheet {
    let columns = ["strategy", "change", "moved", "expected", "between others", "moved data"];
    let mut sheet = Sheet::new("movement", &columns);
    let data = |part: f64| match args.data {
        Some(bytes) => Cell::Bytes((bytes as f64 * part) as u64),
        None => Cell::Missing,
    };
    for outcome in outcomes {
        let name = outcome.strategy.name();
        let (on_join, on_removal) = expected(outcome.strategy, args.nodes);
        let mut row = |change: &str, moved: Option<Moved>, expected: f64| {
            let part = |value: fn(Moved) -> f64| {
                moved.map_or(Cell::Missing, |moved| Cell::Percent(value(moved), 3))
            };
            sheet.row([
                Cell::text(name),
                Cell::text(change),
                part(|moved| moved.all),
                Cell::Percent(expected, 3),
                part(|moved| moved.between_others),
                moved.map_or(Cell::Missing, |moved| data(moved.all)),
            ]);
        };
        row("+1", Some(outcome.joined), on_join);
        row("-1", outcome.left, on_removal);
    }
    sheet
}

fn weights_sheet(weights: &[u32], outcomes: &[Outcome]) -> Sheet {
    let mut columns = vec!["strategy".to_owned()];
    columns.extend((1..).zip(weights).map(|(number, weight)| format!("n{number} weight {weight}")));
    columns.push("off at most".to_owned());
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut sheet = Sheet::new("weights", &names);
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let asked: Vec<f64> = weights.iter().map(|weight| f64::from(*weight) / total).collect();
    let row = |name: &str, shares: Option<&Vec<f64>>| {
        let mut cells = vec![Cell::text(name)];
        match shares {
            Some(shares) => {
                cells.extend(shares.iter().map(|share| Cell::Percent(*share, 2)));
                let off =
                    shares.iter().zip(&asked).map(|(share, asked)| (share / asked - 1.0).abs());
                cells.push(Cell::Percent(off.fold(0.0, f64::max), 2));
            }
            None => cells.resize(weights.len() + 2, Cell::Missing),
        }
        cells
    };
    sheet.row(row("(asked for)", Some(&asked)));
    for outcome in outcomes {
        sheet.row(row(outcome.strategy.name(), outcome.shares.as_ref()));
    }
    sheet
}

fn remarks(args: &Args, outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = Vec::new();
    for outcome in outcomes {
        let refusals = [outcome.strategy.refuses_removal(), outcome.strategy.refuses_weights()];
        notes.extend(refusals.into_iter().flatten().map(|reason| format!("cannot: {reason}")));
    }
    let (nodes, partitions) = (args.nodes, args.partitions);
    let share = 1.0 / f64::from(nodes + 1);
    let variation = theory::share_variation_cut(nodes + 1, args.vnodes, partitions);
    notes.push(format!(
        "one node more takes 1/{} = {:.3} % of the keys on average; with {} random vnodes and {partitions} \
         partitions a single ring lies {:.3} % around that (one standard deviation)",
        nodes + 1,
        share * 100.0,
        args.vnodes,
        variation * share * 100.0,
    ));
    if partitions < nodes {
        notes.push(format!(
            "{partitions} partitions are fewer than {nodes} nodes: rings and table leave nodes empty"
        ));
    }
    notes
}

fn charts(args: &Args, outcomes: &[Outcome]) -> Vec<String> {
    let percent: chart::Show = |part| format!("{:.2} %", part * 100.0);
    let bars = |value: fn(&Outcome) -> Result<f64, &'static str>, expect: fn((f64, f64)) -> f64| {
        let bar = |outcome: &Outcome| Bar {
            label: outcome.strategy.name().to_owned(),
            value: value(outcome),
            expected: Some(expect(expected(outcome.strategy, args.nodes))),
        };
        outcomes.iter().map(bar).collect::<Vec<Bar>>()
    };
    let joined = bars(|outcome| Ok(outcome.joined.all), |(on_join, _)| on_join);
    let left = bars(
        |outcome| match outcome.left {
            Some(moved) => Ok(moved.all),
            None => Err(outcome.strategy.refuses_removal().unwrap_or("not measured")),
        },
        |(_, on_removal)| on_removal,
    );
    let busiest = bars(|outcome| Ok(outcome.spread.max_over_mean), |_| 1.0);
    vec![
        chart::bars("Keys that move when a node comes", &joined, percent),
        chart::bars("Keys that move when a node goes", &left, percent),
        chart::bars("Busiest node over the mean", &busiest, |x| format!("{x:.2}")),
    ]
}
