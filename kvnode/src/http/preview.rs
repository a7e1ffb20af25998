//! What staged changes would lead to: the plan, what it takes of disks and time, and what may fail
//! meanwhile. Only a plan that fits on the disks is one.

use std::collections::BTreeMap;
use std::fmt;

use kvapi::plans::{Achieved, DiskRoom, DraftAnswer, Flow, NodeChange, PlanPreview, Remark};
use kvcore::cluster::Health;
use placement::{
    Balance, Change, NodeId, NodeMovement, PartitionId, PlanRefusal, PlanWarning, Redundancy,
    RingPlan,
};

use super::describe_plans::{change, name_of, with_names};
use crate::report::NodeReport;
use crate::view::View;

/// More nodes than this are not named one by one in a sentence.
const NAMED_MAX: usize = 5;

/// What the nodes that answered in time hold.
pub type Reports = BTreeMap<NodeId, NodeReport>;

/// Why staged changes make no plan.
#[derive(Clone, Debug)]
pub enum Refused {
    /// They break a rule of placement.
    Rule(PlanRefusal),
    /// What a node would receive does not fit on its disk.
    DiskSpace {
        /// The node.
        node: NodeId,
        /// Bytes that it would receive.
        needed: u64,
        /// Bytes that are free, without those that the node keeps free.
        room: u64,
    },
}

impl Refused {
    /// The rule, as a word that stays the same in every release.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Rule(refusal) => refusal.rule(),
            Self::DiskSpace { .. } => "disk-space",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(refusal) => refusal.fmt(formatter),
            Self::DiskSpace { node, needed, room } => write!(
                formatter,
                "node {node} would receive {needed} bytes and has room for {room}"
            ),
        }
    }
}

/// A plan, and what the nodes hold that it is about.
#[derive(Debug)]
pub struct Prepared {
    /// The plan.
    pub plan: RingPlan,
    sizes: Sizes,
}

/// Makes the plan for some changes. It takes time on a large ring, so it is nothing for an async thread.
pub fn prepare(view: &View, draft: &[Change], reports: Reports) -> Result<Prepared, Refused> {
    let rules = view.state.settings.rules();
    let plan = placement::plan(&view.state.ring, draft, &rules).map_err(Refused::Rule)?;
    let sizes = Sizes::new(view, &plan, reports);
    for movement in &plan.nodes {
        let needed = sizes.gained(movement.node);
        if let Some(report) = sizes.reports.get(&movement.node) {
            let room = report.disk_available.saturating_sub(report.disk_reserve);
            if needed > room && report.disk_total > 0 {
                return Err(Refused::DiskSpace { node: movement.node, needed, room });
            }
        }
    }
    Ok(Prepared { plan, sizes })
}

/// How many bytes nodes hold, receive and give up.
#[derive(Debug)]
struct Sizes {
    reports: Reports,
    held: BTreeMap<NodeId, u64>,
    gained: BTreeMap<NodeId, u64>,
    lost: BTreeMap<NodeId, u64>,
    silent: Vec<NodeId>,
}

impl Sizes {
    fn new(view: &View, plan: &RingPlan, reports: Reports) -> Self {
        let mut of_partition: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for replica in reports.values().flat_map(|report| &report.replicas) {
            let bytes = of_partition.entry(replica.partition).or_default();
            *bytes = replica.bytes.max(*bytes);
        }
        let size = |partition| of_partition.get(&partition).copied().unwrap_or(0);
        let mut held: BTreeMap<NodeId, u64> = BTreeMap::new();
        for partition in view.ring.partition_bits().partitions() {
            for node in view.owners(partition) {
                *held.entry(node).or_default() += size(partition);
            }
        }
        let (mut gained, mut lost): (BTreeMap<NodeId, u64>, BTreeMap<NodeId, u64>) =
            Default::default();
        for difference in &plan.diff.partitions {
            let bytes = size(difference.partition);
            difference.gained.iter().for_each(|node| *gained.entry(*node).or_default() += bytes);
            difference.lost.iter().for_each(|node| *lost.entry(*node).or_default() += bytes);
        }
        let counts =
            |node: &NodeId| view.state.nodes.contains_key(node) && !reports.contains_key(node);
        let touched = plan.nodes.iter().map(|movement| movement.node);
        let owners = view.ring.nodes().iter().map(|node| node.id);
        let mut silent: Vec<NodeId> = touched.chain(owners).filter(counts).collect();
        silent.sort_unstable();
        silent.dedup();
        Self { reports, held, gained, lost, silent }
    }

