//! The digest: a checksum of a partition's whole replicated state at one applied index.
//!
//! Records are fed in key order as `key length (4) | key | record length (4) | record bytes`, then
//! the state beside them; the sum is xxh3-128. Equal state gives equal bytes, since records and
//! state have one encoding each.
//!
//! A [`PartitionDigest`] says in addition where two replicas differ: the partition's slice of the
//! hash space is cut into [`SUB_RANGES`] equal parts, each with a sum of its own, by the bits of the
//! key's hash that follow those of the partition.

use std::fmt;

use placement::{PartitionBits, PartitionId, key_hash};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::apply::PartitionState;

/// xxh3-128 over a partition's replicated state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub u128);

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// Computes a digest from records given in key order.
#[derive(Default)]
pub struct DigestBuilder {
    hasher: Xxh3,
}

impl DigestBuilder {
    /// Adds the next record, as it is stored.
    pub fn add(&mut self, key: &[u8], record: &[u8]) {
        feed(&mut self.hasher, key, record);
    }

    /// Adds the state beside the records and returns the sum.
    #[must_use]
    pub fn finish(mut self, state: &PartitionState) -> Digest {
        feed_state(&mut self.hasher, state);
        Digest(self.hasher.digest128())
    }
}

fn feed(hasher: &mut Xxh3, key: &[u8], record: &[u8]) {
    for part in [key, record] {
        let length = u32::try_from(part.len()).expect("keys and records are far below 4 GiB");
        hasher.update(&length.to_le_bytes());
        hasher.update(part);
    }
}

fn feed_state(hasher: &mut Xxh3, state: &PartitionState) {
    hasher.update(&state.version.get().to_le_bytes());
    hasher.update(&state.clock_ms.to_le_bytes());
}

/// Parts of a partition's hash slice that have sums of their own: enough to name where a replica
/// differs, few enough to send with every verification.
pub const SUB_RANGES: usize = 64;
const SUB_RANGE_BITS: u8 = 6;

/// A partition's digest with the sums of its sub-ranges.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionDigest {
    /// The partition.
    pub partition: PartitionId,
    /// How many bits of a hash name a partition.
    pub bits: PartitionBits,
    /// xxh3-128 over the sums of the sub-ranges and the state beside the records.
    pub whole: Digest,
    /// xxh3-64 over the records of each sub-range, in order of their hashes.
    pub ranges: RangeSums,
}

/// The sums of a partition's sub-ranges.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct RangeSums(Box<[u64; SUB_RANGES]>);

impl RangeSums {
    /// The sums, in order of the hashes they are of.
    #[must_use]
    pub fn as_array(&self) -> &[u64; SUB_RANGES] {
        &self.0
    }
}

impl TryFrom<Vec<u64>> for RangeSums {
    type Error = String;

    fn try_from(sums: Vec<u64>) -> Result<Self, String> {
        let count = sums.len();
        <Box<[u64; SUB_RANGES]>>::try_from(sums)
            .map(Self)
            .map_err(|_| format!("{count} sums of sub-ranges instead of {SUB_RANGES}"))
    }
}

impl From<RangeSums> for Vec<u64> {
    fn from(sums: RangeSums) -> Self {
        sums.0.to_vec()
    }
}

/// Where two replicas of a partition differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubRange {
    /// In records whose keys hash into this range, both ends included.
    Hashes {
        /// The smallest hash.
        first: u64,
        /// The largest hash.
        last: u64,
    },
    /// In the state beside the records.
    State,
}

impl fmt::Display for SubRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hashes { first, last } => {
                write!(formatter, "key hashes {first:016x} to {last:016x}")
            }
            Self::State => formatter.write_str("the state beside the records"),
        }
    }
}

impl PartitionDigest {
    /// The first place in which two digests of one partition differ; none if they are equal.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<SubRange> {
        let mut pairs = self.ranges.0.iter().zip(other.ranges.0.iter());
        match pairs.position(|(here, there)| here != there) {
            Some(number) => Some(self.sub_range(number)),
            None => (self.whole != other.whole).then_some(SubRange::State),
        }
    }

    fn sub_range(&self, number: usize) -> SubRange {
        let within = u64::MAX >> self.bits.get();
        let partition_first = self.bits.last_hash(self.partition) & !within;
        let part = within >> SUB_RANGE_BITS;
        let first = partition_first + number as u64 * (part + 1);
        SubRange::Hashes { first, last: first + part }
    }

    /// The digest of a replica that differs in one sub-range: what a fault of tests reports.
    #[must_use]
    pub fn with_a_difference_in(mut self, sub_range: usize) -> Self {
        self.ranges.0[sub_range % SUB_RANGES] ^= 1;
        self.whole.0 ^= 1;
        self
    }
}

impl fmt::Debug for PartitionDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PartitionDigest({}: {})", self.partition, self.whole)
    }
}

/// Computes a [`PartitionDigest`] from records given in key order, in one pass.
pub struct PartitionDigestBuilder {
    partition: PartitionId,
    bits: PartitionBits,
    ranges: Vec<Xxh3>,
}

impl PartitionDigestBuilder {
    /// A builder for one partition of a ring with so many partition bits.
    #[must_use]
    pub fn new(partition: PartitionId, bits: PartitionBits) -> Self {
        Self { partition, bits, ranges: vec![Xxh3::new(); SUB_RANGES] }
    }

    /// Adds the next record, as it is stored.
    pub fn add(&mut self, key: &[u8], record: &[u8]) {
        let within = key_hash(key) << self.bits.get();
        let number = usize::from((within >> (64 - SUB_RANGE_BITS)) as u8);
        feed(&mut self.ranges[number], key, record);
    }

    /// Adds the state beside the records and returns the digest.
    #[must_use]
    pub fn finish(self, state: &PartitionState) -> PartitionDigest {
        let mut whole = Xxh3::new();
        let mut sums = [0; SUB_RANGES];
        for (sum, hasher) in sums.iter_mut().zip(&self.ranges) {
            whole.update(&hasher.digest128().to_le_bytes());
            *sum = hasher.digest();
        }
        feed_state(&mut whole, state);
        PartitionDigest {
            partition: self.partition,
            bits: self.bits,
            whole: Digest(whole.digest128()),
            ranges: RangeSums(Box::new(sums)),
        }
    }
}
