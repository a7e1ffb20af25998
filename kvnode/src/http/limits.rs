//! Limits of the HTTP face, and the counters that enforce the shared ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kvapi::VALUE_BYTES_MAX_DEFAULT;

/// Longest request line and headers together. The longest key takes 12 KiB when every byte of it is
/// escaped; the rest is room for headers that proxies add.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest JSON body of an operator's order.
pub const JSON_BYTES_MAX: usize = 1 << 20;
/// Bytes of an unwanted body that are read and dropped, so that a client that sends before it listens
/// gets to see the refusal instead of a broken pipe.
pub const DRAIN_BYTES_MAX: u64 = 64 << 20;
/// Time in which they are.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest wait of a long poll; a longer wish is cut to this.
pub const POLL_WAIT_MAX: Duration = Duration::from_secs(60);
/// Requests under way on one HTTP/2 connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 256;
/// Connections over the limit that are answered at a time; more are closed without a word.
pub const REFUSALS_AT_ONCE_MAX: usize = 64;

/// Time for which a node that is about to stop goes on taking requests. Each answer then closes its
/// connection, so that busy clients leave without a request cut off on its way; who sent nothing for
/// that long has none.
pub const FAREWELL: Duration = Duration::from_millis(500);

/// What a node's configuration says about its HTTP face.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// Longest value.
    pub value_bytes_max: usize,
    /// Bytes of all request bodies in memory together.
    pub bodies_bytes_max: usize,
    /// Bytes of all large values together that wait for their clients to take them.
    pub answers_bytes_max: usize,
    /// Client connections at a time.
    pub connections_max: usize,
    /// Long polls at a time.
    pub waiters_max: usize,
    /// Time from a complete request to its answer.
    pub request_timeout: Duration,
    /// Time from the first byte of a request, or from a new connection, to complete headers.
    pub head_timeout: Duration,
    /// Time a connection may stay open between two requests.
    pub idle_timeout: Duration,
    /// Longest pause between two pieces of a body, in either direction.
    pub body_pause_max: Duration,
    /// Time for a whole request body.
    pub body_timeout: Duration,
    /// Time that requests under way get when the node stops.
    pub drain_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            value_bytes_max: VALUE_BYTES_MAX_DEFAULT,
            bodies_bytes_max: 256 << 20,
            answers_bytes_max: 256 << 20,
            connections_max: 4096,
            waiters_max: 1024,
            request_timeout: Duration::from_secs(5),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            body_pause_max: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(3),
        }
    }
}

/// Values from this size on count against the memory for answers. Smaller ones are bounded by the
/// number of connections, and not worth the counting.
pub const LARGE_ANSWER_BYTES: usize = 32 << 10;

/// A number of things that may be in use together. Nobody waits for one: who gets none is told so.
#[derive(Debug)]
pub struct Quota {
    used: AtomicUsize,
    max: usize,
}

/// A part of a [`Quota`], given back when dropped.
#[derive(Debug)]
#[must_use = "the share is given back when it is dropped"]
pub struct Share {
    quota: Arc<Quota>,
    count: usize,
}

impl Quota {
    /// A quota of this many.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    /// How many are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a share; none if it does not fit.
    pub fn take(self: &Arc<Self>, count: usize) -> Option<Share> {
        let mut share = Share { quota: Arc::clone(self), count: 0 };
        share.grow(count).then_some(share)
    }
}

impl Share {
    /// Makes the share larger; false, and unchanged, if that does not fit.
    pub fn grow(&mut self, count: usize) -> bool {
        let fits = |used: usize| used.checked_add(count).filter(|sum| *sum <= self.quota.max);
        let grown =
            self.quota.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if grown {
            self.count += count;
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.used.fetch_sub(self.count, Ordering::Relaxed);
    }
}