    fn gained(&self, node: NodeId) -> u64 {
        self.gained.get(&node).copied().unwrap_or(0)
    }

    fn before(&self, node: NodeId) -> u64 {
        self.held.get(&node).copied().unwrap_or(0)
    }

    fn after(&self, node: NodeId) -> u64 {
        let lost = self.lost.get(&node).copied().unwrap_or(0);
        self.before(node).saturating_add(self.gained(node)).saturating_sub(lost)
    }

    fn disk(&self, node: NodeId) -> Option<DiskRoom> {
        let report = self.reports.get(&node).filter(|report| report.disk_total > 0)?;
        Some(DiskRoom {
            available: report.disk_available,
            available_after: report.disk_available.saturating_sub(self.gained(node)),
            reserve: report.disk_reserve,
            total: report.disk_total,
        })
    }
}

/// The answer of `GET /v1/admin/plan`; no plan was made if nothing is staged.
pub fn draft(view: &View, prepared: Option<Result<Prepared, Refused>>) -> DraftAnswer {
    let changes = view.state.draft.iter().map(|it| change(view, it)).collect();
    let (preview, refusal) = match prepared {
        None => (None, None),
        Some(Ok(prepared)) => (Some(preview(view, &prepared)), None),
        Some(Err(refused)) => {
            let detail = with_names(&refused, view);
            (None, Some(Remark { code: refused.rule().to_owned(), detail }))
        }
    };
    DraftAnswer { changes, preview, refusal }
}

fn preview(view: &View, prepared: &Prepared) -> PlanPreview {
    let Prepared { plan, sizes } = prepared;
    let flows = flows(view, prepared);
    let mut out: BTreeMap<&str, u64> = BTreeMap::new();
    for flow in &flows {
        *out.entry(&flow.source).or_default() += flow.bytes;
    }
    let busiest = sizes.gained.values().chain(out.values()).max().copied().unwrap_or(0);
    let rate = view.state.settings.copy.bytes_per_second;
    let warning =
        |it: &PlanWarning| Remark { code: it.code().to_owned(), detail: with_names(it, view) };
    PlanPreview {
        base_epoch: plan.base_epoch,
        digest: plan.digest.to_string(),
        copies_moved: plan.diff.copies_moved,
        copies_moved_min: plan.diff.copies_moved_min,
        primaries_moved: plan.diff.primaries_moved,
        primaries_moved_min: plan.diff.primaries_moved_min,
        bytes_moved: sizes.gained.values().sum(),
        silent: sizes.silent.iter().map(|node| name_of(view, *node)).collect(),
        seconds_at_throttle: busiest.checked_div(rate),
        nodes: plan.nodes.iter().map(|node| node_change(view, sizes, node)).collect(),
        before: achieved(&plan.balance_before, &plan.redundancy_before),
        after: achieved(&plan.balance_after, &plan.redundancy_after),
        warnings: plan.warnings.iter().map(warning).collect(),
        risks: risks(view, plan),
        flows,
    }
}

/// The copies by source and target. Their bytes are a target's, divided by the number of copies.
fn flows(view: &View, prepared: &Prepared) -> Vec<Flow> {
    let Prepared { plan, sizes } = prepared;
    let mut copies: BTreeMap<NodeId, u32> = BTreeMap::new();
    for flow in &plan.flows {
        *copies.entry(flow.target).or_default() += flow.copies;
    }
    let flow = |flow: &placement::CopyFlow| Flow {
        source: name_of(view, flow.source),
        target: name_of(view, flow.target),
        copies: flow.copies,
        bytes: u64::from(flow.copies) * sizes.gained(flow.target)
            / u64::from(copies.get(&flow.target).copied().unwrap_or(1).max(1)),
    };
    plan.flows.iter().map(flow).collect()
}

