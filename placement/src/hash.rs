//! From a key to its hash to its partition. Every party of a cluster must agree on this file.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{PlacementError, SnapshotError};
use crate::ids::PartitionId;

/// The hash of a key: XXH3-64 of its raw bytes with seed 0.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Which hash a ring was made for. It is part of every snapshot, so that a program which would
/// hash differently refuses the ring by name instead of looking in the wrong place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashSpec {
    /// Name of the hash function.
    pub algorithm: Cow<'static, str>,
    /// Seed of the hash function.
    pub seed: u64,
    /// How a key becomes the bytes that are hashed.
    pub key_encoding: Cow<'static, str>,
    /// Version of the rule from hash to partition.
    pub version: u32,
}

impl HashSpec {
    /// The one spec that this crate implements.
    pub const CURRENT: Self = Self {
        algorithm: Cow::Borrowed("xxh3-64"),
        seed: 0,
        key_encoding: Cow::Borrowed("raw-bytes"),
        version: 1,
    };

    /// Refuses, by name, any spec that this crate does not implement.
    pub fn ensure_supported(&self) -> Result<(), SnapshotError> {
        if *self == Self::CURRENT {
            return Ok(());
        }
        Err(SnapshotError::UnsupportedHash {
            found: self.to_string(),
            supported: Self::CURRENT.to_string(),
        })
    }
}

impl fmt::Display for HashSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, seed, key_encoding, version } = self;
        write!(f, "{algorithm} (seed {seed}, {key_encoding}, version {version})")
    }
}

/// The number of leading hash bits that name a partition: a ring has 2^bits of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct PartitionBits(u8);

impl PartitionBits {
    /// Most bits, hence 65536 partitions: a partition is a Raft group, and 65536 of them over a
    /// hundred nodes already cost each node about two thousand groups.
    pub const MAX: u8 = 16;

    /// A default for small clusters: 256 partitions.
    pub const DEFAULT: Self = Self(8);

    /// Checks that the count is at most [`PartitionBits::MAX`].
    pub const fn new(bits: u8) -> Result<Self, PlacementError> {
        if bits > Self::MAX {
            return Err(PlacementError::InvalidPartitionBits { bits });
        }
        Ok(Self(bits))
    }

    /// The bits for this many partitions, which must be a power of two from 1 to 65536.
    pub fn from_count(count: u32) -> Result<Self, PlacementError> {
        if !count.is_power_of_two() || count > 1 << Self::MAX {
            return Err(PlacementError::InvalidPartitionCount { count });
        }
        Ok(Self(u8::try_from(count.trailing_zeros()).expect("a u32 has at most 32 trailing zeros")))
    }

    /// The number of bits.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number of partitions.
    pub const fn count(self) -> u32 {
        1 << self.0
    }

    /// The partition of a hash: its leading bits.
    #[inline]
    pub const fn partition_of(self, hash: u64) -> PartitionId {
        // In two steps, because a shift by all 64 bits (one partition) is not defined.
        PartitionId::new(((hash >> 1) >> (63 - self.0)) as u32)
    }

    /// The largest hash that belongs to a partition, which is where its tokens sit.
    ///
    /// Bits of the number beyond the count are cut off, as for a partition of another ring.
    pub const fn last_hash(self, partition: PartitionId) -> u64 {
        let within = u64::MAX >> self.0;
        let leading = if self.0 == 0 { 0 } else { (partition.get() as u64) << (64 - self.0) };
        leading | within
    }

    /// The partition with this number, if there is one.
    pub const fn partition(self, number: u32) -> Option<PartitionId> {
        if number < self.count() { Some(PartitionId::new(number)) } else { None }
    }

    /// All partitions in hash order.
    pub fn partitions(self) -> impl ExactSizeIterator<Item = PartitionId> + Clone {
        (0..self.count()).map(PartitionId::new)
    }
}

impl TryFrom<u8> for PartitionBits {
    type Error = PlacementError;

    fn try_from(bits: u8) -> Result<Self, Self::Error> {
        Self::new(bits)
    }
}

impl From<PartitionBits> for u8 {
    fn from(bits: PartitionBits) -> Self {
        bits.0
    }
}

impl fmt::Display for PartitionBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
