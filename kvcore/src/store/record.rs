//! What is stored under a key, and its bytes.
//!
//! Layout, little-endian: format (1 byte), flags (1), version (8), `[expiry, unix ms (8)]` when
//! flag bit 0 is set, `[content type length (2), content type]` when bit 1 is set, value (rest).
//! It is written by hand because the value is served out of the stored bytes without a copy.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::ids::Version;

const FORMAT: u8 = 1;
const FLAG_EXPIRY: u8 = 1;
const FLAG_CONTENT_TYPE: u8 = 2;

/// A key's current value with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Version that the write of this value was given.
    pub version: Version,
    /// Partition time, in unix milliseconds, from which the key counts as absent.
    pub expires_at_ms: Option<u64>,
    /// Media type stored with the value; absent means `application/octet-stream`.
    pub content_type: Option<String>,
    /// The value.
    pub value: Bytes,
}

/// Why stored bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Written by a newer program.
    #[error("record format {0} is newer than {FORMAT}, the newest this binary reads")]
    NewerFormat(u8),
    /// The bytes end early or carry unknown flags.
    #[error("malformed record")]
    Malformed,
}

impl Record {
    /// The record's stored bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let content_type = self.content_type.as_deref();
        let mut bytes =
            BytesMut::with_capacity(20 + content_type.map_or(0, str::len) + self.value.len());
        bytes.put_u8(FORMAT);
        let mut flags = 0;
        if self.expires_at_ms.is_some() {
            flags |= FLAG_EXPIRY;
        }
        if content_type.is_some() {
            flags |= FLAG_CONTENT_TYPE;
        }
        bytes.put_u8(flags);
        bytes.put_u64_le(self.version.get());
        if let Some(expiry) = self.expires_at_ms {
            bytes.put_u64_le(expiry);
        }
        if let Some(content_type) = content_type {
            let length =
                u16::try_from(content_type.len()).expect("limited when a command is parsed");
            bytes.put_u16_le(length);
            bytes.put_slice(content_type.as_bytes());
        }
        bytes.put_slice(&self.value);
        bytes.freeze()
    }

    /// Reads a record from its stored bytes; the value shares their memory.
    ///
    /// # Errors
    /// [`RecordError`] when the bytes are no record that this binary knows.
    pub fn decode(mut bytes: Bytes) -> Result<Self, RecordError> {
        let mut take = |count: usize| {
            if bytes.len() < count {
                return Err(RecordError::Malformed);
            }
            Ok(bytes.split_to(count))
        };
        let format = take(1)?[0];
        if format != FORMAT {
            return Err(RecordError::NewerFormat(format));
        }
        let flags = take(1)?[0];
        if flags & !(FLAG_EXPIRY | FLAG_CONTENT_TYPE) != 0 {
            return Err(RecordError::Malformed);
        }
        let u64_of = |bytes: Bytes| {
            u64::from_le_bytes(bytes.as_ref().try_into().expect("eight bytes were taken"))
        };
        let version = Version(u64_of(take(8)?));
        let expires_at_ms = match flags & FLAG_EXPIRY {
            0 => None,
            _ => Some(u64_of(take(8)?)),
        };
        let content_type = match flags & FLAG_CONTENT_TYPE {
            0 => None,
            _ => {
                let length = take(2)?;
                let text = take(usize::from(u16::from_le_bytes([length[0], length[1]])))?;
                let text = String::from_utf8(text.to_vec()).map_err(|_| RecordError::Malformed)?;
                Some(text)
            }
        };
        Ok(Self { version, expires_at_ms, content_type, value: bytes })
    }
}
