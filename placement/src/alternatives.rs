//! Other ways to place keys, for comparison with the ring. The store does not use them.
//!
//! Each takes the hash of a key and answers with the place of a node in a list. What they lack
//! beside the ring: modulo moves nearly everything on a change of size; jump can only grow and
//! shrink at the end of the list and knows no weights; rendezvous asks every node for every key;
//! a fixed table is what the ring's partition table becomes when nothing derives it from tokens.

use std::cmp::Ordering;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::xxh3_64;

use crate::hash::PartitionBits;
use crate::ids::NodeId;
use crate::tokens::quota::{Claim, divide};
use crate::topology::Weight;

/// The hash modulo the number of buckets. From n to n + 1 buckets n / (n + 1) of the keys move.
pub fn modulo(hash: u64, buckets: NonZeroU32) -> u32 {
    let bucket = hash % u64::from(buckets.get());
    u32::try_from(bucket).expect("less than the number of buckets")
}

/// Jump consistent hash (Lamping and Veach, arXiv 1406.2294). From n to n + 1 buckets a key stays
/// or goes to the new one.
pub fn jump(hash: u64, buckets: NonZeroU32) -> u32 {
    let mut state = hash;
    let mut bucket = 0_u64;
    let mut next = 0_u64;
    while next < u64::from(buckets.get()) {
        bucket = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        // Two exact powers of two and one division: IEEE 754 defines every bit of it.
        let stretch = (1_u64 << 31) as f64 / ((state >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * stretch) as u64;
    }
    u32::try_from(bucket).expect("less than the number of buckets")
}

/// Rendezvous hashing (Thaler and Ravishankar): the node with the highest hash of key and node.
/// Only keys of a node that leaves move, and a node that comes takes keys from all alike.
pub fn rendezvous(hash: u64, nodes: &[NodeId]) -> Option<usize> {
    (0..nodes.len()).max_by_key(|&place| (pair_hash(hash, nodes[place]), nodes[place]))
}

/// Weighted rendezvous hashing with the score `-w / ln(u)`, where `u` is the hash of key and node
/// as a number between 0 and 1. A node that becomes heavier only takes keys.
pub fn weighted_rendezvous(hash: u64, nodes: &[(NodeId, Weight)]) -> Option<usize> {
    let score = |place: usize| {
        let (node, weight) = nodes[place];
        -f64::from(weight.get()) / unit_interval(pair_hash(hash, node)).ln()
    };
    (0..nodes.len())
        .max_by(|&a, &b| score(a).total_cmp(&score(b)).then_with(|| nodes[a].0.cmp(&nodes[b].0)))
}

fn pair_hash(hash: u64, node: NodeId) -> u64 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&hash.to_be_bytes());
    bytes[8..].copy_from_slice(&node.as_u128().to_be_bytes());
    xxh3_64(&bytes)
}

/// The upper 53 bits, each at the middle of its interval, so that neither 0 nor 1 comes out.
fn unit_interval(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// A fixed number of partitions and a table that says which bucket has which (Dynamo's third
/// strategy, the slots of Redis Cluster). Even within one partition, and moves the fewest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedTable {
    bits: PartitionBits,
    bucket_of: Vec<u32>,
}

impl FixedTable {
    /// Deals the partitions out in turn.
    pub fn new(bits: PartitionBits, buckets: NonZeroU32) -> Self {
        Self { bits, bucket_of: (0..bits.count()).map(|p| p % buckets.get()).collect() }
    }

    /// Gives each bucket as many partitions as its weight asks for.
    pub fn weighted(bits: PartitionBits, weights: &[Weight]) -> Self {
        Self { bits, bucket_of: vec![u32::MAX; bits.count() as usize] }.dealt_anew(weights)
    }

    /// The bucket of a hash.
    pub fn bucket(&self, hash: u64) -> u32 {
        self.bucket_of[self.bits.partition_of(hash).as_usize()]
    }

    /// The bucket of each partition.
    pub fn buckets(&self) -> &[u32] {
        &self.bucket_of
    }

    /// The table for another number of buckets, all alike: those beyond it give all, the others only
    /// what is above their new share.
    #[must_use]
    pub fn resized(&self, buckets: NonZeroU32) -> Self {
        self.dealt_anew(&vec![Weight::ONE; buckets.get() as usize])
    }

    /// The table for buckets of these weights, moving no more than the new shares ask for.
    #[must_use]
    pub fn dealt_anew(&self, weights: &[Weight]) -> Self {
        let mut held = vec![0; weights.len()];
        for &bucket in &self.bucket_of {
            if let Some(count) = held.get_mut(bucket as usize) {
                *count += 1;
            }
        }
        let cap = self.bucket_of.len();
        let claim = |(weight, &held): (&Weight, _)| Claim { weight: weight.get(), cap, held };
        let claims: Vec<Claim> = weights.iter().zip(&held).map(claim).collect();
        let mut room = divide(cap, &claims);

        let mut homeless = Vec::new();
        let mut bucket_of = self.bucket_of.clone();
        for (partition, bucket) in bucket_of.iter().enumerate() {
            match room.get_mut(*bucket as usize) {
                Some(room) if *room > 0 => *room -= 1,
                Some(_) | None => homeless.push(partition),
            }
        }
        let free = (0..).zip(room).flat_map(|(b, room)| std::iter::repeat_n(b, room));
        for (partition, bucket) in homeless.into_iter().zip(free) {
            bucket_of[partition] = bucket;
        }
        Self { bits: self.bits, bucket_of }
    }

    /// The table after a bucket went: its partitions go to the others, whose weights are given in
    /// their order, and those after it are numbered one lower.
    #[must_use]
    pub fn without(&self, bucket: u32, weights: &[Weight]) -> Self {
        let number = |old: &u32| match old.cmp(&bucket) {
            Ordering::Less => *old,
            // Beyond all that are left, so that it gives everything.
            Ordering::Equal => u32::MAX,
            Ordering::Greater => old - 1,
        };
        let bucket_of = self.bucket_of.iter().map(number).collect();
        Self { bits: self.bits, bucket_of }.dealt_anew(weights)
    }
}
