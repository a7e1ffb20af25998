//! Handing units (copies or primaries) from node to node until each has its number.

use std::collections::VecDeque;

use super::Node;

/// Units of partitions, each held by a node, that can be handed on one at a time.
pub(super) trait Units {
    /// Number of nodes.
    fn nodes(&self) -> usize;
    /// The number of units that a node holds.
    fn held(&self, node: Node) -> usize;
    /// The partitions whose unit a node may hand on, the one to hand on first at the end.
    fn partitions_of(&self, node: Node) -> &[usize];
    /// The number of units that a node should hold.
    fn quota(&self, node: Node) -> usize;
    /// The nodes that may take a partition's unit from the node that holds it.
    fn takers(&self, partition: usize, holder: Node, takers: &mut Vec<Node>);
    /// Hands a unit on, if that is still allowed; answers whether it was.
    fn hand_on(&mut self, partition: usize, holder: Node, taker: Node) -> bool;
}

/// How full a node is, to be compared with others by [`Fill::cmp`].
///
/// Less than one unit of jitter is added to what it holds. Without it nodes whose quotas differ by
/// one would be chosen in the same order every time, and the same few would share partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    held: usize,
    quota: usize,
}

impl Fill {
    const JITTER_BITS: u32 = 16;

    pub(super) fn new(held: usize, quota: usize, jitter: u64) -> Self {
        let jitter = usize::from(jitter as u16);
        // At least one, so that a node with a quota of zero counts as fullest.
        Self {
            held: ((held << Self::JITTER_BITS) | jitter) + 1,
            quota,
        }
    }
}

impl Ord for Fill {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.held * other.quota).cmp(&(other.held * self.quota))
    }
}

impl PartialOrd for Fill {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Removes a partition from a node's list, usually near the end, where chains start.
pub(super) fn take_out(partitions: &mut Vec<usize>, partition: usize) {
    if let Some(place) = partitions.iter().rposition(|other| *other == partition) {
        partitions.remove(place);
    }
}

/// Hands units on until no node above its quota can reach one below it.
pub(super) fn level(units: &mut impl Units) {
    for node in 0..units.nodes() {
        let surplus = units
            .partitions_of(node)
            .len()
            .saturating_sub(units.quota(node));
        // A chain that crosses itself may fail half-way and take another attempt.
        let mut attempts = 2 * surplus;
        while units.held(node) > units.quota(node) && attempts > 0 {
            let Some(chain) = shortest_chain(units, node) else {
                break;
            };
            hand_along(units, &chain);
            attempts -= 1;
        }
    }
}

/// One link: the holder hands this partition's unit to the taker.
struct Link {
    partition: usize,
    holder: Node,
    taker: Node,
}

/// The shortest chain of links from a node to any that is below its quota, found breadth first.
fn shortest_chain(units: &impl Units, from: Node) -> Option<Vec<Link>> {
    let mut came_by: Vec<Option<(usize, Node)>> = vec![None; units.nodes()];
    let mut queue = VecDeque::from([from]);
    let mut takers = Vec::new();
    while let Some(holder) = queue.pop_front() {
        for &partition in units.partitions_of(holder).iter().rev() {
            takers.clear();
            units.takers(partition, holder, &mut takers);
            takers.retain(|&taker| taker != from && came_by[taker].is_none());
            for &taker in &takers {
                came_by[taker] = Some((partition, holder));
                queue.push_back(taker);
            }
            let below = takers
                .iter()
                .copied()
                .filter(|&taker| units.held(taker) < units.quota(taker));
            if let Some(end) =
                below.min_by_key(|&taker| Fill::new(units.held(taker), units.quota(taker), 0))
            {
                return Some(links(&came_by, from, end));
            }
        }
    }
    None
}

fn links(came_by: &[Option<(usize, Node)>], from: Node, end: Node) -> Vec<Link> {
    let mut chain = Vec::new();
    let mut taker = end;
    while taker != from {
        let (partition, holder) = came_by[taker].expect("every node of the chain was reached");
        chain.push(Link {
            partition,
            holder,
            taker,
        });
        taker = holder;
    }
    chain
}

/// From the far end, so that no node is ever above what it has now.
fn hand_along(units: &mut impl Units, chain: &[Link]) {
    for link in chain {
        if !units.hand_on(link.partition, link.holder, link.taker) {
            return;
        }
    }
}
