//! The nemesis: what goes wrong, and when. Deeds end by themselves after a while.

use kvcore::group::{GroupSummary, Role};
use kvcore::{Event, GroupId};

use migration::{Move, Step};

use super::network::{Ambush, AmbushDeed, LateOrder};
use super::weather::{Deeds, MILLIS, SECONDS};
use super::world::{Asker, Happening, World};

#[derive(Clone, Copy, Debug)]
enum Deed {
    Kill,
    Power,
    PowerAll,
    Pause,
    PauseFollowers,
    WakeSleeper,
    Isolate,
    CutOneWay,
    Stall,
    Transfer,
    LateOrder,
    ForgetfulFollower,
    HandOver,
    LongAbsence,
    BreakCopy,
    KillJointLeader,
    PauseLeader,
    KillLeaderUnsynced,
    Lose,
    StrikeMove,
}

fn weights(deeds: &Deeds) -> [(u64, Deed); 20] {
    [
        (deeds.kill, Deed::Kill),
        (deeds.power, Deed::Power),
        (deeds.power_all, Deed::PowerAll),
        (deeds.pause, Deed::Pause),
        (deeds.pause_followers, Deed::PauseFollowers),
        (deeds.wake_sleeper, Deed::WakeSleeper),
        (deeds.isolate, Deed::Isolate),
        (deeds.cut_one_way, Deed::CutOneWay),
        (deeds.stall, Deed::Stall),
        (deeds.transfer, Deed::Transfer),
        (deeds.late_order, Deed::LateOrder),
        (deeds.forgetful_follower, Deed::ForgetfulFollower),
        (deeds.hand_over, Deed::HandOver),
        (deeds.long_absence, Deed::LongAbsence),
        (deeds.break_copy, Deed::BreakCopy),
        (deeds.kill_joint_leader, Deed::KillJointLeader),
        (deeds.pause_leader, Deed::PauseLeader),
        (deeds.kill_leader_unsynced, Deed::KillLeaderUnsynced),
        (deeds.lose, Deed::Lose),
        (deeds.strike_move, Deed::StrikeMove),
    ]
}

impl World {
    pub(super) fn nemesis(&mut self) {
        if self.clearing {
            return;
        }
        let wait = self.dice.within(&self.setup.weather.deed_every);
        self.after(wait, Happening::Nemesis);
        let weights = weights(&self.setup.weather.deeds);
        let total: u64 = weights.iter().map(|(weight, _)| weight).sum();
        if total == 0 {
            return;
        }
        let mut drawn = self.dice.within(&(0..total));
        for (weight, deed) in weights {
            if drawn < weight {
                self.commit_deed(deed);
                return;
            }
            drawn -= weight;
        }
    }

    fn commit_deed(&mut self, deed: Deed) {
        let downtime = self.dice.within(&self.setup.weather.downtime.clone());
        let any = self.dice.index(self.nodes.len());
        match deed {
            Deed::Kill => self.kill(any, downtime),
            Deed::Power => self.power_fails(any, downtime),
            Deed::PowerAll => {
                for node in 0..self.nodes.len() {
                    self.power_fails(node, downtime);
                }
            }
            Deed::Pause => {
                let length = self.dice.within(&(50 * MILLIS..5 * SECONDS));
                let one_by_one = self.dice.chance(500);
                self.pause(any, length, one_by_one);
            }
            Deed::PauseFollowers => self.pause_followers(),
            Deed::WakeSleeper => self.wake_sleeper(),
            Deed::Isolate => {
                let node = self.any_leader().map_or(any, |(node, _)| node);
                let until = self.now + self.dice.within(&(100 * MILLIS..3 * SECONDS));
                self.isolate(node, until);
            }
            Deed::CutOneWay => {
                let other = self.dice.index(self.nodes.len());
                let until = self.now + self.dice.within(&(100 * MILLIS..3 * SECONDS));
                if other != any {
                    self.counters.cuts += 1;
                    self.network.cut(any, other, until);
                }
            }
            Deed::Stall => {
                let length = self.dice.within(&(50 * MILLIS..3 * SECONDS));
                self.stall(any, length);
            }
            Deed::Transfer => self.transfer_somewhere(),
            Deed::LateOrder => self.late_order(),
            Deed::ForgetfulFollower => self.forgetful_follower(),
            Deed::HandOver => {
                self.tell(any, Event::HandOver);
                let at = self.dice.within(&(10 * MILLIS..500 * MILLIS));
                self.after(at, Happening::PowerFails { node: any, downtime });
            }
            Deed::LongAbsence => {
                let away = self.dice.within(&(2 * SECONDS..5 * SECONDS));
                self.power_fails(any, away);
                self.nodes[any].down_until = self.now + away;
            }
            Deed::BreakCopy => self.break_copy(downtime),
            Deed::KillJointLeader => self.kill_joint_leader(downtime),
            Deed::PauseLeader => {
                if let Some((leader, group)) = self.any_busy_leader() {
                    let length = self.dice.within(&(1600 * MILLIS..3 * SECONDS));
                    let deed = AmbushDeed::PauseLeader { length };
                    self.network.ambush =
                        Some(Ambush { from: leader, group, not_before: self.now, deed });
                }
            }
            Deed::StrikeMove => {
                let step = self.dice.index(Step::ALL.len());
                self.traps.step = Some(Step::ALL[step]);
            }
            Deed::Lose => {
                if !self.nodes[any].lost && self.may_lose(any) {
                    self.counters.nodes_lost += 1;
                    self.kill(any, downtime);
                    self.nodes[any].lost = true;
                }
            }
            Deed::KillLeaderUnsynced => {
                // Its syncs hang, its followers go on: then its power fails.
                if let Some((leader, _)) = self.any_leader() {
                    self.stall(leader, SECONDS);
                    let at = self.dice.within(&(MILLIS..100 * MILLIS));
                    self.after(at, Happening::PowerFails { node: leader, downtime });
                }
            }
        }
    }

