//! How group 0's leader judges nodes: by missed heartbeats, slower each time a node flaps.

use std::collections::BTreeMap;
use std::time::Duration;

use placement::NodeId;

use super::state::Health;
use crate::time::Time;

/// Heartbeats in a row that bring a node up again at first; doubled with each flap.
const RECOVERY_BEATS: u32 = 2;
/// The most heartbeats in a row that may be asked of a flapping node.
const RECOVERY_BEATS_MAX: u32 = 64;
/// A node that stayed up this long is trusted again as at first.
const TRUST_AFTER: Duration = Duration::from_secs(300);

/// When a node counts as suspect, and when as down.
#[derive(Clone, Copy, Debug)]
pub struct HealthSettings {
    /// Interval of heartbeats.
    pub interval: Duration,
    /// Missed heartbeats after which a node is suspect.
    pub suspect_misses: u32,
    /// Missed heartbeats after which a node is down.
    pub down_misses: u32,
}

/// Judges nodes by their heartbeats. It belongs to one term of group 0's leader: a new leader
/// starts with a fresh one and gives every node the benefit of the doubt.
#[derive(Debug)]
pub struct HealthMonitor {
    settings: HealthSettings,
    nodes: BTreeMap<NodeId, Pulse>,
}

#[derive(Debug)]
struct Pulse {
    last_beat: Time,
    beats_in_row: u32,
    beats_needed: u32,
    up_since: Time,
}

impl HealthMonitor {
    /// A monitor that has seen nothing yet.
    #[must_use]
    pub fn new(settings: HealthSettings) -> Self {
        Self { settings, nodes: BTreeMap::new() }
    }

    /// Notes a heartbeat. One that says its disk hangs counts as none.
    pub fn beat(&mut self, node: NodeId, disk_ok: bool, now: Time) {
        let missed_after = self.settings.interval * 2;
        let pulse = self.nodes.entry(node).or_insert_with(|| Pulse::new(now));
        if !disk_ok {
            pulse.beats_in_row = 0;
            return;
        }
        if now.since(pulse.last_beat) > missed_after {
            pulse.beats_in_row = 0;
        }
        pulse.beats_in_row = pulse.beats_in_row.saturating_add(1);
        pulse.last_beat = now;
    }

    /// What changes for these nodes, given what is on record of them.
    pub fn judge(
        &mut self,
        recorded: impl Iterator<Item = (NodeId, Health)>,
        now: Time,
    ) -> Vec<(NodeId, Health)> {
        let settings = self.settings;
        let mut changes = Vec::new();
        for (node, was) in recorded {
            let pulse = self.nodes.entry(node).or_insert_with(|| Pulse::new(now));
            let is = pulse.judge(was, settings, now);
            if is != was {
                changes.push((node, is));
            }
        }
        changes
    }
}

impl Pulse {
    fn new(now: Time) -> Self {
        Self { last_beat: now, beats_in_row: 0, beats_needed: RECOVERY_BEATS, up_since: now }
    }

    fn judge(&mut self, was: Health, settings: HealthSettings, now: Time) -> Health {
        let silent = now.since(self.last_beat);
        let overdue = if silent >= settings.interval * settings.down_misses {
            Some(Health::Down)
        } else if silent >= settings.interval * settings.suspect_misses {
            Some(Health::Suspect)
        } else {
            None
        };
        match (was, overdue) {
            (Health::Up, Some(worse)) => {
                if now.since(self.up_since) >= TRUST_AFTER {
                    self.beats_needed = RECOVERY_BEATS;
                } else {
                    self.beats_needed = (self.beats_needed * 2).min(RECOVERY_BEATS_MAX);
                }
                worse
            }
            (Health::Suspect, Some(Health::Down)) => Health::Down,
            (Health::Suspect | Health::Down, None) if self.beats_in_row >= self.beats_needed => {
                self.up_since = now;
                Health::Up
            }
            (Health::Up | Health::Suspect | Health::Down, _) => was,
        }
    }
}
