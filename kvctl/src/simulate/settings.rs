//! Arguments that the simulations share, and what is made of them.

use std::path::PathBuf;

use placement::simulate::{FleetSpec, PartitionLoads, RingRules, SimulateError};
use placement::{
    PartitionBits, PlacementError, ReplicationFactor, Ring, TokenPolicy, Topology, Zone,
};
use serde_json::{Value, json};

use super::file::read_sizes;
use super::live;
use super::replay::{Replay, Source};
use super::workload::{Keys, Sizes, Synthetic};
use crate::cli::Globals;
use crate::exit::Failure;

/// What describes made-up keys, and has no say beside real ones.
const MADE_UP: [&str; 4] = ["keys", "dist", "zipf_exponent", "sizes"];

/// The nodes and the key space.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 120)]
    pub nodes: u32,
    /// Number of zones; nodes are dealt to them in turn.
    #[arg(long, default_value_t = 3)]
    pub zones: u32,
    /// Weights, dealt to the nodes of each zone in turn.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub weights: Vec<u32>,
    /// Number of partitions, a power of two.
    #[arg(long, default_value_t = 4096)]
    pub partitions: u32,
    /// Copies of each partition.
    #[arg(long, alias = "replication-factor", default_value_t = 3)]
    pub rf: u8,
}

/// How tokens are handed out.
#[derive(Clone, Debug, clap::Args)]
pub struct PolicyArgs {
    /// How tokens are handed out.
    #[arg(long, value_enum, default_value_t = PolicyArg::Balanced)]
    pub policy: PolicyArg,
    /// Vnodes of a node of weight 1 under the random policy.
    #[arg(long, default_value_t = 128)]
    pub vnodes: u32,
}

/// A token policy on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PolicyArg {
    /// Allocated so that loads are even and little moves.
    Balanced,
    /// From hashes of the nodes' identities.
    Random,
}

impl PolicyArg {
    /// The policy.
    pub const fn policy(self) -> TokenPolicy {
        match self {
            Self::Balanced => TokenPolicy::Balanced,
            Self::Random => TokenPolicy::Random,
        }
    }
}

/// The keys.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArgs {
    /// Number of keys to make up.
    #[arg(long, default_value_t = 1_000_000, value_parser = parse_keys)]
    pub keys: u64,
    /// Start of all pseudo-random sequences: keys, sizes, requests and node identities.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What keys look like and how often each is asked for.
    #[arg(long, value_enum, default_value_t = Dist::Uniform)]
    pub dist: Dist,
    /// Exponent of Zipf's law.
    #[arg(long, default_value_t = 0.99)]
    pub zipf_exponent: f64,
    /// Bytes of a value: N, lognormal:MEDIAN:SIGMA, or file:PATH with one size per line.
    #[arg(long, default_value = "1024", value_parser = parse_sizes)]
    pub sizes: SizesArg,
    /// Real keys from a file of lines `key,bytes,qps`, instead of made-up ones.
    #[arg(long, value_name = "FILE", conflicts_with_all = MADE_UP)]
    pub input: Option<PathBuf>,
    /// Threads; default: one for each core.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Keys on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dist {
    /// Pseudo-random keys, all asked for alike.
    Uniform,
    /// Numbered keys, all asked for alike.
    Sequential,
    /// Numbered keys, asked for by Zipf's law.
    Zipf,
}

/// Value sizes on the command line. A type of its own, because clap takes a `Vec` for many values.
#[derive(Clone, Debug)]
pub struct SizesArg(Sizes);

/// Whether to look at the live cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct LiveArgs {
    /// Take ring, keys, bytes and request rates from the cluster at --endpoints.
    #[arg(long, conflicts_with_all = ["nodes", "zones", "weights", "partitions", "rf", "input"])]
    pub from_cluster: bool,
}

/// A usage error: all that can be wrong with a simulation is what was asked for.
pub fn refused(error: impl Into<SimulateError>) -> Failure {
    Failure::usage(error.into().to_string())
}

impl FleetArgs {
    /// The nodes of the draw with this seed.
    pub fn spec(&self, seed: u64) -> FleetSpec {
        let Self { nodes, zones, weights, .. } = self;
        FleetSpec { nodes: *nodes, zones: *zones, weights: weights.clone(), seed }
    }

    /// The key space and the copies.
    pub fn rules(&self, policy: TokenPolicy, vnodes: u32) -> Result<RingRules, Failure> {
        let rules = || -> Result<RingRules, PlacementError> {
            Ok(RingRules {
                partition_bits: PartitionBits::from_count(self.partitions)?,
                replication_factor: ReplicationFactor::new(self.rf)?,
                policy,
                vnodes_per_node: vnodes,
            })
        };
        rules().map_err(refused)
    }

    /// For the record.
    pub fn record(&self) -> Value {
        let Self { nodes, zones, weights, partitions, rf } = self;
        json!({
            "nodes": nodes, "zones": zones, "weights": weights,
            "partitions": partitions, "replication_factor": rf,
        })
    }
}

