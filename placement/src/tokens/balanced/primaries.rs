//! Which owner of each partition is the primary, and in which order the others follow.

use super::economy::economize;
use super::layout::Layout;
use super::level::{Fill, Units, level};
use super::{Node, Rows};

/// Orders each row: the primary first, chosen evenly and as near to the one before as possible.
pub(super) fn assign(layout: &Layout, rows: &mut Rows, before: &Rows) {
    let mut primaries = Primaries::new(layout, rows, before);
    level(&mut primaries);
    primaries.relieve(layout);
    economize(&mut primaries);
    let primary_of = primaries.primary_of;
    for (partition, row) in rows.iter_mut().enumerate() {
        // The others in an order of their own for each partition, so that the load of a primary
        // that fails goes to many, and in the same order whoever else comes and goes.
        row.sort_unstable_by_key(|&node| {
            (Some(node) != primary_of[partition], layout.tie_break(node, partition))
        });
    }
}

struct Primaries<'a> {
    rows: &'a Rows,
    before: &'a Rows,
    primary_of: Vec<Option<Node>>,
    /// Primaries per node.
    held: Vec<usize>,
    quota: Vec<usize>,
    /// The partitions of which a node is or was the primary.
    partitions_of: Vec<Vec<usize>>,
}

impl<'a> Primaries<'a> {
    /// Starts from the primaries that are still owners; the emptiest owner takes what they leave.
    fn new(layout: &'a Layout, rows: &'a Rows, before: &'a Rows) -> Self {
        let still_owner = |(row, before): (&Vec<Node>, &Vec<Node>)| {
            before.first().copied().filter(|primary| row.contains(primary))
        };
        let mut primary_of: Vec<Option<Node>> = rows.iter().zip(before).map(still_owner).collect();
        let mut held = count(layout, primary_of.iter().flatten());
        let quota = layout.primary_quotas(&count(layout, rows.iter().flatten()), &held);
        for (partition, row) in rows.iter().enumerate() {
            if primary_of[partition].is_none() {
                let emptiest = row.iter().copied().min_by_key(|&node| {
                    let jitter = layout.tie_break(node, partition);
                    (Fill::new(held[node], quota[node], jitter), jitter)
                });
                held[emptiest.expect("every partition has an owner")] += 1;
                primary_of[partition] = emptiest;
            }
        }
        let mut partitions_of = vec![Vec::new(); layout.nodes()];
        for (partition, primary) in primary_of.iter().enumerate() {
            partitions_of[primary.expect("each was given one above")].push(partition);
        }
        Self { rows, before, primary_of, held, quota, partitions_of }
    }
}

impl Primaries<'_> {
    /// Where the owners of many partitions are the same few nodes, no chain leads from them to the
    /// nodes below their quota. Then they at least share evenly among themselves.
    fn relieve(&mut self, layout: &Layout) {
        // Each step makes the sum of squares of primaries, over weights, smaller: it ends.
        let mut relieved = true;
        while relieved {
            relieved = false;
            for partition in 0..self.rows.len() {
                let Some(holder) = self.primary_of[partition] else {
                    continue;
                };
                if self.held[holder] <= self.quota[holder] {
                    continue;
                }
                let weight = |node: Node| layout.weights[node] as usize;
                let is_relief = |taker: &Node| {
                    let after = self.held[*taker] + 1;
                    self.held[holder] * weight(*taker) > after * weight(holder)
                };
                let takers = self.rows[partition].iter().copied().filter(is_relief);
                let emptiest =
                    takers.min_by_key(|&taker| Fill::new(self.held[taker], weight(taker), 0));
                if let Some(taker) = emptiest {
                    self.hand_on(partition, holder, taker);
                    relieved = true;
                }
            }
        }
    }
}

/// How often each node is named.
fn count<'n>(layout: &Layout, nodes: impl Iterator<Item = &'n Node>) -> Vec<usize> {
    let mut counts = vec![0; layout.nodes()];
    nodes.for_each(|node| counts[*node] += 1);
    counts
}

impl Units for Primaries<'_> {
    fn nodes(&self) -> usize {
        self.quota.len()
    }

    fn held(&self, node: Node) -> usize {
        self.held[node]
    }

    fn quota(&self, node: Node) -> usize {
        self.quota[node]
    }

    fn partitions_of(&self, node: Node) -> &[usize] {
        &self.partitions_of[node]
    }

    fn takers(&self, partition: usize, holder: Node, among: &[Node], takers: &mut Vec<Node>) {
        if self.primary_of[partition] == Some(holder) {
            let row = &self.rows[partition];
            takers.extend(among.iter().copied().filter(|n| *n != holder && row.contains(n)));
        }
    }

    fn are_close(&self, _holder: Node, _taker: Node) -> bool {
        true
    }

    fn moves_added(&self, partition: usize, holder: Node, taker: Node) -> i8 {
        let primary = self.before[partition].first();
        i8::from(primary == Some(&holder)) - i8::from(primary == Some(&taker))
    }

    fn hand_on(&mut self, partition: usize, holder: Node, taker: Node) {
        self.primary_of[partition] = Some(taker);
        self.partitions_of[taker].push(partition);
        self.held[holder] -= 1;
        self.held[taker] += 1;
    }
}
