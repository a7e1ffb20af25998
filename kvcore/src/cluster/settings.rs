//! What operators may set of a cluster while it runs.

use placement::{PlanRules, TokenPolicy};
use serde::{Deserialize, Serialize};

/// Limits on copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyLimits {
    /// Bytes per second that a node takes, and as many that it gives; 0 pauses all copies.
    pub bytes_per_second: u64,
    /// Moves that may copy to a node at a time, and from a node.
    pub moves_per_node: u32,
}

/// Settings of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// How tokens are placed.
    pub policy: TokenPolicy,
    /// Tokens of a node of weight 1 under the policy `random`.
    pub vnodes_per_node: u32,
    /// Limits on copies.
    pub copy: CopyLimits,
    /// Milliseconds for which old owners follow after a cut-over, so that a rollback moves nothing.
    pub grace_ms: u64,
}

/// Bytes per second of copies unless set otherwise: a fifth of what one core can send, checksum and
/// install, so that the foreground hardly notices.
const COPY_BYTES_PER_SECOND: u64 = 32 << 20;
/// Moves at a time per node unless set otherwise.
const MOVES_PER_NODE: u32 = 4;
/// The grace unless set otherwise: an hour.
const GRACE_MS: u64 = 3_600_000;

impl ClusterSettings {
    /// The settings of a new cluster.
    #[must_use]
    pub fn new(policy: TokenPolicy, vnodes_per_node: u32) -> Self {
        let copy =
            CopyLimits { bytes_per_second: COPY_BYTES_PER_SECOND, moves_per_node: MOVES_PER_NODE };
        Self { policy, vnodes_per_node, copy, grace_ms: GRACE_MS }
    }

    /// The rules by which plans are made.
    #[must_use]
    pub fn rules(&self) -> PlanRules {
        PlanRules { policy: self.policy, vnodes_per_node: self.vnodes_per_node }
    }
}

/// Settings to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsChange {
    /// Bytes per second of copies.
    pub copy_bytes_per_second: Option<u64>,
    /// Moves at a time per node; at least one.
    pub moves_per_node: Option<u32>,
    /// The grace, in milliseconds.
    pub grace_ms: Option<u64>,
}

impl ClusterSettings {
    /// Takes a change over.
    pub fn change(&mut self, change: SettingsChange) {
        let SettingsChange { copy_bytes_per_second, moves_per_node, grace_ms } = change;
        self.copy.bytes_per_second = copy_bytes_per_second.unwrap_or(self.copy.bytes_per_second);
        self.copy.moves_per_node = moves_per_node.map_or(self.copy.moves_per_node, |it| it.max(1));
        self.grace_ms = grace_ms.unwrap_or(self.grace_ms);
    }
}
