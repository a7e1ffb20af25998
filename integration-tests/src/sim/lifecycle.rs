//! Processes: started, stopped for a while, ended with what was durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kvcore::{Core, CoreConfig, Event};

use super::node::Process;
use super::report::Violation;
use super::weather::MILLIS;
use super::world::{Happening, World};

impl World {
    /// Stops a process for a while.
    pub fn pause(&mut self, node: usize, length: u64, one_by_one: bool) {
        if !self.nodes[node].is_running() {
            return;
        }
        self.counters.pauses += 1;
        self.nodes[node].backlog = Some(VecDeque::new());
        let incarnation = self.nodes[node].incarnation;
        self.after(length, Happening::Resume { node, incarnation, one_by_one });
    }

    pub(super) fn resume(
        &mut self,
        node: usize,
        incarnation: u64,
        one_by_one: bool,
    ) -> Result<(), Violation> {
        if self.nodes[node].incarnation != incarnation {
            return Ok(());
        }
        let Some(backlog) = self.nodes[node].backlog.take() else { return Ok(()) };
        if let Some(process) = &mut self.nodes[node].process {
            process.turn_at = None;
        }
        for happening in backlog {
            // The turn that it slept through is the next one, which sees all its mail.
            self.happens(happening)?;
            if one_by_one && self.nodes[node].process.is_some() {
                self.turn(node)?;
            }
        }
        self.schedule_turn(node, 0);
        Ok(())
    }

    /// The process of a node, if it is still the one that something was meant for.
    pub(super) fn process(&mut self, node: usize, incarnation: u64) -> Option<&mut Process> {
        let node = &mut self.nodes[node];
        node.process.as_mut().filter(|_| node.incarnation == incarnation)
    }

    /// Starts a node, unless it runs.
    ///
    /// # Errors
    /// The invariant that what is on its disk breaks.
    pub fn start(&mut self, number: usize) -> Result<(), Violation> {
        let node = &mut self.nodes[number];
        if node.process.is_some() || node.lost || self.now < node.down_until {
            return Ok(());
        }
        node.incarnation += 1;
        node.backlog = None;
        let config = CoreConfig {
            node: node.id,
            settings: self.setup.settings.clone(),
            faults: self.setup.faults,
            now: node.clock.local(self.now),
            unix_ms: self.now / MILLIS,
        };
        let boot = node.disk.boot();
        let has_view = boot.view.is_some();
        let mut effects = Vec::new();
        let core = Core::boot(config, boot, &mut effects);
        node.process = Some(Process {
            core,
            gates: BTreeMap::new(),
            inbox: Vec::new(),
            turn_at: None,
            sync_ends: self.now,
            copying: BTreeMap::new(),
            epoch: 0,
            seen: BTreeMap::new(),
        });
        self.note(1, &[number as u64]);
        self.carry_out_all(number, effects)?;
        self.audit_start(number)?;
        if !has_view {
            // A founder is told until its view is durable; a spare learns where the cluster is.
            let view = if self.founding.nodes.contains_key(&self.nodes[number].id) {
                Arc::clone(&self.founding)
            } else {
                self.oracle.cluster().cloned().unwrap_or_else(|| Arc::clone(&self.founding))
            };
            self.tell(number, Event::AdoptView(view));
        }
        self.schedule_turn(number, 0);
        Ok(())
    }

    /// Ends a process; `kept` of its unsynced batches survive. It starts again after a while.
    pub fn crash(&mut self, number: usize, kept: usize, downtime: u64) {
        let node = &mut self.nodes[number];
        let Some(process) = node.process.take() else { return };
        self.counters.snapshots_broken_off += process.copying.len() as u64;
        node.backlog = None;
        node.incarnation += 1;
        self.counters.crashes += 1;
        if node.disk.crash(kept) {
            self.counters.crashes_with_loss += 1;
        }
        let lost: Vec<u64> =
            self.asked.iter().filter(|(_, it)| it.node == number).map(|(id, _)| *id).collect();
        for request in lost {
            let asked = self.asked.remove(&request).expect("it was found");
            self.connection_lost(&asked);
        }
        self.note(2, &[number as u64, kept as u64]);
        self.after(downtime, Happening::Start { node: number });
    }

    /// Ends a process whose writes survive.
    pub fn kill(&mut self, number: usize, downtime: u64) {
        self.crash(number, usize::MAX, downtime);
    }

    /// Fails a node's power: a random suffix of what it has not synced is lost.
    pub fn power_fails(&mut self, number: usize, downtime: u64) {
        let unsynced = self.nodes[number].disk.unsynced();
        let kept = self.dice.index(unsynced + 1);
        self.crash(number, kept, downtime);
    }
}
