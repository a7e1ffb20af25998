//! Loopback ports that no other test takes, in this process or another.
//!
//! A port is reserved by a lock on a file named after it, so that a node which is down for a while
//! finds its port free when it comes back. The range lies below the one from which the system takes
//! the ports of outgoing connections.

use std::fs::{self, File};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, bail};

const FIRST: u16 = 17_000;
const COUNT: u16 = 12_000;

/// A port that is this process's until dropped.
#[derive(Debug)]
pub struct Reservation {
    port: u16,
    _lock: File,
}

impl Reservation {
    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// Reserves a free port.
pub fn reserve() -> anyhow::Result<Reservation> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let directory = std::env::temp_dir().join("ringkv-test-ports");
    fs::create_dir_all(&directory).context("cannot make the directory of port reservations")?;
    // Processes that start together begin to search at different places.
    let start = u16::try_from(u64::from(std::process::id()) * 97 % u64::from(COUNT))?;
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(offset) % COUNT;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join(port.to_string()))
            .context("cannot open a port reservation")?;
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(Reservation { port, _lock: lock });
        }
    }
    bail!("no port from {FIRST} on is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_again_until_it_is_dropped() -> anyhow::Result<()> {
        let held: Vec<Reservation> = (0..50).map(|_| reserve()).collect::<Result<_, _>>()?;
        let mut ports: Vec<u16> = held.iter().map(Reservation::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), held.len());
        Ok(())
    }
}
