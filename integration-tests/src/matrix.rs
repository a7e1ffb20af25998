//! The kill matrix: who is killed, in which stage of a join or a drain, and what is there afterwards.
//!
//! Stages are hit on purpose: the nodes hold their plans back in one step for as long as a file says
//! so. A cell counts only if the record of a move was in that step when its victim died.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::caller::Caller;
use crate::cluster::{Cluster, READY_DEADLINE};
use crate::history::{Call, Outcome};
use crate::ledger::Ledger;
use crate::load::{Load, LoadOptions};
use crate::measure::key_in;
use crate::plans::{HoldFile, MoveSeen, PlanSeen, kvctl_ok, newest_plan, wait_check, wait_plan};
use crate::wait::hold;

/// Time for a plan to come to a stage, and for it to end once nothing holds it back.
const PLAN_DEADLINE: Duration = Duration::from_secs(120);
/// Time for which the cluster is without its victims.
const ABSENCE: Duration = Duration::from_millis(1500);
/// Shortest time between two writes of one writer.
const PACE: Duration = Duration::from_millis(20);
/// Keys that are written and deleted again in every cell.
const DOOMED: usize = 40;

/// What the plan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A fourth node joins.
    Join,
    /// It leaves.
    Drain,
}

/// Where the victim dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Moves wait for their turn.
    Joining,
    /// New replicas take their snapshot.
    Copying,
    /// New replicas take the log.
    CatchingUp,
    /// The first move is verified.
    Verified,
    /// All moves are verified, the epoch is not published.
    BeforePublish,
    /// The epoch is published, no group has changed its voters.
    AfterPublish,
    /// Groups are in their joint configuration.
    Swapping,
    /// Old owners follow.
    Grace,
    /// Old replicas are on their way out.
    Retiring,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The node that loses the copy.
    Source,
    /// The node that gains it.
    Target,
    /// The leader of the partition.
    Leader,
    /// The leader of group 0.
    GroupZero,
    /// Target and source at once.
    TargetAndSource,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What the plan does.
    pub operation: Operation,
    /// Where the victim dies.
    pub place: Place,
    /// Who dies.
    pub victim: Victim,
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {:?} {:?}", self.operation, self.place, self.victim)
    }
}

impl Place {
    /// All places, in the order of a plan.
    pub const ALL: [Self; 9] = [
        Self::Joining,
        Self::Copying,
        Self::CatchingUp,
        Self::Verified,
        Self::BeforePublish,
        Self::AfterPublish,
        Self::Swapping,
        Self::Grace,
        Self::Retiring,
    ];

    /// The step that the victim's move is recorded in.
    pub fn step(self) -> &'static str {
        match self {
            Self::Joining => "pending",
            Self::Copying => "copying",
            Self::CatchingUp => "catching_up",
            Self::Verified | Self::BeforePublish => "verified",
            Self::AfterPublish | Self::Swapping => "swapping",
            Self::Grace => "serving",
            Self::Retiring => "retiring",
        }
    }

    /// What the hold file says.
    pub fn held(self) -> &'static str {
        match self {
            Self::Swapping => "joint",
            other => other.step(),
        }
    }

    /// Whether the plan has come to the place.
    pub fn is_reached(self, plan: &PlanSeen) -> bool {
        let there = plan.at(self.step()).count();
        match self {
            Self::BeforePublish | Self::AfterPublish => there == plan.moves.len(),
            _ => there > 0,
        }
    }
}

impl Victim {
    /// All victims.
    pub const ALL: [Self; 5] =
        [Self::Source, Self::Target, Self::Leader, Self::GroupZero, Self::TargetAndSource];
}

/// The cells in the order in which they are run: joins and drains in turn.
pub fn cells() -> Vec<Cell> {
    let pairs = Place::ALL.into_iter().flat_map(|place| Victim::ALL.map(|victim| (place, victim)));
    pairs
        .flat_map(|(place, victim)| {
            [Operation::Join, Operation::Drain].map(|operation| Cell { operation, place, victim })
        })
        .collect()
}

/// One of several parts of the matrix. A join and the drain after it stay together, so that neither
/// has to be made up for.
pub fn part_of(cells: &[Cell], part: usize, parts: usize) -> Vec<Cell> {
    let parts = parts.max(1);
    let pairs = cells.chunks(2).enumerate().filter(|(number, _)| number % parts == part % parts);
    pairs.flat_map(|(_, pair)| pair.to_vec()).collect()
}

