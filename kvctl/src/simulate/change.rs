//! `simulate change`: what a join, drain, failure, zone loss or new weight moves, and who carries the
//! load meanwhile.

use std::collections::BTreeMap;

use placement::simulate::change::{Change, Movement, Stage, Transition};
use placement::simulate::proof::Proof;
use placement::simulate::{Load, Measure, Spread};
use placement::{NodeId, NodeName, NodeSpec, Ring, Weight, Zone};
use serde_json::json;

use super::balance::by_number;
use super::chart::{self, Circle};
use super::replay::Sampled;
use super::settings::{FleetArgs, LiveArgs, PolicyArgs, Scene, WorkloadArgs, refused};
use super::study::{Cell, Sheet, Study, in_bytes};
use crate::cli::Globals;
use crate::exit::Failure;

/// Partitions and nodes up to which rings are drawn.
const DRAWN_MAX: (u32, usize) = (128, 8);

/// Arguments of `simulate change`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub event: EventArgs,
    /// Weight of the node that joins.
    #[arg(long, default_value_t = 1, requires = "join")]
    pub weight: u32,
    #[command(flatten)]
    pub fleet: FleetArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Keys that are checked one by one against the plain ring rule.
    #[arg(long, default_value_t = 10_000)]
    pub proof_keys: u64,
}

/// What happens; one of them.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(required = true, multiple = false)]
pub struct EventArgs {
    /// A node comes, into this zone; default: the zone with the least weight.
    #[arg(long, value_name = "ZONE", num_args = 0..=1)]
    pub join: Option<Option<Zone>>,
    /// A node gives everything away.
    #[arg(long, value_name = "NODE")]
    pub drain: Option<NodeName>,
    /// A node dies.
    #[arg(long, value_name = "NODE")]
    pub fail: Option<NodeName>,
    /// All nodes of a zone die.
    #[arg(long, value_name = "ZONE")]
    pub lose_zone: Option<Zone>,
    /// A node gets another weight.
    #[arg(long, value_name = "NODE=WEIGHT", value_parser = parse_reweight)]
    pub reweight: Option<(NodeName, Weight)>,
}

/// Makes the change.
pub fn study(globals: &Globals, args: &Args) -> Result<Study, Failure> {
    let scene = Scene::new(globals, &args.fleet, &args.policy, &args.workload, &args.live)?;
    let change = change_of(args, &scene)?;
    let before = scene.first_ring()?;
    let transition = Transition::new(before, &scene.rules, &change).map_err(refused)?;
    let keys = scene.replay.keys_about(&scene.loads);
    let proof = Sampled::new(Proof::new(&transition), args.proof_keys, keys);
    let proof = scene.replay.run("checking keys", &proof)?.tally;
    let seen = Seen {
        movement: transition.movement(&scene.loads),
        before: transition.stage_before(&scene.loads),
        at_once: transition.stage_at_once(&scene.loads),
        after: transition.stage_after(&scene.loads),
        transition: &transition,
    };
    let mut settings = scene.settings.clone();
    settings["change"] = json!(title(&change));
    settings["policy"] = json!(scene.rules.policy);
    settings["vnodes"] = json!(scene.rules.vnodes_per_node);
    let mut notes = scene.notes.clone();
    notes.extend(seen.remarks(&proof));
    Ok(Study {
        name: "change",
        title: format!("{} nodes: {}", scene.nodes.len(), title(&change)),
        lead: LEAD.to_owned(),
        settings,
        sheets: vec![
            seen.movement_sheet(),
            seen.stages_sheet(),
            seen.spread_sheet(),
            seen.zones_sheet(),
            proof_sheet(&proof),
            seen.nodes_sheet(),
        ],
        charts: seen.charts(),
        notes,
    })
}

const LEAD: &str = "What moves beside what has to: the expectation is the sum of what each growing \
    node's fair share grows by, the least is the fewest copies that any way to the same loads moves. \
    With random tokens one draw lies around the expectation, not below it.";

fn title(change: &Change) -> String {
    match change {
        Change::Join(node) => {
            format!("{} joins {} with weight {}", node.name, node.zone, node.weight)
        }
        Change::Drain(name) => format!("{name} is drained"),
        Change::Fail(name) => format!("{name} fails"),
        Change::LoseZone(zone) => format!("zone {zone} is lost"),
        Change::Reweight(name, weight) => format!("{name} gets weight {weight}"),
    }
}

