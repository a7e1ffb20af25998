//! The bytes under the keys.
//!
//! Values of `meta` go through [`kvcore::codec`]; records of `data` are [`kvcore::store::Record`]s.
//! An entry of `log` is laid out by hand, since it is written once per command and its payload is
//! most of it: format (1 byte), entry type (1), term (8, little-endian), length of the context (4,
//! little-endian), context, data (the rest). The index is in the key.

use bytes::Bytes;
use kvcore::codec::DecodeError;
use kvcore::store::{Record, RecordError};
use kvcore::{GroupId, LogIndex, Version, codec};
use raft::eraftpb::{Entry, EntryType};
use serde::de::DeserializeOwned;

use super::error::{StorageError, ValueError};
use super::keys::{self, Family};

/// Version of the layout of entries that this binary writes.
const ENTRY_FORMAT: u8 = 1;
const ENTRY_HEADER_BYTES: usize = 14;

const TYPE_NORMAL: u8 = 0;
const TYPE_CONFIGURATION: u8 = 1;
const TYPE_CONFIGURATION_V2: u8 = 2;

/// Bytes of a record up to and with its version.
const RECORD_VERSION_BYTES: usize = 10;

/// Decodes a value of `meta`, naming the key if it does not.
///
/// # Errors
/// [`StorageError::Value`].
pub fn decode<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, StorageError> {
    codec::decode(bytes).map_err(|source| StorageError::value(Family::Meta, key, source))
}

/// Writes an entry's bytes into `buffer`, whose memory is used again.
pub fn encode_entry_into(buffer: &mut Vec<u8>, entry: &Entry) {
    let kind = match entry.get_entry_type() {
        EntryType::EntryNormal => TYPE_NORMAL,
        EntryType::EntryConfChange => TYPE_CONFIGURATION,
        EntryType::EntryConfChangeV2 => TYPE_CONFIGURATION_V2,
    };
    let context = entry.get_context();
    let context_bytes = u32::try_from(context.len()).expect("a context is far below 4 GiB");
    buffer.clear();
    buffer.reserve(ENTRY_HEADER_BYTES + context.len() + entry.get_data().len());
    buffer.push(ENTRY_FORMAT);
    buffer.push(kind);
    buffer.extend_from_slice(&entry.get_term().to_le_bytes());
    buffer.extend_from_slice(&context_bytes.to_le_bytes());
    buffer.extend_from_slice(context);
    buffer.extend_from_slice(entry.get_data());
}

/// Reads an entry back.
///
/// # Errors
/// [`StorageError::Value`] when the bytes are no entry that this binary knows.
pub fn decode_entry(group: GroupId, index: LogIndex, bytes: &[u8]) -> Result<Entry, StorageError> {
    let bad =
        |source: ValueError| StorageError::value(Family::Log, &keys::log(group, index), source);
    let malformed = |what: &str| bad(ValueError::Contradiction(what.to_owned()));

    let &found = bytes.first().ok_or_else(|| bad(DecodeError::Empty.into()))?;
    if found > ENTRY_FORMAT {
        return Err(bad(DecodeError::NewerFormat { found }.into()));
    }
    let (header, rest) = bytes
        .split_first_chunk::<ENTRY_HEADER_BYTES>()
        .ok_or_else(|| malformed("the entry ends within its header"))?;
    let kind = match header[1] {
        TYPE_NORMAL => EntryType::EntryNormal,
        TYPE_CONFIGURATION => EntryType::EntryConfChange,
        TYPE_CONFIGURATION_V2 => EntryType::EntryConfChangeV2,
        other => return Err(malformed(&format!("unknown entry type {other}"))),
    };
    let [_, _, t0, t1, t2, t3, t4, t5, t6, t7, c0, c1, c2, c3] = *header;
    let term = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let context_bytes = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
    if context_bytes > rest.len() {
        return Err(malformed("the entry ends within its context"));
    }
    let (context, data) = rest.split_at(context_bytes);

    let mut entry = Entry::default();
    entry.set_entry_type(kind);
    entry.set_term(term);
    entry.set_index(index.get());
    entry.set_context(Bytes::copy_from_slice(context));
    entry.set_data(Bytes::copy_from_slice(data));
    Ok(entry)
}

/// The version in a record's header, without looking at the rest.
///
/// # Errors
/// [`RecordError`] when the bytes do not begin like a record.
pub fn record_version(bytes: &[u8]) -> Result<Version, RecordError> {
    let header = bytes.get(..RECORD_VERSION_BYTES).ok_or(RecordError::Malformed)?;
    let mut bare = [0; RECORD_VERSION_BYTES];
    bare.copy_from_slice(header);
    // Without its flags the header alone is a whole record, so that kvcore's own decoder reads it.
    bare[1] = 0;
    Record::decode(Bytes::copy_from_slice(&bare)).map(|record| record.version)
}
