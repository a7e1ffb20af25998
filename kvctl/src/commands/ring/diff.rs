//! `kvctl ring diff`: what changes hands between two rings, beside the least that had to.

use std::collections::BTreeMap;
use std::sync::Arc;

use comfy_table::Cell;
use kvapi::{Client, RingDocument};
use placement::simulate::{FleetSpec, RingRules};
use placement::{
    Balance, NodeId, PartitionBits, ReplicationFactor, Ring, RingDiff, TokenPolicy, Topology,
};
use serde::Serialize;

use crate::cli::Globals;
use crate::commands::init::{parse_partitions, parse_policy};
use crate::commands::plan::bytes;
use crate::exit::{Exit, Failure};
use crate::input::parse_amount;
use crate::output::{self, Format};

/// Arguments of `ring diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The older epoch; unless given, the one before the newer.
    #[arg(conflicts_with_all = ["synthetic", "nodes"])]
    from: Option<u64>,
    /// The newer epoch; unless given, the one in force.
    #[arg(requires = "from")]
    to: Option<u64>,
    /// Compare made-up rings of so many nodes, such as `120..121`.
    #[arg(long, value_parser = parse_span, value_name = "FROM..TO", conflicts_with = "nodes")]
    synthetic: Option<Span>,
    /// Compare made-up rings, the older with so many nodes.
    #[arg(long)]
    nodes: Option<u32>,
    /// Nodes that come to the made-up ones.
    #[arg(long, default_value_t = 1, requires = "nodes")]
    add: u32,
    /// Zones of the made-up nodes.
    #[arg(long, default_value_t = 3)]
    zones: u32,
    /// Partitions of the made-up rings, a power of two.
    #[arg(long, default_value_t = 4096, value_parser = parse_partitions)]
    partitions: u32,
    /// Copies of each partition of the made-up rings.
    #[arg(long, default_value_t = 3)]
    replication_factor: u8,
    /// How the made-up rings give tokens to nodes.
    #[arg(long, default_value = "balanced", value_parser = parse_policy)]
    policy: TokenPolicy,
    /// Tokens per node under the random policy.
    #[arg(long, default_value_t = 128)]
    vnodes_per_node: u32,
    /// Amount of data without its copies, such as 24TiB, to say what the moved part of it is.
    #[arg(long, value_parser = parse_amount)]
    bytes: Option<u64>,
    /// Show each partition that changes, too.
    #[arg(long)]
    moves: bool,
}

/// Numbers of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u32,
    to: u32,
}

fn parse_span(text: &str) -> Result<Span, String> {
    let wrong = || "two numbers of nodes, such as 120..121".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let parse = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    Ok(Span { from: parse(from)?, to: parse(to)? })
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let made_up = match (args.synthetic, args.nodes) {
        (Some(span), _) => Some(span),
        (None, Some(nodes)) => Some(Span { from: nodes, to: nodes.saturating_add(args.add) }),
        (None, None) => None,
    };
    let (old, new) = match made_up {
        Some(span) => made_up_rings(&args, span)?,
        None => published(&globals.client(), args.from, args.to).await?,
    };
    let report = Report::of(&old, &new, args.bytes)?;
    match globals.output {
        Format::Json => output::json(&report),
        Format::Table => {
            output::text(&report.in_words())?;
            if args.moves { output::text(&moves(&report, &old, &new)) } else { Ok(()) }
        }
    }
}

async fn published(
    client: &Client,
    from: Option<u64>,
    to: Option<u64>,
) -> Result<(Ring, Ring), Failure> {
    let fetch = async |epoch: u64| -> Result<Ring, Failure> {
        let path = format!("/v1/ring?epoch={epoch}");
        let document: RingDocument = client.ask(&path).await?;
        Ok(Ring::new(Arc::new(document.snapshot)))
    };
    let new = match to {
        Some(epoch) => fetch(epoch).await?,
        None => Ring::new(Arc::new(client.ring().await?.snapshot)),
    };
    let before = new.epoch().get().checked_sub(1).filter(|epoch| *epoch > 0);
    let Some(from) = from.or(before) else {
        let message = "there is only one ring so far";
        return Err(Failure::new(Exit::NotFound, message).with_hint("kvctl ring history"));
    };
    match fetch(from).await {
        Ok(old) => Ok((old, new)),
        Err(failure) if failure.exit == Exit::NotFound => {
            Err(failure
                .with_hint("rings are kept until their plan is finished: kvctl ring history"))
        }
        Err(failure) => Err(failure),
    }
}