fn change_of(args: &Args, scene: &Scene) -> Result<Change, Failure> {
    let event = args.event.clone();
    Ok(match event {
        EventArgs { join: Some(zone), .. } => {
            let zone = zone.or_else(|| scene.lightest_zone());
            let zone = zone.ok_or_else(|| Failure::usage("no node may own data"))?;
            Change::Join(NodeSpec { zone, ..newcomer(args, scene)? })
        }
        EventArgs { drain: Some(name), .. } => Change::Drain(name),
        EventArgs { fail: Some(name), .. } => Change::Fail(name),
        EventArgs { lose_zone: Some(zone), .. } => Change::LoseZone(zone),
        EventArgs { reweight: Some((name, weight)), .. } => Change::Reweight(name, weight),
        EventArgs { .. } => return Err(Failure::usage("name a change, such as --join")),
    })
}

/// The made-up node with the first number that no node is named by.
fn newcomer(args: &Args, scene: &Scene) -> Result<NodeSpec, Failure> {
    let spec = args.fleet.spec(args.workload.seed);
    let members = scene.nodes.nodes();
    let mut index = u32::try_from(members.len()).unwrap_or(u32::MAX);
    loop {
        let node = spec.node(index, 0, args.weight).map_err(refused)?;
        if !members.iter().any(|member| member.name == node.name) {
            return Ok(node);
        }
        index += 1;
    }
}

/// All that is shown of a change.
struct Seen<'a> {
    transition: &'a Transition,
    movement: Movement,
    before: Stage,
    at_once: Stage,
    after: Stage,
}