/// Runs cells one after the other on one cluster and returns a line about each.
///
/// # Errors
/// At the first cell after which something is not as it must be.
pub async fn run(cells: &[Cell]) -> anyhow::Result<Vec<String>> {
    let mut stage = Stage::open().await?;
    let mut lines = Vec::new();
    for (round, cell) in cells.iter().enumerate() {
        stage.bring_to_start_of(cell.operation).await?;
        let line = stage.play(*cell, round).await.with_context(|| format!("cell {cell}"))?;
        println!("{line}");
        lines.push(line);
    }
    let mut acknowledged = 0;
    let mut unknown = 0;
    for ledger in &stage.ledgers {
        // What an earlier cell wrote must have come through the later ones.
        ledger.check_through(&stage.cluster.addresses(), 0).await?;
        acknowledged += ledger.totals().acknowledged;
        unknown += ledger.totals().unknown;
    }
    println!("{acknowledged} acknowledged writes, all there; {unknown} of unknown outcome");
    stage.cluster.finish()?;
    Ok(lines)
}

struct Stage {
    cluster: Cluster,
    /// What each cell wrote.
    ledgers: Vec<Arc<Ledger>>,
    hold_file: HoldFile,
    /// Position of the node that comes and goes.
    guest: usize,
    is_member: bool,
    plan: u64,
    doomed: BTreeSet<String>,
}

impl Stage {
    async fn open() -> anyhow::Result<Self> {
        let hold_file = HoldFile::new("")?;
        let mut cluster = Cluster::start(hold_file.options()?).await?;
        let guest = cluster.add_spare("z1").await?;
        Ok(Self {
            cluster,
            ledgers: Vec::new(),
            hold_file,
            guest,
            is_member: false,
            plan: 0,
            doomed: BTreeSet::new(),
        })
    }

    fn guest_name(&self) -> String {
        self.cluster.node(self.guest).name.clone()
    }

    /// A drain needs the guest as a member, a join as a spare.
    async fn bring_to_start_of(&mut self, operation: Operation) -> anyhow::Result<()> {
        match (operation, self.is_member) {
            (Operation::Join, true) => self.change("drain").await,
            (Operation::Drain, false) => self.change("join").await,
            (Operation::Join, false) | (Operation::Drain, true) => Ok(()),
        }
    }

    /// Joins or drains the guest without a disturbance.
    async fn change(&mut self, verb: &str) -> anyhow::Result<()> {
        self.start_plan(verb).await?;
        self.finish_plan().await?;
        Ok(())
    }

    async fn start_plan(&mut self, verb: &str) -> anyhow::Result<()> {
        let guest = self.guest_name();
        kvctl_ok(&self.cluster, &[verb, &guest]).await?;
        kvctl_ok(&self.cluster, &["plan", "apply", "--yes"]).await?;
        Ok(())
    }

    /// Lets the plan go on to its end.
    async fn finish_plan(&mut self) -> anyhow::Result<()> {
        self.hold_file.release()?;
        let serving = |plan: &PlanSeen| plan.is_serving() || plan.phase == "finished";
        wait_plan(&self.cluster, "a plan that serves", self.plan, PLAN_DEADLINE, serving).await?;
        kvctl_ok(&self.cluster, &["migrate", "finish"]).await?;
        let finished = |plan: &PlanSeen| plan.phase == "finished";
        let plan =
            wait_plan(&self.cluster, "the plan's end", self.plan, PLAN_DEADLINE, finished).await?;
        self.plan = plan.id;
        self.is_member = !self.is_member;
        if !self.is_member {
            // Who has left stops by itself, and comes back as a spare.
            let status = self.cluster.node(self.guest).ended(READY_DEADLINE).await?;
            ensure!(status.success(), "the drained node ended with {status}");
            self.cluster.node(self.guest).start()?;
            self.cluster.wait_registered(self.guest).await?;
        }
        Ok(())
    }

