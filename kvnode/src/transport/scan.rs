//! A look at an encoded Raft message before protobuf decodes it.
//!
//! Protobuf's decoder recurses for every nested group it skips, and gives a hundred bytes of memory
//! to an entry of two bytes on the wire. raft's schema uses no groups, so bytes with one are not
//! from raft; and entries are counted before memory is given to them.

use super::body::BodyError;

/// Longest encoded configuration: thousands of replicas, while groups have a handful.
const CONFIGURATION_BYTES_MAX: usize = 64 << 10;

/// The messages of raft's `eraftpb.proto` that can occur within a Raft message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Message,
    Entry,
    Snapshot,
    SnapshotMetadata,
    ConfState,
}

impl Shape {
    /// The message that stands in a field of this one; none if the field is plain.
    const fn field(self, number: u64) -> Option<Self> {
        match (self, number) {
            (Self::Message, 7) => Some(Self::Entry),
            (Self::Message, 9) => Some(Self::Snapshot),
            (Self::Snapshot, 2) => Some(Self::SnapshotMetadata),
            (Self::SnapshotMetadata, 1) => Some(Self::ConfState),
            (
                Self::Message
                | Self::Entry
                | Self::Snapshot
                | Self::SnapshotMetadata
                | Self::ConfState,
                _,
            ) => None,
        }
    }
}

/// Counts the entries of an encoded Raft message.
///
/// # Errors
/// [`BodyError`] when the bytes cannot be one.
pub fn count_entries(bytes: &[u8]) -> Result<usize, BodyError> {
    let mut entries = 0;
    scan(bytes, Shape::Message, &mut entries)?;
    Ok(entries)
}

/// Nests no deeper than the schema does.
fn scan(mut bytes: &[u8], shape: Shape, entries: &mut usize) -> Result<(), BodyError> {
    if shape == Shape::ConfState && bytes.len() > CONFIGURATION_BYTES_MAX {
        return Err(BodyError::TooMany);
    }
    while !bytes.is_empty() {
        let key = take_varint(&mut bytes)?;
        let length = match key & 7 {
            0 => {
                take_varint(&mut bytes)?;
                continue;
            }
            1 => 8,
            2 => take_varint(&mut bytes)?,
            5 => 4,
            _ => return Err(BodyError::Wire),
        };
        let length = usize::try_from(length).map_err(|_| BodyError::Truncated)?;
        let (value, rest) = bytes.split_at_checked(length).ok_or(BodyError::Truncated)?;
        bytes = rest;
        if key & 7 == 2
            && let Some(inner) = shape.field(key >> 3)
        {
            *entries += usize::from(inner == Shape::Entry);
            scan(value, inner, entries)?;
        }
    }
    Ok(())
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, BodyError> {
    /// A varint of 64 bits has at most ten bytes of seven bits each.
    const VARINT_BYTES_MAX: usize = 10;
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Ok(value);
        }
    }
    Err(BodyError::Truncated)
}
