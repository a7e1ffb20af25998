//! The digest: a checksum of a partition's whole replicated state at one applied index.
//!
//! Records are fed in key order as `key length (4) | key | record length (4) | record bytes`, then
//! the state beside them; the sum is xxh3-128. Equal state gives equal bytes, since records and
//! state have one encoding each.

use std::fmt;

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
        for part in [key, record] {
            let length = u32::try_from(part.len()).expect("keys and records are far below 4 GiB");
            self.hasher.update(&length.to_le_bytes());
            self.hasher.update(part);
        }
    }

    /// Adds the state beside the records and returns the sum.
    #[must_use]
    pub fn finish(mut self, state: &PartitionState) -> Digest {
        self.hasher.update(&state.version.get().to_le_bytes());
        self.hasher.update(&state.clock_ms.to_le_bytes());
        Digest(self.hasher.digest128())
    }
}
