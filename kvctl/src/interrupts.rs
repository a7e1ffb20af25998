//! Being told to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// Requests to end, by signal or terminal.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// Takes the signals over from their default, which ends the process at once. Within a runtime.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            let listened = signal(kind);
            listened.map_err(|error| {
                Failure::new(Exit::CheckFailed, format!("cannot listen for signals: {error}"))
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
