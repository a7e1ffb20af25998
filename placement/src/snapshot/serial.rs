//! Snapshots in serde formats. Text formats get the named fields of [`RawSnapshot`]; binary formats
//! get the canonical bytes, which are a third of the size. Both ways in verify everything.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Checksum, RingSnapshot, SnapshotParts, codec, pack_tokens};
use crate::error::SnapshotError;
use crate::hash::{HashSpec, PartitionBits};
use crate::ids::Epoch;
use crate::tokens::Token;
use crate::topology::{NodeSpec, ReplicationFactor, Topology};

/// The unverified twin of a snapshot, field by field as in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSnapshot {
    epoch: Epoch,
    hash: HashSpec,
    partition_bits: PartitionBits,
    replication_factor: ReplicationFactor,
    nodes: Vec<NodeSpec>,
    tokens: Vec<Token>,
    previous_checksum: Option<Checksum>,
    checksum: Checksum,
    activated_at_ms: u64,
}

impl TryFrom<RawSnapshot> for RingSnapshot {
    type Error = SnapshotError;

    fn try_from(raw: RawSnapshot) -> Result<Self, Self::Error> {
        raw.hash.ensure_supported()?;
        if raw.epoch == Epoch::ZERO {
            return Err(SnapshotError::Malformed {
                reason: "a published ring has an epoch above 0",
            });
        }
        if raw.previous_checksum.is_none() != (raw.epoch == Epoch::ZERO.next()) {
            return Err(SnapshotError::Malformed {
                reason: "all rings but the first, and only they, name a predecessor",
            });
        }
        let parts = SnapshotParts {
            partition_bits: raw.partition_bits,
            replication_factor: raw.replication_factor,
            topology: Topology::new(raw.nodes)?,
            tokens: raw.tokens,
            activated_at_ms: raw.activated_at_ms,
        };
        let tokens = pack_tokens(&parts)?;
        let snapshot = Self {
            epoch: raw.epoch,
            partition_bits: parts.partition_bits,
            replication_factor: parts.replication_factor,
            topology: parts.topology,
            tokens,
            previous_checksum: raw.previous_checksum,
            checksum: raw.checksum,
            activated_at_ms: parts.activated_at_ms,
        };
        snapshot.verify_tokens()?;
        let computed = Checksum::of(&codec::encode_body(&snapshot));
        if computed != raw.checksum {
            return Err(SnapshotError::ChecksumMismatch { stated: raw.checksum, computed });
        }
        Ok(snapshot)
    }
}

impl From<&RingSnapshot> for RawSnapshot {
    fn from(snapshot: &RingSnapshot) -> Self {
        Self {
            epoch: snapshot.epoch,
            hash: snapshot.hash_spec().clone(),
            partition_bits: snapshot.partition_bits,
            replication_factor: snapshot.replication_factor,
            nodes: snapshot.nodes().to_vec(),
            tokens: snapshot.tokens().collect(),
            previous_checksum: snapshot.previous_checksum,
            checksum: snapshot.checksum,
            activated_at_ms: snapshot.activated_at_ms,
        }
    }
}

impl Serialize for RingSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            RawSnapshot::from(self).serialize(serializer)
        } else {
            serializer.serialize_bytes(&self.canonical_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for RingSnapshot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let raw = RawSnapshot::deserialize(deserializer)?;
            RingSnapshot::try_from(raw).map_err(|error| de::Error::custom(chain(&error)))
        } else {
            deserializer.deserialize_byte_buf(CanonicalVisitor)
        }
    }
}

struct CanonicalVisitor;

impl de::Visitor<'_> for CanonicalVisitor {
    type Value = RingSnapshot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the canonical bytes of a ring snapshot")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        RingSnapshot::from_canonical_bytes(bytes).map_err(|error| E::custom(chain(&error)))
    }
}

/// serde keeps only text of an error, so the sources go into it.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
