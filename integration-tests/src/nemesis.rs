//! Faults, drawn from a seed: processes that die, hang, leave or lose power, and the leader of a busy
//! key among them on purpose.
//!
//! After each fault everything runs again and serves; a cluster that does not is a failure by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use kvapi::TransferRequest;
use placement::NodeName;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use tokio::task::JoinSet;

use crate::caller::{outcome_of, request_of};
use crate::cluster::{Cluster, describe};
use crate::growth::Growth;
use crate::history::{Call, Operation, Outcome, RunClock};
use crate::linearizability::HotKeys;
use crate::shim::Shim;
use crate::wait::{hold, wait_for};
use crate::wire::Connection;

/// Time that a node has to leave by itself.
const LEAVE_DEADLINE: Duration = Duration::from_secs(10);
/// Time for the cluster to take writes on every hot key again.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(30);
/// Reads that wait in the sockets of a stopped node.
const LATE_READS: u32 = 24;
/// Time for these reads to be answered once the node goes on.
const LATE_TIMEOUT: Duration = Duration::from_secs(10);
/// Numbers of the clients that send them begin here.
const LATE_CLIENT_FIRST: u32 = 1000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// SIGKILL of a random node, which comes back after a while.
    Kill,
    /// SIGKILL of a leader, which comes back at once.
    KillLeader,
    /// SIGSTOP of a leader for longer than an election takes; reads wait in its sockets.
    PauseLeader,
    /// SIGSTOP of a random node for about as long as leases and elections take.
    PauseBriefly,
    /// SIGSTOP of two nodes at the same time.
    PauseTwo,
    /// SIGTERM of a random node, which comes back.
    Leave,
    /// SIGKILL of all nodes, which come back.
    PowerOff,
    /// A random node's disk makes nothing durable for a while.
    StallDisk,
    /// An operator moves the leadership of every hot key's partition, and of some twice.
    Transfer,
    /// An operator lets nodes join or leave; what strikes next finds the plan under way. It comes
    /// first in each round.
    Plan,
}

impl Fault {
    /// Every kind but plans, which need nodes that come and go.
    pub const ALL: [Self; 9] = [
        Self::Kill,
        Self::KillLeader,
        Self::PauseLeader,
        Self::PauseBriefly,
        Self::PauseTwo,
        Self::Leave,
        Self::PowerOff,
        Self::StallDisk,
        Self::Transfer,
    ];
}

/// Commits faults.
#[derive(Debug)]
pub struct Nemesis<'a> {
    cluster: &'a Cluster,
    disks: &'a Shim,
    random: SmallRng,
    kinds: Vec<Fault>,
    struck: BTreeMap<Fault, usize>,
    growth: Growth,
    /// What the late readers saw.
    seen: Vec<Operation>,
}

impl<'a> Nemesis<'a> {
    /// Faults of these kinds, in an order that the random numbers decide. The nodes' disks can be
    /// held by `disks`.
    pub fn new(cluster: &'a Cluster, disks: &'a Shim, kinds: Vec<Fault>, random: SmallRng) -> Self {
        let (struck, growth, seen) = (BTreeMap::new(), Growth::default(), Vec::new());
        Self { cluster, disks, random, kinds, struck, growth, seen }
    }

    /// How often each kind was committed.
    pub fn struck(&self) -> &BTreeMap<Fault, usize> {
        &self.struck
    }

    /// How many faults were committed.
    pub fn total(&self) -> usize {
        self.struck.values().sum()
    }

    /// Brings the plan under way to its end.
    pub async fn end(&mut self) -> anyhow::Result<()> {
        self.growth.end(self.cluster).await
    }

    /// A line about each plan that has ended.
    pub fn plans(&self) -> &[String] {
        self.growth.told()
    }

    /// What was read from nodes that had just been resumed.
    pub fn into_seen(self) -> Vec<Operation> {
        self.seen
    }

    /// Commits one fault and waits until the cluster serves again. Each kind has its turn before one
    /// comes again.
    pub async fn strike(&mut self, keys: &HotKeys, clock: RunClock) -> anyhow::Result<()> {
        let count = |kind: &Fault| self.struck.get(kind).copied().unwrap_or(0);
        let fewest = self.kinds.iter().map(count).min().unwrap_or(0);
        let due: Vec<Fault> =
            self.kinds.iter().copied().filter(|kind| count(kind) == fewest).collect();
        let plan = due.iter().find(|kind| **kind == Fault::Plan);
        let Some(fault) = plan.or(due.choose(&mut self.random)).copied() else { return Ok(()) };
        if fault != Fault::Plan {
            self.growth.note(self.cluster, &format!("{fault:?}")).await;
        }
        *self.struck.entry(fault).or_default() += 1;
        let any = self.random.random_range(0..self.cluster.nodes().len());
        match fault {
            Fault::Kill => {
                self.cluster.node(any).kill()?;
                self.hold_for(100..2500).await;
                self.cluster.node(any).start()?;
            }
            Fault::KillLeader => {
                let leader = self.leader(keys).await?;
                self.cluster.node(leader).kill()?;
                self.cluster.node(leader).start()?;
            }
            Fault::PauseLeader => self.pause_leader(keys, clock).await?,
            Fault::PauseBriefly => {
                self.cluster.node(any).pause()?;
                self.hold_for(200..1500).await;
                self.cluster.node(any).resume()?;
            }
            Fault::PauseTwo => {
                let other = (any + 1) % self.cluster.nodes().len();
                self.cluster.node(any).pause()?;
                self.cluster.node(other).pause()?;
                self.hold_for(500..3000).await;
                self.cluster.node(other).resume()?;
                self.hold_for(0..300).await;
                self.cluster.node(any).resume()?;
            }
            Fault::Leave => {
                let (took, status) = self.cluster.node(any).terminate(LEAVE_DEADLINE).await?;
                ensure!(status.success(), "a node left with {} after {took:?}", describe(status));
                self.hold_for(0..500).await;
                self.cluster.node(any).start()?;
            }
            Fault::StallDisk => {
                let name = &self.cluster.node(any).name;
                self.disks.hold(name, true)?;
                self.hold_for(200..3000).await;
                self.disks.hold(name, false)?;
            }
            Fault::Transfer => self.transfer(keys).await?,
            Fault::Plan => return self.growth.go_on(self.cluster).await,
            Fault::PowerOff => {
                for node in self.cluster.nodes() {
                    node.kill()?;
                }
                for node in self.cluster.nodes() {
                    node.start()?;
                }
            }
        }
        self.cluster.wait_ready().await?;
        self.wait_recovered(keys).await
    }

