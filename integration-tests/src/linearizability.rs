//! A run under faults: clients on a few hot keys, asking random nodes with little patience, while
//! processes are killed, stopped and restarted; then every key's history is checked.
//!
//! All choices come from one seed. The interleaving does not, as the processes are real: the seed
//! repeats the plan of a run, not its every step.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::caller::Caller;
use crate::checker::{self, Verdict};
use crate::cluster::{Cluster, ClusterOptions};
use crate::growth::SPARES;
use crate::history::{Call, Operation, Outcome, RunClock};
use crate::nemesis::{Fault, Nemesis};
use crate::plans::kvctl_ok;
use crate::shim::Shim;
use crate::wait::hold;

/// Keys in use at the same time.
const HOT_KEYS: usize = 6;
/// Operations after which a key is replaced by a fresh one; those under way still go to the old one.
const OPERATIONS_PER_KEY: usize = 230;
/// Operations that a client sends without a pause.
const BURST: usize = 3;
/// Time between two bursts of a client.
const PACE: Duration = Duration::from_millis(25);

/// What a run is asked for. It goes on until all three minimums are reached.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where all choices come from.
    pub seed: u64,
    /// Operations that were answered or whose outcome is unknown.
    pub operations_min: usize,
    /// Among them, writes whose outcome is unknown.
    pub unknown_min: usize,
    /// Faults.
    pub faults_min: usize,
    /// Kinds of faults.
    pub kinds: Vec<Fault>,
    /// Number of clients.
    pub clients: u32,
    /// Time for the whole run but the check.
    pub deadline: Duration,
    /// The program and further arguments of every node; `kvnode` if not given.
    pub program: Option<PathBuf>,
    /// Further arguments of every node.
    pub arguments: Vec<String>,
    /// Whether a violation is what the run is after, so that nothing needs to be kept for people.
    pub is_violation_expected: bool,
}

impl RunOptions {
    /// The run that is part of the test command.
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            operations_min: 10_000,
            unknown_min: 100,
            faults_min: 3 * Fault::ALL.len(),
            kinds: Fault::ALL.to_vec(),
            clients: 8,
            deadline: Duration::from_secs(180),
            program: None,
            arguments: Vec::new(),
            is_violation_expected: false,
        }
    }

    /// The run with plans in which nodes join and leave, and the faults that strike meanwhile.
    pub fn growing(seed: u64) -> Self {
        let strikes = [Fault::Kill, Fault::KillLeader, Fault::PauseLeader, Fault::Transfer];
        let kinds: Vec<Fault> = [Fault::Plan].into_iter().chain(strikes).collect();
        Self { faults_min: 2 * kinds.len(), kinds, unknown_min: 20, ..Self::small(seed) }
    }

    /// The long run.
    pub fn full(seed: u64, operations_min: usize) -> Self {
        Self {
            operations_min,
            unknown_min: 200,
            faults_min: 6 * Fault::ALL.len(),
            deadline: Duration::from_secs(1800),
            ..Self::small(seed)
        }
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The check's result.
    pub verdict: Verdict,
    /// Faults by kind.
    pub faults: BTreeMap<Fault, usize>,
    /// A line about each plan, with what struck while it was under way.
    pub plans: Vec<String>,
    /// Reads that were answered by a node that had just been resumed.
    pub late_reads: usize,
    /// Time under load.
    pub ran: Duration,
    /// Time to check.
    pub checked: Duration,
}

/// The seed in `RINGKV_SEED`, else one from the clock; it is printed, so that it can be given again.
pub fn seed_from_environment() -> anyhow::Result<u64> {
    let seed = match std::env::var("RINGKV_SEED") {
        Ok(seed) => seed.parse().context("RINGKV_SEED is not a number")?,
        Err(_) => rand::rng().random_range(1..1_000_000),
    };
    println!("RINGKV_SEED={seed}");
    Ok(seed)
}

/// Starts a cluster, runs clients and faults, and checks what the clients saw.
///
/// # Errors
/// If the history is not linearizable, an answer is outside the contract, a node ends by itself or the
/// cluster does not recover from a fault.
pub async fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let disks = Shim::build()?;
    let mut cluster = Cluster::start(ClusterOptions {
        program: options.program.clone(),
        arguments: options.arguments.clone(),
        preload: Some(disks.clone()),
        ..ClusterOptions::default()
    })
    .await?;
    if options.kinds.contains(&Fault::Plan) {
        for zone in ["z1", "z2", "z3"].iter().cycle().take(SPARES) {
            cluster.add_spare(zone).await?;
        }
        // One move at a time to and from a node, so that many a fault finds some under way.
        kvctl_ok(&cluster, &["migrate", "throttle", "--moves-per-node", "1"]).await?;
    }
    let shared = Arc::new(Shared::default());
    let clock = RunClock::start();
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..options.clients {
        let client = HotClient {
            number,
            caller: Caller::new(&cluster.addresses()),
            nodes: cluster.nodes().len(),
            random: SmallRng::seed_from_u64(options.seed ^ (u64::from(number) + 1) << 32),
            versions: vec![(String::new(), 0); HOT_KEYS],
            values: 0,
            shared: Arc::clone(&shared),
            clock,
        };
        clients.spawn(client.run());
    }
    let random = SmallRng::seed_from_u64(options.seed);
    let mut nemesis = Nemesis::new(&cluster, &disks, options.kinds.clone(), random);
    let struck = strike_until_enough(&mut nemesis, options, &shared, clock, started).await;
    shared.stop.store(true, Ordering::Relaxed);
    let ran = started.elapsed();
    let mut history = Vec::new();
    while let Some(client) = clients.join_next().await {
        history.extend(client??);
    }
    struck?;
    let faults = nemesis.struck().clone();
    let plans = nemesis.plans().to_vec();
    let late = nemesis.into_seen();
    let is_answered = |read: &&Operation| read.outcome != Outcome::Unknown;
    let late_reads = late.iter().filter(is_answered).count();
    history.extend(late);
    let checking = Instant::now();
    let verdict = match checker::check(&history, cluster.directory()) {
        Ok(verdict) => verdict,
        Err(violation) if options.is_violation_expected => {
            cluster.finish()?;
            return Err(violation);
        }
        Err(violation) => return Err(violation),
    };
    cluster.finish()?;
    Ok(Report { verdict, faults, plans, late_reads, ran, checked: checking.elapsed() })
}

