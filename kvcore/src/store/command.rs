//! Commands: what clients and the node itself ask a partition's log to do.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::{self, DecodeError};
use crate::ids::{LogIndex, Version};

/// Limits on the parts of a command. They are checked where a request is parsed and again where a
/// forwarded command arrives.
pub struct Limits;

impl Limits {
    /// Longest key, in bytes.
    pub const KEY_BYTES_MAX: usize = 4096;
    /// Longest content type, in bytes.
    pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
    /// The most that the value limit may be configured to, in bytes.
    pub const VALUE_BYTES_CEILING: usize = 16 << 20;
}

/// What must hold of a key, at the command's place in the log, for a write to happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The key is absent (`If-None-Match: *`).
    Absent,
    /// The key is present (`If-Match: *`).
    Present,
    /// The key is present with this version (`If-Match: "V"`).
    Version(Version),
}

impl Condition {
    /// Whether the condition holds of a key with this current version.
    #[must_use]
    pub fn holds(self, current: Option<Version>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::Version(version) => current == Some(version),
        }
    }
}

/// One command of a partition's log. New kinds are added at the end: the position is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Store a value.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// Media type to store with the value.
        content_type: Option<String>,
        /// When to store it.
        condition: Condition,
    },
    /// Remove a key; removing an absent key succeeds.
    Delete {
        /// The key.
        key: Bytes,
        /// When to remove it.
        condition: Condition,
    },
    /// Drop the log up to and including an index.
    Truncate {
        /// The last index to drop.
        through: LogIndex,
    },
    /// Compute the digest of the state after this command; nothing else is applied in its batch.
    Verify,
}

impl Command {
    /// Bytes that the command takes in an entry, roughly; used for limits only.
    #[must_use]
    pub fn size(&self) -> usize {
        const OVERHEAD: usize = 32;
        match self {
            Self::Put { key, value, content_type, .. } => {
                OVERHEAD + key.len() + value.len() + content_type.as_ref().map_or(0, String::len)
            }
            Self::Delete { key, .. } => OVERHEAD + key.len(),
            Self::Truncate { .. } | Self::Verify => OVERHEAD,
        }
    }
}

/// Payload of a normal entry: the commands that waited for the group together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPayload {
    /// The commands, in the order in which they are applied.
    pub commands: Vec<Command>,
}

impl EntryPayload {
    /// The payload's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        Bytes::from(codec::encode(self))
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are no payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(bytes)
    }
}
