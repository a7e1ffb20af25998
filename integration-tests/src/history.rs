//! What clients did to keys and what they were told, with the times of call and return.
//!
//! Values are unique numbers, so that an observed value names the write it came from.

use std::time::Instant;

use serde::Serialize;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Call {
    /// Read the key.
    Get,
    /// Write this value.
    Put(u64),
    /// Write this value if the key is absent.
    Create(u64),
    /// Write this value if the key has this version.
    Swap {
        /// The version that it must have.
        version: u64,
        /// The value.
        value: u64,
    },
    /// Delete the key.
    Delete,
    /// Delete the key if it has this version.
    DeleteIf(u64),
}

impl Call {
    /// The value that it would write.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Put(value) | Self::Create(value) | Self::Swap { version: _, value } => {
                Some(value)
            }
            Self::Get | Self::Delete | Self::DeleteIf(_) => None,
        }
    }

    /// Whether it can change anything.
    pub fn is_write(self) -> bool {
        self != Self::Get
    }
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Outcome {
    /// The key has this value and version.
    Found {
        /// The value.
        value: u64,
        /// Its version.
        version: u64,
    },
    /// The key is absent.
    Absent,
    /// The value was written and has this version.
    Written(u64),
    /// The key was deleted.
    Deleted,
    /// The condition is false; the key has this version, or is absent.
    Refused(Option<u64>),
    /// Nothing was done and nothing will be.
    NotApplied,
    /// It may have been done, or may still be. A read without an answer is this, too.
    Unknown,
}

/// One call with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// The client.
    pub client: u32,
    /// The node that it asked.
    pub node: usize,
    /// The key.
    pub key: String,
    /// What it asked for.
    pub call: Call,
    /// What it was told.
    pub outcome: Outcome,
    /// When it called, in nanoseconds since the run began.
    pub called: i64,
    /// When it was told, likewise.
    pub returned: i64,
}

/// The clock of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    started: Instant,
}

impl RunClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}
