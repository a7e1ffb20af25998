//! Plans: why they are refused, what they lead to, and what they warn of.

mod bars;
mod least_moves;
mod properties;
mod refusals;
mod shares;
mod warnings;

use super::{Change, PlanRules, RingPlan, plan};
use crate::tests::support::{Plan, equal_nodes, node};
use crate::{NodeSpec, Ring, RingSnapshot, TokenPolicy, Weight};

const BALANCED: PlanRules = PlanRules { policy: TokenPolicy::Balanced, vnodes_per_node: 0 };
const RANDOM: PlanRules = PlanRules { policy: TokenPolicy::Random, vnodes_per_node: 16 };

/// A balanced ring of these nodes.
fn founded(bits: u8, replicas: u8, nodes: &[NodeSpec]) -> Ring {
    Plan::balanced(bits, replicas).ring(nodes, None)
}

fn planned(base: &Ring, changes: &[Change]) -> RingPlan {
    plan(base.snapshot(), changes, &BALANCED).unwrap()
}

fn reweight(node: &NodeSpec, weight: u32) -> Change {
    Change::Reweight { node: node.id, weight: Weight::new(weight).unwrap() }
}

fn replace(old: &NodeSpec, new: &NodeSpec) -> Change {
    Change::Replace { old: old.id, new: new.clone() }
}

#[test]
fn the_parts_of_a_plan_make_the_ring_that_it_shows() {
    let base = founded(8, 3, &equal_nodes(9, 3));
    let plan = planned(&base, &[Change::Join(node(9, 0, 1))]);
    let next = RingSnapshot::publish(plan.parts(77), Some(base.snapshot())).unwrap();
    assert_eq!(base.snapshot().check_successor(&next), Ok(()));
    assert_eq!((next.epoch(), next.activated_at_ms()), (plan.target.epoch(), 77));
    assert_eq!(next.topology(), plan.target.snapshot().topology());
    assert!(next.tokens().eq(plan.target.snapshot().tokens()));
    assert_eq!(plan.base_epoch, base.epoch());
    assert_eq!(plan.target.snapshot().activated_at_ms(), 0);
}

#[test]
fn the_order_of_staging_does_not_matter_and_the_kind_of_change_does() {
    let nodes = equal_nodes(9, 3);
    let base = founded(6, 3, &nodes);
    let changes =
        [Change::Join(node(20, 1, 1)), Change::Drain(nodes[4].id), reweight(&nodes[0], 2)];
    let plan = planned(&base, &changes);
    let mut reversed = changes.to_vec();
    reversed.reverse();
    let same = planned(&base, &reversed);
    assert_eq!((plan.digest, &plan.changes), (same.digest, &same.changes));

    let mut dead = changes.to_vec();
    dead[1] = Change::Remove(nodes[4].id);
    let other = planned(&base, &dead);
    assert!(plan.target.snapshot().tokens().eq(other.target.snapshot().tokens()));
    assert_ne!(plan.digest, other.digest, "one can be copied from, the other cannot");
    let later = Plan::balanced(6, 3).ring(&nodes, Some(&base));
    assert_ne!(plan.digest, planned(&later, &changes).digest, "another base, another plan");
}

#[test]
fn a_replacement_takes_exactly_the_tokens_of_whom_it_replaces() {
    let nodes = equal_nodes(9, 3);
    for (base, rules) in [
        (founded(8, 3, &nodes), BALANCED),
        (Plan::random(8, 3, 16).ring(&nodes, None), BALANCED),
        (Plan::random(8, 3, 16).ring(&nodes, None), RANDOM),
    ] {
        let (old, new) = (&nodes[4], node(50, 1, 1));
        let plan = plan(base.snapshot(), &[replace(old, &new)], &rules).unwrap();
        let tokens = |ring: &Ring, id| {
            let own = ring.snapshot().tokens().filter(|token| token.node == id);
            own.map(|token| (token.position, token.rank, token.index)).collect::<Vec<_>>()
        };
        assert_eq!(tokens(&plan.target, new.id), tokens(&base, old.id));
        for partition in base.partition_bits().partitions() {
            let heir = |id| if id == old.id { new.id } else { id };
            assert!(base.owner_ids(partition).map(heir).eq(plan.target.owner_ids(partition)));
        }
        let moved: u64 = plan.flows.iter().map(|flow| u64::from(flow.copies)).sum();
        assert_eq!((plan.nodes.len(), moved), (2, plan.diff.copies_moved));
        assert!(plan.flows.iter().all(|flow| flow.target == new.id && flow.source != old.id));
    }
}

