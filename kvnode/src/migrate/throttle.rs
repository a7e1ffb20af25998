//! Bytes per second, in one direction.
//!
//! A bucket of our own: `governor` fixes its rate when it is made and knows no rate of zero, and
//! here the rate changes, to zero and back, while somebody waits.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::gauge;
use tokio::sync::watch;

use super::limits::CopyLimits;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To this node.
    In,
    /// From this node.
    Out,
}

impl Direction {
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// What was moved and is not yet paid for. Who moves bytes first waits until there is no debt, and
/// then makes some: bursts are as long as what is moved at once, and the rate is exact over time.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Byte-nanoseconds: bytes times the nanoseconds of a second.
    debt: u128,
    /// When the debt was that.
    at: Instant,
    /// The rate since then, in bytes per second.
    rate: u64,
}

/// What to do before bytes may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Go,
    /// Wait that long, or until the rate changes.
    Wait(Duration),
    /// Wait until the rate is not zero any more.
    Paused,
}

const SECOND: u128 = 1_000_000_000;

impl Bucket {
    pub fn new(now: Instant, rate: u64) -> Self {
        Self { debt: 0, at: now, rate }
    }

    /// Asks to move `bytes` at a rate; they count as moved if the answer is [`Verdict::Go`].
    pub fn ask(&mut self, now: Instant, rate: u64, bytes: u64) -> Verdict {
        let paid = now.saturating_duration_since(self.at).as_nanos() * u128::from(self.rate);
        self.debt = self.debt.saturating_sub(paid);
        self.at = now;
        self.rate = rate;
        if rate == 0 {
            return Verdict::Paused;
        }
        if self.debt > 0 {
            let nanos = self.debt.div_ceil(u128::from(rate));
            return Verdict::Wait(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        }
        self.charge(bytes);
        Verdict::Go
    }

    /// Counts bytes that were moved beyond those asked for.
    pub fn charge(&mut self, bytes: u64) {
        self.debt += u128::from(bytes) * SECOND;
    }

    /// Takes back bytes that were asked for and not moved.
    pub fn refund(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_sub(u128::from(bytes) * SECOND);
    }
}

/// The longest a waiter sleeps before it looks again.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Keeps copies in one direction below the limit in force.
#[derive(Debug)]
pub(crate) struct Throttle {
    direction: Direction,
    limits: watch::Receiver<CopyLimits>,
    bucket: Mutex<Bucket>,
}

impl Throttle {
    pub fn new(direction: Direction, limits: watch::Receiver<CopyLimits>) -> Self {
        let rate = limits.borrow().bytes_per_second;
        let bucket = Mutex::new(Bucket::new(Instant::now(), rate));
        Self { direction, limits, bucket }
    }

    /// Waits until `bytes` may be moved, however long that is, and counts them as moved.
    pub async fn acquire(&self, bytes: u64) {
        let mut limits = self.limits.clone();
        loop {
            let rate = limits.borrow_and_update().bytes_per_second;
            let began = Instant::now();
            let wait = match self.with(|bucket| bucket.ask(began, rate, bytes)) {
                Verdict::Go => return,
                Verdict::Wait(wait) => wait.min(SLEEP_MAX),
                Verdict::Paused => SLEEP_MAX,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = limits.changed() => if changed.is_err() {
                    // Nobody is left to change them.
                    tokio::time::sleep(wait).await;
                },
            }
            if rate == 0 {
                gauge!("ringkv_copy_paused_seconds", "direction" => self.direction.name())
                    .increment(began.elapsed().as_secs_f64());
            }
        }
    }

    /// Counts bytes that were moved beyond those asked for.
    pub fn charge(&self, bytes: u64) {
        self.with(|bucket| bucket.charge(bytes));
    }

    /// Takes back bytes that were asked for and not moved.
    pub fn refund(&self, bytes: u64) {
        self.with(|bucket| bucket.refund(bytes));
    }

    fn with<T>(&self, work: impl FnOnce(&mut Bucket) -> T) -> T {
        work(&mut self.bucket.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
