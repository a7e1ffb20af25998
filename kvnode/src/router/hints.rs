//! Leaders of groups without a replica here, as other nodes named them. A hint saves a detour when
//! it is right and costs one when it is wrong.

use std::collections::HashMap;

use arc_swap::ArcSwap;
use kvcore::GroupId;
use placement::NodeId;

/// The last leader that was named for each group.
#[derive(Debug, Default)]
pub(super) struct LeaderHints {
    hints: ArcSwap<HashMap<GroupId, NodeId>>,
}

impl LeaderHints {
    pub fn get(&self, group: GroupId) -> Option<NodeId> {
        self.hints.load().get(&group).copied()
    }

    /// Notes who leads, or that whoever was thought to lead does not.
    pub fn set(&self, group: GroupId, leader: Option<NodeId>) {
        if self.get(group) == leader {
            return;
        }
        // Leaders change seldom: copying the table then is cheaper than a lock on every read.
        self.hints.rcu(|hints| {
            let mut hints = HashMap::clone(hints);
            match leader {
                Some(leader) => hints.insert(group, leader),
                None => hints.remove(&group),
            };
            hints
        });
    }
}
