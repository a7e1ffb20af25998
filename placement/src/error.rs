//! What can be wrong with an input, one closed enum per kind of operation.

use thiserror::Error;

use crate::ids::{Epoch, NodeId, NodeName};
use crate::snapshot::Checksum;

/// A name, a number, a set of nodes or a request for tokens that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// A zone or node name with an illegal length or character.
    #[error("{what} {text:?} is not 1 to 64 characters out of A-Z a-z 0-9 . _ -")]
    InvalidLabel {
        /// Which kind of label was read.
        what: &'static str,
        /// The text, cut to 64 characters.
        text: String,
    },
    /// Text that is not a UUID.
    #[error("{text:?} is not a node id (a UUID)")]
    InvalidNodeId {
        /// The text, cut to 64 characters.
        text: String,
    },
    /// More partition bits than the limit.
    #[error("{bits} partition bits are more than {}", crate::hash::PartitionBits::MAX)]
    InvalidPartitionBits {
        /// The number asked for.
        bits: u8,
    },
    /// A partition count that is no power of two, or too large.
    #[error("{count} partitions: the count must be a power of two from 1 to 65536")]
    InvalidPartitionCount {
        /// The number asked for.
        count: u32,
    },
    /// A replication factor out of range.
    #[error(
        "replication factor {factor} is not in 1..={}",
        crate::topology::ReplicationFactor::MAX
    )]
    InvalidReplicationFactor {
        /// The number asked for.
        factor: u8,
    },
    /// A weight of nothing.
    #[error("a weight must be at least 1")]
    ZeroWeight,
    /// Two nodes with one identity.
    #[error("node id {id} appears twice")]
    DuplicateNodeId {
        /// The identity that appears twice.
        id: NodeId,
    },
    /// Two nodes with one name.
    #[error("node name {name} appears twice")]
    DuplicateNodeName {
        /// The name that appears twice.
        name: NodeName,
    },
    /// More nodes than a ring can hold.
    #[error("{count} nodes are more than {}", crate::topology::NODES_MAX)]
    TooManyNodes {
        /// The number of nodes given.
        count: usize,
    },
    /// No node of the topology is in a state in which it may own data.
    #[error("no node may own data")]
    NoNodes,
    /// Zero virtual nodes asked for.
    #[error("the number of vnodes per node must be at least 1")]
    NoVnodes,
    /// More tokens than a ring can hold; with random tokens their number grows with the weights.
    #[error("{count} tokens are more than {}", crate::tokens::TOKENS_MAX)]
    TooManyTokens {
        /// The number of tokens asked for.
        count: u64,
    },
    /// The ring to start from has another number of partitions.
    #[error("the previous ring has {previous} partition bits, not {asked}")]
    PartitionBitsChanged {
        /// Bits of the ring to start from.
        previous: u8,
        /// Bits asked for.
        asked: u8,
    },
}

/// A ring snapshot that cannot be made, read, or follow another.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// The bytes do not start like a ring snapshot.
    #[error("not a ring snapshot")]
    NotASnapshot,
    /// A byte layout that this program does not know.
    #[error("ring snapshot layout {found} is not supported (supported: {supported})")]
    UnsupportedLayout {
        /// Layout of the bytes.
        found: u16,
        /// Layout that this program reads.
        supported: u16,
    },
    /// A hash that this program does not implement.
    #[error("the ring was made for hash {found}; this program implements {supported}")]
    UnsupportedHash {
        /// The spec in the snapshot.
        found: String,
        /// The spec implemented here.
        supported: String,
    },
    /// The bytes end before the document does.
    #[error("the ring snapshot is cut short")]
    Truncated,
    /// Bytes follow the document.
    #[error("{count} bytes follow the end of the ring snapshot")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// The document does not have the checksum that it carries.
    #[error("the ring snapshot's checksum is {stated}, its content gives {computed}")]
    ChecksumMismatch {
        /// Checksum carried by the document.
        stated: Checksum,
        /// Checksum of its content.
        computed: Checksum,
    },
    /// A field holds a value outside its bounds, or entries are not in their one legal order.
    #[error("malformed ring snapshot: {reason}")]
    Malformed {
        /// Which rule is broken.
        reason: &'static str,
    },
    /// A name, number or set of nodes in the document is not legal.
    #[error("illegal value in the ring snapshot")]
    Illegal(#[from] PlacementError),
    /// A token names a node that is not in the snapshot.
    #[error("a token belongs to {node}, which is not among the nodes")]
    UnknownTokenNode {
        /// The missing node.
        node: NodeId,
    },
    /// A token lies inside a partition instead of on its end.
    #[error("token position {position:#018x} is not the last hash of a partition")]
    TokenInsidePartition {
        /// The position.
        position: u64,
    },
    /// A node that may not own data has a token.
    #[error("node {node} has a token although its state allows none")]
    TokenOfIdleNode {
        /// The node.
        node: NodeId,
    },
    /// Two tokens of a node carry one vnode index.
    #[error("node {node} has two tokens with index {index}")]
    DuplicateToken {
        /// The node.
        node: NodeId,
        /// The index that appears twice.
        index: u32,
    },
    /// A ring without tokens owns nothing.
    #[error("a ring needs at least one token")]
    NoTokens,
    /// The other snapshot is older than the one at hand.
    #[error("epoch {offered} is older than the current epoch {current}")]
    OlderEpoch {
        /// Epoch at hand.
        current: Epoch,
        /// Epoch offered.
        offered: Epoch,
    },
    /// At least one epoch lies between the two.
    #[error("epoch {offered} does not follow epoch {current} directly")]
    EpochGap {
        /// Epoch at hand.
        current: Epoch,
        /// Epoch offered.
        offered: Epoch,
    },
    /// Two different rings claim one epoch. This must raise an alarm.
    #[error("two rings claim epoch {epoch}: {current} is at hand, {offered} was offered")]
    EpochConflict {
        /// The epoch that both claim.
        epoch: Epoch,
        /// Checksum at hand.
        current: Checksum,
        /// Checksum offered.
        offered: Checksum,
    },
    /// The next epoch was made from another snapshot than the one at hand.
    #[error("epoch {epoch} follows {named}, not {current}")]
    BrokenChain {
        /// Epoch offered.
        epoch: Epoch,
        /// Checksum that the offered snapshot names as its predecessor.
        named: Checksum,
        /// Checksum at hand.
        current: Checksum,
    },
    /// The number of partitions or the hash is fixed for a cluster's life, and differs.
    #[error("the hash or the number of partitions differs from the previous ring's")]
    KeySpaceChanged,
}

/// Two rings that cannot be compared partition by partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DiffError {
    /// They cut the hash space differently.
    #[error("rings of {old} and {new} partition bits cannot be compared")]
    PartitionBitsDiffer {
        /// Bits of the older ring.
        old: u8,
        /// Bits of the newer ring.
        new: u8,
    },
}
