//! Which owner of each partition is the primary, and in which order the others follow.

use super::layout::Layout;
use super::level::{Fill, Units, level, take_out};
use super::{Node, Rows};

/// Orders each row: the primary first, chosen evenly and as near to the one before as possible.
pub(super) fn assign(layout: &Layout, rows: &mut Rows, before: &Rows) {
    let mut primaries = Primaries::new(layout, rows, before);
    level(&mut primaries);
    let primary_of = primaries.primary_of;
    for (partition, row) in rows.iter_mut().enumerate() {
        // The others in an order of their own for each partition, so that the load of a primary
        // that fails goes to many, and in the same order whoever else comes and goes.
        row.sort_unstable_by_key(|&node| {
            (
                Some(node) != primary_of[partition],
                layout.tie_break(node, partition),
            )
        });
    }
}

struct Primaries<'a> {
    rows: &'a Rows,
    primary_of: Vec<Option<Node>>,
    partitions_of: Vec<Vec<usize>>,
    quota: Vec<usize>,
}

impl<'a> Primaries<'a> {
    /// Starts from the primaries that are still owners; the emptiest owner takes what they leave.
    fn new(layout: &'a Layout, rows: &'a Rows, before: &Rows) -> Self {
        let still_owner = |(row, before): (&Vec<Node>, &Vec<Node>)| {
            before
                .first()
                .copied()
                .filter(|primary| row.contains(primary))
        };
        let primary_of: Vec<Option<Node>> = rows.iter().zip(before).map(still_owner).collect();
        let mut primaries = Self {
            rows,
            quota: quotas(layout, rows, &primary_of),
            primary_of,
            partitions_of: vec![Vec::new(); layout.nodes()],
        };
        for partition in 0..rows.len() {
            if let Some(node) = primaries.primary_of[partition] {
                primaries.partitions_of[node].push(partition);
            }
        }
        for (partition, row) in rows.iter().enumerate() {
            if primaries.primary_of[partition].is_none() {
                let fill = |node: Node| {
                    let jitter = layout.tie_break(node, partition);
                    let held = primaries.partitions_of[node].len();
                    (Fill::new(held, primaries.quota[node], jitter), jitter)
                };
                let emptiest = row.iter().copied().min_by_key(|&node| fill(node));
                let node = emptiest.expect("every partition has an owner");
                primaries.primary_of[partition] = Some(node);
                primaries.partitions_of[node].push(partition);
            }
        }
        primaries
    }
}

fn quotas(layout: &Layout, rows: &Rows, primary_of: &[Option<Node>]) -> Vec<usize> {
    let mut copies = vec![0; layout.nodes()];
    for node in rows.iter().flatten() {
        copies[*node] += 1;
    }
    let mut held = vec![0; layout.nodes()];
    for node in primary_of.iter().flatten() {
        held[*node] += 1;
    }
    layout.primary_quotas(&copies, &held)
}

impl Units for Primaries<'_> {
    fn nodes(&self) -> usize {
        self.quota.len()
    }

    fn held(&self, node: Node) -> usize {
        self.partitions_of[node].len()
    }

    fn partitions_of(&self, node: Node) -> &[usize] {
        &self.partitions_of[node]
    }

    fn quota(&self, node: Node) -> usize {
        self.quota[node]
    }

    fn takers(&self, partition: usize, holder: Node, takers: &mut Vec<Node>) {
        takers.extend(self.rows[partition].iter().filter(|node| **node != holder));
    }

    fn hand_on(&mut self, partition: usize, holder: Node, taker: Node) -> bool {
        if self.primary_of[partition] != Some(holder) {
            return false;
        }
        self.primary_of[partition] = Some(taker);
        take_out(&mut self.partitions_of[holder], partition);
        self.partitions_of[taker].push(partition);
        true
    }
}
