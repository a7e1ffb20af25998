//! A look at the write-ahead log before RocksDB replays it.
//!
//! RocksDB's reader verifies the checksum of every record that it reaches, but three kinds of damage
//! near a file's end get past it (`log_reader.cc` of RocksDB 11). A length that points past the end
//! counts as a record cut off by a crash, even if intact and synced records follow: tried, they are
//! lost without a word. A type byte that one flipped bit turned into that of a recycled log sends the
//! reader into an endless loop: tried, the store never opens. A block that goes on in zeros is
//! skipped. This walk follows the lengths alone and, where they break off, looks for an intact record
//! after that place. If there is one, what broke was not the end of the log, and the node does not
//! start.
//!
//! It cannot tell a damaged last record from one that was cut off; nobody could.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Layout of RocksDB's log (`log_format.h`): blocks of 32 KiB; a record is a masked crc32c (4) over
/// type and payload, length (2), type (1), payload, and does not cross blocks.
const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;

/// Types from here on that records of a log that is not recycled have.
const TYPE_FULL: u8 = 1;
const TYPE_LAST: u8 = 4;
const TYPES_RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];
const TYPES_OTHER: [u8; 3] = [9, 10, 130];

/// A record of the log is damaged, and it is not the last one.
#[derive(Debug, Error)]
#[error("{file}: the record at byte {offset} is damaged, and it is not the end of the log")]
pub struct WalDamage {
    /// The log file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
}

/// Why the log was not found to be whole.
#[derive(Debug)]
pub(super) enum WalError {
    /// It is damaged.
    Damage(WalDamage),
    /// It cannot be read.
    Io(io::Error),
}

impl From<io::Error> for WalError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Looks at every log file of a store.
pub(super) fn check(store: &Path) -> Result<(), WalError> {
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log")
            && let Some(offset) = damage_in(File::open(&path)?)?
        {
            return Err(WalError::Damage(WalDamage { file: path, offset }));
        }
    }
    Ok(())
}

/// What one block of the log shows.
enum Walk {
    /// Records up to its end.
    Whole,
    /// A record that breaks off at this place in the block.
    Broken(usize),
    /// A record that no crash leaves behind.
    Impossible(usize),
}

/// Where a log is damaged before its end.
fn damage_in(mut file: impl Read) -> io::Result<Option<u64>> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut block_at = 0_u64;
    let mut broken_at: Option<u64> = None;
    loop {
        block.clear();
        file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if block.is_empty() {
            return Ok(None);
        }
        if broken_at.is_some() {
            // A block begins with a record: after a break, an intact one there is enough.
            if is_intact(&block) {
                return Ok(broken_at);
            }
        } else {
            match walk(&block) {
                Walk::Whole => {}
                Walk::Impossible(at) => return Ok(Some(block_at + at as u64)),
                Walk::Broken(at) => {
                    broken_at = Some(block_at + at as u64);
                    if (at + 1..block.len()).any(|next| is_intact(&block[next..])) {
                        return Ok(broken_at);
                    }
                }
            }
        }
        block_at += block.len() as u64;
    }
}

fn walk(block: &[u8]) -> Walk {
    let mut at = 0;
    loop {
        let rest = &block[at..];
        let Some((length, kind)) = header(rest) else {
            // Less than a header: padding of a full block, or a header that was cut off.
            return Walk::Whole;
        };
        if TYPES_RECYCLED.contains(&kind) {
            return Walk::Impossible(at);
        }
        if kind == 0 && length == 0 || HEADER_BYTES + length > rest.len() {
            return Walk::Broken(at);
        }
        at += HEADER_BYTES + length;
    }
}

/// Length and type in a record's header.
fn header(bytes: &[u8]) -> Option<(usize, u8)> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Some((usize::from(u16::from_le_bytes([header[4], header[5]])), header[6]))
}

/// Whether the bytes begin with a record whose checksum is right.
fn is_intact(bytes: &[u8]) -> bool {
    let Some((length, kind)) = header(bytes) else { return false };
    let known = (TYPE_FULL..=TYPE_LAST).contains(&kind) || TYPES_OTHER.contains(&kind);
    let Some(covered) = bytes.get(HEADER_BYTES - 1..HEADER_BYTES + length) else { return false };
    known && bytes.first_chunk::<4>().is_some_and(|sum| *sum == masked_crc32c(covered))
}

/// RocksDB's form of a crc32c (`util/crc32c.h`): rotated and shifted, so that sums of data that
/// holds sums stay meaningful.
fn masked_crc32c(bytes: &[u8]) -> [u8; 4] {
    const MASK: u32 = 0xa282_ead8;
    crc32c(bytes).rotate_right(15).wrapping_add(MASK).to_le_bytes()
}

/// CRC-32C (Castagnoli, RFC 3720), bit-reflected, by table; only ever used on a few blocks.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    let step = |sum: u32, &byte: &u8| (sum >> 8) ^ TABLE[((sum ^ u32::from(byte)) & 0xff) as usize];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }
}