    /// Orders leaderships about. An order may be refused, as another leader may have come up; what
    /// matters is what clients see meanwhile.
    async fn transfer(&mut self, keys: &HotKeys) -> anyhow::Result<()> {
        for key in keys.current() {
            let partition = self.cluster.locate(0, key.as_bytes()).await?.partition;
            for _ in 0..self.random.random_range(1..=2) {
                let to = self.random.random_range(0..self.cluster.nodes().len());
                let to = NodeName::parse(&self.cluster.node(to).name)?;
                let order = TransferRequest { partition, to };
                let _ = self.cluster.client().transfer(&order).await;
            }
        }
        Ok(())
    }

    /// Stops a leader until others have taken over and been written to, and puts reads into its
    /// sockets before it goes on: they are what it finds first when it wakes.
    async fn pause_leader(&mut self, keys: &HotKeys, clock: RunClock) -> anyhow::Result<()> {
        let leader = self.leader(keys).await?;
        let node = self.cluster.node(leader);
        let mut led = Vec::new();
        for (slot, key) in keys.current().into_iter().enumerate() {
            let located = self.cluster.locate(leader, key.as_bytes()).await?;
            if located.leader.is_some_and(|hint| hint.name.as_str() == node.name) {
                led.push(slot);
            }
        }
        let mut waiting = Vec::new();
        for _ in 0..LATE_READS {
            waiting.push(Connection::open(&node.client_address()).await?);
        }
        node.pause()?;
        self.hold_for(2000..4500).await;
        let mut readers = JoinSet::new();
        for (number, mut connection) in (0..).zip(waiting) {
            let Some(slot) = led.choose(&mut self.random) else { break };
            let key = keys.draw(*slot);
            let request = request_of(key.as_bytes(), Call::Get).bytes(&node.client_address());
            let client = LATE_CLIENT_FIRST + number;
            let called = clock.now();
            connection.send(&request).await?;
            readers.spawn(async move {
                let reply = tokio::time::timeout(LATE_TIMEOUT, connection.receive(false)).await;
                let outcome = match reply {
                    Ok(Ok(reply)) => outcome_of(Call::Get, &reply)?,
                    Ok(Err(_)) | Err(_) => Outcome::Unknown,
                };
                let returned = clock.now();
                let node = leader;
                let call = Call::Get;
                anyhow::Ok(Operation { client, node, key, call, outcome, called, returned })
            });
        }
        node.resume()?;
        while let Some(read) = readers.join_next().await {
            self.seen.push(read??);
        }
        Ok(())
    }

    /// The leader of a random hot key.
    async fn leader(&mut self, keys: &HotKeys) -> anyhow::Result<usize> {
        let current = keys.current();
        let key = current.choose(&mut self.random).map_or("", String::as_str);
        self.cluster.leader_of(0, key.as_bytes()).await
    }

    /// Waits until every hot key's partition has taken a write. The keys of these writes are others.
    async fn wait_recovered(&self, keys: &HotKeys) -> anyhow::Result<()> {
        let mut caller = crate::caller::Caller::new(&self.cluster.addresses());
        for key in keys.current() {
            let partition = self.cluster.locate(0, key.as_bytes()).await?.partition;
            let probe = crate::measure::key_in(partition, self.cluster.partitions(), "probe");
            let what = format!("a write to partition {partition}");
            wait_for(&what, RECOVERY_DEADLINE, async || {
                let timeout = Duration::from_secs(1);
                let told = caller.call(0, probe.as_bytes(), Call::Put(1), timeout).await;
                match told.map_err(|error| format!("{error:#}"))? {
                    told if matches!(told.outcome, Outcome::Written(_)) => Ok(()),
                    told => Err(told.reason),
                }
            })
            .await?;
        }
        Ok(())
    }

    async fn hold_for(&mut self, milliseconds: std::ops::Range<u64>) {
        let drawn = self.random.random_range(milliseconds);
        hold(Duration::from_millis(drawn)).await;
    }
}
