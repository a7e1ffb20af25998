//! The gate through which reads under a leader's lease pass without the core.
//!
//! The core writes it, any thread reads it. A read that passes is linearizable: the lease held when
//! it arrived and still held after the value was read, and everything committed when it arrived
//! had been applied.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::ids::{Generation, LogIndex};
use crate::time::Time;

/// State of one replica that readers need. Times are nanoseconds of the core's clock.
#[derive(Debug, Default)]
pub struct ReadGate {
    lease_until: AtomicU64,
    commit: AtomicU64,
    applied: AtomicU64,
    generation: AtomicU64,
    renewal_asked: AtomicBool,
    lease_unchecked: bool,
}

/// Shows that a read arrived while the lease held; to be checked again after the value was read.
#[derive(Debug)]
#[must_use = "the lease must be checked again after the value was read"]
pub struct ReadTicket {
    /// Whether the lease should be renewed soon, and this reader is the one to ask for it.
    pub renew: bool,
    /// The lease as it was when the read arrived.
    until: Time,
}

impl ReadGate {
    /// A gate without a lease. `lease_unchecked` is a deliberate fault of tests.
    #[must_use]
    pub(crate) fn new(lease_unchecked: bool) -> Self {
        Self { lease_unchecked, ..Self::default() }
    }

    /// Admits a read that arrives now, if the lease holds and nothing committed waits to be applied.
    /// `renew_within` is how much of a lease may be left before it should be renewed.
    pub fn arrive(&self, now: Time, renew_within: Duration) -> Option<ReadTicket> {
        let until = self.lease_until.load(Ordering::Acquire);
        if until == 0 || (now.as_nanos() >= until && !self.lease_unchecked) {
            return None;
        }
        let commit = self.commit.load(Ordering::Acquire);
        if self.applied.load(Ordering::Acquire) < commit {
            return None;
        }
        let ends_soon = Time::from_nanos(until).since(now) < renew_within;
        let renew = ends_soon && !self.renewal_asked.swap(true, Ordering::AcqRel);
        Some(ReadTicket { renew, until: Time::from_nanos(until) })
    }

    /// Whether the lease still holds, after the value was read; if not, the value must not be used.
    #[must_use]
    pub fn still_held(&self, ticket: &ReadTicket, now: Time) -> bool {
        let until = Time::from_nanos(self.lease_until.load(Ordering::Acquire));
        self.lease_unchecked || (now < until && ticket.until <= until)
    }

    /// The generation of the partition's data that is current.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// The last index whose effects are visible in the store.
    #[must_use]
    pub fn applied(&self) -> LogIndex {
        LogIndex(self.applied.load(Ordering::Acquire))
    }

    /// Notes what is known to be committed; before any message that tells of it leaves.
    pub(crate) fn note_commit(&self, index: LogIndex) {
        self.commit.fetch_max(index.get(), Ordering::AcqRel);
    }

    /// Notes what is visible in the store.
    pub(crate) fn note_applied(&self, index: LogIndex, generation: Generation) {
        self.generation.store(generation.get(), Ordering::Release);
        self.applied.store(index.get(), Ordering::Release);
    }

    /// Grants a lease until a time, or takes it away with [`Time::ZERO`].
    pub(crate) fn set_lease(&self, until: Time) {
        if self.lease_unchecked && until == Time::ZERO {
            return;
        }
        self.lease_until.store(until.as_nanos(), Ordering::Release);
        self.renewal_asked.store(false, Ordering::Release);
    }
}
