//! Signs of life: this node's to all others, and theirs to this one.

use std::collections::BTreeMap;
use std::sync::Arc;

use placement::NodeId;

use super::core::Core;
use crate::cluster::{ClusterCommand, HealthMonitor, HealthSettings};
use crate::event::Effect;
use crate::group::{Turn, Work};
use crate::ids::{GroupId, Revision};
use crate::message::{NodeHeartbeat, PeerMessage};
use crate::time::Time;

/// Heartbeat intervals after which a node is not given leaderships.
const FRESH_INTERVALS: u32 = 3;

/// What this node knows of the others, first-hand.
#[derive(Debug)]
pub(super) struct Peers {
    pub last_turn: Time,
    next_heartbeat: Time,
    heard: BTreeMap<NodeId, Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Time,
    heartbeat: NodeHeartbeat,
}

impl Peers {
    pub fn new(now: Time) -> Self {
        Self { last_turn: now, next_heartbeat: now, heard: BTreeMap::new() }
    }
}

impl<R> Core<R> {
    /// A sign of life of another node.
    pub(super) fn heartbeat(
        &mut self,
        from: NodeId,
        heartbeat: NodeHeartbeat,
        turn: &mut Turn<'_, R>,
    ) {
        let known = self.view.as_ref().is_some_and(|view| view.nodes.contains_key(&from));
        if !known {
            return;
        }
        self.peers.heard.insert(from, Heard { at: turn.now, heartbeat });
        if let Some(health) = &mut self.health {
            health.beat(from, heartbeat.disk_ok, turn.now);
        }
        let ours = self.view_revision();
        if heartbeat.revision > ours {
            let message = PeerMessage::ViewRequest { known: ours };
            turn.effects.push(Effect::Send { to: from, message });
        }
    }

    /// Another node asks for a newer view.
    pub(super) fn view_requested(&mut self, from: NodeId, known: Revision, turn: &mut Turn<'_, R>) {
        if let Some(view) = self.view.as_ref().filter(|view| view.revision > known) {
            let message = PeerMessage::View(Arc::clone(view));
            turn.effects.push(Effect::Send { to: from, message });
        }
    }

    pub(super) fn view_revision(&self) -> Revision {
        self.view.as_ref().map_or(Revision(0), |view| view.revision)
    }

    /// Whether a node was heard lately and its disk is well: only such a one is given leaderships.
    pub(super) fn is_fit(&self, node: NodeId, now: Time) -> bool {
        self.peers.heard.get(&node).is_some_and(|heard| {
            heard.heartbeat.disk_ok
                && now.since(heard.at) < self.settings.node_heartbeat * FRESH_INTERVALS
        })
    }

    /// Sends signs of life and, on group 0's leader, judges the others'.
    pub(super) fn tend_peers(&mut self, turn: &mut Turn<'_, R>) {
        if turn.now < self.peers.next_heartbeat {
            return;
        }
        self.peers.next_heartbeat = turn.now + self.settings.node_heartbeat;
        let Some(view) = self.view.clone() else { return };
        let disk_ok = self.disk.waiting(turn.now) < self.settings.disk_stall;
        let heartbeat = NodeHeartbeat { revision: view.revision, disk_ok };
        for &to in view.nodes.keys().filter(|&&node| node != self.node) {
            turn.effects.push(Effect::Send { to, message: PeerMessage::Heartbeat(heartbeat) });
        }
        self.judge(disk_ok, turn);
    }

    fn judge(&mut self, disk_ok: bool, turn: &mut Turn<'_, R>) {
        let leads = self.replicas.get(&GroupId::CLUSTER).is_some_and(|it| it.is_leader());
        if !leads {
            self.health = None;
            return;
        }
        let settings = HealthSettings {
            interval: self.settings.node_heartbeat,
            suspect_misses: self.settings.suspect_misses,
            down_misses: self.settings.down_misses,
        };
        let node = self.node;
        let Some(view) = self.view.clone() else { return };
        let health = self.health.get_or_insert_with(|| HealthMonitor::new(settings));
        health.beat(node, disk_ok, turn.now);
        let recorded = view.nodes.iter().map(|(id, record)| (*id, record.health));
        let changes = health.judge(recorded, turn.now);
        if changes.is_empty() {
            return;
        }
        if let Some(replica) = self.touch(GroupId::CLUSTER) {
            let command = ClusterCommand::SetHealth(changes);
            replica.submit(Work::Cluster(command), None, turn);
        }
    }
}