fn made_up_rings(args: &Args, span: Span) -> Result<(Ring, Ring), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    let rules = RingRules {
        partition_bits: PartitionBits::from_count(args.partitions)
            .map_err(|error| usage(&error))?,
        replication_factor: ReplicationFactor::new(args.replication_factor)
            .map_err(|error| usage(&error))?,
        policy: args.policy,
        vnodes_per_node: args.vnodes_per_node,
    };
    let nodes = |count| -> Result<Topology, Failure> {
        FleetSpec::equal(count, args.zones, 1).topology().map_err(|error| usage(&error))
    };
    let old = rules.ring(nodes(span.from)?, None).map_err(|error| usage(&error))?;
    let new = rules.ring(nodes(span.to)?, Some(&old)).map_err(|error| usage(&error))?;
    Ok((old, new))
}

/// The difference of two rings, for people and programs.
#[derive(Debug, Serialize)]
struct Report {
    nodes_before: usize,
    nodes_after: usize,
    partitions: u32,
    copies_per_partition: u8,
    /// What nodes joined or left have of the weight of the larger ring: what has to move at least.
    share_in_theory: f64,
    /// Copies moved, of all copies.
    share_moved: f64,
    bytes_logical: Option<u64>,
    bytes_moved: Option<u64>,
    bytes_moved_in_theory: Option<u64>,
    nodes: Vec<NodeReport>,
    #[serde(flatten)]
    difference: RingDiff,
}

#[derive(Debug, Default, Serialize)]
struct NodeReport {
    name: String,
    zone: String,
    copies_before: u32,
    copies_after: u32,
    copies_gained: u32,
    copies_lost: u32,
    primaries_before: u32,
    primaries_after: u32,
}

impl Report {
    fn of(old: &Ring, new: &Ring, bytes_logical: Option<u64>) -> Result<Self, Failure> {
        let difference = RingDiff::between(old, new)
            .map_err(|error| Failure::new(Exit::CheckFailed, error.to_string()))?;
        let partitions = new.partition_bits().count();
        let copies = u64::from(partitions) * new.owners_per_partition() as u64;
        let share_moved = difference.copies_moved as f64 / copies as f64;
        let share_in_theory = share_in_theory(old, new);
        // Each copy of a partition has its logical bytes.
        let part = |share: f64| {
            bytes_logical
                .map(|bytes| (bytes as f64 * share * new.owners_per_partition() as f64) as u64)
        };
        Ok(Self {
            nodes_before: old.nodes().len(),
            nodes_after: new.nodes().len(),
            partitions,
            copies_per_partition: u8::try_from(new.owners_per_partition()).unwrap_or(u8::MAX),
            share_in_theory,
            share_moved,
            bytes_logical,
            bytes_moved: part(share_moved),
            bytes_moved_in_theory: part(share_in_theory),
            nodes: nodes(old, new, &difference),
            difference,
        })
    }

    fn in_words(&self) -> String {
        let difference = &self.difference;
        let mut text = format!(
            "rings        epoch {} -> {}, {} -> {} nodes, {} partitions x {} copies\n\
             copies       {} moved, at least {} had to; {:.3} % of all, {:.3} % by the weights\n\
             primaries    {} moved, at least {} had to\n\
             partitions   {} change\n",
            difference.from,
            difference.to,
            self.nodes_before,
            self.nodes_after,
            self.partitions,
            self.copies_per_partition,
            difference.copies_moved,
            difference.copies_moved_min,
            self.share_moved * 100.0,
            self.share_in_theory * 100.0,
            difference.primaries_moved,
            difference.primaries_moved_min,
            difference.partitions.len(),
        );
        if let (Some(logical), Some(moved), Some(theory)) =
            (self.bytes_logical, self.bytes_moved, self.bytes_moved_in_theory)
        {
            let copies = u64::from(self.copies_per_partition.max(1));
            text.push_str(&format!(
                "data         of {} without copies, {} move ({} with {copies} copies); by the weights {} ({})\n",
                bytes(logical),
                bytes(moved / copies),
                bytes(moved),
                bytes(theory / copies),
                bytes(theory),
            ));
        }
        text.push('\n');
        text.push_str(&self.table());
        text
    }

    fn table(&self) -> String {
        let columns = ["node", "zone", "copies", "gained", "lost", "primaries"];
        let mut table = output::table(&columns);
        let mut rows: Vec<&NodeReport> = self.nodes.iter().collect();
        rows.sort_by_key(|node| std::cmp::Reverse(node.copies_gained + node.copies_lost));
        let hidden = rows.len().saturating_sub(TABLE_ROWS_MAX);
        for node in rows.into_iter().take(TABLE_ROWS_MAX) {
            table.add_row([
                Cell::new(&node.name),
                Cell::new(&node.zone),
                Cell::new(format!("{} -> {}", node.copies_before, node.copies_after)),
                Cell::new(node.copies_gained),
                Cell::new(node.copies_lost),
                Cell::new(format!("{} -> {}", node.primaries_before, node.primaries_after)),
            ]);
        }
        let mut text = output::render(&table);
        if hidden > 0 {
            text.push_str(&format!("and {hidden} more nodes; -o json names them all\n"));
        }
        text
    }
}

