//! Which nodes hold which partitions.

use super::economy::economize;
use super::layout::Layout;
use super::level::{Fill, Units, level};
use super::{Node, Rows};

/// The assignment nearest to the one before that meets the layout. The order inside a row means
/// nothing.
pub(super) fn assign(layout: &Layout, before: &Rows) -> Rows {
    let mut copies = Copies::new(layout, before);
    for partition in 0..layout.partitions {
        copies.drop_excess(partition);
    }
    for partition in 0..layout.partitions {
        copies.add_missing(partition);
    }
    // Copies that were added above are not there yet: to hand them on costs nothing.
    copies.may_hand_on(|node, partition| !before[partition].contains(&node));
    level(&mut copies);
    copies.may_hand_on(|_, _| true);
    copies.order();
    level(&mut copies);
    economize(&mut copies);
    copies.rows
}

struct Copies<'a> {
    layout: &'a Layout,
    before: &'a Rows,
    rows: Rows,
    /// Copies per node.
    held: Vec<usize>,
    /// The partitions that each node may hand on; those it has handed on are not taken out.
    partitions_of: Vec<Vec<usize>>,
}

impl<'a> Copies<'a> {
    fn new(layout: &'a Layout, before: &'a Rows) -> Self {
        let mut held = vec![0; layout.nodes()];
        for node in before.iter().flatten() {
            held[*node] += 1;
        }
        let partitions_of = vec![Vec::new(); layout.nodes()];
        Self { layout, before, rows: before.clone(), held, partitions_of }
    }

    fn in_zone(&self, partition: usize, zone: usize) -> usize {
        self.rows[partition].iter().filter(|node| self.layout.zone_of[**node] == zone).count()
    }

    fn has_extra(&self, partition: usize, zone: usize) -> bool {
        self.in_zone(partition, zone) > self.layout.base[zone]
    }

    /// Differs for equally full nodes, and differently for each partition.
    fn fill(&self, node: Node, partition: usize) -> (Fill, u64) {
        let jitter = self.layout.tie_break(node, partition);
        (Fill::new(self.held[node], self.layout.quota[node], jitter), jitter)
    }

    /// Gives up copies that the layout has no room for: a zone holds too many, or too many zones
    /// hold one more than their base. The fullest nodes give.
    fn drop_excess(&mut self, partition: usize) {
        let layout = self.layout;
        for zone in 0..layout.base.len() {
            let most = layout.base[zone] + usize::from(layout.may_have_extra[zone]);
            while self.in_zone(partition, zone) > most {
                self.drop_fullest(partition, |node| layout.zone_of[node] == zone);
            }
        }
        loop {
            let zones = 0..layout.base.len();
            let extra: Vec<bool> = zones.map(|zone| self.has_extra(partition, zone)).collect();
            let count = extra.iter().filter(|has| **has).count();
            if count <= layout.extras_per_partition {
                return;
            }
            self.drop_fullest(partition, |node| extra[layout.zone_of[node]]);
        }
    }

    fn drop_fullest(&mut self, partition: usize, may_give: impl Fn(Node) -> bool) {
        let fullest = (0..self.rows[partition].len())
            .filter(|place| may_give(self.rows[partition][*place]))
            .max_by_key(|place| self.fill(self.rows[partition][*place], partition));
        let place = fullest.expect("called only where some copy is too much");
        let node = self.rows[partition].remove(place);
        self.held[node] -= 1;
    }

    /// Adds copies until the partition has all its owners. The emptiest nodes take.
    fn add_missing(&mut self, partition: usize) {
        let layout = self.layout;
        for zone in 0..layout.base.len() {
            while self.in_zone(partition, zone) < layout.base[zone] {
                self.add_emptiest(partition, |_, node| layout.zone_of[node] == zone);
            }
        }
        while self.rows[partition].len() < layout.owners_per_partition {
            self.add_emptiest(partition, |copies, node| {
                let zone = layout.zone_of[node];
                layout.may_have_extra[zone] && !copies.has_extra(partition, zone)
            });
        }
    }

