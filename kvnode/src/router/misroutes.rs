//! How many requests were sent to a node that did not lead: few, unless routes are outdated.

use std::sync::atomic::{AtomicU64, Ordering};

/// Fewer requests than this say nothing about routes.
const ROUTED_MIN: u64 = 50;

/// Requests that were not answered from memory at once.
#[derive(Debug, Default)]
pub(super) struct RouteCounts {
    routed: AtomicU64,
    misrouted: AtomicU64,
}

impl RouteCounts {
    /// Notes a request that was answered by the last of `asked` nodes.
    pub fn note(&self, asked: usize) {
        self.routed.fetch_add(1, Ordering::Relaxed);
        if asked > 1 {
            self.misrouted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The share, per mille, of requests that went to a wrong node first, since the last call.
    pub fn take_per_mille(&self) -> u32 {
        let misrouted = self.misrouted.swap(0, Ordering::Relaxed);
        let routed = self.routed.swap(0, Ordering::Relaxed).max(misrouted);
        if routed < ROUTED_MIN {
            return 0;
        }
        u32::try_from(misrouted.saturating_mul(1000) / routed).unwrap_or(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_requests_since_the_last_look() {
        let counts = RouteCounts::default();
        for number in 0..100 {
            counts.note(if number % 10 == 0 { 2 } else { 1 });
        }
        assert_eq!(counts.take_per_mille(), 100);
        assert_eq!(counts.take_per_mille(), 0);
        counts.note(3);
        assert_eq!(counts.take_per_mille(), 0, "one request says nothing");
    }
}
