//! The published ring: an immutable table of tokens with an epoch, a checksum and a predecessor.
//!
//! A [`RingSnapshot`] exists only in verified form. It is made by [`RingSnapshot::publish`], or read
//! from canonical bytes or JSON, which checks every bound, the one legal order and the checksum.
//! It holds the inputs of placement and nothing else: no addresses, no health, no progress.

mod codec;
mod serial;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::SnapshotError;
use crate::hash::{HashSpec, PartitionBits};
use crate::ids::{Epoch, PartitionId};
use crate::ring::NodeIndex;
use crate::tokens::{TOKENS_MAX, Token};
use crate::topology::{NodeSpec, ReplicationFactor, Topology};

/// An immutable, verified ring of one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingSnapshot {
    epoch: Epoch,
    partition_bits: PartitionBits,
    replication_factor: ReplicationFactor,
    topology: Topology,
    tokens: Box<[PackedToken]>,
    previous_checksum: Option<Checksum>,
    checksum: Checksum,
    activated_at_ms: u64,
}

/// What a new ring is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotParts {
    /// How finely the hash space is cut. Fixed for a cluster's life.
    pub partition_bits: PartitionBits,
    /// How many copies each partition should have.
    pub replication_factor: ReplicationFactor,
    /// The members, with their states as of this ring.
    pub topology: Topology,
    /// Their tokens, in any order.
    pub tokens: Vec<Token>,
    /// When the ring comes into force, in milliseconds since the Unix epoch, by the caller's clock.
    pub activated_at_ms: u64,
}

impl RingSnapshot {
    /// Makes the ring that follows `previous`, or the first one: epoch and checksum chain are set here.
    pub fn publish(
        parts: SnapshotParts,
        previous: Option<&RingSnapshot>,
    ) -> Result<Self, SnapshotError> {
        let previous_epoch = previous.map_or(Epoch::ZERO, RingSnapshot::epoch);
        let epoch = previous_epoch.next();
        if epoch == previous_epoch {
            return Err(SnapshotError::Malformed { reason: "the epoch counter is used up" });
        }
        if previous.is_some_and(|ring| ring.partition_bits != parts.partition_bits) {
            return Err(SnapshotError::KeySpaceChanged);
        }
        let tokens = pack_tokens(&parts)?;
        let mut snapshot = Self {
            epoch,
            partition_bits: parts.partition_bits,
            replication_factor: parts.replication_factor,
            topology: parts.topology,
            tokens,
            previous_checksum: previous.map(RingSnapshot::checksum),
            checksum: Checksum(0),
            activated_at_ms: parts.activated_at_ms,
        };
        snapshot.verify_tokens()?;
        snapshot.checksum = Checksum::of(&codec::encode_body(&snapshot));
        Ok(snapshot)
    }

