//! The ring beside other schemes, one copy per key: who owns it, and who owns it after a change.

use std::num::NonZeroU32;

use super::{Load, RingRules, Sample, SimulateError, Tally};
use crate::alternatives::{FixedTable, jump, modulo, rendezvous, weighted_rendezvous};
use crate::ids::NodeId;
use crate::ring::Ring;
use crate::tokens::TokenPolicy;
use crate::topology::{NodeSpec, ReplicationFactor, Topology, Weight};

/// A way to place keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Hash modulo the number of nodes.
    Modulo,
    /// The ring with pseudo-random tokens.
    RingRandom,
    /// The ring with allocated tokens.
    RingBalanced,
    /// The node with the highest hash of key and node.
    Rendezvous,
    /// The same with the score -w / ln(u).
    WeightedRendezvous,
    /// Jump consistent hash.
    Jump,
    /// A fixed number of partitions and a table of their owners.
    FixedTable,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Modulo,
        Self::RingRandom,
        Self::RingBalanced,
        Self::Rendezvous,
        Self::WeightedRendezvous,
        Self::Jump,
        Self::FixedTable,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Modulo => "modulo",
            Self::RingRandom => "ring random",
            Self::RingBalanced => "ring balanced",
            Self::Rendezvous => "rendezvous",
            Self::WeightedRendezvous => "weighted rendezvous",
            Self::Jump => "jump",
            Self::FixedTable => "fixed table",
        }
    }

    /// Why it cannot give nodes shares by weight, if it cannot.
    pub const fn refuses_weights(self) -> Option<&'static str> {
        match self {
            Self::Modulo => Some("modulo counts buckets and knows no weights"),
            Self::Rendezvous => Some("plain rendezvous scores every node alike"),
            Self::Jump => Some("jump counts buckets and knows no weights"),
            Self::RingRandom | Self::RingBalanced | Self::WeightedRendezvous | Self::FixedTable => {
                None
            }
        }
    }

    /// Why it cannot let a node go that is not the last of the list, if it cannot.
    pub const fn refuses_removal(self) -> Option<&'static str> {
        match self {
            Self::Jump => Some("jump removes only the last bucket"),
            Self::Modulo
            | Self::RingRandom
            | Self::RingBalanced
            | Self::Rendezvous
            | Self::WeightedRendezvous
            | Self::FixedTable => None,
        }
    }
}

/// A strategy over a list of nodes, ready to place keys.
#[derive(Debug, Clone)]
pub struct Placer {
    members: Vec<NodeId>,
    scheme: Scheme,
}

#[derive(Debug, Clone)]
enum Scheme {
    Modulo(NonZeroU32),
    Ring(Box<Sole>),
    Rendezvous,
    WeightedRendezvous(Vec<(NodeId, Weight)>),
    Jump(NonZeroU32),
    FixedTable(FixedTable),
}

/// A ring of one copy.
#[derive(Debug, Clone)]
struct Sole {
    ring: Ring,
    policy: TokenPolicy,
    /// The place among the members of each of the ring's nodes.
    place_of: Vec<u16>,
}

impl Placer {
    /// Places keys on these nodes. Rings follow the rules, with one copy and the strategy's policy.
    pub fn new(
        strategy: Strategy,
        nodes: &[NodeSpec],
        rules: &RingRules,
    ) -> Result<Self, SimulateError> {
        let members: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let scheme = match strategy {
            Strategy::Modulo => Scheme::Modulo(count(&members)?),
            Strategy::Jump => Scheme::Jump(count(&members)?),
            Strategy::Rendezvous => Scheme::Rendezvous,
            Strategy::WeightedRendezvous => Scheme::WeightedRendezvous(weighted(nodes)),
            Strategy::RingRandom => sole_ring(nodes, &members, rules, TokenPolicy::Random, None)?,
            Strategy::RingBalanced => {
                sole_ring(nodes, &members, rules, TokenPolicy::Balanced, None)?
            }
            Strategy::FixedTable => {
                count(&members)?;
                Scheme::FixedTable(FixedTable::weighted(rules.partition_bits, &weights(nodes)))
            }
        };
        Ok(Self { members, scheme })
    }

    /// The placer after one more node came to the end of the list.
    pub fn grown(&self, nodes: &[NodeSpec], rules: &RingRules) -> Result<Self, SimulateError> {
        self.followed(nodes, rules, |table| table.dealt_anew(&weights(nodes)))
    }

    /// The placer after the node at a place went. `nodes` are those that are left, in their order.
    pub fn shrunk(
        &self,
        nodes: &[NodeSpec],
        place: u32,
        rules: &RingRules,
    ) -> Result<Self, SimulateError> {
        self.followed(nodes, rules, |table| table.without(place, &weights(nodes)))
    }

    fn followed(
        &self,
        nodes: &[NodeSpec],
        rules: &RingRules,
        table_after: impl Fn(&FixedTable) -> FixedTable,
    ) -> Result<Self, SimulateError> {
        let members: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let buckets = count(&members)?;
        let scheme = match &self.scheme {
            Scheme::Modulo(_) => Scheme::Modulo(buckets),
            Scheme::Jump(_) => Scheme::Jump(buckets),
            Scheme::Rendezvous => Scheme::Rendezvous,
            Scheme::WeightedRendezvous(_) => Scheme::WeightedRendezvous(weighted(nodes)),
            Scheme::FixedTable(before) => Scheme::FixedTable(table_after(before)),
            Scheme::Ring(sole) => sole_ring(nodes, &members, rules, sole.policy, Some(&sole.ring))?,
        };
        Ok(Self { members, scheme })
    }

