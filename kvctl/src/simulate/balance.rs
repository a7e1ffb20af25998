//! `simulate balance`: how even rings are at 1, 2, 4, ... vnodes, and where more stop paying.

use placement::simulate::sweep::{self, SweepPoint};
use placement::simulate::{Measure, RingRules, Spread, loads_of, theory};
use placement::{Ring, TokenPolicy, Topology};
use serde_json::json;

use super::chart::{self, Axis, Series};
use super::latency;
use super::settings::{FleetArgs, LiveArgs, PolicyArg, PolicyArgs, Scene, WorkloadArgs, refused};
use super::study::{Cell, Sheet, Study, in_bytes};
use crate::cli::Globals;
use crate::exit::Failure;

/// Arguments of `simulate balance`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub fleet: FleetArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub live: LiveArgs,
    /// The sweep goes 1, 2, 4, ... up to this many vnodes per node of weight 1.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub vnodes_max: u32,
    /// Draws of node identities that random rings are averaged over.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rings: u32,
    /// A doubling pays while it lowers the overload (busiest over mean, less one) by this part.
    #[arg(long, default_value_t = 0.1, value_parser = parse_part)]
    pub gain: f64,
}

/// Sweeps the number of vnodes.
pub fn study(globals: &Globals, args: &Args) -> Result<Study, Failure> {
    let policy = PolicyArgs { policy: PolicyArg::Balanced, vnodes: 1 };
    let scene = Scene::new(globals, &args.fleet, &policy, &args.workload, &args.live)?;
    let draws = draws(args, &scene)?;
    let hashes = latency::hashes(args.workload.seed);
    let mut points = Vec::new();
    let doublings = (0..32).map(|power| 1_u32 << power);
    let random = doublings.take_while(|vnodes| *vnodes <= args.vnodes_max);
    let policies = random.map(|vnodes| (TokenPolicy::Random, vnodes));
    for (policy, vnodes_per_node) in policies.chain([(TokenPolicy::Balanced, 1)]) {
        let rules = RingRules { policy, vnodes_per_node, ..scene.rules };
        let point = sweep::measure(rules, &draws, &scene.loads).map_err(refused)?;
        let ring = rules.ring(draws[0].clone(), None).map_err(refused)?;
        points.push((point, lookup(&ring, &hashes)));
    }
    let balanced = scene.rules.ring(draws[0].clone(), None).map_err(refused)?;
    let mut settings = scene.settings.clone();
    settings["rings"] = json!(draws.len());
    settings["gain"] = json!(args.gain);
    let mut notes = scene.notes.clone();
    notes.extend(remarks(args, &scene, &points));
    Ok(Study {
        name: "balance",
        title: format!("Balance against vnodes, {} nodes", scene.nodes.len()),
        lead: LEAD.to_owned(),
        settings,
        sheets: vec![
            sweep_sheet(&scene, &points),
            measures_sheet(&points),
            nodes_sheet(&balanced, &scene),
        ],
        charts: charts(&scene, &points),
        notes,
    })
}

const LEAD: &str = "The busiest node over the mean, as primaries and as all copies. Random tokens are \
    averaged over several draws, and one ring may lie well above that average: the worst draw stands \
    beside it. The expected deviation is a closed form over all draws; it is no bound.";

/// Node sets that differ in identities alone; a live cluster has its one.
fn draws(args: &Args, scene: &Scene) -> Result<Vec<Topology>, Failure> {
    if scene.ring.is_some() {
        return Ok(vec![scene.nodes.clone()]);
    }
    let seeds = (0..u64::from(args.rings)).map(|draw| args.workload.seed.wrapping_add(draw));
    seeds.map(|seed| args.fleet.spec(seed).topology().map_err(refused)).collect()
}

fn lookup(ring: &Ring, hashes: &[u64]) -> f64 {
    let bits = ring.partition_bits();
    latency::nanoseconds(hashes, |hash| ring.owners(bits.partition_of(hash)).first().copied())
}

