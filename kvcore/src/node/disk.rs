//! Watching the disk: syncs under way, what waits for them, and whether one hangs.

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::Effect;
use crate::ids::{GroupId, SyncId};
use crate::time::Time;

/// Syncs that were asked for and are not complete.
pub(super) struct DiskWatch<R> {
    last: SyncId,
    pending: VecDeque<Pending<R>>,
}

struct Pending<R> {
    sync: SyncId,
    since: Time,
    groups: Vec<GroupId>,
    effects: Vec<Effect<R>>,
}

/// What a completed sync sets free.
pub(super) struct Completed<R> {
    /// Groups with messages that waited for it.
    pub groups: Vec<GroupId>,
    /// Effects that waited for it.
    pub effects: Vec<Effect<R>>,
}

impl<R> DiskWatch<R> {
    pub fn new() -> Self {
        Self { last: SyncId(0), pending: VecDeque::new() }
    }

    /// The sync that the turn being made would ask for.
    pub fn next_sync(&self) -> SyncId {
        SyncId(self.last.get() + 1)
    }

    pub fn requested(
        &mut self,
        sync: SyncId,
        now: Time,
        groups: Vec<GroupId>,
        effects: Vec<Effect<R>>,
    ) {
        self.last = sync;
        self.pending.push_back(Pending { sync, since: now, groups, effects });
    }

    /// Notes a completed sync and returns what waited for it.
    pub fn completed(&mut self, sync: SyncId) -> Completed<R> {
        let mut completed = Completed { groups: Vec::new(), effects: Vec::new() };
        while self.pending.front().is_some_and(|pending| pending.sync <= sync) {
            let pending = self.pending.pop_front().expect("it has a front");
            completed.groups.extend(pending.groups);
            completed.effects.extend(pending.effects);
        }
        completed
    }

    /// For how long the oldest sync has been under way.
    pub fn waiting(&self, now: Time) -> Duration {
        self.pending.front().map_or(Duration::ZERO, |pending| now.since(pending.since))
    }
}