    fn add_emptiest(&mut self, partition: usize, may_take: impl Fn(&Self, Node) -> bool) {
        let emptiest = (0..self.layout.nodes())
            .filter(|&node| may_take(self, node) && !self.rows[partition].contains(&node))
            .min_by_key(|&node| self.fill(node, partition));
        let node = emptiest.expect("the layout asks for no more copies than there are nodes");
        self.rows[partition].push(node);
        self.held[node] += 1;
    }

    fn may_hand_on(&mut self, may: impl Fn(Node, usize) -> bool) {
        self.partitions_of.iter_mut().for_each(Vec::clear);
        for (partition, row) in self.rows.iter().enumerate() {
            for &node in row.iter().filter(|node| may(**node, partition)) {
                self.partitions_of[node].push(partition);
            }
        }
        for (node, partitions) in self.partitions_of.iter_mut().enumerate() {
            partitions.sort_unstable_by_key(|&p| (self.layout.tie_break(node, p), p));
        }
    }

    /// A node first hands on copies that it does not have yet, then as many partitions of which it
    /// is the primary as it has primaries too many, then others: so that few copies move, and its
    /// primaries come out right without further changes.
    fn order(&mut self) {
        let before = self.before;
        let surplus = self.primary_surplus();
        for (node, partitions) in self.partitions_of.iter_mut().enumerate() {
            let (old, new): (Vec<usize>, Vec<usize>) =
                partitions.iter().partition(|&&p| before[p].contains(&node));
            let (primary, replica): (Vec<usize>, Vec<usize>) =
                old.iter().partition(|&&p| before[p].first() == Some(&node));
            let (first, last) = primary.split_at(surplus[node].min(primary.len()));
            *partitions = [last, &replica, first, &new].concat();
        }
    }

    fn primary_surplus(&self) -> Vec<usize> {
        let mut held = vec![0; self.layout.nodes()];
        for primary in self.before.iter().filter_map(|row| row.first()) {
            held[*primary] += 1;
        }
        let quotas = self.layout.primary_quotas(&self.layout.quota, &held);
        held.iter().zip(quotas).map(|(held, quota)| held.saturating_sub(quota)).collect()
    }
}

impl Units for Copies<'_> {
    fn nodes(&self) -> usize {
        self.layout.nodes()
    }

    fn held(&self, node: Node) -> usize {
        self.held[node]
    }

    fn partitions_of(&self, node: Node) -> &[usize] {
        &self.partitions_of[node]
    }

    fn quota(&self, node: Node) -> usize {
        self.layout.quota[node]
    }

    /// A copy may go to another node of its zone; and to another zone, if it is the one that its
    /// zone has beyond its base, and the other zone has only its base.
    fn takers(&self, partition: usize, holder: Node, among: &[Node], takers: &mut Vec<Node>) {
        let (layout, row) = (self.layout, &self.rows[partition]);
        if !row.contains(&holder) {
            return;
        }
        let zones_of_row = row.iter().map(|node| layout.zone_of[*node]);
        let with_extra: Vec<usize> =
            zones_of_row.filter(|zone| self.has_extra(partition, *zone)).collect();
        let from = layout.zone_of[holder];
        let may_leave = with_extra.contains(&from);
        let may_enter = |zone: usize| {
            zone == from
                || (may_leave && layout.may_have_extra[zone] && !with_extra.contains(&zone))
        };
        let may_take = |node: &Node| may_enter(layout.zone_of[*node]) && !row.contains(node);
        takers.extend(among.iter().copied().filter(may_take));
    }

    fn are_close(&self, holder: Node, taker: Node) -> bool {
        self.layout.zone_of[holder] == self.layout.zone_of[taker]
    }

    fn moves_added(&self, partition: usize, holder: Node, taker: Node) -> i8 {
        let before = &self.before[partition];
        i8::from(before.contains(&holder)) - i8::from(before.contains(&taker))
    }

    fn hand_on(&mut self, partition: usize, holder: Node, taker: Node) {
        let place = self.rows[partition].iter().position(|node| *node == holder);
        self.rows[partition][place.expect("the holder holds what it hands on")] = taker;
        self.partitions_of[taker].push(partition);
        self.held[holder] -= 1;
        self.held[taker] += 1;
    }
}
