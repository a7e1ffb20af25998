//! The identifiers of placement. Each is a type of its own, so that none is taken for another.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::PlacementError;

/// Longest zone or node name, in bytes. Long enough for a host name's label (63 octets in RFC 1035),
/// short enough for a table's column and a metric's label.
pub const LABEL_BYTES_MAX: usize = 64;

/// The identity of a node: a UUID made together with its data directory, never an address.
///
/// The order is that of the 128-bit number, which is also the order of the hyphenated text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(Uuid);

impl NodeId {
    /// The identity with this 128-bit value (most significant byte first in the text form).
    pub const fn from_u128(value: u128) -> Self {
        Self(Uuid::from_u128(value))
    }

    /// The identity as a 128-bit number.
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }
}

impl From<Uuid> for NodeId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl From<NodeId> for Uuid {
    fn from(id: NodeId) -> Self {
        id.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl FromStr for NodeId {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match Uuid::try_parse(text) {
            Ok(uuid) => Ok(Self(uuid)),
            Err(_) => Err(PlacementError::InvalidNodeId { text: text.chars().take(64).collect() }),
        }
    }
}

/// One of the equal slices of the hash space, numbered from 0 in hash order.
///
/// Whether the number is below a ring's partition count is known only beside that ring;
/// [`crate::PartitionBits::partition`] checks it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PartitionId(u32);

impl PartitionId {
    /// The partition with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of this partition.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of this partition, for indexing.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a published ring snapshot. The first is 1; [`Epoch::ZERO`] means that there is none yet.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// Before the first snapshot.
    pub const ZERO: Self = Self(0);

    /// The epoch with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this epoch.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch after this one. Saturates, which a counter that only humans advance never reaches.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A short name that is safe in a path, a metric label and a table: 1..=64 of `[A-Za-z0-9._-]`.
fn parse_label(what: &'static str, text: &str) -> Result<Arc<str>, PlacementError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if text.is_empty() || text.len() > LABEL_BYTES_MAX || !text.bytes().all(legal) {
        let shown = text.chars().take(LABEL_BYTES_MAX).collect();
        return Err(PlacementError::InvalidLabel { what, text: shown });
    }
    Ok(Arc::from(text))
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Reads a label of 1..=64 characters out of `[A-Za-z0-9._-]`.
            pub fn parse(text: &str) -> Result<Self, PlacementError> {
                parse_label($what, text).map(Self)
            }

            /// The label as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = PlacementError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = PlacementError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(label: $name) -> Self {
                label.0.as_ref().to_owned()
            }
        }
    };
}

label!(
    /// A failure domain: nodes of one zone may fail together. Cheap to clone.
    Zone,
    "zone"
);
label!(
    /// What people call a node. Unique among the members of a cluster. Cheap to clone.
    NodeName,
    "node name"
);
