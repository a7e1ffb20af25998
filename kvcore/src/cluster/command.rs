//! Commands of group 0's log and what they answer.

use placement::NodeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::state::{Health, Registration};
use crate::ids::LogIndex;

/// A command of group 0's log. New kinds are added at the end: the position is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterCommand {
    /// Enter a node into the directory as a spare, or renew what it says of itself.
    Register(Registration),
    /// Note how nodes do.
    SetHealth(Vec<(NodeId, Health)>),
    /// Drop the log up to and including an index.
    Truncate {
        /// The last index to drop.
        through: LogIndex,
    },
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterOutcome {
    /// It took effect, or nothing was left to do.
    Done,
    /// It was refused and changed nothing.
    Refused(ClusterRefusal),
    /// The log may be dropped through this index.
    Truncate(LogIndex),
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum ClusterRefusal {
    /// Another node of the directory has the name.
    #[error("the name {name:?} belongs to node {owner}, which is another node")]
    NameTaken {
        /// The name.
        name: String,
        /// The node that has it.
        owner: NodeId,
    },
    /// The zone of a node that holds tokens cannot change.
    #[error(
        "node {node} owns partitions in zone {zone:?}; drain it before it moves to another zone"
    )]
    ZoneInUse {
        /// The node.
        node: NodeId,
        /// The zone it is in.
        zone: String,
    },
}