    /// The document that the checksum covers, followed by the checksum; see `docs/ring-format.md`.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut bytes = codec::encode_body(self);
        bytes.extend_from_slice(&self.checksum.0.to_be_bytes());
        bytes
    }

    /// Reads and verifies a canonical document. Any bytes are safe to pass.
    pub fn from_canonical_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let snapshot = codec::decode(bytes)?;
        snapshot.verify_tokens()?;
        Ok(snapshot)
    }

    /// Whether `next` may take the place of this ring: the same ring again, or its direct successor.
    pub fn check_successor(&self, next: &RingSnapshot) -> Result<(), SnapshotError> {
        self.check_newer(next)?;
        if next.epoch > self.epoch.next() {
            return Err(SnapshotError::EpochGap { current: self.epoch, offered: next.epoch });
        }
        Ok(())
    }

    /// As [`RingSnapshot::check_successor`], but epochs may lie between: for a client that slept and
    /// cannot verify a chain that it has not seen.
    pub fn check_newer(&self, next: &RingSnapshot) -> Result<(), SnapshotError> {
        if next.epoch < self.epoch {
            return Err(SnapshotError::OlderEpoch { current: self.epoch, offered: next.epoch });
        }
        if next.epoch == self.epoch {
            if next.checksum == self.checksum {
                return Ok(());
            }
            return Err(SnapshotError::EpochConflict {
                epoch: self.epoch,
                current: self.checksum,
                offered: next.checksum,
            });
        }
        let named = next.previous_checksum.unwrap_or(Checksum(0));
        if next.epoch == self.epoch.next() && named != self.checksum {
            return Err(SnapshotError::BrokenChain {
                epoch: next.epoch,
                named,
                current: self.checksum,
            });
        }
        if next.partition_bits != self.partition_bits {
            return Err(SnapshotError::KeySpaceChanged);
        }
        Ok(())
    }

    /// The number of this ring.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The hash that this ring was made for.
    pub fn hash_spec(&self) -> &HashSpec {
        // A snapshot with another spec cannot be constructed.
        &HashSpec::CURRENT
    }

    /// How finely the hash space is cut.
    pub fn partition_bits(&self) -> PartitionBits {
        self.partition_bits
    }

    /// How many copies each partition should have.
    pub fn replication_factor(&self) -> ReplicationFactor {
        self.replication_factor
    }

    /// The members.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The members in order of their identity; a [`NodeIndex`] counts in this order.
    pub fn nodes(&self) -> &[NodeSpec] {
        self.topology.nodes()
    }

    /// All tokens in ring order.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = Token> + DoubleEndedIterator + Clone {
        self.tokens.iter().map(|token| Token {
            position: self.partition_bits.last_hash(token.partition),
            rank: token.rank,
            node: self.topology.nodes()[token.node.as_usize()].id,
            index: token.index,
        })
    }

    /// Checksum of the ring before this one; none for the first.
    pub fn previous_checksum(&self) -> Option<Checksum> {
        self.previous_checksum
    }

    /// Checksum of this ring's canonical document.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// When this ring came into force, in milliseconds since the Unix epoch, as told by its publisher.
    pub fn activated_at_ms(&self) -> u64 {
        self.activated_at_ms
    }

    /// The tokens in their compact form, in ring order.
    pub(crate) fn packed_tokens(&self) -> &[PackedToken] {
        &self.tokens
    }

    /// Memory held by this snapshot, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let text = |node: &NodeSpec| node.name.as_str().len() + node.zone.as_str().len();
        let nodes = self.nodes().iter().map(|node| size_of::<NodeSpec>() + text(node));
        size_of::<Self>() + size_of_val(&*self.tokens) + nodes.sum::<usize>()
    }

    /// The rules that hold between tokens and nodes, whatever way the snapshot came.
    fn verify_tokens(&self) -> Result<(), SnapshotError> {
        if self.tokens.is_empty() {
            return Err(SnapshotError::NoTokens);
        }
        let mut claims = Vec::with_capacity(self.tokens.len());
        for token in &self.tokens {
            let node = &self.nodes()[token.node.as_usize()];
            if !node.state.may_hold_tokens() {
                return Err(SnapshotError::TokenOfIdleNode { node: node.id });
            }
            claims.push((token.node, token.index));
        }
        claims.sort_unstable();
        match claims.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(SnapshotError::DuplicateToken {
                node: self.nodes()[pair[0].0.as_usize()].id,
                index: pair[0].1,
            }),
            None => Ok(()),
        }
    }
}

/// A token in 12 bytes instead of 32. Nodes are ordered by identity, hence the derived order is the
/// ring order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PackedToken {
    pub(crate) partition: PartitionId,
    pub(crate) rank: u16,
    pub(crate) node: NodeIndex,
    pub(crate) index: u32,
}

fn pack_tokens(parts: &SnapshotParts) -> Result<Box<[PackedToken]>, SnapshotError> {
    if parts.tokens.len() > TOKENS_MAX {
        return Err(SnapshotError::Malformed { reason: "too many tokens" });
    }
    let mut packed = Vec::with_capacity(parts.tokens.len());
    for token in &parts.tokens {
        let partition = parts.partition_bits.partition_of(token.position);
        if parts.partition_bits.last_hash(partition) != token.position {
            return Err(SnapshotError::TokenInsidePartition { position: token.position });
        }
        let Some(node) = parts.topology.position(token.node) else {
            return Err(SnapshotError::UnknownTokenNode { node: token.node });
        };
        let node = NodeIndex::from_usize(node);
        packed.push(PackedToken { partition, rank: token.rank, node, index: token.index });
    }
    packed.sort_unstable();
    Ok(packed.into_boxed_slice())
}

/// XXH3-128 of a canonical document. It finds damage and disagreement; it is no signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(u128);

impl Checksum {
    /// The checksum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// The checksum with this value.
    pub const fn from_u128(value: u128) -> Self {
        Self(value)
    }

    /// The checksum as a 128-bit number.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({self})")
    }
}

impl FromStr for Checksum {
    type Err = SnapshotError;

    /// Reads exactly 32 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(value) if digits => Ok(Self(value)),
            _ => Err(SnapshotError::Malformed { reason: "a checksum has 32 hexadecimal digits" }),
        }
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