/// The closed form, where it applies: random tokens, equal weights.
fn expected(scene: &Scene, point: &SweepPoint) -> Option<f64> {
    let nodes = scene.nodes.nodes();
    let is_equal = nodes.iter().all(|node| node.weight == nodes[0].weight);
    let is_random = point.policy == TokenPolicy::Random;
    let count = u32::try_from(nodes.len()).ok()?;
    let tokens = point.vnodes.checked_mul(nodes[0].weight.get())?;
    let partitions = scene.rules.partition_bits.count();
    (is_equal && is_random).then(|| theory::share_variation_cut(count, tokens, partitions))
}

fn vnodes_cell(point: &SweepPoint) -> Cell {
    match point.policy {
        TokenPolicy::Random => Cell::Count(point.vnodes.into()),
        TokenPolicy::Balanced => Cell::Missing,
    }
}

fn policy_cell(policy: TokenPolicy) -> Cell {
    Cell::text(match policy {
        TokenPolicy::Random => "random",
        TokenPolicy::Balanced => "balanced",
    })
}

fn sweep_sheet(scene: &Scene, points: &[(SweepPoint, f64)]) -> Sheet {
    let columns = [
        "policy",
        "vnodes",
        "primaries max/mean",
        "worst",
        "cv",
        "cv expected",
        "copies max/mean",
        "cv copies",
        "snapshot",
        "memory",
        "lookup ns",
    ];
    let mut sheet = Sheet::new("vnodes", &columns);
    for (point, nanoseconds) in points {
        let expected = expected(scene, point).map_or(Cell::Missing, |cv| Cell::Number(cv, 4));
        sheet.row([
            policy_cell(point.policy),
            vnodes_cell(point),
            Cell::Number(point.primaries[0].max_over_mean, 3),
            Cell::Number(point.primaries_worst, 3),
            Cell::Number(point.primaries[0].variation, 4),
            expected,
            Cell::Number(point.copies[0].max_over_mean, 3),
            Cell::Number(point.copies[0].variation, 4),
            Cell::Bytes(point.snapshot_bytes as u64),
            Cell::Bytes(point.memory_bytes as u64),
            Cell::Number(*nanoseconds, 1),
        ]);
    }
    sheet
}

fn measures_sheet(points: &[(SweepPoint, f64)]) -> Sheet {
    let columns = ["policy", "vnodes", "owners", "measure", "max/mean", "min/mean", "cv"];
    let mut sheet = Sheet::new("measures", &columns);
    for (point, _) in points {
        for (owners, spreads) in [("primaries", point.primaries), ("copies", point.copies)] {
            for (measure, spread) in Measure::ALL.into_iter().zip(spreads) {
                let Spread { max_over_mean, min_over_mean, variation } = spread;
                sheet.row([
                    policy_cell(point.policy),
                    vnodes_cell(point),
                    Cell::text(owners),
                    Cell::text(measure.name()),
                    Cell::Number(max_over_mean, 4),
                    Cell::Number(min_over_mean, 4),
                    Cell::Number(variation, 4),
                ]);
            }
        }
    }
    sheet
}

/// The share of each node on the balanced ring.
fn nodes_sheet(ring: &Ring, scene: &Scene) -> Sheet {
    let columns = [
        "node",
        "zone",
        "weight",
        "primary keys",
        "primary bytes",
        "primary requests",
        "copy keys",
        "copy bytes",
        "copy requests",
    ];
    let mut sheet = Sheet::new("nodes", &columns);
    let sums = loads_of(ring, &scene.loads);
    let total = scene.loads.total();
    for (place, node) in ring.nodes().iter().enumerate() {
        let shares = [sums.primaries[place], sums.copies[place]].map(|load| {
            Measure::ALL.map(|measure| {
                let all = total.get(measure).max(1) as f64;
                Cell::Percent(load.get(measure) as f64 / all, 3)
            })
        });
        let head = [
            Cell::text(node.name.as_str()),
            Cell::text(node.zone.as_str()),
            Cell::Count(node.weight.get().into()),
        ];
        sheet.row(head.into_iter().chain(shares.into_iter().flatten()));
    }
    sheet.rows.sort_by_cached_key(|row| by_number(&row[0].for_people()));
    sheet
}

/// n2 before n10.
pub fn by_number(name: &str) -> (usize, String) {
    (name.len(), name.to_owned())
}

