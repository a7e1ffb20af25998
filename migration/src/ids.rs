//! Newtypes for what plans and moves are about.

use std::fmt;

use placement::NodeId;
use serde::{Deserialize, Serialize};

/// Makes a newtype of an identifier or counter. `fmt`, `Serialize` and `Deserialize` must be in scope.
#[macro_export]
macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $raw);

        impl $name {
            /// The counter's raw value.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }
    };
}

counter! {
    /// Identifies one replica for all time. Allocated by group 0 and never reused, so that a
    /// replica that was removed or lost its disk cannot vote again under its old Raft id.
    ReplicaId(u64)
}
counter! {
    /// Index of an entry in a group's log; 0 means "before the first entry".
    LogIndex(u64)
}
counter! {
    /// Identifies a plan for all time; given out when the plan is applied.
    PlanId(u64)
}

impl LogIndex {
    /// The index after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A member of a group: a replica and the node that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The replica.
    pub replica: ReplicaId,
    /// The node that holds it.
    pub node: NodeId,
}
