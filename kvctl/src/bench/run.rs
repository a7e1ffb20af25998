//! A run: threads with their workers, the clock of an open loop, and the renewal of routes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvapi::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plan::Plan;
use super::tally::{Report, Tally};
use super::worker::{Load, Pace, Route, Routes, Worker};
use crate::exit::{Exit, Failure};

/// How often routes are renewed, and how often a newer ring is looked for in between.
const RENEWAL: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// The clock of an open loop sleeps at least this long; arrivals in between are released together.
const TICK_MIN: Duration = Duration::from_micros(100);

/// How hard the load is.
#[derive(Clone, Debug)]
pub struct Intensity {
    /// Requests in flight at the most.
    pub connections: usize,
    /// Threads of the load generator.
    pub threads: usize,
    /// Time for one answer.
    pub timeout: Duration,
    /// Appended to the paths of reads.
    pub read_query: &'static str,
    /// Set when no more operations are to start; those under way end as ever.
    pub is_ended: Arc<AtomicBool>,
}

/// When operations start.
#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    /// One after the other in each worker, for this long.
    Closed(Duration),
    /// At this rate per second, for this long.
    Open(f64, Duration),
    /// Each key once.
    Preload,
}

/// Performs a load and gives its results.
pub fn run(
    plan: Plan,
    route: Route,
    schedule: Schedule,
    intensity: &Intensity,
) -> Result<Report, Failure> {
    let started = Instant::now();
    let pace = match schedule {
        Schedule::Closed(duration) => Pace::Closed(started + duration),
        Schedule::Open(rate, _) => {
            Pace::Open { due: Semaphore::new(0), started, interval_nanos: 1e9 / rate }
        }
        Schedule::Preload => Pace::Preload,
    };
    let load = Arc::new(Load {
        plan,
        route,
        pace,
        next: AtomicU64::new(0),
        timeout: intensity.timeout,
        read_query: intensity.read_query,
        is_ended: Arc::clone(&intensity.is_ended),
    });
    let tallies = std::thread::scope(|scope| {
        let threads = intensity.threads.min(intensity.connections).max(1);
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let numbers = (thread..intensity.connections).step_by(threads);
                let load = &load;
                scope.spawn(move || run_thread(load, numbers))
            })
            .collect();
        if let Schedule::Open(_, duration) = schedule {
            keep_time(&load, duration);
        }
        workers
            .into_iter()
            .map(|thread| {
                let failed =
                    Failure::new(Exit::CheckFailed, "a thread of the load generator failed");
                thread.join().unwrap_or(Err(failed))
            })
            .collect::<Vec<_>>()
    });
    let elapsed = started.elapsed();
    let mut total = Tally::new();
    for tally in tallies {
        total.merge(&tally?);
    }
    Ok(total.report(elapsed))
}

fn run_thread(load: &Arc<Load>, numbers: impl Iterator<Item = usize>) -> Result<Tally, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::CheckFailed, format!("cannot start: {error}")))?;
    let tally = Arc::new(Mutex::new(Tally::new()));
    runtime.block_on(async {
        let mut workers = JoinSet::new();
        for number in numbers {
            workers.spawn(Worker::new(Arc::clone(load), Arc::clone(&tally), number).run());
        }
        while workers.join_next().await.is_some() {}
    });
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::replace(&mut tally, Tally::new()))
}

/// Releases each operation of an open loop when its time has come. A thread that sleeps keeps time
/// twenty times better than the runtime's timer, which counts milliseconds.
fn keep_time(load: &Load, duration: Duration) {
    let Pace::Open { due, started, interval_nanos } = &load.pace else {
        return;
    };
    let total = (duration.as_nanos() as f64 / interval_nanos).ceil() as u64;
    let mut released = 0;
    while released < total && !load.is_ended.load(Ordering::Relaxed) {
        let passed = started.elapsed().as_nanos() as f64;
        let arrived = ((passed / interval_nanos) as u64 + 1).min(total);
        if arrived > released {
            due.add_permits(usize::try_from(arrived - released).unwrap_or(usize::MAX));
            released = arrived;
        }
        let next = Duration::from_nanos((released as f64 * interval_nanos) as u64);
        let pause = next.saturating_sub(started.elapsed());
        std::thread::sleep(pause.max(TICK_MIN));
    }
    // Workers take what was released before they see the end.
    let is_taken = || load.next.load(Ordering::Relaxed) >= released;
    let until = started.elapsed() + load.timeout;
    while !is_taken() && started.elapsed() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    due.close();
}

/// Renews routes until told to end: now and then, and soon after a node showed a newer ring.
pub async fn renew_routes(client: Client, routes: Arc<Routes>, is_over: Arc<AtomicBool>) {
    let mut renewed = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
        let is_outdated = routes.is_outdated.swap(false, Ordering::Relaxed);
        if !is_outdated && renewed.elapsed() < RENEWAL {
            continue;
        }
        renewed = Instant::now();
        // Without an answer the routes at hand stay in use.
        if let Ok(table) = client.refresh().await {
            routes.replace(table);
        }
    }
}
