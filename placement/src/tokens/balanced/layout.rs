//! What an even assignment looks like: copies per partition and zone, and copies per node.

use super::super::quota::{Claim, Group, divide, divide_in_groups};
use super::{Node, Rows, node_seed, tie_break};
use crate::topology::{NodeSpec, ReplicationFactor};

/// The rules and the numbers that an assignment has to meet.
pub(super) struct Layout {
    pub(super) partitions: usize,
    /// The replication factor, or the number of nodes where there are fewer.
    pub(super) owners_per_partition: usize,
    pub(super) weights: Vec<u32>,
    pub(super) zone_of: Vec<usize>,
    pub(super) nodes_in_zone: Vec<Vec<Node>>,
    /// Copies that each partition has in a zone at least.
    pub(super) base: Vec<usize>,
    /// Whether a zone has nodes for one copy more than that.
    pub(super) may_have_extra: Vec<bool>,
    /// How many zones of each partition have that one copy more.
    pub(super) extras_per_partition: usize,
    /// Copies that each node should have.
    pub(super) quota: Vec<usize>,
    seeds: Vec<u64>,
}

impl Layout {
    pub(super) fn new(
        nodes: &[&NodeSpec],
        partitions: usize,
        replication_factor: ReplicationFactor,
        before: &Rows,
    ) -> Self {
        let mut zones: Vec<_> = nodes.iter().map(|node| &node.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        let zone_of: Vec<usize> = nodes
            .iter()
            .map(|node| zones.binary_search(&&node.zone).expect("collected from these nodes"))
            .collect();
        let mut nodes_in_zone = vec![Vec::new(); zones.len()];
        for (node, zone) in zone_of.iter().enumerate() {
            nodes_in_zone[*zone].push(node);
        }

        let owners_per_partition = replication_factor.as_usize().min(nodes.len());
        let (rounds, extras_per_partition) = full_rounds(&nodes_in_zone, owners_per_partition);
        let base: Vec<usize> = nodes_in_zone.iter().map(|nodes| nodes.len().min(rounds)).collect();
        let may_have_extra: Vec<bool> = nodes_in_zone
            .iter()
            .map(|nodes| extras_per_partition > 0 && nodes.len() > rounds)
            .collect();

        let mut layout = Self {
            partitions,
            owners_per_partition,
            weights: nodes.iter().map(|node| node.weight.get()).collect(),
            zone_of,
            nodes_in_zone,
            base,
            may_have_extra,
            extras_per_partition,
            quota: vec![0; nodes.len()],
            seeds: nodes.iter().map(|node| node_seed(node)).collect(),
        };
        layout.set_quotas(before);
        layout
    }

    /// A node holds a partition at most once, and a zone holds its base or one more of each.
    fn set_quotas(&mut self, before: &Rows) {
        let mut held = vec![0; self.quota.len()];
        for node in before.iter().flatten() {
            held[*node] += 1;
        }
        let group = |(zone, nodes): (usize, &Vec<Node>)| Group {
            claims: nodes
                .iter()
                .map(|&node| Claim {
                    weight: self.weights[node],
                    cap: self.partitions,
                    held: held[node],
                })
                .collect(),
            floor: self.partitions * self.base[zone],
            cap: self.partitions * (self.base[zone] + usize::from(self.may_have_extra[zone])),
        };
        let groups: Vec<Group> = self.nodes_in_zone.iter().enumerate().map(group).collect();
        let shares = divide_in_groups(self.partitions * self.owners_per_partition, &groups);
        for (nodes, shares) in self.nodes_in_zone.iter().zip(shares) {
            for (node, share) in nodes.iter().zip(shares) {
                self.quota[*node] = share;
            }
        }
    }

    /// Primaries that each node should have: by weight, and no more than it has copies.
    pub(super) fn primary_quotas(&self, copies: &[usize], held: &[usize]) -> Vec<usize> {
        let claims: Vec<Claim> = (0..self.nodes())
            .map(|node| Claim { weight: self.weights[node], cap: copies[node], held: held[node] })
            .collect();
        divide(self.partitions, &claims)
    }

    pub(super) fn nodes(&self) -> usize {
        self.quota.len()
    }

    pub(super) fn tie_break(&self, node: Node, partition: usize) -> u64 {
        tie_break(self.seeds[node], partition)
    }
}

/// Owners are chosen in rounds that take one node from every zone that has one left. Answers how
/// many rounds are complete and how many owners the last, incomplete one adds.
fn full_rounds(nodes_in_zone: &[Vec<Node>], owners: usize) -> (usize, usize) {
    let mut rounds = 0;
    let mut left = owners;
    loop {
        let zones = nodes_in_zone.iter().filter(|nodes| nodes.len() > rounds).count();
        if left < zones || left == 0 {
            return (rounds, left);
        }
        left -= zones;
        rounds += 1;
    }
}