/// Most rows of the table of nodes, those that change most: a screen.
const TABLE_ROWS_MAX: usize = 24;

/// The part of all data that has to move for the weights alone: what the nodes that came, or those that
/// went, have of all weight.
fn share_in_theory(old: &Ring, new: &Ring) -> f64 {
    let weight = |ring: &Ring, other: Option<&Ring>| -> f64 {
        let counts = |node: &&placement::NodeSpec| {
            other.is_none_or(|other| other.snapshot().topology().get(node.id).is_none())
        };
        ring.nodes().iter().filter(counts).map(|node| f64::from(node.weight.get())).sum()
    };
    let came = weight(new, Some(old)) / weight(new, None);
    let went = weight(old, Some(new)) / weight(old, None);
    came.max(went)
}

fn nodes(old: &Ring, new: &Ring, difference: &RingDiff) -> Vec<NodeReport> {
    let mut nodes: BTreeMap<NodeId, NodeReport> = BTreeMap::new();
    for load in Balance::of(old).nodes {
        nodes.insert(
            load.id,
            NodeReport {
                name: load.name.to_string(),
                zone: load.zone.to_string(),
                copies_before: load.copies,
                primaries_before: load.primaries,
                ..NodeReport::default()
            },
        );
    }
    for load in Balance::of(new).nodes {
        let node = nodes.entry(load.id).or_default();
        node.name = load.name.to_string();
        node.zone = load.zone.to_string();
        node.copies_after = load.copies;
        node.primaries_after = load.primaries;
    }
    for change in &difference.partitions {
        for gained in &change.gained {
            nodes.entry(*gained).or_default().copies_gained += 1;
        }
        for lost in &change.lost {
            nodes.entry(*lost).or_default().copies_lost += 1;
        }
    }
    nodes.into_values().collect()
}

fn moves(report: &Report, old: &Ring, new: &Ring) -> String {
    let name = |node: &NodeId| {
        let spec = new.snapshot().topology().get(*node);
        let spec = spec.or_else(|| old.snapshot().topology().get(*node));
        spec.map_or_else(|| node.to_string(), |spec| spec.name.to_string())
    };
    let names = |nodes: &[NodeId]| nodes.iter().map(name).collect::<Vec<_>>().join(" ");
    let mut table = output::table(&["partition", "lost by", "gained by", "primary"]);
    for change in &report.difference.partitions {
        let primary = match change.changes_primary() {
            true => format!("{} -> {}", name(&change.primary_before), name(&change.primary_after)),
            false => name(&change.primary_after),
        };
        table.add_row([
            Cell::new(change.partition),
            Cell::new(names(&change.lost)),
            Cell::new(names(&change.gained)),
            Cell::new(primary),
        ]);
    }
    format!("\n{}", output::render(&table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args {
            from: None,
            to: None,
            synthetic: None,
            nodes: None,
            add: 1,
            zones: 3,
            partitions: 4096,
            replication_factor: 3,
            policy: TokenPolicy::Balanced,
            vnodes_per_node: 128,
            bytes: None,
            moves: false,
        }
    }

    #[test]
    fn one_node_more_than_120_moves_its_share_of_24_tib_and_no_more() {
        let (old, new) =
            made_up_rings(&args(), Span { from: 120, to: 121 }).unwrap_or_else(|it| panic!("{it}"));
        let report = Report::of(&old, &new, Some(24 << 40)).unwrap_or_else(|it| panic!("{it}"));
        assert!((report.share_in_theory - 1.0 / 121.0).abs() < 1e-12);
        assert!(report.share_moved <= 1.05 * report.share_in_theory, "{}", report.share_moved);
        assert_eq!(report.difference.copies_moved, report.difference.copies_moved_min);
        let theory = report.bytes_moved_in_theory.unwrap_or(0) / 3;
        assert_eq!(theory >> 30, 203, "GiB of logical data");
        let text = report.in_words();
        assert!(text.contains("203.1") && text.contains("and 97 more nodes"), "{text}");
    }

    #[test]
    fn spans_are_two_numbers() {
        assert_eq!(parse_span("120..121"), Ok(Span { from: 120, to: 121 }));
        for wrong in ["120", "..", "a..b", "1..", "1..2..3"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }
}
