//! Handing units (copies or primaries) from node to node until each has its number.

use std::collections::VecDeque;

use super::Node;

/// Units of partitions, each held by a node, that can be handed on one at a time.
pub(super) trait Units {
    /// Number of nodes.
    fn nodes(&self) -> usize;
    /// The number of units that a node holds.
    fn held(&self, node: Node) -> usize;
    /// The number of units that a node should hold.
    fn quota(&self, node: Node) -> usize;
    /// The partitions whose unit a node may hand on, the one to hand on first at the end. May name
    /// partitions whose unit the node has handed on already.
    fn partitions_of(&self, node: Node) -> &[usize];
    /// Adds to `takers` those `among` the nodes that may take a partition's unit from this holder:
    /// none if it does not hold the unit any more.
    fn takers(&self, partition: usize, holder: Node, among: &[Node], takers: &mut Vec<Node>);
    /// Whether the two compete for the same units, as nodes of one zone do. Units are handed on
    /// among these first: a unit that leaves the zone makes another come in.
    fn are_close(&self, holder: Node, taker: Node) -> bool;
    /// By how many moves there are more when a unit is handed on to a node that may take it: a unit
    /// moves when its node does not have it yet.
    fn moves_added(&self, partition: usize, holder: Node, taker: Node) -> i8;
    /// Hands a unit on to a node that may take it.
    fn hand_on(&mut self, partition: usize, holder: Node, taker: Node);
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
        Self { held: ((held << Self::JITTER_BITS) | jitter) + 1, quota }
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

/// Hands units on until no node above its quota can reach one below it.
pub(super) fn level(units: &mut impl Units) {
    for node in 0..units.nodes() {
        hand_to_any_below(units, node, true);
    }
    for node in 0..units.nodes() {
        hand_to_any_below(units, node, false);
    }
    for node in 0..units.nodes() {
        // Every chain makes a surplus or a deficit smaller, unless it crosses itself.
        let mut attempts = 2 * surplus(units, node);
        while surplus(units, node) > 0 && attempts > 0 {
            let Some(chain) = shortest_chain(units, node) else {
                break;
            };
            hand_along(units, &chain);
            attempts -= 1;
        }
    }
}

fn surplus(units: &impl Units, node: Node) -> usize {
    units.held(node).saturating_sub(units.quota(node))
}

fn deficit(units: &impl Units, node: Node) -> usize {
    units.quota(node).saturating_sub(units.held(node))
}

/// The emptiest of the nodes that are below their quota.
fn emptiest_below(units: &impl Units, nodes: &[Node]) -> Option<Node> {
    let below = nodes.iter().copied().filter(|&node| deficit(units, node) > 0);
    below.min_by_key(|&node| Fill::new(units.held(node), units.quota(node), 0))
}

/// Nearly all that has to be done: hands a node's surplus to nodes below their quota, in one pass
/// over its partitions.
fn hand_to_any_below(units: &mut impl Units, holder: Node, close_only: bool) {
    let surplus = surplus(units, holder);
    let may_receive =
        |node: &Node| deficit(units, *node) > 0 && (!close_only || units.are_close(holder, *node));
    let receivers: Vec<Node> = (0..units.nodes()).filter(may_receive).collect();
    hand_to(units, holder, &receivers, surplus);
}

/// Hands at most so many units on to those of the receivers that are below their quota.
fn hand_to(units: &mut impl Units, holder: Node, receivers: &[Node], units_max: usize) {
    let mut left = units_max;
    if left == 0 || receivers.is_empty() {
        return;
    }
    let mut takers = Vec::new();
    for partition in units.partitions_of(holder).to_vec().into_iter().rev() {
        takers.clear();
        units.takers(partition, holder, receivers, &mut takers);
        if let Some(taker) = emptiest_below(units, &takers) {
            units.hand_on(partition, holder, taker);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// The shortest chain of nodes from one to any that is below its quota, each of which can hand a
/// unit to the next. Found breadth first.
fn shortest_chain(units: &impl Units, from: Node) -> Option<Vec<Node>> {
    let mut giver: Vec<Option<Node>> = vec![None; units.nodes()];
    let mut unreached: Vec<Node> = (0..units.nodes()).filter(|node| *node != from).collect();
    let mut queue = VecDeque::from([from]);
    let mut takers = Vec::new();
    while let Some(holder) = queue.pop_front() {
        for &partition in units.partitions_of(holder).iter().rev() {
            takers.clear();
            units.takers(partition, holder, &unreached, &mut takers);
            if takers.is_empty() {
                continue;
            }
            for &taker in &takers {
                giver[taker] = Some(holder);
                queue.push_back(taker);
            }
            if let Some(end) = emptiest_below(units, &takers) {
                let mut chain: Vec<Node> =
                    std::iter::successors(Some(end), |node| giver[*node]).collect();
                chain.reverse();
                return Some(chain);
            }
            unreached.retain(|&node| giver[node].is_none());
            if unreached.is_empty() {
                return None;
            }
        }
    }
    None
}

/// Hands on as many units as every link of the chain can carry, from the far end, so that no node
/// on the way is ever above what it has now and each is below its quota when its turn to take comes.
fn hand_along(units: &mut impl Units, chain: &[Node]) {
    let (Some(&first), Some(&last)) = (chain.first(), chain.last()) else {
        return;
    };
    let wanted = surplus(units, first).min(deficit(units, last));
    let links = chain.windows(2).map(|link| (link[0], link[1]));
    let carried = links.clone().map(|(holder, taker)| capacity(units, holder, taker, wanted)).min();
    for (holder, taker) in links.rev() {
        hand_to(units, holder, &[taker], carried.unwrap_or(0));
    }
}

/// How many units one node can hand to another, counted up to a limit.
fn capacity(units: &impl Units, holder: Node, taker: Node, limit: usize) -> usize {
    let mut takers = Vec::new();
    for &partition in units.partitions_of(holder).iter().rev() {
        units.takers(partition, holder, &[taker], &mut takers);
        if takers.len() == limit {
            break;
        }
    }
    takers.len()
}
