//! The ring rule, twice: for all partitions at once, and for one hash in the plainest way.

use crate::ids::NodeId;
use crate::ring::NodeIndex;
use crate::snapshot::{PackedToken, RingSnapshot};
use crate::tokens::Token;

/// The owners of every partition, one row after the other, and the length of a row.
pub(crate) fn partition_table(snapshot: &RingSnapshot) -> (Box<[NodeIndex]>, usize) {
    let tokens = snapshot.packed_tokens();
    let mut walker = Walker::new(snapshot);
    let row = walker.owners_per_partition;
    let partitions = snapshot.partition_bits().count() as usize;
    let mut table: Vec<NodeIndex> = Vec::with_capacity(partitions * row);
    let mut start = 0;
    let mut start_of_last_row = None;
    for partition in snapshot.partition_bits().partitions() {
        while start < tokens.len() && tokens[start].partition < partition {
            start += 1;
        }
        // Past the last token the walk begins at the first.
        let first = if start == tokens.len() { 0 } else { start };
        if start_of_last_row == Some(first) {
            table.extend_from_within(table.len() - row..);
        } else {
            table.extend(walker.walk(tokens, first));
            start_of_last_row = Some(first);
        }
    }
    (table.into_boxed_slice(), row)
}

struct Walker {
    /// Zone of each node, as a small number.
    zone_of: Vec<usize>,
    /// Entry k - 1: the number of zones with at least k nodes that have tokens.
    zones_with_nodes: Vec<usize>,
    owners_per_partition: usize,
    /// Owners chosen so far in each zone.
    used: Vec<usize>,
    /// Distance from the start of the walk, and node.
    chosen: Vec<(usize, NodeIndex)>,
}

impl Walker {
    fn new(snapshot: &RingSnapshot) -> Self {
        let nodes = snapshot.nodes();
        let mut zones: Vec<_> = nodes.iter().map(|node| &node.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        let zone_of: Vec<usize> = nodes
            .iter()
            .map(|node| zones.binary_search(&&node.zone).expect("collected from these nodes"))
            .collect();

        let mut has_tokens = vec![false; nodes.len()];
        for token in snapshot.packed_tokens() {
            has_tokens[token.node.as_usize()] = true;
        }
        let mut nodes_in_zone = vec![0_usize; zones.len()];
        for (node, _) in has_tokens.iter().enumerate().filter(|(_, has)| **has) {
            nodes_in_zone[zone_of[node]] += 1;
        }
        let largest = nodes_in_zone.iter().copied().max().unwrap_or(0);
        let zones_with_nodes =
            (1..=largest).map(|k| nodes_in_zone.iter().filter(|count| **count >= k).count());
        let zones_with_nodes: Vec<usize> = zones_with_nodes.collect();
        let node_count: usize = nodes_in_zone.iter().sum();
        Self {
            zone_of,
            zones_with_nodes,
            owners_per_partition: snapshot.replication_factor().as_usize().min(node_count),
            used: vec![0; zones.len()],
            chosen: Vec::new(),
        }
    }

    /// Each round ends as soon as it cannot find more, so that a ring with few zones is not walked
    /// to its end for every partition.
    fn walk(&mut self, tokens: &[PackedToken], first: usize) -> impl Iterator<Item = NodeIndex> {
        self.used.fill(0);
        self.chosen.clear();
        for (round, zones) in self.zones_with_nodes.iter().enumerate() {
            let wanted = (self.chosen.len() + zones).min(self.owners_per_partition);
            let clockwise = tokens[first..].iter().chain(&tokens[..first]);
            for (distance, token) in clockwise.enumerate() {
                if self.chosen.len() == wanted {
                    break;
                }
                let zone = self.zone_of[token.node.as_usize()];
                if self.used[zone] <= round && !self.chosen.iter().any(|(_, n)| *n == token.node) {
                    self.used[zone] += 1;
                    self.chosen.push((distance, token.node));
                }
            }
        }
        self.chosen.sort_unstable();
        self.chosen.iter().map(|(_, node)| *node)
    }
}

/// The rule as it is written down, for one hash.
pub(super) fn owners_of_hash(snapshot: &RingSnapshot, hash: u64) -> Vec<NodeId> {
    let zone_of = |id: NodeId| &snapshot.topology().get(id).expect("tokens name members").zone;
    let before = |token: &Token| token.position < hash;
    let clockwise =
        || snapshot.tokens().skip_while(before).chain(snapshot.tokens().take_while(before));

    let mut chosen: Vec<(usize, NodeId)> = Vec::new();
    for owners_per_zone in 1..=snapshot.replication_factor().as_usize() {
        for (distance, token) in clockwise().enumerate() {
            if chosen.len() == snapshot.replication_factor().as_usize() {
                break;
            }
            let zone = zone_of(token.node);
            let in_zone = chosen.iter().filter(|(_, id)| zone_of(*id) == zone).count();
            let is_new = chosen.iter().all(|(_, id)| *id != token.node);
            if is_new && in_zone < owners_per_zone {
                chosen.push((distance, token.node));
            }
        }
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, id)| id).collect()
}
