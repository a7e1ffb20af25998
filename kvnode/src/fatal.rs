//! Ends of the process that nobody asked for. None of them is silent, and none goes on.

use std::error::Error;
use std::io::Write;

/// Exit code of a node whose store failed while it ran (`EX_IOERR` of BSD's sysexits).
pub const EXIT_STORE_FAILED: i32 = 74;

/// Ends the process: the store failed, and nothing is known of what is on disk.
pub(crate) fn store_failed(error: &dyn Error) -> ! {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        reason.push_str(": ");
        reason.push_str(&error.to_string());
        source = error.source();
    }
    // Straight to the terminal: a logger's buffer would end with the process.
    let _ = writeln!(
        std::io::stderr(),
        "kvnode: the store failed, stopping since nothing is known of the disk: {reason}"
    );
    std::process::exit(EXIT_STORE_FAILED)
}

/// Ends the process if the thread that holds it panics: a node without one of its threads would
/// look alive and do nothing. The panic itself has said why.
pub(crate) struct AbortOnPanic(pub &'static str);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "kvnode: {} panicked, stopping", self.0);
            std::process::abort();
        }
    }
}
