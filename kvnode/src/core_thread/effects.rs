//! Carrying out what a turn of the core decided, in the order in which it was decided.
//!
//! Nothing here waits: messages go to outboxes, replies to whoever waits for them, and what may
//! touch the disk to other threads.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use kvcore::event::Alarm;
use kvcore::message::PeerMessage;
use kvcore::{Effect, GroupId};
use metrics::counter;
use placement::NodeId;

use super::background::{Background, Job, WantedDigest};
use super::reply::ReplyTo;
use crate::clock;
use crate::groups::GroupWriter;
use crate::migrate::{CopyControl, CopyLimits, SnapshotReceiver};
use crate::storage::{Database, SyncThread};
use crate::transport::Peers;
use crate::view::ViewHandle;

/// Alarms that are remembered for people to read.
const ALARMS_MAX: usize = 64;

/// The last alarms of the core, newest last. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Alarms {
    last: Arc<Mutex<VecDeque<Alarm>>>,
}

impl Alarms {
    /// The alarms, newest last; each distinct one once.
    #[must_use]
    pub fn list(&self) -> Vec<Alarm> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(crate) fn raise(&self, alarm: Alarm) {
        counter!("ringkv_alarms_total").increment(1);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.contains(&alarm) {
            return;
        }
        tracing::error!(%alarm, "alarm");
        if last.len() == ALARMS_MAX {
            last.pop_front();
        }
        last.push_back(alarm);
    }
}

/// Carries out effects. Lives on the core's thread.
pub(super) struct Executor {
    pub view: ViewHandle,
    pub groups: GroupWriter,
    pub peers: Peers,
    pub sync: SyncThread,
    pub background: Background,
    pub snapshots: SnapshotReceiver,
    pub alarms: Alarms,
    pub copies: CopyControl,
    pub database: Database,
    /// Messages of the turn, by receiver: they leave together. Receivers stay, their lists go.
    pub outgoing: HashMap<NodeId, Vec<PeerMessage>>,
}

impl Executor {
    pub fn carry_out(&mut self, effects: &mut Vec<Effect<ReplyTo>>) {
        for effect in effects.drain(..) {
            self.one(effect);
        }
        self.groups.publish();
        for (to, messages) in &mut self.outgoing {
            if !messages.is_empty() {
                self.peers.send(*to, std::mem::take(messages));
            }
        }
    }

    fn one(&mut self, effect: Effect<ReplyTo>) {
        match effect {
            Effect::Send { to, message } => self.outgoing.entry(to).or_default().push(message),
            Effect::Reply { to, reply } => {
                // Whoever is answered may look at the tables at once.
                self.groups.publish();
                to.answer(reply, self.view.epoch());
            }
            Effect::Sync { sync } => self.sync.request(sync),
            Effect::FetchEntries { group, low, high, bytes_max } => {
                self.background.start(Job::FetchEntries { group, low, high, bytes_max });
            }
            Effect::BuildSnapshot { group } => self.background.start(Job::BuildSnapshot { group }),
            Effect::DropSnapshot { group: _, manifest } => {
                self.background.start(Job::DropSnapshot { manifest });
            }
            Effect::ReceiveSnapshot { group, manifest, generation } => {
                self.snapshots.receive(group, manifest, generation);
            }
            Effect::SweepGeneration { partition, generation } => {
                self.snapshots.cancel(GroupId::of_partition(partition), generation);
                self.background.start(Job::SweepGeneration { partition, generation });
            }
            Effect::ComputeDigest { group, index, generation, state } => {
                // Here and not on the other thread: the store is now at exactly this index.
                let point = self.database.read_point();
                let bits = self.view.load().map(|view| view.state.ring.partition_bits());
                let partition = group.partition().expect("group 0 is not verified this way");
                let wanted =
                    WantedDigest { group, index, partition, generation, state, bits, point };
                self.background.start(Job::ComputeDigest(Box::new(wanted)));
            }
            Effect::ReplicaCreated { group, gate } => {
                self.groups.replica_created(group, gate, clock::now());
            }
            Effect::ReplicaRemoved { group } => {
                self.groups.replica_removed(group);
                self.background.start(Job::ReclaimLog { group });
            }
            Effect::LeaderChanged { group, leader, here } => {
                self.groups.leader_changed(group, leader, here);
            }
            Effect::ViewChanged(state) => {
                let limits = state.settings.copy;
                self.copies.set(CopyLimits {
                    bytes_per_second: match state.is_paused() {
                        true => 0,
                        false => limits.bytes_per_second,
                    },
                    copies_at_a_time: limits.moves_per_node,
                });
                self.view.publish(state);
            }
            Effect::Alarm(alarm) => self.alarms.raise(alarm),
        }
    }
}