    async fn play(&mut self, cell: Cell, round: usize) -> anyhow::Result<String> {
        let began = Instant::now();
        self.doom(round).await?;
        let prefix: &'static str = Box::leak(format!("cell-{round}").into_boxed_str());
        let options = LoadOptions { prefix, pace: PACE, ..LoadOptions::default() };
        let ledger = Arc::new(Ledger::default());
        let load = Load::start(&self.cluster.addresses(), &options, &ledger);
        if cell.place != Place::Grace {
            self.hold_file.set(cell.place.held())?;
        }
        let verb = match cell.operation {
            Operation::Join => "join",
            Operation::Drain => "drain",
        };
        self.start_plan(verb).await?;
        if cell.place == Place::Retiring {
            let serving = |plan: &PlanSeen| plan.is_serving();
            wait_plan(&self.cluster, "serving", self.plan, PLAN_DEADLINE, serving).await?;
            kvctl_ok(&self.cluster, &["migrate", "finish"]).await?;
        }
        let reached = |plan: &PlanSeen| cell.place.is_reached(plan);
        let plan = wait_plan(&self.cluster, "the place", self.plan, PLAN_DEADLINE, reached).await?;
        let subject = plan.at(cell.place.step()).next().context("no move is there")?.clone();
        let victims = self.victims(cell.victim, &subject).await?;
        // Nothing takes the move on while it is held, but for its victim's death.
        let recorded = self.recorded(&subject).await?;
        for victim in &victims {
            self.cluster.node(*victim).kill()?;
        }
        ensure!(
            recorded.step == cell.place.step(),
            "the record says {} ({}), so the victim did not die in {:?}",
            recorded.stage,
            recorded.step,
            cell.place
        );
        hold(ABSENCE).await;
        self.hold_file.release()?;
        for victim in &victims {
            self.cluster.node(*victim).start()?;
        }
        for victim in &victims {
            self.cluster.wait_status(*victim, "/livez", 200).await?;
        }
        self.finish_plan().await?;
        let longest = load.stop().await?;
        self.check(&ledger).await?;
        self.ledgers.push(ledger);
        let names: Vec<&str> =
            victims.iter().map(|it| self.cluster.node(*it).name.as_str()).collect();
        Ok(format!(
            "{cell}: killed {} with the move of partition {} recorded as {}; ended after {:.1} s, \
             longest silence of a writer {:.1} s",
            names.join("+"),
            subject.partition,
            recorded.step,
            began.elapsed().as_secs_f64(),
            longest.as_secs_f64(),
        ))
    }

    /// The record of a move, as a survivor has it.
    async fn recorded(&self, subject: &MoveSeen) -> anyhow::Result<MoveSeen> {
        let plan = newest_plan(&self.cluster).await?;
        let same = |it: &&MoveSeen| it.partition == subject.partition && it.gain == subject.gain;
        plan.moves.iter().find(same).cloned().context("the move is not on record any more")
    }

    async fn victims(&self, victim: Victim, subject: &MoveSeen) -> anyhow::Result<Vec<usize>> {
        let of = |name: &Option<String>| {
            let name = name.as_deref().context("the move has no such node")?;
            self.cluster.index_of(name)
        };
        let mut victims = match victim {
            Victim::Source => vec![of(&subject.lose)?],
            Victim::Target => vec![of(&subject.gain)?],
            Victim::TargetAndSource => vec![of(&subject.gain)?, of(&subject.lose)?],
            Victim::Leader => {
                let partition = placement::PartitionId::new(subject.partition);
                let key = key_in(partition, self.cluster.partitions(), "matrix");
                vec![self.cluster.leader_of(0, key.as_bytes()).await?]
            }
            Victim::GroupZero => vec![self.cluster.cluster_leader(0).await?],
        };
        victims.dedup();
        Ok(victims)
    }

    /// Writes keys and deletes them again: none of them may come back.
    async fn doom(&mut self, round: usize) -> anyhow::Result<()> {
        let mut caller = Caller::new(&self.cluster.addresses());
        for number in 0..DOOMED {
            let key = format!("doomed-{round}-{number}");
            let value = u64::try_from(number)?;
            for call in [Call::Put(value), Call::Delete] {
                let told = caller.call(number % 3, key.as_bytes(), call, READY_DEADLINE).await?;
                match told.outcome {
                    Outcome::Written(_) | Outcome::Deleted => {}
                    other => bail!("{key}: {other:?} {}", told.reason),
                }
            }
            self.doomed.insert(key);
        }
        Ok(())
    }

    /// Everything acknowledged is there through every node, nothing deleted is, and the cluster says
    /// that all is well.
    async fn check(&self, ledger: &Ledger) -> anyhow::Result<()> {
        self.cluster.wait_ready().await?;
        wait_check(&self.cluster, PLAN_DEADLINE).await?;
        let addresses = self.cluster.addresses();
        for node in 0..self.cluster.nodes().len() {
            ledger.check_through(&addresses, node).await?;
        }
        let mut caller = Caller::new(&addresses);
        for (number, key) in self.doomed.iter().enumerate() {
            let node = number % addresses.len();
            let told = caller.call(node, key.as_bytes(), Call::Get, READY_DEADLINE).await?;
            ensure!(told.outcome == Outcome::Absent, "{key} came back: {:?}", told.outcome);
        }
        Ok(())
    }
}