    /// A group and the node that leads it.
    fn any_leader(&mut self) -> Option<(usize, GroupId)> {
        let mut led = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_running()) {
            let Some(process) = &node.process else { continue };
            for (group, seen) in &process.seen {
                if seen.role == Role::Leader {
                    led.push((number, *group));
                }
            }
        }
        self.dice.pick(&led).copied()
    }

    /// A partition that clients read and the node that leads it.
    fn any_busy_leader(&mut self) -> Option<(usize, GroupId)> {
        let key = self.dice.index(self.keys.len());
        let group = GroupId::of_partition(self.keys[key].partition);
        let leader = self.leader(group)?;
        self.nodes[leader].is_running().then_some((leader, group))
    }

    /// The running nodes that follow in a group.
    fn followers(&self, leader: usize, group: GroupId) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|node| {
                let process = self.nodes[*node].process.as_ref();
                *node != leader
                    && self.nodes[*node].is_running()
                    && process.is_some_and(|it| it.seen.contains_key(&group))
            })
            .collect()
    }

    fn isolate(&mut self, node: usize, until: u64) {
        self.counters.cuts += 1;
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.network.cut(node, other, until);
            self.network.cut(other, node, until);
        }
    }

    fn transfer_somewhere(&mut self) {
        let Some((leader, group)) = self.any_leader() else { return };
        let followers = self.followers(leader, group);
        let Some(to) = self.dice.pick(&followers).copied() else { return };
        self.transfer(leader, group, to);
    }

    /// Asks a leader to hand a group on.
    pub fn transfer(&mut self, leader: usize, group: GroupId, to: usize) {
        let to = self.nodes[to].id;
        self.ask(leader, group, Asker::Transfer, |reply| Event::TransferLeadership {
            group,
            to,
            reply,
        });
    }

    /// The order to campaign takes so long that the leader gives the transfer up and serves on;
    /// when it arrives, nothing reaches the old leader any more.
    fn late_order(&mut self) {
        let Some((leader, group)) = self.any_busy_leader() else { return };
        let followers = self.followers(leader, group);
        let Some(to) = self.dice.pick(&followers).copied() else { return };
        let delay = self.dice.within(&(150 * MILLIS..500 * MILLIS));
        self.network.late_order = Some(LateOrder { from: leader, delay });
        self.transfer(leader, group, to);
        let deaf_from = self.now + delay + self.dice.within(&(0..4 * MILLIS));
        let until = deaf_from + self.dice.within(&(300 * MILLIS..900 * MILLIS));
        for node in (0..self.nodes.len()).filter(|node| *node != leader) {
            self.at(deaf_from, Happening::Cut { from: node, to: leader, until });
        }
    }

    /// One follower hears nothing for a while and wants an election; as it asks for votes, the other
    /// restarts out of the leader's sight and has forgotten what it promised.
    fn forgetful_follower(&mut self) {
        let Some((leader, group)) = self.any_busy_leader() else { return };
        let mut followers = self.followers(leader, group);
        if followers.len() < 2 {
            return;
        }
        let chosen = self.dice.index(followers.len());
        let voter = followers.swap_remove(chosen);
        let until = self.now + 3 * SECONDS;
        self.network.no_appends = Some((leader, until));
        self.counters.cuts += 1;
        for eager in &followers {
            self.network.cut(leader, *eager, until);
            self.network.cut(*eager, leader, until);
        }
        let deed = AmbushDeed::RestartVoter { leader, voter };
        self.network.ambush =
            Some(Ambush { from: followers[0], group, not_before: self.now, deed });
    }

    /// One follower sleeps while the other confirms the leader's rounds; then the other hears no
    /// more, and the sleeper wakes to a round just when the other would elect it.
    fn wake_sleeper(&mut self) {
        let Some((leader, group)) = self.any_busy_leader() else { return };
        let mut followers = self.followers(leader, group);
        if followers.len() < 2 {
            return;
        }
        let chosen = self.dice.index(followers.len());
        let sleeper = followers.swap_remove(chosen);
        // Long enough for the ticks that it misses to be an election timeout of any rank.
        let not_before = self.now + 800 * MILLIS;
        self.network.no_appends = Some((leader, self.now + 3 * SECONDS));
        self.pause(sleeper, 3 * SECONDS, false);
        let delay = self.dice.within(&(720 * MILLIS..860 * MILLIS));
        let deed = AmbushDeed::WakeSleeper { deaf: followers[0], sleeper, delay };
        self.network.ambush = Some(Ambush { from: leader, group, not_before, deed });
    }

    /// The message that the nemesis waited for was sent.
    pub(super) fn ambush(&mut self, ambush: Ambush) {
        let now = self.now;
        let others = |world: &Self, node: usize| -> Vec<usize> {
            (0..world.nodes.len()).filter(|other| *other != node).collect()
        };
        match ambush.deed {
            AmbushDeed::PauseLeader { length } => {
                let leader = ambush.from;
                let deaf_from = now + self.dice.within(&(5 * MILLIS..60 * MILLIS));
                let until = now + length + self.dice.within(&(100 * MILLIS..800 * MILLIS));
                self.pause(leader, length, true);
                for node in others(self, leader) {
                    self.at(deaf_from, Happening::Cut { from: node, to: leader, until });
                }
            }
            AmbushDeed::WakeSleeper { deaf, sleeper, delay } => {
                let leader = ambush.from;
                let wakes = now + delay;
                let deaf_from = now + self.dice.within(&(4 * MILLIS..12 * MILLIS));
                let until = wakes + 600 * MILLIS;
                self.at(deaf_from, Happening::Cut { from: leader, to: deaf, until });
                self.at(deaf_from, Happening::Cut { from: deaf, to: leader, until });
                let incarnation = self.nodes[sleeper].incarnation;
                let node = sleeper;
                self.at(wakes, Happening::Resume { node, incarnation, one_by_one: false });
                self.at(wakes, Happening::Cut { from: leader, to: sleeper, until });
                let silent_from = wakes + self.dice.within(&(2 * MILLIS..6 * MILLIS));
                self.at(silent_from, Happening::Cut { from: sleeper, to: leader, until });
            }
            AmbushDeed::RestartVoter { leader, voter } => {
                let until = now + SECONDS;
                self.network.cut(leader, voter, until);
                self.network.cut(voter, leader, until);
                self.network.hold_votes = Some((voter, now + 8 * MILLIS));
                let downtime = self.dice.within(&(MILLIS..4 * MILLIS));
                self.at(now, Happening::PowerFails { node: voter, downtime });
            }
        }
    }

    /// All followers of a leader stop together and go on together; a moment later nothing of
    /// theirs reaches the leader.
    fn pause_followers(&mut self) {
        let Some((leader, group)) = self.any_leader() else { return };
        let length = self.dice.within(&(800 * MILLIS..1500 * MILLIS));
        let from = self.now + length + self.dice.within(&(2 * MILLIS..12 * MILLIS));
        let until = from + self.dice.within(&(300 * MILLIS..900 * MILLIS));
        for follower in self.followers(leader, group) {
            self.pause(follower, length, false);
        }
        for node in (0..self.nodes.len()).filter(|node| *node != leader) {
            self.at(from, Happening::Cut { from: node, to: leader, until });
        }
    }

    fn break_copy(&mut self, downtime: u64) {
        let mut ends = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(process) = &node.process else { continue };
            for copying in process.copying.values() {
                ends.push(number);
                ends.extend(self.nodes.iter().position(|it| it.id == copying.manifest.source));
            }
        }
        match self.dice.pick(&ends).copied() {
            Some(node) => self.power_fails(node, downtime),
            None => self.traps.copy = true,
        }
    }

    /// A copy began: whoever waits for one strikes one of its ends, a little later.
    pub(super) fn copy_began(&mut self, number: usize, source: placement::NodeId) {
        if self.clearing || !std::mem::take(&mut self.traps.copy) {
            return;
        }
        let source = self.number_of(source).unwrap_or(number);
        let node = if self.dice.chance(500) { source } else { number };
        let delay = self.dice.within(&self.setup.weather.chunk) * (1 + self.dice.index(6) as u64);
        let downtime = self.dice.within(&(10 * MILLIS..800 * MILLIS));
        self.after(delay, Happening::PowerFails { node, downtime });
    }

    /// A leader's configuration is joint: whoever waits for one strikes it, a little later.
    pub(super) fn joint_leader_seen(&mut self, number: usize, summary: &GroupSummary) {
        if self.clearing || !std::mem::take(&mut self.traps.joint) {
            return;
        }
        self.counters.joint_leaders_killed += 1;
        let now = &summary.configuration;
        let going: Vec<usize> = now
            .learners_next
            .iter()
            .filter_map(|id| self.number_of(now.node_of(*id)?))
            .filter(|node| *node != number)
            .collect();
        let last_words = self.dice.pick(&going).copied().filter(|_| self.dice.chance(600));
        let delay = match last_words {
            // Only one that is on its way out hears that the joint configuration is left: nobody
            // else can be elected, and it leads from outside for a moment.
            Some(hearer) => {
                let until = self.now + SECONDS;
                for other in (0..self.nodes.len()).filter(|it| ![number, hearer].contains(it)) {
                    self.network.cut(number, other, until);
                }
                self.dice.within(&(110 * MILLIS..250 * MILLIS))
            }
            None => self.dice.within(&(0..60 * MILLIS)),
        };
        let downtime = match last_words {
            Some(_) => 4 * SECONDS,
            None => self.dice.within(&(10 * MILLIS..2 * SECONDS)),
        };
        self.after(delay, Happening::PowerFails { node: number, downtime });
    }

    /// A move came to a step: whoever waits for it strikes some of those whom it needs.
    pub(super) fn step_seen(&mut self, it: &Move) {
        if self.clearing || self.traps.step.is_none() || self.traps.step != it.stage.step() {
            return;
        }
        self.traps.step = None;
        self.counters.moves_struck += 1;
        let group = GroupId::of_partition(it.partition);
        let member = |member: Option<migration::Member>| member.map(|it| it.node);
        let needed = [
            member(it.gain).and_then(|node| self.number_of(node)),
            member(it.lose).and_then(|node| self.number_of(node)),
            self.leader(group),
            self.leader(GroupId::CLUSTER),
        ];
        for node in needed.into_iter().flatten() {
            if self.dice.chance(450) {
                let delay = self.dice.within(&(0..150 * MILLIS));
                let downtime = self.dice.within(&(10 * MILLIS..4 * SECONDS));
                self.after(delay, Happening::PowerFails { node, downtime });
            }
        }
    }

    fn kill_joint_leader(&mut self, downtime: u64) {
        let mut joint = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(process) = &node.process else { continue };
            let leads = |role| role == Role::Leader;
            let summaries = process.core.summaries();
            if summaries.iter().any(|it| leads(it.role) && it.configuration.is_joint()) {
                joint.push(number);
            }
        }
        match self.dice.pick(&joint).copied() {
            Some(node) => {
                self.counters.joint_leaders_killed += 1;
                self.power_fails(node, downtime);
            }
            None => self.traps.joint = true,
        }
    }
}

/// What the nemesis waits for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traps {
    /// The next copy that begins.
    pub copy: bool,
    /// The next leader whose configuration is joint.
    pub joint: bool,
    /// The next move that comes to this step.
    pub step: Option<Step>,
}
