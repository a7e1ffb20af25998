//! The fewest copies that lead from one ring to the loads of another, found in a way of its own: as
//! a flow of least cost. Slow, and exact.

use std::collections::VecDeque;

use crate::{Balance, NodeId, Ring, Zone};

/// Less than any sum of moves: makes the flow fill what every zone has to hold.
const MUST: i64 = -1_000_000;

/// The number of copies that some node has to receive on the way from `base` to *any* ring in which
/// each node has as many copies as in `target` and each zone as many of a partition as it may.
pub(super) fn least_moves(base: &Ring, target: &Ring) -> u64 {
    let nodes = target.nodes();
    let partitions = target.partition_bits().count() as usize;
    let mut zones: Vec<&Zone> = nodes.iter().map(|node| &node.zone).collect();
    zones.sort_unstable();
    zones.dedup();
    let zone_of =
        |node: usize| zones.binary_search(&&nodes[node].zone).expect("collected from these");
    let sizes: Vec<usize> = (0..zones.len())
        .map(|zone| (0..nodes.len()).filter(|node| zone_of(*node) == zone).count())
        .collect();
    let owners = target.owners_per_partition();
    let rounds = (0..).find(|rounds| copies_of_rounds(&sizes, rounds + 1) > owners).unwrap_or(0);
    let has_extras = copies_of_rounds(&sizes, rounds) < owners;

    // Source, sink, nodes; then for each partition itself and its part in each zone.
    let at_node = |node: usize| 2 + node;
    let at_partition = |partition: usize| 2 + nodes.len() + partition * (1 + zones.len());
    let mut flow = Flow::new(at_partition(partitions));
    let mut forced = 0;
    for partition in base.partition_bits().partitions() {
        let here = at_partition(partition.as_usize());
        let before: Vec<NodeId> = base.owner_ids(partition).collect();
        flow.link(0, here, owners as i64, 0);
        for (zone, size) in sizes.iter().enumerate() {
            flow.link(here, here + 1 + zone, rounds.min(*size) as i64, MUST);
            forced += rounds.min(*size) as i64;
            if has_extras && *size > rounds {
                flow.link(here, here + 1 + zone, 1, 0);
            }
        }
        for (number, node) in nodes.iter().enumerate() {
            let moves = i64::from(!before.contains(&node.id));
            flow.link(here + 1 + zone_of(number), at_node(number), 1, moves);
        }
    }
    for load in Balance::of(target).nodes {
        let number = nodes.iter().position(|node| node.id == load.id).unwrap();
        flow.link(at_node(number), 1, i64::from(load.copies), 0);
    }
    let (carried, cost) = flow.run();
    assert_eq!(carried, (partitions * owners) as i64, "the loads are those of a legal ring");
    u64::try_from(cost - forced * MUST).unwrap()
}

fn copies_of_rounds(sizes: &[usize], rounds: usize) -> usize {
    let all: usize = sizes.iter().map(|size| rounds.min(*size)).sum();
    if rounds > sizes.iter().copied().max().unwrap_or(0) { usize::MAX } else { all }
}

/// A network with capacities and costs. Links are kept in pairs, each the way back of the other.
struct Flow {
    links: Vec<Link>,
    from: Vec<Vec<usize>>,
}

struct Link {
    to: usize,
    room: i64,
    cost: i64,
}

impl Flow {
    fn new(places: usize) -> Self {
        Self { links: Vec::new(), from: vec![Vec::new(); places] }
    }

    fn link(&mut self, from: usize, to: usize, room: i64, cost: i64) {
        self.from[from].push(self.links.len());
        self.links.push(Link { to, room, cost });
        self.from[to].push(self.links.len());
        self.links.push(Link { to: from, room: 0, cost: -cost });
    }

    /// Fills the cheapest path from 0 to 1 until there is none. Answers the flow and its cost.
    fn run(&mut self) -> (i64, i64) {
        let (mut carried, mut cost) = (0, 0);
        while let Some(path) = self.cheapest_path() {
            let room = path.iter().map(|link| self.links[*link].room).min().unwrap();
            for link in path {
                self.links[link].room -= room;
                self.links[link ^ 1].room += room;
                cost += room * self.links[link].cost;
            }
            carried += room;
        }
        (carried, cost)
    }

    fn cheapest_path(&self) -> Option<Vec<usize>> {
        let mut distance = vec![i64::MAX; self.from.len()];
        let mut last_link = vec![None; self.from.len()];
        distance[0] = 0;
        let mut queue = VecDeque::from([0]);
        while let Some(place) = queue.pop_front() {
            for &link in &self.from[place] {
                let Link { to, room, cost } = self.links[link];
                if room > 0 && distance[place] + cost < distance[to] {
                    distance[to] = distance[place] + cost;
                    last_link[to] = Some(link);
                    if !queue.contains(&to) {
                        queue.push_back(to);
                    }
                }
            }
        }
        last_link[1]?;
        let backwards =
            std::iter::successors(last_link[1], |link: &usize| last_link[self.links[link ^ 1].to]);
        Some(backwards.collect())
    }
}
