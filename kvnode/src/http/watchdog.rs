//! Watches one connection: how long it was silent, idle, or stuck, without a timer per request.
//!
//! The connection notes what happens in a few counters; every now and then [`Watchdog::judge`] compares
//! them with what it saw before. A limit is therefore kept to within one [`Watchdog::interval`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::limits::HttpLimits;
use crate::metrics::Closed;

/// What happened on a connection so far.
#[derive(Debug, Default)]
pub struct Activity {
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    is_write_blocked: AtomicBool,
    requests_begun: AtomicU64,
    requests_open: AtomicU32,
    /// `bytes_read` when the last request ended: more than that is the start of another.
    bytes_at_end: AtomicU64,
    is_multiplexed: AtomicBool,
}

/// A request under way on a connection; it ends when this is dropped.
#[derive(Debug)]
pub struct OpenRequest {
    activity: Arc<Activity>,
}

impl Activity {
    /// Notes the start of a request. On a multiplexed connection bytes also arrive between requests.
    #[must_use]
    pub fn begin(self: &Arc<Self>, is_multiplexed: bool) -> OpenRequest {
        self.requests_open.fetch_add(1, Ordering::Relaxed);
        self.requests_begun.fetch_add(1, Ordering::Relaxed);
        if is_multiplexed {
            self.is_multiplexed.store(true, Ordering::Relaxed);
        }
        OpenRequest { activity: Arc::clone(self) }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let activity = &self.activity;
        activity.bytes_at_end.store(activity.bytes_read.load(Ordering::Relaxed), Ordering::Relaxed);
        activity.requests_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection's stream that notes its activity.
#[derive(Debug)]
pub struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl Watched {
    /// Notes what happens on `stream` in `activity`.
    #[must_use]
    pub fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn note_write(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(count)) => {
                self.activity.bytes_written.fetch_add(*count as u64, Ordering::Relaxed);
                self.activity.is_write_blocked.store(false, Ordering::Relaxed);
            }
            Poll::Pending => self.activity.is_write_blocked.store(true, Ordering::Relaxed),
            Poll::Ready(Err(_)) => {}
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        self.activity.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.note_write(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// What is to become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Leave it open.
    Keep,
    /// Close it.
    Close(Closed),
}

/// Judges one connection.
#[derive(Debug)]
pub struct Watchdog {
    activity: Arc<Activity>,
    head_timeout: Duration,
    idle_timeout: Duration,
    stall_timeout: Duration,
    seen: Seen,
    /// When the connection last was in another state than now.
    since: Instant,
}

/// What the connection was doing when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Requests are under way.
    Busy,
    /// The client takes no bytes; it had taken so many.
    WriteBlocked { bytes_written: u64 },
    /// Part of a request is there, or a new connection waits for its first.
    HeadExpected { requests_begun: u64 },
    /// Nothing is under way.
    Idle { requests_begun: u64 },
}

impl Watchdog {
    /// A watchdog of a connection that was opened now.
    #[must_use]
    pub fn new(activity: Arc<Activity>, limits: &HttpLimits, now: Instant) -> Self {
        Self {
            activity,
            head_timeout: limits.head_timeout,
            idle_timeout: limits.idle_timeout,
            stall_timeout: limits.body_pause_max,
            seen: Seen::HeadExpected { requests_begun: 0 },
            since: now,
        }
    }

    /// How often to judge: a quarter of the shortest limit.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let shortest = self.head_timeout.min(self.idle_timeout).min(self.stall_timeout);
        (shortest / 4).max(Duration::from_millis(5))
    }

    /// What is to become of the connection now.
    pub fn judge(&mut self, now: Instant) -> Verdict {
        let seen = self.look();
        if seen != self.seen {
            self.seen = seen;
            self.since = now;
        }
        let (limit, reason) = match seen {
            Seen::Busy => return Verdict::Keep,
            Seen::WriteBlocked { bytes_written: _ } => (self.stall_timeout, Closed::Stalled),
            Seen::HeadExpected { requests_begun: _ } => (self.head_timeout, Closed::SlowHead),
            Seen::Idle { requests_begun: _ } => (self.idle_timeout, Closed::Idle),
        };
        if now.duration_since(self.since) >= limit { Verdict::Close(reason) } else { Verdict::Keep }
    }

    fn look(&self) -> Seen {
        let activity = &self.activity;
        let requests_begun = activity.requests_begun.load(Ordering::Relaxed);
        if activity.is_write_blocked.load(Ordering::Relaxed) {
            return Seen::WriteBlocked {
                bytes_written: activity.bytes_written.load(Ordering::Relaxed),
            };
        }
        if activity.requests_open.load(Ordering::Relaxed) > 0 {
            return Seen::Busy;
        }
        let has_more = activity.bytes_read.load(Ordering::Relaxed)
            > activity.bytes_at_end.load(Ordering::Relaxed);
        let expects_head = has_more && !activity.is_multiplexed.load(Ordering::Relaxed);
        if requests_begun == 0 || expects_head {
            Seen::HeadExpected { requests_begun }
        } else {
            Seen::Idle { requests_begun }
        }
    }
}