#[test]
fn a_replacement_beside_other_changes_keeps_what_it_inherits() {
    let nodes = equal_nodes(12, 3);
    let base = founded(9, 3, &nodes);
    let (old, new, joining) = (&nodes[4], node(50, 1, 1), node(51, 0, 1));
    let plan = planned(&base, &[replace(old, &new), Change::Join(joining)]);
    let heir = plan.nodes.iter().find(|movement| movement.node == new.id).unwrap();
    let leaver = plan.nodes.iter().find(|movement| movement.node == old.id).unwrap();
    assert_eq!(heir.copies_gained, leaver.copies_lost, "the join is in another zone");
    assert_eq!(plan.diff.copies_moved, plan.diff.copies_moved_min);
}

#[test]
fn a_replacement_of_another_weight_is_also_a_reweight() {
    let nodes = equal_nodes(12, 3);
    let base = founded(9, 3, &nodes);
    let (old, new) = (&nodes[4], node(50, 1, 2));
    let plan = planned(&base, &[replace(old, &new)]);
    let heir = plan.nodes.iter().find(|movement| movement.node == new.id).unwrap();
    assert_eq!((heir.copies_after, plan.diff.copies_moved), (204, 204), "two fifths of 512");
    let inherited = base.partitions_of(old.id);
    assert!(inherited.into_iter().all(|(p, _)| plan.target.role(p, new.id).is_some()));
}

#[test]
fn a_drained_node_is_copied_from_and_a_dead_one_is_not() {
    let nodes = equal_nodes(12, 3);
    let base = founded(8, 3, &nodes);
    let drained = planned(&base, &[Change::Drain(nodes[5].id)]);
    assert!(drained.flows.iter().all(|flow| flow.source == nodes[5].id));
    let removed = planned(&base, &[Change::Remove(nodes[5].id)]);
    assert!(removed.flows.iter().all(|flow| flow.source != nodes[5].id));
    for plan in [drained, removed] {
        let copies: u64 = plan.flows.iter().map(|flow| u64::from(flow.copies)).sum();
        assert_eq!(copies, plan.diff.copies_moved);
        let gained: u64 = plan.nodes.iter().map(|node| u64::from(node.copies_gained)).sum();
        let lost: u64 = plan.nodes.iter().map(|node| u64::from(node.copies_lost)).sum();
        assert_eq!((gained, lost), (copies, copies));
        for node in &plan.nodes {
            assert_eq!(
                node.copies_before + node.copies_gained,
                node.copies_after + node.copies_lost
            );
        }
    }
}

#[test]
fn random_tokens_stay_where_nothing_is_asked_of_their_node() {
    let nodes = equal_nodes(9, 3);
    let base = Plan::random(8, 3, 16).ring(&nodes, None);
    let stand_in = node(50, 1, 1);
    let first = plan(base.snapshot(), &[replace(&nodes[4], &stand_in)], &RANDOM).unwrap();
    let changes = [Change::Join(node(60, 0, 2)), reweight(&nodes[0], 2)];
    let second = plan(first.target.snapshot(), &changes, &RANDOM).unwrap();
    let kept = |id| {
        let of = |ring: &Ring| {
            ring.snapshot().tokens().filter(|token| token.node == id).collect::<Vec<_>>()
        };
        (of(&first.target), of(&second.target))
    };
    for node in nodes[1..].iter().filter(|node| node.id != nodes[4].id).chain([&stand_in]) {
        let (before, after) = kept(node.id);
        assert_eq!(before, after, "{}", node.name);
    }
    let (before, after) = kept(nodes[0].id);
    assert_eq!((before.len(), after.len()), (16, 32));
    assert!(before.iter().all(|token| after.contains(token)), "only more come");
}
