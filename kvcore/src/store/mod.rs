//! A partition's state machine: commands, records, how a command is applied, and the digest.

mod apply;
mod command;
mod digest;
mod record;

pub use apply::{PartitionState, Records, WriteOutcome, apply};
pub use command::{Command, Condition, EntryPayload, Limits};
pub use digest::{
    Digest, DigestBuilder, PartitionDigest, PartitionDigestBuilder, RangeSums, SUB_RANGES, SubRange,
};
pub use record::{Record, RecordError};

#[cfg(test)]
mod tests;
