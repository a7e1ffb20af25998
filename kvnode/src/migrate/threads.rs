//! Threads for what copies do on the disk. They are few and of low priority, and they are not those
//! that reads of clients wait on.

use crossbeam_channel::{Receiver, Sender, unbounded};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::fatal::AbortOnPanic;

/// Threads for chunks: one copy in and one out at full speed.
const THREADS: usize = 2;

/// How much less of the processor these threads get than those that serve clients (`nice`): as
/// little as there is, a few MiB/s of a busy core.
const NICENESS: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

/// Runs work on the threads. Cheap to clone; the threads end with the last clone.
///
/// The queue needs no bound of its own: every copy has at most one job here, and the number of
/// copies and of chunks served at a time is limited.
#[derive(Clone, Debug)]
pub(crate) struct CopyThreads {
    jobs: Sender<Job>,
}

/// The threads have ended, and the node with them.
#[derive(Clone, Copy, Debug, Error)]
#[error("the node is stopping")]
pub(crate) struct Stopping;

impl CopyThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn spawn() -> std::io::Result<Self> {
        let (jobs, receiver) = unbounded::<Job>();
        for number in 0..THREADS {
            let receiver: Receiver<Job> = receiver.clone();
            std::thread::Builder::new().name(format!("copy-{number}")).spawn(move || {
                let _abort = AbortOnPanic("a copying thread");
                lower_priority(NICENESS);
                for job in receiver {
                    job();
                }
            })?;
        }
        Ok(Self { jobs })
    }

    /// Runs work that may wait for the disk.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stopping> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Whoever asked may have been told to end.
            let _ = sender.send(work());
        });
        self.jobs.send(job).map_err(|_| Stopping)?;
        receiver.await.map_err(|_| Stopping)
    }
}

/// Lowers the priority of the calling thread by so many steps of `nice`; what serves clients goes
/// first.
pub(crate) fn lower_priority(niceness: i32) {
    // On Linux the priority is the thread's. Where it cannot be lowered, the thread runs all the
    // same.
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}