impl Seen<'_> {
    fn partitions(&self) -> f64 {
        f64::from(self.transition.before.partition_bits().count())
    }

    fn movement_sheet(&self) -> Sheet {
        let columns =
            ["what", "partitions", "keys", "bytes", "per key", "expected", "least", "of least"];
        let mut sheet = Sheet::new("movement", &columns);
        let diff = &self.transition.diff;
        let total = self.movement.total.keys.max(1) as f64;
        let mut row = |what: &str, moved: Load, partitions: u64, least: u64, expected: Cell| {
            let of_least = match least {
                0 => Cell::Missing,
                least => Cell::Number(partitions as f64 / least as f64, 3),
            };
            sheet.row([
                Cell::text(what),
                Cell::Count(partitions),
                Cell::Count(moved.keys),
                Cell::Bytes(moved.bytes),
                Cell::Percent(moved.keys as f64 / total, 3),
                expected,
                Cell::Percent(least as f64 / self.partitions(), 3),
                of_least,
            ]);
        };
        let expected = Cell::Percent(self.transition.copies_expected(), 3);
        let movement = &self.movement;
        row("copies", movement.copies, diff.copies_moved, diff.copies_moved_min, expected);
        let least = diff.primaries_moved_min;
        row("primaries", movement.primaries, diff.primaries_moved, least, Cell::Missing);
        sheet
    }

    fn stages(&self) -> [(&'static str, &Stage, &Ring); 3] {
        let Transition { before, after, .. } = self.transition;
        [
            ("before", &self.before, before),
            ("at once", &self.at_once, before),
            ("after", &self.after, after),
        ]
    }

    fn stages_sheet(&self) -> Sheet {
        let columns = [
            "stage",
            "nodes",
            "primary keys max/mean",
            "primary requests max/mean",
            "copy bytes max/mean",
            "cv",
            "zones at least",
            "no majority",
        ];
        let mut sheet = Sheet::new("stages", &columns);
        for (name, stage, ring) in self.stages() {
            let keys = spread(ring, &stage.primaries, Measure::Keys);
            let requests = spread(ring, &stage.primaries, Measure::Requests);
            let bytes = spread(ring, &stage.copies, Measure::Bytes);
            let zones = stage.zone_cover.iter().position(|count| *count > 0).unwrap_or(0);
            let owners = members(ring).filter(|node| stage.copies.contains_key(&node.id));
            sheet.row([
                Cell::text(name),
                Cell::Count(owners.count() as u64),
                Cell::Number(keys.max_over_mean, 3),
                Cell::Number(requests.max_over_mean, 3),
                Cell::Number(bytes.max_over_mean, 3),
                Cell::Number(bytes.variation, 4),
                Cell::Count(zones as u64),
                Cell::Count(stage.without_majority.into()),
            ]);
        }
        sheet
    }

    fn spread_sheet(&self) -> Sheet {
        let columns = ["side", "nodes", "bytes", "idlest", "mean", "busiest", "busiest/mean"];
        let mut sheet = Sheet::new("transfer", &columns);
        for (side, flows) in
            [("sources", &self.movement.sources), ("targets", &self.movement.targets)]
        {
            let bytes: Vec<u64> = flows.values().map(|load| load.bytes).collect();
            let sum: u64 = bytes.iter().sum();
            let mean = sum as f64 / bytes.len().max(1) as f64;
            let most = bytes.iter().copied().max().unwrap_or(0);
            sheet.row([
                Cell::text(side),
                Cell::Count(bytes.len() as u64),
                Cell::Bytes(sum),
                Cell::Bytes(bytes.iter().copied().min().unwrap_or(0)),
                Cell::Bytes(mean as u64),
                Cell::Bytes(most),
                if sum == 0 { Cell::Missing } else { Cell::Number(most as f64 / mean, 3) },
            ]);
        }
        sheet
    }

    fn zones_sheet(&self) -> Sheet {
        let mut sheet = Sheet::new("zones", &["stage", "zones covered", "partitions"]);
        for (name, stage, _) in self.stages() {
            let covers = stage.zone_cover.iter().enumerate().filter(|(_, count)| **count > 0);
            for (zones, count) in covers {
                sheet.row([
                    Cell::text(name),
                    Cell::Count(zones as u64),
                    Cell::Count((*count).into()),
                ]);
            }
        }
        sheet
    }

    fn nodes_sheet(&self) -> Sheet {
        let columns = [
            "node",
            "zone",
            "weight",
            "primary keys before",
            "at once",
            "after",
            "copy bytes before",
            "copy bytes after",
            "sends",
            "receives",
        ];
        let mut sheet = Sheet::new("nodes", &columns);
        let Transition { before, after, .. } = self.transition;
        let mut nodes: BTreeMap<NodeId, &NodeSpec> = BTreeMap::new();
        nodes.extend(before.nodes().iter().map(|node| (node.id, node)));
        nodes.extend(after.nodes().iter().map(|node| (node.id, node)));
        for (id, node) in nodes {
            let keys = |stage: &Stage| stage.primaries.get(&id).map_or(0, |load| load.keys);
            let bytes =
                |loads: &BTreeMap<NodeId, Load>| loads.get(&id).map_or(0, |load| load.bytes);
            sheet.row([
                Cell::text(node.name.as_str()),
                Cell::text(node.zone.as_str()),
                Cell::Count(node.weight.get().into()),
                Cell::Count(keys(&self.before)),
                Cell::Count(keys(&self.at_once)),
                Cell::Count(keys(&self.after)),
                Cell::Bytes(bytes(&self.before.copies)),
                Cell::Bytes(bytes(&self.after.copies)),
                Cell::Bytes(bytes(&self.movement.sources)),
                Cell::Bytes(bytes(&self.movement.targets)),
            ]);
        }
        sheet.rows.sort_by_cached_key(|row| by_number(&row[0].for_people()));
        sheet
    }

    fn remarks(&self, proof: &Proof<'_>) -> Vec<String> {
        let diff = &self.transition.diff;
        let mut notes = vec![
            format!(
                "{} of {} partitions change, {} move as copies; the fewest possible is {} copies",
                diff.partitions.len(),
                self.partitions(),
                in_bytes(self.movement.copies.bytes),
                diff.copies_moved_min,
            ),
            if proof.holds() {
                format!(
                    "of {} keys checked one by one, {} move, none of them outside the difference of \
                     the rings",
                    proof.keys, proof.moved
                )
            } else {
                format!(
                    "DEFECT: {} keys move outside the difference, {} inside do not",
                    proof.moved_outside, proof.stayed_inside
                )
            },
        ];
        if !self.transition.dead.is_empty() {
            let growth = |stage: &Stage| -> f64 {
                let grown = |(id, load): (&NodeId, &Load)| {
                    let old = self.before.primaries.get(id).map_or(0, |load| load.millirequests);
                    (old > 0).then(|| load.millirequests as f64 / old as f64)
                };
                stage.primaries.iter().filter_map(grown).fold(0.0, f64::max)
            };
            notes.push(format!(
                "until the copies are made anew, the survivor hit hardest has {:.2} times its \
                 requests as a primary; {} partitions have no majority",
                growth(&self.at_once),
                self.at_once.without_majority,
            ));
        }
        if self.movement.without_source > 0 {
            let count = self.movement.without_source;
            notes.push(format!("{count} copies cannot be made anew: no owner of them is left"));
        }
        let (covered, covered_after) = (least_zones(&self.before), least_zones(&self.after));
        if covered_after < covered {
            notes.push(format!(
                "afterwards some partition stands in {covered_after} zones only, instead of {covered}"
            ));
        }
        notes
    }

    fn charts(&self) -> Vec<String> {
        let Transition { before, after, dead, .. } = self.transition;
        let (then, name) =
            if dead.is_empty() { (&self.after, "after") } else { (&self.at_once, "at once") };
        let nodes: BTreeMap<NodeId, &NodeSpec> =
            before.nodes().iter().chain(after.nodes()).map(|node| (node.id, node)).collect();
        let total: u64 = self.before.primaries.values().map(|load| load.millirequests).sum();
        let mean = total.max(1) as f64 / before.nodes().len() as f64;
        let part = |stage: &Stage, id: &NodeId| {
            stage.primaries.get(id).map_or(0.0, |load| load.millirequests as f64 / mean)
        };
        let mut columns: Vec<(String, [f64; 2])> = nodes
            .iter()
            .map(|(id, node)| (node.name.to_string(), [part(&self.before, id), part(then, id)]))
            .collect();
        columns.sort_by_cached_key(|(name, _)| by_number(name));
        let title = "Requests at primaries, over the mean before";
        let mut charts = vec![chart::columns(title, ["before", name], &columns)];
        let (partitions_max, nodes_max) = DRAWN_MAX;
        if before.partition_bits().count() <= partitions_max && nodes.len() <= nodes_max {
            charts.push(drawn_rings(before, after, &nodes));
        }
        charts
    }
}

