//! What a placement does to a load: how even it is, what a change of membership moves, and how the
//! ring compares with other schemes.
//!
//! Pure like the rest of the crate. Keys arrive as [`Sample`]s, one at a time, and are folded into
//! a [`Tally`]; whoever draws them, reads files, uses threads or looks at a clock stands outside.
//! Every sum is of whole numbers, so the result does not depend on the order in which samples come
//! or tallies are merged.
//!
//! A ring treats all keys of a partition alike, hence [`PartitionLoads`] is all that has to be kept
//! of any number of keys. [`proof`] checks that claim key by key against the plain ring rule.
//!
//! What is measured here is one outcome; what [`theory`] gives is an expectation over all outcomes.
//! Neither is a bound.
//!
//! Reading order: [`fleet`], [`spread`], [`theory`], [`sweep`], [`change`], [`proof`],
//! [`strategy`], [`hot_key`], [`cache`].

pub mod fleet;

pub mod spread;

pub mod theory;

pub mod sweep;

pub mod change;

pub mod proof;

pub mod strategy;

pub mod hot_key;

pub mod cache;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::hash::PartitionBits;
use crate::ids::PartitionId;

pub use fleet::{FleetSpec, RingRules, SimulateError};
pub use spread::{Spread, loads_of};

/// How much there is of something: of a key, of a partition, or on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Requests, in thousandths: whole numbers add up to the same sum in any order.
    pub millirequests: u64,
}

/// One of the three ways to look at a [`Load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// By number of keys.
    Keys,
    /// By bytes.
    Bytes,
    /// By requests.
    Requests,
}

impl Measure {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Keys, Self::Bytes, Self::Requests];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Bytes => "bytes",
            Self::Requests => "requests",
        }
    }
}

impl Load {
    /// The part of it that a measure looks at.
    pub const fn get(self, measure: Measure) -> u64 {
        match measure {
            Measure::Keys => self.keys,
            Measure::Bytes => self.bytes,
            Measure::Requests => self.millirequests,
        }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.millirequests += other.millirequests;
    }
}

impl Add for Load {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), Add::add)
    }
}

/// A key, or some requests for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Hash of the key.
    pub hash: u64,
    /// What it adds.
    pub load: Load,
}

/// Something that samples are folded into, in parts that are merged at the end.
pub trait Tally: Sized {
    /// Counts a sample in.
    fn add(&mut self, sample: &Sample);

    /// Takes over what another part counted.
    fn merge(&mut self, other: Self);
}

/// The load of every partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLoads {
    bits: PartitionBits,
    loads: Box<[Load]>,
}

impl PartitionLoads {
    /// Partitions without any load.
    pub fn new(bits: PartitionBits) -> Self {
        Self { bits, loads: vec![Load::default(); bits.count() as usize].into_boxed_slice() }
    }

    /// How finely the hash space is cut.
    pub fn partition_bits(&self) -> PartitionBits {
        self.bits
    }

    /// The load of a partition; nothing for one beyond the last.
    pub fn get(&self, partition: PartitionId) -> Load {
        self.loads.get(partition.as_usize()).copied().unwrap_or_default()
    }

    /// Adds to a partition. One beyond the last is left alone, and the answer is false.
    pub fn add_to(&mut self, partition: PartitionId, load: Load) -> bool {
        let slot = self.loads.get_mut(partition.as_usize());
        slot.map(|slot| *slot += load).is_some()
    }

    /// The load of all partitions together.
    pub fn total(&self) -> Load {
        self.loads.iter().copied().sum()
    }
}

impl Tally for PartitionLoads {
    fn add(&mut self, sample: &Sample) {
        self.loads[self.bits.partition_of(sample.hash).as_usize()] += sample.load;
    }

    fn merge(&mut self, other: Self) {
        assert_eq!(self.bits, other.bits, "parts of one tally");
        for (load, more) in self.loads.iter_mut().zip(other.loads) {
            *load += more;
        }
    }
}
