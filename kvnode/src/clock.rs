//! The clocks of a node: the only place of this crate that reads time for the core.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvcore::Time;
use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock that counts suspension: a lease must end on a machine that sleeps.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere the monotonic clock is the nearest there is.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Now, on the core's clock.
#[must_use]
pub fn now() -> Time {
    let time = clock_gettime(CLOCK);
    let seconds =
        u64::try_from(time.tv_sec).expect("the clock counts up from the start of the system");
    let nanos = u64::try_from(time.tv_nsec).expect("below a second's nanoseconds");
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Now, in unix milliseconds by the system's clock: for people, never for order.
#[must_use]
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_runs_backwards() {
        let mut last = now();
        for _ in 0..10_000 {
            let next = now();
            assert!(next >= last, "{next:?} came after {last:?}");
            last = next;
        }
    }
}
