//! Applying commands, in log order, the same on every replica.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::command::{Command, Condition};
use super::record::Record;
use crate::ids::{LogIndex, Version};

/// The partition's replicated state beside its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// The last version given out. It counts writes that took effect.
    pub version: Version,
    /// The partition's time in unix milliseconds, as carried by entries; expiry will rest on it.
    pub clock_ms: u64,
}

/// The records that a command sees: those of the store under those of the batch being built.
pub trait Records {
    /// Why the store could not answer.
    type Error;

    /// Version of a key's current record.
    ///
    /// # Errors
    /// The store's own error; the command is then not applied at all.
    fn version(&self, key: &[u8]) -> Result<Option<Version>, Self::Error>;

    /// Stores a record.
    fn put(&mut self, key: Bytes, record: Record);

    /// Removes a record.
    fn delete(&mut self, key: Bytes);
}

/// What a command did, for whoever proposed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// The value is stored under this version.
    Put(Version),
    /// The key is absent now; the version is that of the deletion.
    Deleted(Version),
    /// The condition was false; the key's version at that place of the log is given.
    ConditionFailed(Option<Version>),
    /// The log may be dropped through this index.
    Truncate(LogIndex),
    /// The digest is to be computed now.
    Verify,
}

/// Applies one command.
///
/// An unconditional write reads nothing: its version comes from the partition's counter.
///
/// # Errors
/// Passes on the store's error; `state` and `records` are then unchanged.
pub fn apply<R: Records>(
    state: &mut PartitionState,
    records: &mut R,
    command: Command,
) -> Result<WriteOutcome, R::Error> {
    match command {
        Command::Put { key, value, content_type, condition } => {
            if let Some(current) = refused(records, &key, condition)? {
                return Ok(WriteOutcome::ConditionFailed(current));
            }
            let version = next_version(state);
            records.put(key, Record { version, expires_at_ms: None, content_type, value });
            Ok(WriteOutcome::Put(version))
        }
        Command::Delete { key, condition } => {
            if let Some(current) = refused(records, &key, condition)? {
                return Ok(WriteOutcome::ConditionFailed(current));
            }
            records.delete(key);
            Ok(WriteOutcome::Deleted(next_version(state)))
        }
        Command::Truncate { through } => Ok(WriteOutcome::Truncate(through)),
        Command::Verify => Ok(WriteOutcome::Verify),
    }
}

fn refused<R: Records>(
    records: &R,
    key: &[u8],
    condition: Condition,
) -> Result<Option<Option<Version>>, R::Error> {
    if condition == Condition::Always {
        return Ok(None);
    }
    let current = records.version(key)?;
    Ok((!condition.holds(current)).then_some(current))
}

fn next_version(state: &mut PartitionState) -> Version {
    state.version = Version(state.version.get() + 1);
    state.version
}
