//! Options of the sockets between nodes.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A connection with unacknowledged bytes this old is dead: after a cut network heals, a new one
/// reaches the peer at once, while this one might wait a minute for its next attempt.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(3);
/// A silent connection is probed after this long.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Sets the options of a connection, on either end of it.
pub(super) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    {
        let milliseconds = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(stream, milliseconds)?;
    }
    Ok(())
}

/// Growing pauses between attempts to reach a peer: short at first, so that a peer that restarts is
/// found soon, and never long, since a pause costs this node one refused connection.
#[derive(Debug)]
pub(super) struct BackOff {
    next: Duration,
}

impl BackOff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_millis(800);

    pub(super) const fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// The next pause; up to a quarter is drawn, so that nodes do not knock together.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(Self::LONGEST);
        pause.mul_f64(0.75 + 0.25 * rand::random::<f64>())
    }

    pub(super) const fn reset(&mut self) {
        self.next = Self::FIRST;
    }
}
