//! The bytes of a chunk.
//!
//! Little-endian: snapshot id (8), number (4), count of records (4), length of the body (4), body,
//! xxh3-128 over all before it (16). The body is `key length (4) | key | record length (4) | record`
//! for each record, in key order. A chunk stands alone: it is verified before any of it is used.

use kvcore::SnapshotId;
use thiserror::Error;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::super::codec;

pub(super) const HEADER_BYTES: usize = 20;
pub(super) const CHECKSUM_BYTES: usize = 16;

/// What is wrong with a chunk. It is refused whole; asking for it again is safe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChunkDamage {
    /// Fewer bytes than its header says, or more.
    #[error("the chunk has {found} bytes instead of {expected}")]
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes that there should be.
        expected: usize,
    },
    /// Its checksum is another.
    #[error("the checksum does not match")]
    Checksum,
    /// It is of another snapshot.
    #[error("the chunk belongs to snapshot {found}")]
    OtherSnapshot {
        /// That snapshot.
        found: SnapshotId,
    },
    /// Its checksum is right but its records are not: the source is faulty or newer.
    #[error("the records are malformed or out of order")]
    Records,
}

/// A chunk being filled.
pub(super) struct ChunkWriter {
    id: SnapshotId,
    number: u32,
    records: u32,
    bytes: Vec<u8>,
}

/// A finished chunk.
pub(super) struct FinishedChunk<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) checksum: [u8; CHECKSUM_BYTES],
}

impl ChunkWriter {
    pub(super) fn new(id: SnapshotId) -> Self {
        Self { id, number: 0, records: 0, bytes: vec![0; HEADER_BYTES] }
    }

    /// Bytes of the body so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - HEADER_BYTES
    }

    pub(super) fn add(&mut self, key: &[u8], record: &[u8]) {
        for part in [key, record] {
            let length = u32::try_from(part.len()).expect("keys and records are far below 4 GiB");
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(part);
        }
        self.records += 1;
    }

    /// Completes the chunk.
    pub(super) fn finish(&mut self) -> FinishedChunk<'_> {
        let body = u32::try_from(self.len()).expect("a chunk ends with the record that fills it");
        self.bytes[..8].copy_from_slice(&self.id.get().to_le_bytes());
        self.bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        self.bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        self.bytes[16..HEADER_BYTES].copy_from_slice(&body.to_le_bytes());
        let checksum = xxh3_128(&self.bytes).to_le_bytes();
        self.bytes.extend_from_slice(&checksum);
        FinishedChunk { bytes: &self.bytes, checksum }
    }

    /// Begins the next chunk in the same memory.
    pub(super) fn next(&mut self) {
        self.number += 1;
        self.records = 0;
        self.bytes.truncate(HEADER_BYTES);
    }
}

/// Length of a whole chunk, as its header has it.
pub(super) fn chunk_length(header: &[u8; HEADER_BYTES]) -> u64 {
    let body = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
    (HEADER_BYTES + CHECKSUM_BYTES) as u64 + u64::from(body)
}

/// A key and its stored record, in the memory of their chunk.
pub(super) type KeyAndRecord<'a> = (&'a [u8], &'a [u8]);

/// A chunk whose length and checksum are right.
pub(super) struct VerifiedChunk<'a> {
    pub(super) id: SnapshotId,
    pub(super) number: u32,
    pub(super) checksum: [u8; CHECKSUM_BYTES],
    records: u32,
    body: &'a [u8],
}

impl<'a> VerifiedChunk<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ChunkDamage> {
        let short =
            ChunkDamage::Length { found: bytes.len(), expected: HEADER_BYTES + CHECKSUM_BYTES };
        let (covered, checksum) =
            bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(|| short.clone())?;
        let (header, body) = covered.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let expected = number(16) as usize;
        if body.len() != expected {
            let expected = HEADER_BYTES + expected + CHECKSUM_BYTES;
            return Err(ChunkDamage::Length { found: bytes.len(), expected });
        }
        if xxh3_128(covered).to_le_bytes() != *checksum {
            return Err(ChunkDamage::Checksum);
        }
        let id = u64::from(number(0)) | u64::from(number(4)) << 32;
        Ok(Self {
            id: SnapshotId(id),
            number: number(8),
            checksum: *checksum,
            records: number(12),
            body,
        })
    }

    /// The records, checked to be what the chunk says and in order after `last`.
    pub(super) fn records(
        &self,
        last: Option<&[u8]>,
    ) -> Result<Vec<KeyAndRecord<'a>>, ChunkDamage> {
        let mut records = Vec::new();
        let mut last = last;
        let mut rest = self.body;
        while !rest.is_empty() {
            let key = take_part(&mut rest).ok_or(ChunkDamage::Records)?;
            let record = take_part(&mut rest).ok_or(ChunkDamage::Records)?;
            if last.is_some_and(|last| last >= key) || codec::record_version(record).is_err() {
                return Err(ChunkDamage::Records);
            }
            last = Some(key);
            records.push((key, record));
        }
        if records.len() != self.records as usize {
            return Err(ChunkDamage::Records);
        }
        Ok(records)
    }
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = after;
    Some(part)
}

/// The sum of a whole snapshot: xxh3-128 over the checksums of its chunks, in order.
#[derive(Default)]
pub(super) struct Total {
    hasher: Xxh3,
    pub(super) chunks: u32,
    pub(super) bytes: u64,
}

impl Total {
    pub(super) fn add(&mut self, checksum: &[u8; CHECKSUM_BYTES], bytes: usize) {
        self.hasher.update(checksum);
        self.chunks += 1;
        self.bytes += bytes as u64;
    }

    pub(super) fn checksum(&self) -> u128 {
        self.hasher.digest128()
    }
}
