//! Keys in URL paths: raw bytes to path and back, without any normalisation.
//!
//! A key is the rest of the *raw* path, percent-decoded to bytes. `+` is a plus sign, `/` and `//`
//! and `..` are ordinary bytes, and an escape that is not two hexadecimal digits is refused.
//! Every call also exists with the key as unpadded base64url, for keys that URL libraries rewrite.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest value in bytes unless a node is configured otherwise.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 1 << 20;
/// Longest value in bytes that a node can be configured to take.
pub const VALUE_BYTES_MAX_CAP: usize = 16 << 20;

/// Path prefix of key calls with a percent-encoded key.
pub const KV_PREFIX: &str = "/v1/kv/";
/// Path prefix of key calls with a base64url key.
pub const KV64_PREFIX: &str = "/v1/kv64/";
/// Path prefix of placement look-ups with a percent-encoded key.
pub const LOCATE_PREFIX: &str = "/v1/locate/";
/// Path prefix of placement look-ups with a base64url key.
pub const LOCATE64_PREFIX: &str = "/v1/locate64/";

/// Percent-encoded keys longer than this travel as base64url instead: three bytes of path per byte
/// of key exceed the 8 KiB request line that many proxies stop at, four thirds do not.
const PERCENT_BYTES_MAX: usize = 4096;

/// Why a path names no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyPathError {
    /// Nothing follows the prefix.
    #[error("the key is empty; keys have 1 to {KEY_BYTES_MAX} bytes")]
    Empty,
    /// The decoded key has more than [`KEY_BYTES_MAX`] bytes.
    #[error("the key has {bytes} bytes; keys have at most {KEY_BYTES_MAX}")]
    TooLong {
        /// Length of the decoded key.
        bytes: usize,
    },
    /// A `%` at this offset is not followed by two hexadecimal digits.
    #[error("the `%` at byte {at} of the key is not followed by two hexadecimal digits")]
    BadEscape {
        /// Offset of the `%` in the encoded key.
        at: usize,
    },
    /// The key of a base64 path is not canonical unpadded base64url.
    #[error("the key is not base64url without padding")]
    BadBase64,
}

/// What a key path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCall {
    /// Read or write the key.
    Kv,
    /// Ask where the key lives.
    Locate,
}

/// How a key is written in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// `%`-escapes of raw bytes.
    Percent,
    /// base64url without padding.
    Base64Url,
}

/// A raw path taken apart: the call, and the key still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPath<'a> {
    /// What the path is for.
    pub call: KeyCall,
    /// How the key is written.
    pub encoding: KeyEncoding,
    /// The key as it stands in the path.
    pub encoded: &'a str,
}

impl<'a> KeyPath<'a> {
    /// Takes a raw URI path (no query) apart; `None` if it is not the path of a key.
    pub fn split(raw_path: &'a str) -> Option<Self> {
        let routes = [
            (KV_PREFIX, KeyCall::Kv, KeyEncoding::Percent),
            (KV64_PREFIX, KeyCall::Kv, KeyEncoding::Base64Url),
            (LOCATE_PREFIX, KeyCall::Locate, KeyEncoding::Percent),
            (LOCATE64_PREFIX, KeyCall::Locate, KeyEncoding::Base64Url),
        ];
        routes.into_iter().find_map(|(prefix, call, encoding)| {
            raw_path.strip_prefix(prefix).map(|encoded| Self { call, encoding, encoded })
        })
    }

    /// The key's bytes.
    pub fn key(&self) -> Result<Bytes, KeyPathError> {
        match self.encoding {
            KeyEncoding::Percent => decode_key(self.encoded),
            KeyEncoding::Base64Url => decode_key64(self.encoded),
        }
    }
}

/// Decodes a percent-encoded key: what follows `/v1/kv/` in the raw path.
pub fn decode_key(encoded: &str) -> Result<Bytes, KeyPathError> {
    let raw = encoded.as_bytes();
    if raw.is_empty() {
        return Err(KeyPathError::Empty);
    }
    let mut key = Vec::with_capacity(raw.len().min(KEY_BYTES_MAX));
    let mut at = 0;
    let mut bytes = 0;
    while at < raw.len() {
        let byte = if raw[at] == b'%' {
            let (Some(high), Some(low)) = (hex_at(raw, at + 1), hex_at(raw, at + 2)) else {
                return Err(KeyPathError::BadEscape { at });
            };
            at += 3;
            high << 4 | low
        } else {
            at += 1;
            raw[at - 1]
        };
        bytes += 1;
        if bytes <= KEY_BYTES_MAX {
            key.push(byte);
        }
    }
    if bytes > KEY_BYTES_MAX {
        return Err(KeyPathError::TooLong { bytes });
    }
    Ok(Bytes::from(key))
}

/// Decodes a base64url key: what follows `/v1/kv64/` in the raw path.
pub fn decode_key64(encoded: &str) -> Result<Bytes, KeyPathError> {
    if encoded.is_empty() {
        return Err(KeyPathError::Empty);
    }
    let bytes = encoded.len() / 4 * 3;
    if bytes > KEY_BYTES_MAX + 2 {
        return Err(KeyPathError::TooLong { bytes });
    }
    let key = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| KeyPathError::BadBase64)?;
    match key.len() {
        0 => Err(KeyPathError::Empty),
        bytes if bytes > KEY_BYTES_MAX => Err(KeyPathError::TooLong { bytes }),
        _ => Ok(Bytes::from(key)),
    }
}

/// The path that reads or writes `key`.
pub fn kv_path(key: &[u8]) -> String {
    key_path(key, KV_PREFIX, KV64_PREFIX)
}

/// The path that asks where `key` lives.
pub fn locate_path(key: &[u8]) -> String {
    key_path(key, LOCATE_PREFIX, LOCATE64_PREFIX)
}

/// `key` as base64url without padding, as batches and pages of keys carry it.
pub fn encode_key64(key: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

/// Appends the percent-encoding of `key` to `out`: everything but RFC 3986's unreserved bytes.
pub fn percent_encode(key: &[u8], out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn key_path(key: &[u8], percent_prefix: &str, base64_prefix: &str) -> String {
    if needs_base64(key) {
        let mut path = String::with_capacity(base64_prefix.len() + key.len().div_ceil(3) * 4);
        path.push_str(base64_prefix);
        URL_SAFE_NO_PAD.encode_string(key, &mut path);
        return path;
    }
    let mut path = String::with_capacity(percent_prefix.len() + percent_bytes(key));
    path.push_str(percent_prefix);
    percent_encode(key, &mut path);
    path
}

/// Dot segments are removed by URL libraries even when written `%2E`; NUL is refused by some of
/// them; and very long paths are cut off by proxies.
fn needs_base64(key: &[u8]) -> bool {
    key.contains(&0)
        || percent_bytes(key) > PERCENT_BYTES_MAX
        || key.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b"..")
}

fn percent_bytes(key: &[u8]) -> usize {
    key.iter().map(|byte| if is_unreserved(*byte) { 1 } else { 3 }).sum()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex_at(raw: &[u8], at: usize) -> Option<u8> {
    let digit = char::from(*raw.get(at)?).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests;