    /// The place in [`Placer::members`] of the node that owns a hash.
    #[inline]
    pub fn place(&self, hash: u64) -> usize {
        const NODES: &str = "a placer has at least one node";
        match &self.scheme {
            Scheme::Modulo(buckets) => modulo(hash, *buckets) as usize,
            Scheme::Jump(buckets) => jump(hash, *buckets) as usize,
            Scheme::Rendezvous => rendezvous(hash, &self.members).expect(NODES),
            Scheme::WeightedRendezvous(nodes) => weighted_rendezvous(hash, nodes).expect(NODES),
            Scheme::FixedTable(table) => table.bucket(hash) as usize,
            Scheme::Ring(sole) => {
                let partition = sole.ring.partition_bits().partition_of(hash);
                usize::from(sole.place_of[sole.ring.owners(partition)[0].as_usize()])
            }
        }
    }

    /// The node that owns a hash.
    pub fn owner(&self, hash: u64) -> NodeId {
        self.members[self.place(hash)]
    }

    /// The nodes, in the order of their list.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Bytes that a lookup needs at hand, the list of nodes aside.
    pub fn memory_bytes(&self) -> usize {
        match &self.scheme {
            Scheme::Modulo(buckets) | Scheme::Jump(buckets) => size_of_val(buckets),
            Scheme::Rendezvous => size_of_val(&*self.members),
            Scheme::WeightedRendezvous(nodes) => size_of_val(&**nodes),
            Scheme::FixedTable(table) => size_of_val(table.buckets()),
            Scheme::Ring(sole) => sole.ring.memory_bytes(),
        }
    }
}

fn count(members: &[NodeId]) -> Result<NonZeroU32, SimulateError> {
    let count = u32::try_from(members.len()).ok().and_then(NonZeroU32::new);
    count.ok_or(SimulateError::Placement(crate::PlacementError::NoNodes))
}

fn weights(nodes: &[NodeSpec]) -> Vec<Weight> {
    nodes.iter().map(|node| node.weight).collect()
}

fn weighted(nodes: &[NodeSpec]) -> Vec<(NodeId, Weight)> {
    nodes.iter().map(|node| (node.id, node.weight)).collect()
}

fn sole_ring(
    nodes: &[NodeSpec],
    members: &[NodeId],
    rules: &RingRules,
    policy: TokenPolicy,
    previous: Option<&Ring>,
) -> Result<Scheme, SimulateError> {
    let one = ReplicationFactor::new(1)?;
    let rules = RingRules { replication_factor: one, policy, ..*rules };
    let ring = rules.ring(Topology::new(nodes.to_vec())?, previous)?;
    let place = |node: &NodeSpec| {
        let place = members.iter().position(|member| *member == node.id);
        u16::try_from(place.expect("the ring has the members and no others"))
            .expect("a topology holds at most NODES_MAX nodes")
    };
    let place_of = ring.nodes().iter().map(place).collect();
    Ok(Scheme::Ring(Box::new(Sole { ring, policy, place_of })))
}

/// What one strategy does with a stream of keys, before and after a change.
#[derive(Debug, Clone)]
pub struct Comparison<'a> {
    before: &'a Placer,
    after: &'a Placer,
    /// The node that comes or goes.
    changed: NodeId,
    /// What each member has before, by its place.
    pub loads: Vec<Load>,
    /// What has another owner afterwards.
    pub moved: Load,
    /// The part of `moved` that goes between two nodes that are there before and after, which no
    /// change of membership calls for.
    pub moved_between_others: Load,
}

impl<'a> Comparison<'a> {
    /// Nothing counted yet. `changed` is the node that only one of the two has.
    pub fn new(before: &'a Placer, after: &'a Placer, changed: NodeId) -> Self {
        Self {
            before,
            after,
            changed,
            loads: vec![Load::default(); before.members.len()],
            moved: Load::default(),
            moved_between_others: Load::default(),
        }
    }
}

impl Tally for Comparison<'_> {
    fn add(&mut self, sample: &Sample) {
        let place = self.before.place(sample.hash);
        self.loads[place] += sample.load;
        let (from, to) = (self.before.members[place], self.after.owner(sample.hash));
        if from != to {
            self.moved += sample.load;
            if from != self.changed && to != self.changed {
                self.moved_between_others += sample.load;
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (load, more) in self.loads.iter_mut().zip(other.loads) {
            *load += more;
        }
        self.moved += other.moved;
        self.moved_between_others += other.moved_between_others;
    }
}

/// What a strategy gives to each member.
#[derive(Debug, Clone)]
pub struct Shares<'a> {
    placer: &'a Placer,
    /// By the place of the member.
    pub loads: Vec<Load>,
}

impl<'a> Shares<'a> {
    /// Nothing counted yet.
    pub fn new(placer: &'a Placer) -> Self {
        Self { placer, loads: vec![Load::default(); placer.members.len()] }
    }
}

impl Tally for Shares<'_> {
    fn add(&mut self, sample: &Sample) {
        self.loads[self.placer.place(sample.hash)] += sample.load;
    }

    fn merge(&mut self, other: Self) {
        for (load, more) in self.loads.iter_mut().zip(other.loads) {
            *load += more;
        }
    }
}