fn pairs(points: &[(SweepPoint, f64)], value: fn(&SweepPoint) -> f64) -> Vec<(u32, f64)> {
    let random = points.iter().filter(|(point, _)| point.policy == TokenPolicy::Random);
    random.map(|(point, _)| (point.vnodes, value(point))).collect()
}

fn remarks(args: &Args, scene: &Scene, points: &[(SweepPoint, f64)]) -> Vec<String> {
    let part = args.gain * 100.0;
    let mut notes = Vec::new();
    let primaries: fn(&SweepPoint) -> f64 = |point| point.primaries[0].max_over_mean;
    let copies: fn(&SweepPoint) -> f64 = |point| point.copies[0].max_over_mean;
    for (what, value) in [("primaries", primaries), ("copies", copies)] {
        let found = sweep::diminishing_from(&pairs(points, value), args.gain);
        notes.push(match found {
            Some(vnodes) => format!(
                "{what}: from {vnodes} vnodes on, no doubling lowers the overload by {part} % of itself"
            ),
            None => format!(
                "{what}: the last doubling, to {} vnodes, still pays: the point lies beyond the sweep",
                args.vnodes_max
            ),
        });
    }
    let (nodes, partitions) = (scene.nodes.len() as u32, scene.rules.partition_bits.count());
    let floor = theory::share_variation_floor(nodes, partitions);
    if points.iter().any(|(point, _)| expected(scene, point).is_some()) {
        notes.push(format!(
            "however many random tokens: a partition goes to one node, so {partitions} partitions on \
             {nodes} nodes keep a deviation of about sqrt((S-1)/Q) = {floor:.3}"
        ));
    }
    let keys = scene.loads.total().keys / u64::from(nodes.max(1));
    if keys > 0 {
        notes.push(format!(
            "a node has {keys} keys as a primary; chance alone makes such a count deviate by {:.2} %",
            100.0 / (keys as f64).sqrt()
        ));
    }
    if let [.., (last, _), (balanced, _)] = points {
        notes.push(format!(
            "the balanced policy reaches {:.3} (primaries) and {:.3} (copies) with a snapshot of {}; \
             random tokens at {} vnodes reach {:.3} and {:.3} with {}",
            balanced.primaries[0].max_over_mean,
            balanced.copies[0].max_over_mean,
            in_bytes(balanced.snapshot_bytes as u64),
            last.vnodes,
            last.primaries[0].max_over_mean,
            last.copies[0].max_over_mean,
            in_bytes(last.snapshot_bytes as u64),
        ));
    }
    notes
}

fn charts(scene: &Scene, points: &[(SweepPoint, f64)]) -> Vec<String> {
    let line = |name: &str, is_dashed, value: &dyn Fn(&SweepPoint) -> Option<f64>| {
        let random = points.iter().filter(|(point, _)| point.policy == TokenPolicy::Random);
        let at = |(point, _): &(SweepPoint, f64)| Some((f64::from(point.vnodes), value(point)?));
        Series { name: name.to_owned(), points: random.filter_map(at).collect(), is_dashed }
    };
    let balanced = points.last().map(|(point, _)| point.primaries[0].max_over_mean);
    let overload = [
        line("primaries", false, &|point| Some(point.primaries[0].max_over_mean)),
        line("copies", false, &|point| Some(point.copies[0].max_over_mean)),
        line("worst draw", true, &|point| Some(point.primaries_worst)),
        line("balanced policy", true, &|_| balanced),
    ];
    let variation = [
        line("measured", false, &|point| Some(point.primaries[0].variation)),
        line("expected", true, &|point| expected(scene, point)),
    ];
    let name = "vnodes per node of weight 1";
    let doubling = [Axis::Doubling; 2];
    let even = [Axis::Doubling, Axis::Even];
    let title = "Busiest node over the mean, by keys";
    vec![
        chart::lines(title, name, &overload, doubling, |y| format!("{y:.0}")),
        chart::lines("Deviation of primaries over the mean", name, &variation, even, |y| {
            format!("{y:.2}")
        }),
    ]
}

fn parse_part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if part > 0.0 && part < 1.0 => Ok(part),
        _ => Err("a part lies between 0 and 1".to_owned()),
    }
}