fn drawn_rings(before: &Ring, after: &Ring, nodes: &BTreeMap<NodeId, &NodeSpec>) -> String {
    let mut named: Vec<(&NodeId, String)> =
        nodes.iter().map(|(id, node)| (id, node.name.to_string())).collect();
    named.sort_by_cached_key(|(_, name)| by_number(name));
    let number = |id: Option<NodeId>| named.iter().position(|(other, _)| Some(**other) == id);
    let circle = |name: &str, ring: &Ring| {
        let arc = |partition| {
            let is_changed = before.primary(partition) != after.primary(partition);
            (number(ring.primary(partition)).unwrap_or(0), is_changed)
        };
        Circle {
            name: name.to_owned(),
            arcs: ring.partition_bits().partitions().map(arc).collect(),
        }
    };
    let names: Vec<String> = named.iter().map(|(_, name)| name.clone()).collect();
    let title = "Primary of each partition; marked where it changes";
    chart::rings(title, &[circle("before", before), circle("after", after)], &names)
}

fn members(ring: &Ring) -> impl Iterator<Item = &NodeSpec> + Clone {
    ring.nodes().iter().filter(|node| node.state.receives_tokens())
}

fn spread(ring: &Ring, loads: &BTreeMap<NodeId, Load>, measure: Measure) -> Spread {
    let pairs = members(ring).filter_map(|node| {
        let load = loads.get(&node.id)?;
        Some((load.get(measure) as f64, f64::from(node.weight.get())))
    });
    Spread::of_weighted(pairs)
}

fn least_zones(stage: &Stage) -> usize {
    stage.zone_cover.iter().position(|count| *count > 0).unwrap_or(0)
}

fn proof_sheet(proof: &Proof<'_>) -> Sheet {
    let columns = ["keys checked", "moved", "moved outside", "stayed inside"];
    let mut sheet = Sheet::new("proof", &columns);
    let counts = [proof.keys, proof.moved, proof.moved_outside, proof.stayed_inside];
    sheet.row(counts.map(Cell::Count));
    sheet
}

fn parse_reweight(text: &str) -> Result<(NodeName, Weight), String> {
    let (name, weight) = text.split_once('=').ok_or("give NODE=WEIGHT")?;
    let name = NodeName::parse(name).map_err(|error| error.to_string())?;
    let weight = weight.parse().map_err(|_| "a weight is a whole number".to_owned())?;
    Ok((name, Weight::new(weight).map_err(|error| error.to_string())?))
}
