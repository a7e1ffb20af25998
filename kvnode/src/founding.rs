//! Founding a cluster out of started nodes.
//!
//! Every founder durably accepts one cluster id, for ever; nothing is decided before. A founding
//! that was interrupted is taken up by running it again with the same nodes.

use std::collections::BTreeMap;

use kvcore::ClusterId;
use kvcore::cluster::{FoundingError, Registration};
use placement::{
    Epoch, NodeId, NodeName, PartitionBits, Redundancy, ReplicationFactor, TokenPolicy, Zone,
};
use thiserror::Error;

/// What a cluster is founded with, beside its nodes.
#[derive(Clone, Debug)]
pub struct FoundingOptions {
    /// Number of partitions, as a power of two; fixed for the cluster's life.
    pub partition_bits: PartitionBits,
    /// Copies of each partition.
    pub replication_factor: ReplicationFactor,
    /// Tokens per unit of weight, under the `random` policy.
    pub vnodes_per_node: u32,
    /// How tokens are placed.
    pub policy: TokenPolicy,
}

/// A cluster that was founded.
#[derive(Clone, Debug)]
pub struct Founded {
    /// Its id.
    pub cluster: ClusterId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its founders, in order of their names.
    pub founders: Vec<Registration>,
    /// Founders per zone. Nodes of one zone may fail together.
    pub zones: BTreeMap<Zone, usize>,
    /// What the owners' zones protect from.
    pub redundancy: Redundancy,
    /// How the founding began.
    pub start: FoundingStart,
}

/// How a founding began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundingStart {
    /// No founder had accepted a cluster.
    Fresh,
    /// Some founders had accepted this founding before; it was completed.
    Resumed,
    /// All founders had accepted this founding before; nothing was left to do.
    Complete,
}

/// Why no cluster was founded.
#[derive(Debug, Error)]
pub enum InitError {
    /// A founder does not answer; nothing was changed.
    #[error("{address} does not answer: {reason}; nothing was changed")]
    Unreachable {
        /// Its peer address.
        address: String,
        /// What happened.
        reason: String,
    },
    /// Two addresses lead to the same node; nothing was changed.
    #[error("{first} and {second} are the same node; nothing was changed")]
    SameNode {
        /// One address.
        first: String,
        /// The other address.
        second: String,
    },
    /// Two founders have the same name; nothing was changed.
    #[error("{first} and {second} are both named {name}; nothing was changed")]
    NameTaken {
        /// The name.
        name: NodeName,
        /// Address of one.
        first: String,
        /// Address of the other.
        second: String,
    },
    /// A founder belongs to another cluster than another founder does, or than this founding makes.
    #[error("{address} belongs to cluster {theirs}, not to {ours}")]
    OtherCluster {
        /// Its peer address.
        address: String,
        /// Its cluster.
        theirs: ClusterId,
        /// The cluster that another founder belongs to.
        ours: ClusterId,
    },
    /// A founder is no founder of the cluster that others accepted: it has to join instead.
    #[error("cluster {cluster} was founded without {node} at {address}: let it join instead")]
    NotAFounder {
        /// Its peer address.
        address: String,
        /// The node.
        node: NodeId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// These nodes allow no ring; nothing was changed.
    #[error("no cluster can be made of these nodes; nothing was changed")]
    Impossible(#[from] FoundingError),
    /// A founder stopped answering half-way; run it again with the same nodes.
    #[error(
        "{accepted} of {founders} founders have accepted cluster {cluster}, but {address} does not \
         answer: {reason}; run it again with the same nodes"
    )]
    Interrupted {
        /// The cluster.
        cluster: ClusterId,
        /// How many have accepted.
        accepted: usize,
        /// How many there are.
        founders: usize,
        /// The one that does not answer.
        address: String,
        /// What happened.
        reason: String,
    },
}
