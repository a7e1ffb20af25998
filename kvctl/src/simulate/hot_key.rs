//! `simulate hot-key`: one key with a large part of all requests, and what helps.

use placement::simulate::hot_key::{Busiest, busiest};
use placement::simulate::{PartitionLoads, RingRules};
use placement::{Ring, TokenPolicy, key_hash};
use serde_json::json;

use super::chart::{self, Bar};
use super::settings::{FleetArgs, LiveArgs, PolicyArg, PolicyArgs, Scene, WorkloadArgs, refused};
use super::study::{Cell, Sheet, Study};
use crate::cli::Globals;
use crate::exit::Failure;

/// Arguments of `simulate hot-key`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub fleet: FleetArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub live: LiveArgs,
    /// The hot key's parts of all requests.
    #[arg(long, value_delimiter = ',', default_value = "0.2,0.4", value_parser = parse_share)]
    pub shares: Vec<f64>,
    /// Vnodes of a node of weight 1.
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    pub vnodes: Vec<u32>,
    /// The hot key.
    #[arg(long, default_value = "hot")]
    pub key: String,
}

/// One ring under one hot key.
struct Row {
    ring: String,
    share: f64,
    busiest: Busiest,
}

/// Loads rings with a hot key.
pub fn study(globals: &Globals, args: &Args) -> Result<Study, Failure> {
    let policy = PolicyArgs { policy: PolicyArg::Balanced, vnodes: 1 };
    let scene = Scene::new(globals, &args.fleet, &policy, &args.workload, &args.live)?;
    let mut rows = Vec::new();
    for vnodes_per_node in &args.vnodes {
        let random = TokenPolicy::Random;
        let rules = RingRules { policy: random, vnodes_per_node: *vnodes_per_node, ..scene.rules };
        let ring = rules.ring(scene.nodes.clone(), None).map_err(refused)?;
        rows.extend(load(args, &ring, &scene.loads, &format!("{vnodes_per_node} vnodes")));
    }
    rows.extend(load(args, &scene.first_ring()?, &scene.loads, "balanced"));
    let mut settings = scene.settings.clone();
    settings["hot_key"] = json!({ "key": args.key, "shares": args.shares, "vnodes": args.vnodes });
    let mut notes = scene.notes.clone();
    let owners = scene.first_ring()?.owners_per_partition();
    notes.extend(remarks(&rows, owners));
    Ok(Study {
        name: "hot-key",
        title: "A hot key".to_owned(),
        lead: LEAD.to_owned(),
        settings,
        sheets: vec![sheet(&rows)],
        charts: charts(&rows, owners),
        notes,
    })
}

const LEAD: &str = "One key has one partition and that one leader. Vnodes decide where it lies, not how \
    much it is asked for. What helps is to let its replicas answer reads, to cache, and to limit.";

fn load(args: &Args, ring: &Ring, loads: &PartitionLoads, name: &str) -> Vec<Row> {
    let hash = key_hash(args.key.as_bytes());
    let row = |share: &f64| Row {
        ring: name.to_owned(),
        share: *share,
        busiest: busiest(ring, loads, hash, *share),
    };
    [0.0].iter().chain(&args.shares).map(row).collect()
}

fn sheet(rows: &[Row]) -> Sheet {
    let columns = [
        "ring",
        "hot key",
        "busiest node",
        "over the mean",
        "with follower reads",
        "then over the mean",
    ];
    let mut sheet = Sheet::new("hot key", &columns);
    for Row { ring, share, busiest } in rows {
        sheet.row([
            Cell::text(ring),
            Cell::Percent(*share, 0),
            Cell::Percent(busiest.at_primaries, 2),
            Cell::Number(busiest.at_primaries / busiest.even, 2),
            Cell::Percent(busiest.at_all_owners, 2),
            Cell::Number(busiest.at_all_owners / busiest.even, 2),
        ]);
    }
    sheet
}

fn remarks(rows: &[Row], owners: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let mut shares: Vec<f64> = rows.iter().map(|row| row.share).filter(|s| *s > 0.0).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    for share in shares {
        let of_share = || rows.iter().filter(|row| row.share == share);
        let at_primaries: Vec<String> = of_share()
            .map(|row| format!("{:.1} % at {}", row.busiest.at_primaries * 100.0, row.ring))
            .collect();
        let even = of_share().map(|row| row.busiest.even).fold(0.0, f64::max);
        notes.push(format!(
            "{:.0} % on one key: the busiest node has {}; it cannot have less than the key's own {:.0} %, \
             {:.0} times the mean: vnodes do not help",
            share * 100.0,
            at_primaries.join(", "),
            share * 100.0,
            share / even,
        ));
    }
    notes.push(format!(
        "follower reads divide the key's reads by its {owners} owners and no further; writes still go \
         through the one leader"
    ));
    notes
}

fn charts(rows: &[Row], owners: usize) -> Vec<String> {
    let hot = || rows.iter().filter(|row| row.share > 0.0);
    let bars = |value: fn(&Busiest) -> f64, floor: f64| -> Vec<Bar> {
        let bar = |row: &Row| Bar {
            label: format!("{:.0} % hot, {}", row.share * 100.0, row.ring),
            value: Ok(value(&row.busiest)),
            expected: Some(row.share * floor),
        };
        hot().map(bar).collect()
    };
    let percent: chart::Show = |part| format!("{:.1} %", part * 100.0);
    let part = 1.0 / owners.max(1) as f64;
    let at_primaries = bars(|busiest| busiest.at_primaries, 1.0);
    let at_all_owners = bars(|busiest| busiest.at_all_owners, part);
    vec![
        chart::bars(
            "Busiest node's part of all requests; tick: the key alone",
            &at_primaries,
            percent,
        ),
        chart::bars("The same with follower reads", &at_all_owners, percent),
    ]
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("a share lies between 0 and 1".to_owned()),
    }
}
