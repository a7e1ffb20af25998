//! Signs of life: this node's to all others, and theirs to this one.

use std::collections::BTreeMap;
use std::sync::Arc;

use placement::NodeId;

use super::core::Core;
use crate::cluster::{ClusterCommand, HealthMonitor, HealthSettings};
use crate::event::Effect;
use crate::group::{Turn, Work};
use crate::ids::{GroupId, Revision};
use crate::message::{LedPartitions, NodeHeartbeat, PeerMessage};
use crate::time::Time;

/// Heartbeat intervals after which a node is not given leaderships.
const FRESH_INTERVALS: u32 = 3;

/// What this node knows of the others, first-hand.
#[derive(Debug)]
pub(super) struct Peers {
    pub last_turn: Time,
    next_heartbeat: Time,
    /// The revision that the others were told of last.
    told: Revision,
    heard: BTreeMap<NodeId, Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Time,
    heartbeat: NodeHeartbeat,
}

impl Peers {
    pub fn new(now: Time) -> Self {
        Self { last_turn: now, next_heartbeat: now, told: Revision(0), heard: BTreeMap::new() }
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
        let Some(view) = self.view.clone() else { return };
        // The others hear at once that group 0 has moved on.
        let news = self.leads_group0() && self.peers.told < view.revision;
        if turn.now < self.peers.next_heartbeat && !news {
            return;
        }
        self.peers.next_heartbeat = turn.now + self.settings.node_heartbeat;
        self.peers.told = view.revision;
        let disk_ok = self.disk.waiting(turn.now) < self.settings.disk_stall;
        let heartbeat = NodeHeartbeat {
            revision: view.revision,
            disk_ok,
            epoch: view.epoch(),
            led: self.led_partitions(turn.now),
            misrouted_per_mille: self.misrouted_per_mille,
        };
        self.peers.heard.insert(self.node, Heard { at: turn.now, heartbeat });
        for &to in view.nodes.keys().filter(|&&node| node != self.node) {
            turn.effects.push(Effect::Send { to, message: PeerMessage::Heartbeat(heartbeat) });
        }
        self.judge(disk_ok, turn);
    }

    /// The last sign of life of a node, this one included.
    pub(super) fn last_heartbeat(&self, node: NodeId) -> Option<NodeHeartbeat> {
        self.peers.heard.get(&node).map(|heard| heard.heartbeat)
    }

    /// How the partitions do that this node leads.
    fn led_partitions(&self, now: Time) -> LedPartitions {
        let mut led = LedPartitions::default();
        let Some(view) = &self.view else { return led };
        let partitions = self.replicas.values().filter(|it| it.group != GroupId::CLUSTER);
        for replica in partitions.filter(|replica| replica.is_leader()) {
            let is_fit = |node| node == self.node || self.is_fit(node, now);
            let voters = replica.voters_at_a_glance(is_fit, now);
            led.count += 1;
            led.backlog += voters.backlog;
            let short = voters.healthy < view.members(replica.group).len();
            led.under_replicated += u32::from(short);
        }
        led
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
