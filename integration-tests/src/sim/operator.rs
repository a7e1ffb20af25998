//! The operator: changes of membership by commands to group 0, as `kvctl` gives them.
//!
//! It stages, plans, applies, cancels, rolls back, pauses, throttles and ends graces, by what the
//! node that leads group 0 shows it; that may be old news, and then it is refused. Now and then two
//! of them act at once. It remembers nothing but whom it asked for what.

use std::sync::Arc;

use kvcore::cluster::{ClusterCommand, ClusterState, PlanOrder, SettingsChange, rollback_order};
use kvcore::{Event, GroupId};
use placement::{Change, NodeId, NodeSpec, NodeState, RingPlan, Weight};

use super::cast::registration;
use super::weather::MILLIS;
use super::world::{Asker, Happening, World};

/// What the operator waits for an answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A node enters the directory.
    Register(usize),
    /// A plan is applied.
    Apply,
    /// One of two plans that are applied at once.
    Duel(u64),
    /// Anything else.
    Other,
}

/// The most weight that a node is given.
const WEIGHT_MAX: u64 = 3;

/// What is asked for when copies are to be slow, or not to be at all.
const THROTTLES: [u64; 4] = [0, 1 << 10, 1 << 20, 32 << 20];

impl World {
    pub(super) fn operator_acts(&mut self) {
        if self.clearing {
            return;
        }
        let wait = self.dice.within(&self.setup.weather.order_every);
        self.after(wait, Happening::Operator);
        let Some((leader, view)) = self.group0_leader() else { return };
        self.register_missing(leader, &view);
        match self.dice.index(20) {
            0..9 => self.go_on(leader, &view),
            9..11 => self.repair(leader, &view),
            11 => self.stop_plan(leader, &view),
            12..14 => self.roll_back(leader, &view),
            14..16 => self.end_graces(leader, &view),
            16 => self.pause_plans(leader, &view),
            17 => self.configure(leader),
            18 => self.duel(leader, &view),
            _ => self.wipe_somebody(&view),
        }
    }

    /// What is needed for everything to end, once the weather has cleared.
    pub(super) fn finish_plans(&mut self) {
        let Some((leader, view)) = self.group0_leader() else { return };
        self.register_missing(leader, &view);
        self.end_graces(leader, &view);
        let paused: Vec<_> =
            view.plans.iter().filter(|plan| plan.paused && !plan.is_over()).collect();
        for plan in paused {
            self.order(leader, ClusterCommand::Pause { plan: plan.id, paused: false });
        }
        if view.settings.copy.bytes_per_second < THROTTLES[3] {
            let change = SettingsChange {
                copy_bytes_per_second: Some(THROTTLES[3]),
                ..SettingsChange::default()
            };
            self.order(leader, ClusterCommand::Configure(change));
        }
        self.repair(leader, &view);
    }

    /// Nodes that the directory does not know ask to be entered.
    pub fn register_spares(&mut self) {
        if let Some((leader, view)) = self.group0_leader() {
            self.register_missing(leader, &view);
        }
    }

    /// The running node that leads group 0, and its view.
    fn group0_leader(&self) -> Option<(usize, Arc<ClusterState>)> {
        let (leader, _) = self.leader_of(GroupId::CLUSTER)?;
        self.view_of(leader).map(|view| (leader, view))
    }

    /// The view in force on a node.
    #[must_use]
    pub fn view_of(&self, node: usize) -> Option<Arc<ClusterState>> {
        self.nodes[node].process.as_ref()?.core.view().cloned()
    }

    /// Asks group 0's leader for a command; what comes of it shows in its state.
    pub fn order(&mut self, leader: usize, command: ClusterCommand) -> u64 {
        self.errand(leader, Errand::Other, command)
    }

    fn errand(&mut self, leader: usize, errand: Errand, command: ClusterCommand) -> u64 {
        self.ask(leader, GroupId::CLUSTER, Asker::Operator(errand), |reply| Event::Cluster {
            command,
            reply,
        })
    }

