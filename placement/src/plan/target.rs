//! The next ring: tokens for the members after the changes, as near to those in force as can be.

use std::collections::BTreeMap;

use super::staging::Staged;
use super::{PlanRefusal, PlanRules};
use crate::ids::NodeId;
use crate::snapshot::{RingSnapshot, SnapshotParts};
use crate::tokens::{Token, TokenPolicy, allocate};
use crate::topology::{NodeSpec, Topology};

/// A preview of the next ring. It is activated at no time.
pub(super) fn snapshot(
    base: &RingSnapshot,
    staged: &Staged,
    rules: &PlanRules,
) -> Result<RingSnapshot, PlanRefusal> {
    let inherited = inherit(base, staged)?;
    let tokens = if staged.topology == *inherited.topology() {
        inherited.tokens().collect()
    } else {
        hand_out(&inherited, staged, rules)?
    };
    let parts = parts(base, staged.topology.clone(), tokens);
    Ok(RingSnapshot::publish(parts, Some(base))?)
}

/// The ring in force, with each replacement in the place of whom it replaces: with the same tokens
/// and, so far, the same weight.
fn inherit(base: &RingSnapshot, staged: &Staged) -> Result<RingSnapshot, PlanRefusal> {
    let heir = |node: NodeId| staged.replacements.get(&node).copied().unwrap_or(node);
    let spec_of = |node: &NodeSpec| match staged.replacements.get(&node.id) {
        Some(new) => {
            let new = staged.topology.get(*new).expect("replacements are members");
            NodeSpec { weight: node.weight, ..new.clone() }
        }
        None => node.clone(),
    };
    let topology = Topology::new(base.nodes().iter().map(spec_of).collect())?;
    let tokens = base.tokens().map(|token| Token { node: heir(token.node), ..token }).collect();
    Ok(RingSnapshot::publish(parts(base, topology, tokens), Some(base))?)
}

fn hand_out(
    inherited: &RingSnapshot,
    staged: &Staged,
    rules: &PlanRules,
) -> Result<Vec<Token>, PlanRefusal> {
    let tokens = allocate(
        &staged.topology,
        inherited.partition_bits(),
        inherited.replication_factor(),
        rules.vnodes_per_node,
        Some(inherited),
        rules.policy,
    )?;
    match rules.policy {
        TokenPolicy::Balanced => Ok(tokens),
        TokenPolicy::Random => Ok(keep_inherited(inherited, staged, tokens)),
    }
}

/// Random tokens say nothing of the ring in force. Who inherited tokens and has the weight that it
/// had keeps them; only the others take the ones drawn for them.
fn keep_inherited(inherited: &RingSnapshot, staged: &Staged, drawn: Vec<Token>) -> Vec<Token> {
    let weights: BTreeMap<NodeId, _> =
        inherited.nodes().iter().map(|node| (node.id, node.weight)).collect();
    let keeps = |token: &Token| {
        let weight = staged.topology.get(token.node).map(|node| node.weight);
        weight.is_some() && weight == weights.get(&token.node).copied()
    };
    let kept = inherited.tokens().filter(&keeps);
    kept.chain(drawn.into_iter().filter(|token| !keeps(token))).collect()
}

fn parts(base: &RingSnapshot, topology: Topology, tokens: Vec<Token>) -> SnapshotParts {
    SnapshotParts {
        partition_bits: base.partition_bits(),
        replication_factor: base.replication_factor(),
        topology,
        tokens,
        activated_at_ms: 0,
    }
}
