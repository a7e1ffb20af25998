//! Handing units round in circles, which changes no node's number, until fewer of them move.
//!
//! An assignment with the right numbers moves the fewest units exactly if no circle of nodes saves
//! any, each handing a unit to the next (Klein's cycle cancelling for flows of least cost). Circles
//! are found in a graph of the nodes alone. Two of their links may want the same partition in ways
//! that exclude each other; such circles are passed over, so the result is very near to the fewest,
//! not proven to be.

use super::Node;
use super::level::Units;

/// Moves that handing on one unit adds: -1, 0 or 1. `None` where nothing can be handed on.
type Cost = Option<i8>;

/// Hands units round while that saves moves.
pub(super) fn economize(units: &mut impl Units) {
    // Each round but the last saves at least one move: it ends.
    while save(units) {}
}

/// One round: whether it saved any move.
fn save(units: &mut impl Units) -> bool {
    let mut graph = Graph::of(units);
    let mut has_saved = false;
    // A link that cannot be carried out is made dearer. More of them than this are not worth the
    // time: they come of circles that exclude each other.
    let mut refusals_left = 4 * units.nodes();
    while let Some(circle) = graph.circle_that_saves() {
        match hand_round(units, &graph, &circle) {
            Ok(()) => has_saved = true,
            Err((holder, taker)) if refusals_left > 0 => {
                graph.raise(holder, taker);
                refusals_left -= 1;
            }
            Err(_) => break,
        }
    }
    has_saved
}

/// The least cost of handing a unit from one node to another, for all pairs.
struct Graph {
    nodes: usize,
    costs: Vec<Cost>,
}

impl Graph {
    fn of(units: &impl Units) -> Self {
        let nodes = units.nodes();
        let all: Vec<Node> = (0..nodes).collect();
        let mut graph = Self { nodes, costs: vec![None; nodes * nodes] };
        let mut takers = Vec::new();
        for holder in 0..nodes {
            for &partition in units.partitions_of(holder) {
                takers.clear();
                units.takers(partition, holder, &all, &mut takers);
                for &taker in &takers {
                    let cost = units.moves_added(partition, holder, taker);
                    let least = &mut graph.costs[holder * nodes + taker];
                    *least = Some(least.map_or(cost, |least| least.min(cost)));
                }
            }
        }
        graph
    }

    fn cost(&self, holder: Node, taker: Node) -> Cost {
        self.costs[holder * self.nodes + taker]
    }

    /// There is no unit of this cost to hand on any more: perhaps there is a dearer one.
    fn raise(&mut self, holder: Node, taker: Node) {
        let cost = &mut self.costs[holder * self.nodes + taker];
        *cost = cost.filter(|cost| *cost < 1).map(|cost| cost + 1);
    }

    /// A circle whose costs add up to less than nothing, first node first and not repeated at the
    /// end (Bellman and Ford, from all nodes at once).
    fn circle_that_saves(&self) -> Option<Vec<Node>> {
        if !self.costs.iter().flatten().any(|cost| *cost < 0) {
            return None;
        }
        let mut distance = vec![0_i32; self.nodes];
        let mut giver: Vec<Option<Node>> = vec![None; self.nodes];
        let mut last_improved = None;
        for _ in 0..=self.nodes {
            last_improved = None;
            for holder in 0..self.nodes {
                for taker in 0..self.nodes {
                    let Some(cost) = self.cost(holder, taker) else {
                        continue;
                    };
                    let reached = distance[holder] + i32::from(cost);
                    if reached < distance[taker] {
                        distance[taker] = reached;
                        giver[taker] = Some(holder);
                        last_improved = Some(taker);
                    }
                }
            }
            last_improved?;
        }
        // Improved even after as many rounds as there are nodes: its givers lead into a circle.
        let back = |node: Node| giver[node].expect("a node on a circle was given its distance");
        let on_circle = (0..self.nodes).fold(last_improved?, |node, _| back(node));
        let mut circle = vec![on_circle];
        let mut node = back(on_circle);
        while node != on_circle {
            circle.push(node);
            node = back(node);
        }
        circle.reverse();
        Some(circle)
    }
}

/// Hands one unit along each link of the circle at the cost that the graph names, or none at all and
/// answers the link that cannot carry any.
fn hand_round(units: &mut impl Units, graph: &Graph, circle: &[Node]) -> Result<(), (Node, Node)> {
    let mut done: Vec<(usize, Node, Node)> = Vec::with_capacity(circle.len());
    for (place, &holder) in circle.iter().enumerate() {
        let taker = circle[(place + 1) % circle.len()];
        let Some(partition) = unit_to_hand(units, graph.cost(holder, taker), holder, taker) else {
            for (partition, holder, taker) in done.into_iter().rev() {
                units.hand_on(partition, taker, holder);
            }
            return Err((holder, taker));
        };
        units.hand_on(partition, holder, taker);
        done.push((partition, holder, taker));
    }
    Ok(())
}

/// The first partition whose unit goes from one node to the other at this cost or less.
fn unit_to_hand(units: &impl Units, cost: Cost, holder: Node, taker: Node) -> Option<usize> {
    let mut takers = Vec::new();
    units.partitions_of(holder).iter().rev().copied().find(|&partition| {
        takers.clear();
        units.takers(partition, holder, &[taker], &mut takers);
        !takers.is_empty() && Some(units.moves_added(partition, holder, taker)) <= cost
    })
}