    /// Nodes that run and that the directory does not know ask to be entered.
    fn register_missing(&mut self, leader: usize, view: &ClusterState) {
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let barred = view.departed.get(&node.id).is_some_and(|it| it.is_lost);
            if node.is_running() && !barred && !view.nodes.contains_key(&node.id) {
                let command = ClusterCommand::Register(registration(number, node.id, &self.setup));
                self.errand(leader, Errand::Register(number), command);
            }
        }
    }

    /// Stages something, or applies what is staged.
    fn go_on(&mut self, leader: usize, view: &ClusterState) {
        if view.draft.is_empty() {
            let changes = self.draw_changes(view);
            for change in &changes {
                self.order(leader, ClusterCommand::Stage(change.clone()));
            }
            if self.dice.chance(500) {
                self.apply(leader, view, &changes, Errand::Apply);
            }
        } else if !self.apply(leader, view, &view.draft, Errand::Apply) || self.dice.chance(50) {
            self.order(leader, ClusterCommand::ClearDraft);
        }
    }

    /// Makes a plan of changes and applies it. Returns whether there is such a plan.
    fn apply(
        &mut self,
        leader: usize,
        view: &ClusterState,
        changes: &[Change],
        errand: Errand,
    ) -> bool {
        match placement::plan(&view.ring, changes, &view.settings.rules()) {
            // To go down to few owners just as one of them is lost takes its majority from a group.
            Ok(plan) if self.names_lost(&plan) && plan.target.owners_per_partition() < 3 => true,
            Ok(plan) => {
                let order = PlanOrder::of(&plan, self.now / MILLIS);
                self.errand(leader, errand, ClusterCommand::Apply(Box::new(order)));
                true
            }
            Err(_) => {
                self.counters.plans_refused_by_the_planner += 1;
                false
            }
        }
    }

    fn names_lost(&self, plan: &RingPlan) -> bool {
        let target = plan.target.snapshot().topology();
        self.nodes.iter().any(|node| node.lost && target.get(node.id).is_some())
    }

    /// Changes that name each node at most once.
    fn draw_changes(&mut self, view: &ClusterState) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..=self.dice.index(2) {
            let change = self.draw_change(view);
            let named: Vec<NodeId> = changes.iter().flat_map(Change::nodes).collect();
            changes.extend(change.filter(|it| it.nodes().all(|node| !named.contains(&node))));
        }
        changes
    }

    fn draw_change(&mut self, view: &ClusterState) -> Option<Change> {
        let members: Vec<NodeId> = view.ring.nodes().iter().map(|node| node.id).collect();
        let spares: Vec<NodeId> =
            view.nodes.keys().filter(|node| !members.contains(node)).copied().collect();
        let member = self.dice.pick(&members).copied();
        let spare = self.dice.pick(&spares).copied();
        match self.dice.index(20) {
            0..8 => spare.map(|spare| Change::Join(spec(view, spare))),
            8..12 => member.map(Change::Drain),
            12..17 => {
                let new = spec(view, spare?);
                let same_zone = view.ring.nodes().iter().filter(|old| old.zone == new.zone);
                let olds: Vec<NodeId> = same_zone.map(|old| old.id).collect();
                self.dice.pick(&olds).map(|old| Change::Replace { old: *old, new })
            }
            17 => {
                // An operator's mistake: it lives. It is as lost as if it did not.
                self.counters.living_nodes_removed += 1;
                member.map(Change::Remove)
            }
            _ => {
                let weight = u32::try_from(1 + self.dice.within(&(0..WEIGHT_MAX))).ok()?;
                let weight = Weight::new(weight).ok()?;
                member.map(|node| Change::Reweight { node, weight })
            }
        }
    }

    /// Removes a node that will not come back, ahead of everything else.
    fn repair(&mut self, leader: usize, view: &ClusterState) {
        let in_ring = |id: NodeId| view.ring.topology().get(id).is_some();
        let coming = |id: NodeId| {
            view.plans.iter().any(|plan| plan.is_moving() && plan.topology.get(id).is_some())
        };
        let lost: Vec<NodeId> = self.nodes.iter().filter(|it| it.lost).map(|it| it.id).collect();
        let removed = |id: &NodeId| {
            view.plans.iter().any(|plan| plan.is_moving() && plan.lost().any(|it| it == *id))
        };
        let open: Vec<NodeId> = lost.into_iter().filter(|id| !removed(id)).collect();
        if let Some(id) = open.iter().copied().find(|id| in_ring(*id)) {
            let change = Change::Remove(id);
            if view.draft != [change.clone()] {
                self.order(leader, ClusterCommand::ClearDraft);
                self.order(leader, ClusterCommand::Stage(change.clone()));
            }
            self.apply(leader, view, &[change], Errand::Apply);
        } else if open.iter().any(|id| coming(*id)) {
            self.stop_plan(leader, view);
        } else if let Some(id) = open.into_iter().find(|id| view.nodes.contains_key(id)) {
            self.order(leader, ClusterCommand::GiveUp(id));
        } else if self.clearing && !view.draft.is_empty() {
            self.order(leader, ClusterCommand::ClearDraft);
        }
    }

    fn stop_plan(&mut self, leader: usize, view: &ClusterState) {
        if let Some(plan) = view.plans.iter().find(|plan| plan.is_moving()) {
            let at_ms = self.now / MILLIS;
            self.order(leader, ClusterCommand::Cancel { plan: plan.id, at_ms });
        }
    }

    fn roll_back(&mut self, leader: usize, view: &ClusterState) {
        let Some(last) = view.last_plan() else { return };
        if let Ok(order) = rollback_order(view, last.id, self.now / MILLIS) {
            self.errand(leader, Errand::Apply, ClusterCommand::Apply(Box::new(order)));
        }
    }

    fn end_graces(&mut self, leader: usize, view: &ClusterState) {
        let open = |plan: &&migration::Plan| !plan.is_over() && !plan.is_moving();
        let plans: Vec<_> = view.plans.iter().filter(open).filter(|it| !it.grace_ended).collect();
        for plan in plans {
            self.order(leader, ClusterCommand::EndGrace { plan: plan.id });
        }
    }

    fn pause_plans(&mut self, leader: usize, view: &ClusterState) {
        if let Some(plan) = view.plans.iter().find(|plan| !plan.is_over()) {
            self.order(leader, ClusterCommand::Pause { plan: plan.id, paused: !plan.paused });
        }
    }

    fn configure(&mut self, leader: usize) {
        let throttle = self.dice.index(2 * THROTTLES.len());
        let change = SettingsChange {
            copy_bytes_per_second: Some(THROTTLES[throttle.min(THROTTLES.len() - 1)]),
            moves_per_node: Some(u32::try_from(1 + self.dice.index(4)).unwrap_or(1)),
            grace_ms: Some(self.dice.within(&(0..4000))),
        };
        self.order(leader, ClusterCommand::Configure(change));
    }

    /// Two operators apply two plans to one ring.
    fn duel(&mut self, leader: usize, view: &ClusterState) {
        let one = if view.draft.is_empty() { self.draw_changes(view) } else { view.draft.clone() };
        if view.draft.is_empty() {
            for change in &one {
                self.order(leader, ClusterCommand::Stage(change.clone()));
            }
        }
        self.duels += 1;
        let duel = Errand::Duel(self.duels);
        self.apply(leader, view, &one, duel);
        let other = self.draw_changes(view);
        if self.dice.chance(500) {
            self.order(leader, ClusterCommand::ClearDraft);
            for change in &other {
                self.order(leader, ClusterCommand::Stage(change.clone()));
            }
        }
        let second = if self.dice.chance(500) { other } else { one };
        // A repair goes ahead of a plan that was just taken.
        let repairs = second.iter().all(|change| matches!(change, Change::Remove(_)));
        self.apply(leader, view, &second, if repairs { Errand::Apply } else { duel });
    }

    /// Gives a node whose identity is barred an empty disk, with which it comes as another.
    fn wipe_somebody(&mut self, view: &ClusterState) {
        let barred = |number: &usize| {
            let id = self.nodes[*number].id;
            view.departed.get(&id).is_some_and(|it| it.is_lost) && !view.nodes.contains_key(&id)
        };
        let barred: Vec<usize> = (0..self.nodes.len()).filter(barred).collect();
        let Some(number) = self.dice.pick(&barred).copied() else { return };
        if self.still_names(self.nodes[number].id) {
            return;
        }
        self.kill(number, MILLIS);
        self.counters.nodes_wiped += 1;
        let node = &mut self.nodes[number];
        node.disk.wipe();
        node.lost = false;
        node.wipes += 1;
        node.id = super::cast::node_id(number, node.wipes);
        self.after(MILLIS, Happening::Start { node: number });
    }

    /// Whether a node may be lost for good: all groups, as they are and as they will be, keep a
    /// majority, and the loss before it is repaired.
    pub(super) fn may_lose(&self, number: usize) -> bool {
        let Some(state) = self.oracle.cluster() else { return false };
        let earlier = self.nodes.iter().filter(|node| node.lost);
        let repaired = |id: NodeId| !state.nodes.contains_key(&id) && !self.still_names(id);
        let id = self.nodes[number].id;
        let kept = |members: &[NodeId]| {
            let left = members.iter().filter(|node| **node != id).count();
            members.is_empty() || 2 * left > members.len()
        };
        // Few are left where the moves of a plan that runs lose owners and gain none.
        let will_be_kept = |group: GroupId| {
            let moves = state.open_moves().filter(|it| Some(it.partition) == group.partition());
            let (mut owners, mut going) = (state.members(group).to_vec(), Vec::new());
            for it in moves {
                owners.extend(it.gain);
                going.extend(it.lose);
            }
            owners.retain(|owner| !going.contains(owner));
            kept(&owners.iter().map(|owner| owner.node).collect::<Vec<_>>())
        };
        earlier.map(|node| node.id).all(repaired)
            && state.groups().all(will_be_kept)
            && state.groups().all(|group| {
                let owners: Vec<NodeId> =
                    state.members(group).iter().map(|member| member.node).collect();
                let Some(now) = self.oracle.configuration(group) else { return kept(&owners) };
                let nodes = |ids: &[kvcore::ReplicaId]| -> Vec<NodeId> {
                    ids.iter().filter_map(|id| now.node_of(*id)).collect()
                };
                kept(&owners) && kept(&nodes(&now.voters)) && kept(&nodes(&now.voters_outgoing))
            })
    }

    /// Whether some group's last committed configuration names a node.
    fn still_names(&self, id: NodeId) -> bool {
        self.founding.groups().any(|group| {
            let last = self.oracle.configuration(group);
            last.is_some_and(|last| last.members.iter().any(|member| member.node == id))
        })
    }
}

/// How a registered node would join.
#[must_use]
pub fn spec(view: &ClusterState, node: NodeId) -> NodeSpec {
    let registration = &view.nodes[&node].registration;
    NodeSpec {
        id: node,
        name: registration.name.clone(),
        zone: registration.zone.clone(),
        weight: registration.weight,
        state: NodeState::Spare,
    }
}
