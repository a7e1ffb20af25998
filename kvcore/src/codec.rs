//! The one codec for what nodes store and send to each other.
//!
//! A value is one version byte followed by bincode in fixed-width integers. Fixed width leaves one
//! encoding per value, and decoding refuses trailing bytes, so equal values have equal bytes. The
//! limit keeps a corrupt length from asking for memory that is not there.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Version of the encoding that this binary writes.
pub const FORMAT_VERSION: u8 = 1;

/// No value may need more than this to decode; the largest is a cluster state of 4096 partitions.
const DECODE_BYTES_MAX: usize = 64 << 20;

/// Why bytes did not decode.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The bytes end before the version byte.
    #[error("the value is empty")]
    Empty,
    /// Written by a newer program.
    #[error("format version {found} is newer than {FORMAT_VERSION}, the newest this binary reads")]
    NewerFormat {
        /// The version byte found.
        found: u8,
    },
    /// The bytes are no encoding of the type asked for.
    #[error("malformed value")]
    Malformed(#[from] bincode::error::DecodeError),
    /// Bytes are left over.
    #[error("{count} bytes follow the value")]
    Trailing {
        /// How many bytes are left over.
        count: usize,
    },
}

fn configuration() -> impl bincode::config::Config {
    bincode::config::standard()
        .with_little_endian()
        .with_fixed_int_encoding()
        .with_limit::<DECODE_BYTES_MAX>()
}

/// Encodes a value.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT_VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, configuration())
        .expect("encoding plain data into memory cannot fail");
    bytes
}

/// Decodes a value that [`encode`] wrote.
///
/// # Errors
/// [`DecodeError`] says what is wrong with the bytes; nothing is guessed.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (&found, body) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if found > FORMAT_VERSION {
        return Err(DecodeError::NewerFormat { found });
    }
    let (value, used) = bincode::serde::decode_from_slice(body, configuration())?;
    match body.len() - used {
        0 => Ok(value),
        count => Err(DecodeError::Trailing { count }),
    }
}
