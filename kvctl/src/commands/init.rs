//! `kvctl init`: founds a cluster of the nodes at the endpoints.

use futures_util::future::join_all;
use kvapi::{InitRequest, NodeInfo, RedundancyStatus};
use placement::TokenPolicy;

use crate::cli::Globals;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Peer addresses of the founders, separated by commas; default: the nodes at the endpoints.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESSES")]
    founders: Vec<String>,
    /// Number of partitions, a power of two; fixed for ever.
    #[arg(long, default_value_t = 256, value_parser = parse_partitions)]
    partitions: u32,
    /// Copies of each partition.
    #[arg(long, default_value_t = 3)]
    replication_factor: u8,
    /// Tokens per node under the random policy.
    #[arg(long, default_value_t = 128)]
    vnodes_per_node: u32,
    /// How tokens are given to nodes.
    #[arg(long, default_value = "balanced", value_parser = parse_policy)]
    policy: TokenPolicy,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let client = globals.client();
    let founders = if args.founders.is_empty() {
        let nodes = join_all(globals.endpoints.iter().map(|endpoint| {
            let client = client.clone();
            async move { client.node_info(endpoint.authority()).await }
        }));
        let nodes: Vec<NodeInfo> = nodes.await.into_iter().collect::<Result<_, _>>()?;
        nodes.into_iter().map(|node| node.peer_address).collect()
    } else {
        args.founders
    };
    if founders.len() < usize::from(args.replication_factor) {
        let count = founders.len();
        let wanted = args.replication_factor;
        let question = format!(
            "Found a cluster of {count} node(s)? Each partition will have {count} of {wanted} copies."
        );
        output::confirm(&question, args.yes)?;
        output::note(&format!(
            "note: {count} founder(s) for {wanted} copies; name all with --endpoints or --founders"
        ));
    }
    let request = InitRequest {
        partitions: args.partitions,
        replication_factor: args.replication_factor,
        vnodes_per_node: args.vnodes_per_node,
        policy: args.policy,
        ..InitRequest::new(founders)
    };
    let answer = client.init(&request).await?;
    let copies = usize::from(args.replication_factor).min(answer.nodes.len());
    if let Some(warning) = zone_warning(&answer.redundancy, copies) {
        output::note(&warning);
    }
    match globals.output {
        Format::Json => output::json(&answer),
        Format::Table => {
            let names: Vec<&str> = answer.nodes.iter().map(|name| name.as_str()).collect();
            let (id, epoch) = (&answer.cluster_id, answer.epoch);
            output::text(&format!("cluster {id}, epoch {epoch}, nodes {}\n", names.join(" ")))
        }
    }
}

/// Shouts if zones hold several copies of a partition, since they fail with them.
fn zone_warning(redundancy: &RedundancyStatus, copies: usize) -> Option<String> {
    if redundancy.zones_possible == 0 || redundancy.zones_possible as usize >= copies {
        return None;
    }
    let what = match redundancy.zones_possible {
        1 => "all founders stand in one zone: its loss takes every copy".to_owned(),
        zones => format!("{zones} zones for {copies} copies: some zone holds several of them"),
    };
    Some(format!(
        "WARNING: {what} ({}); start nodes with another --zone and join them",
        redundancy.detail
    ))
}

/// A power of two that a cluster can have.
pub fn parse_partitions(text: &str) -> Result<u32, String> {
    let count = text.parse().map_err(|_| "not a number".to_owned())?;
    let bits = placement::PartitionBits::from_count(count).map_err(|error| error.to_string())?;
    Ok(bits.count())
}

/// A policy by its name.
pub fn parse_policy(text: &str) -> Result<TokenPolicy, String> {
    match text {
        "balanced" => Ok(TokenPolicy::Balanced),
        "random" => Ok(TokenPolicy::Random),
        _ => Err("balanced or random".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_hold_several_copies_are_shouted_about() {
        let achieved = |zones| RedundancyStatus {
            zones_achieved_min: zones,
            zones_possible: zones,
            detail: "so it is".to_owned(),
            ..RedundancyStatus::default()
        };
        let one = zone_warning(&achieved(1), 3).expect("a warning");
        assert!(one.starts_with("WARNING: all founders stand in one zone"), "{one}");
        assert!(one.contains("so it is"), "{one}");
        let two = zone_warning(&achieved(2), 3).expect("a warning");
        assert!(two.contains("2 zones for 3 copies"), "{two}");
        assert_eq!(zone_warning(&achieved(3), 3), None);
        assert_eq!(zone_warning(&achieved(1), 1), None);
        // A node that does not tell.
        assert_eq!(zone_warning(&achieved(0), 3), None);
    }
}