impl WorkloadArgs {
    /// The keys, and the threads that go through them.
    pub fn replay(&self) -> Result<Replay, Failure> {
        let source = match &self.input {
            Some(path) => Source::File(path.clone()),
            None => Source::Synthetic(self.synthetic()?),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Replay { source, threads: self.threads.map_or(cores, usize::from) })
    }

    /// The made-up keys.
    pub fn synthetic(&self) -> Result<Synthetic, Failure> {
        let keys = match self.dist {
            Dist::Uniform => Keys::Uniform,
            Dist::Sequential => Keys::Sequential,
            Dist::Zipf => Keys::Zipf(self.zipf_exponent),
        };
        Synthetic::new(self.seed, self.keys, keys, self.sizes.0.clone()).map_err(Failure::usage)
    }

    /// For the record.
    pub fn record(&self) -> Value {
        match &self.input {
            Some(path) => json!({ "input": path.display().to_string(), "seed": self.seed }),
            None => json!({
                "keys": self.keys, "seed": self.seed,
                "dist": match self.dist {
                    Dist::Uniform => "uniform",
                    Dist::Sequential => "sequential",
                    Dist::Zipf => "zipf",
                },
                "zipf_exponent": (self.dist == Dist::Zipf).then_some(self.zipf_exponent),
                "sizes": match &self.sizes.0 {
                    Sizes::Constant(bytes) => bytes.to_string(),
                    Sizes::LogNormal(median, sigma) => format!("lognormal:{median}:{sigma}"),
                    Sizes::Listed(list) => format!("{} sizes of a file", list.len()),
                },
            }),
        }
    }
}

/// Nodes, key space and load: what a simulation of the ring starts from.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The nodes.
    pub nodes: Topology,
    /// The ring in force, where there is one.
    pub ring: Option<Ring>,
    /// How a ring is made.
    pub rules: RingRules,
    /// The load of every partition.
    pub loads: PartitionLoads,
    /// Keys to check single ones with.
    pub replay: Replay,
    /// For the record.
    pub settings: Value,
    /// What should be known about the load.
    pub notes: Vec<String>,
}

impl Scene {
    /// Replays the keys over made-up nodes, or asks the cluster.
    pub fn new(
        globals: &Globals,
        fleet: &FleetArgs,
        policy: &PolicyArgs,
        workload: &WorkloadArgs,
        live: &LiveArgs,
    ) -> Result<Self, Failure> {
        let replay = workload.replay()?;
        let (kind, vnodes) = (policy.policy.policy(), policy.vnodes);
        if live.from_cluster {
            let found = live::fetch(globals)?;
            let snapshot = found.ring.snapshot();
            let rules = RingRules {
                partition_bits: snapshot.partition_bits(),
                replication_factor: snapshot.replication_factor(),
                policy: kind,
                vnodes_per_node: vnodes,
            };
            return Ok(Self {
                nodes: snapshot.topology().clone(),
                rules,
                loads: found.loads,
                replay,
                settings: json!({ "cluster": { "epoch": found.ring.epoch() } }),
                notes: found.notes,
                ring: Some(found.ring),
            });
        }
        let rules = fleet.rules(kind, vnodes)?;
        let nodes = fleet.spec(workload.seed).topology().map_err(refused)?;
        let loads = replay.run("replaying", &PartitionLoads::new(rules.partition_bits))?;
        let settings = json!({ "fleet": fleet.record(), "workload": workload.record() });
        Ok(Self { nodes, ring: None, rules, loads, replay, settings, notes: Vec::new() })
    }

    /// The ring in force, or the first one of these nodes.
    pub fn first_ring(&self) -> Result<Ring, Failure> {
        match &self.ring {
            Some(ring) => Ok(ring.clone()),
            None => self.rules.ring(self.nodes.clone(), None).map_err(refused),
        }
    }

    /// The zone with the least weight, where a newcomer helps most.
    pub fn lightest_zone(&self) -> Option<Zone> {
        let mut weights = std::collections::BTreeMap::<&Zone, u64>::new();
        for node in self.nodes.nodes().iter().filter(|node| node.state.receives_tokens()) {
            *weights.entry(&node.zone).or_default() += u64::from(node.weight.get());
        }
        weights.into_iter().min_by_key(|(_, weight)| *weight).map(|(zone, _)| zone.clone())
    }
}

fn parse_keys(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(keys) if (1..=1_000_000_000_000).contains(&keys) => Ok(keys),
        _ => Err("a number of keys lies between 1 and 10^12".to_owned()),
    }
}

fn parse_sizes(text: &str) -> Result<SizesArg, String> {
    let wrong = || "sizes are N, lognormal:MEDIAN:SIGMA or file:PATH".to_owned();
    if let Some(path) = text.strip_prefix("file:") {
        return read_sizes(&PathBuf::from(path)).map(Sizes::Listed).map(SizesArg);
    }
    if let Some(law) = text.strip_prefix("lognormal:") {
        let (median, sigma) = law.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
        return Ok(SizesArg(Sizes::LogNormal(number(median)?, number(sigma)?)));
    }
    match text.parse::<u64>() {
        Ok(bytes) if bytes <= 1 << 40 => Ok(SizesArg(Sizes::Constant(bytes))),
        _ => Err(wrong()),
    }
}
