//! A steady load of writes, each to a key of its own, until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::caller::Caller;
use crate::history::{Call, Outcome};
use crate::ledger::Ledger;

/// What a load consists of.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// First part of every key's name.
    pub prefix: &'static str,
    /// Number of writers, each with one write under way at a time.
    pub writers: u32,
    /// Shortest time between two writes of one writer.
    pub pace: Duration,
    /// Time that a writer waits for an answer.
    pub timeout: Duration,
}

impl LoadOptions {
    /// A pace for writers that send the next write as soon as the last one is answered.
    pub const NO_PAUSE: Duration = Duration::from_nanos(1);
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            prefix: "load",
            writers: 12,
            pace: Duration::from_millis(5),
            timeout: Duration::from_secs(1),
        }
    }
}

/// A load that runs.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    writers: JoinSet<anyhow::Result<Duration>>,
}

impl Load {
    /// Starts writers that ask the nodes at these addresses in turn.
    pub fn start(addresses: &[String], options: &LoadOptions, ledger: &Arc<Ledger>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for number in 0..options.writers {
            let writer = Writer {
                number,
                caller: Caller::new(addresses),
                nodes: addresses.len(),
                options: options.clone(),
                ledger: Arc::clone(ledger),
            };
            writers.spawn(writer.run(Arc::clone(&stop)));
        }
        Self { stop, writers }
    }

    /// Stops the writers; the longest time that one of them went without an acknowledgement.
    ///
    /// # Errors
    /// If an answer was outside the contract.
    pub async fn stop(mut self) -> anyhow::Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        while let Some(writer) = self.writers.join_next().await {
            longest = longest.max(writer??);
        }
        Ok(longest)
    }
}

struct Writer {
    number: u32,
    caller: Caller,
    nodes: usize,
    options: LoadOptions,
    ledger: Arc<Ledger>,
}

impl Writer {
    async fn run(mut self, stop: Arc<AtomicBool>) -> anyhow::Result<Duration> {
        let mut pace = interval(self.options.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut longest = Duration::ZERO;
        let mut last = Instant::now();
        let mut node = self.number as usize % self.nodes;
        for round in 0_u64.. {
            pace.tick().await;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("{}-{}-{round}", self.options.prefix, self.number);
            let timeout = self.options.timeout;
            let told = self.caller.call(node, key.as_bytes(), Call::Put(round), timeout).await?;
            if let Outcome::Written(_) = told.outcome {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            self.ledger.note(key, round, told.outcome)?;
            node = (node + 1) % self.nodes;
        }
        Ok(longest.max(last.elapsed()))
    }
}
