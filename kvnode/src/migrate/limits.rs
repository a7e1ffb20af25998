//! How much of the node copies may use: set from the view, read by whatever copies.

use std::sync::{Arc, Mutex, PoisonError};

use kvcore::Event;
use tokio::sync::{Notify, watch};

use crate::core_thread::CoreHandle;

/// Limits of a node's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Bytes per second in, and as many out; 0 pauses.
    pub bytes_per_second: u64,
    /// Copies at a time that the node takes, and as many that it serves; 0 pauses those that have
    /// not begun.
    pub copies_at_a_time: u32,
}

impl Default for CopyLimits {
    /// What is in force before a view says otherwise: about a tenth of what one disk writes.
    fn default() -> Self {
        Self { bytes_per_second: 64 << 20, copies_at_a_time: 2 }
    }
}

/// Sets the limits of a node's copies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CopyControl {
    limits: Arc<watch::Sender<CopyLimits>>,
    core: CoreHandle,
}

impl CopyControl {
    /// A control with the default limits in force.
    #[must_use]
    pub fn new(core: CoreHandle) -> Self {
        Self { limits: Arc::new(watch::Sender::new(CopyLimits::default())), core }
    }

    /// Puts limits in force, at once also for copies under way. Where they allow more than before,
    /// copies that wait after a failure are tried again without waiting longer.
    pub fn set(&self, limits: CopyLimits) {
        let mut more = false;
        self.limits.send_if_modified(|current| {
            more = limits.bytes_per_second > current.bytes_per_second
                || limits.copies_at_a_time > current.copies_at_a_time;
            std::mem::replace(current, limits) != limits
        });
        if more {
            self.core.hint(Event::RetryCopies);
        }
    }

    /// The limits in force.
    #[must_use]
    pub fn get(&self) -> CopyLimits {
        *self.limits.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<CopyLimits> {
        self.limits.subscribe()
    }
}

/// Room for as many copies at a time as the limits allow.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    limits: watch::Receiver<CopyLimits>,
    used: Arc<Used>,
}

#[derive(Debug, Default)]
struct Used {
    count: Mutex<u32>,
    freed: Notify,
}

/// A place among the copies at a time, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Used>);

impl Slots {
    pub fn new(limits: watch::Receiver<CopyLimits>) -> Self {
        Self { limits, used: Arc::default() }
    }

    /// Waits for a place.
    pub async fn take(&self) -> Slot {
        let mut limits = self.limits.clone();
        loop {
            let freed = self.used.freed.notified();
            let allowed = limits.borrow_and_update().copies_at_a_time;
            {
                let mut count = self.used.count.lock().unwrap_or_else(PoisonError::into_inner);
                if *count < allowed {
                    *count += 1;
                    return Slot(Arc::clone(&self.used));
                }
            }
            tokio::select! {
                () = freed => {}
                Ok(()) = limits.changed() => {}
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        // Whoever does not find room after all waits for the next.
        self.0.freed.notify_waiters();
    }
}