fn node_change(view: &View, sizes: &Sizes, node: &NodeMovement) -> NodeChange {
    NodeChange {
        node: name_of(view, node.node),
        zone: node.zone.to_string(),
        copies_before: node.copies_before,
        copies_after: node.copies_after,
        primaries_before: node.primaries_before,
        primaries_after: node.primaries_after,
        bytes_before: sizes.before(node.node),
        bytes_after: sizes.after(node.node),
        bytes_gained: sizes.gained(node.node),
        disk: sizes.disk(node.node),
    }
}

fn achieved(balance: &Balance, redundancy: &Redundancy) -> Achieved {
    Achieved {
        copies_max_over_mean: balance.copies_max_over_mean,
        primaries_max_over_mean: balance.primaries_max_over_mean,
        copies: u32::from(redundancy.owners_per_partition),
        zones_covered_min: u32::from(redundancy.zones_covered_min),
        survives_node_loss: redundancy.survives_node_loss,
        survives_zone_loss: redundancy.survives_zone_loss,
    }
}

/// What may fail while the plan runs, and what that does. Until the cut-over the old owners vote.
fn risks(view: &View, plan: &RingPlan) -> Vec<String> {
    let gone = |node: NodeId| {
        let is_down = view.node(node).is_none_or(|record| record.health == Health::Down);
        let is_removed =
            plan.changes.iter().any(|it| matches!(it, Change::Remove(lost) if *lost == node));
        is_down || is_removed
    };
    let mut risks = Vec::new();
    let mut fatal: Vec<(String, usize)> = Vec::new();
    for node in view.ring.nodes().iter().filter(|node| !gone(node.id)) {
        let stopped = stopped(view, |owner| gone(owner) || owner == node.id);
        if stopped > 0 {
            fatal.push((node.name.to_string(), stopped));
        }
    }
    risks.push(match fatal.as_slice() {
        [] => "the loss of any one node stops nothing".to_owned(),
        fatal => {
            let most = fatal.iter().map(|(_, stopped)| *stopped).max().unwrap_or(0);
            let names = named(fatal.iter().map(|(name, _)| name.as_str()));
            format!("the loss of {names} stops up to {most} partitions until the node is back")
        }
    });
    let mut zones: Vec<_> = view.ring.nodes().iter().map(|node| &node.zone).collect();
    zones.sort_unstable();
    zones.dedup();
    let zone_of = |node: NodeId| view.ring.snapshot().topology().get(node).map(|spec| &spec.zone);
    let fatal = zones
        .iter()
        .filter(|zone| stopped(view, |owner| gone(owner) || zone_of(owner) == Some(**zone)) > 0);
    let fatal: Vec<&str> = fatal.map(|zone| zone.as_str()).collect();
    if !fatal.is_empty() {
        risks.push(format!("the loss of zone {} stops partitions", named(fatal.into_iter())));
    }
    let targets = plan.nodes.iter().filter(|node| node.copies_gained > 0);
    let targets: Vec<String> = targets.map(|node| name_of(view, node.node)).collect();
    if !targets.is_empty() {
        let targets = named(targets.iter().map(String::as_str));
        risks.push(format!(
            "a loss of {targets} before the cut-over delays the plan and nothing else; \
             `kvctl migrate cancel` gives it up"
        ));
        risks.push("a loss of any other owner holds up the moves of its partitions".to_owned());
    }
    risks
}

/// Partitions without a majority of owners when some are gone.
fn stopped(view: &View, is_gone: impl Fn(NodeId) -> bool) -> usize {
    let has_majority = |partition: PartitionId| {
        let owners = view.owners(partition);
        let all = owners.len();
        view.owners(partition).filter(|owner| !is_gone(*owner)).count() > all / 2
    };
    view.ring.partition_bits().partitions().filter(|partition| !has_majority(*partition)).count()
}

/// Names in a sentence: `n1, n2 or n3`.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let hidden = names.len().saturating_sub(NAMED_MAX);
    let mut shown: Vec<String> = names.take(NAMED_MAX).map(str::to_owned).collect();
    if hidden > 0 {
        shown.push(format!("{hidden} more"));
    }
    match shown.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_a_sentence_and_many_are_counted() {
        let text = |names: &[&str]| named(names.iter().copied());
        assert_eq!(text(&["n1"]), "n1");
        assert_eq!(text(&["n1", "n2", "n3"]), "n1, n2 or n3");
        assert_eq!(text(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e or 2 more");
    }
}