async fn strike_until_enough(
    nemesis: &mut Nemesis<'_>,
    options: &RunOptions,
    shared: &Shared,
    clock: RunClock,
    started: Instant,
) -> anyhow::Result<()> {
    // Some calm at the start and between faults, so that there is something to lose.
    hold(Duration::from_millis(500)).await;
    loop {
        let operations = shared.operations.load(Ordering::Relaxed);
        let unknown = shared.unknown.load(Ordering::Relaxed);
        if operations >= options.operations_min
            && unknown >= options.unknown_min
            && nemesis.total() >= options.faults_min
        {
            return nemesis.end().await;
        }
        ensure!(
            started.elapsed() < options.deadline,
            "only {operations} operations, {unknown} unknown outcomes and {} faults within {:?}",
            nemesis.total(),
            options.deadline
        );
        if options.kinds.is_empty() {
            hold(Duration::from_millis(500)).await;
        }
        nemesis.strike(&shared.keys, clock).await?;
        hold(Duration::from_millis(700)).await;
    }
}

/// The keys in use. A key that has had enough operations is replaced by a fresh one.
#[derive(Debug, Default)]
pub struct HotKeys {
    /// Per key in use: how often it was replaced, and how often it was drawn since.
    slots: Mutex<[(usize, usize); HOT_KEYS]>,
}

impl HotKeys {
    /// The key in a slot, for one operation.
    pub fn draw(&self, slot: usize) -> String {
        let mut slots = self.slots();
        let (generation, drawn) = &mut slots[slot];
        if *drawn >= OPERATIONS_PER_KEY {
            *generation += 1;
            *drawn = 0;
        }
        *drawn += 1;
        name(slot, *generation)
    }

    /// The keys in use now.
    pub fn current(&self) -> Vec<String> {
        let slots = self.slots();
        slots.iter().enumerate().map(|(slot, (generation, _))| name(slot, *generation)).collect()
    }

    fn slots(&self) -> MutexGuard<'_, [(usize, usize); HOT_KEYS]> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(slot: usize, generation: usize) -> String {
    format!("hot-{slot}-{generation}")
}

#[derive(Debug, Default)]
struct Shared {
    keys: HotKeys,
    stop: AtomicBool,
    operations: AtomicUsize,
    unknown: AtomicUsize,
}

struct HotClient {
    number: u32,
    caller: Caller,
    nodes: usize,
    random: SmallRng,
    /// The last version seen of the key in each slot.
    versions: Vec<(String, u64)>,
    values: u64,
    shared: Arc<Shared>,
    clock: RunClock,
}

impl HotClient {
    async fn run(mut self) -> anyhow::Result<Vec<Operation>> {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut history = Vec::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            pace.tick().await;
            let slot = self.random.random_range(0..HOT_KEYS);
            for _ in 0..BURST {
                let operation = self.operate(slot).await?;
                let is_write = operation.call.is_write();
                match operation.outcome {
                    Outcome::NotApplied => {}
                    Outcome::Unknown if !is_write => {}
                    Outcome::Unknown => {
                        self.shared.unknown.fetch_add(1, Ordering::Relaxed);
                        self.shared.operations.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => {
                        self.shared.operations.fetch_add(1, Ordering::Relaxed);
                    }
                }
                history.push(operation);
            }
        }
        Ok(history)
    }

    async fn operate(&mut self, slot: usize) -> anyhow::Result<Operation> {
        let key = self.shared.keys.draw(slot);
        let call = self.choose(slot, &key);
        let node = self.random.random_range(0..self.nodes);
        let timeout = Duration::from_millis(self.random.random_range(200..900));
        let called = self.clock.now();
        let told = self.caller.call(node, key.as_bytes(), call, timeout).await?;
        let returned = self.clock.now();
        let outcome = told.outcome;
        match outcome {
            Outcome::Found { value: _, version }
            | Outcome::Written(version)
            | Outcome::Refused(Some(version)) => self.versions[slot] = (key.clone(), version),
            Outcome::Absent
            | Outcome::Deleted
            | Outcome::Refused(None)
            | Outcome::NotApplied
            | Outcome::Unknown => {}
        }
        Ok(Operation { client: self.number, node, key, call, outcome, called, returned })
    }

    fn choose(&mut self, slot: usize, key: &str) -> Call {
        self.values += 1;
        let value = u64::from(self.number) * 1_000_000_000 + self.values;
        let (known_key, version) = &self.versions[slot];
        let version = (known_key == key).then_some(*version);
        match (self.random.random_range(0..100), version) {
            (0..35, _) => Call::Get,
            (35..60, _) => Call::Put(value),
            (60..70, _) => Call::Delete,
            (70..80, _) => Call::Create(value),
            (80..95, Some(version)) => Call::Swap { version, value },
            (95.., Some(version)) => Call::DeleteIf(version),
            (80.., None) => Call::Get,
            (i32::MIN..0, _) => unreachable!("drawn from 0 on"),
        }
    }
}
