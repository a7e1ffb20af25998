//! The cluster as it is: its ring, and how much each partition holds and is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use kvapi::{Client, PartitionStats};
use placement::simulate::{Load, PartitionLoads};
use placement::{PartitionId, Ring};

use crate::cli::Globals;
use crate::exit::{Exit, Failure};

/// What was found.
#[derive(Clone, Debug)]
pub struct Live {
    /// The published ring.
    pub ring: Ring,
    /// The load of every partition.
    pub loads: PartitionLoads,
    /// What is missing.
    pub notes: Vec<String>,
}

/// Asks every node of the cluster for the partitions that it leads.
pub fn fetch(globals: &Globals) -> Result<Live, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::CheckFailed, format!("cannot start: {error}")))?;
    runtime.block_on(ask(&globals.client()))
}

async fn ask(client: &Client) -> Result<Live, Failure> {
    let document = client.ring().await?;
    let nodes = &document.directory.nodes;
    let answers = nodes.iter().map(|node| client.partition_stats(&node.client_address));
    let answers = join_all(answers).await;
    let mut notes = Vec::new();
    let mut refusal = None;
    let mut reported = BTreeMap::new();
    for (node, answer) in nodes.iter().zip(answers) {
        match answer {
            Ok(list) => collect(&mut reported, &list.partitions),
            Err(error) => {
                notes.push(format!("{} says nothing of its partitions: {error}", node.name));
                refusal = Some(error);
            }
        }
    }
    match refusal {
        Some(error) if notes.len() == nodes.len() => {
            let hint = "without --from-cluster, keys are made up";
            return Err(Failure::from(error).with_hint(hint));
        }
        Some(_) | None => {}
    }
    let ring = Ring::new(Arc::new(document.snapshot));
    let mut loads = PartitionLoads::new(ring.partition_bits());
    for (partition, stats) in &reported {
        if !loads.add_to(*partition, load_of(stats)?) {
            let reason =
                format!("a node leads partition {partition}, which the ring does not have");
            return Err(Failure::new(Exit::CheckFailed, reason));
        }
    }
    let silent = ring.partition_bits().count() as usize - reported.len();
    if silent > 0 {
        notes.push(format!("{silent} partitions were named by no node and count as empty"));
    }
    Ok(Live { ring, loads, notes })
}

/// A partition named twice just changed its leader: the larger entry knows more.
fn collect(reported: &mut BTreeMap<PartitionId, PartitionStats>, list: &[PartitionStats]) {
    for stats in list {
        let known = reported.entry(stats.partition).or_insert(*stats);
        if (stats.keys, stats.bytes) > (known.keys, known.bytes) {
            *known = *stats;
        }
    }
}

fn load_of(stats: &PartitionStats) -> Result<Load, Failure> {
    let rate = stats.reads_per_second + stats.writes_per_second;
    if !(0.0..=1e12).contains(&rate) {
        let reason = format!("partition {} reports {rate} requests per second", stats.partition);
        return Err(Failure::new(Exit::CheckFailed, reason));
    }
    let millirequests = (rate * 1000.0).round() as u64;
    Ok(Load { keys: stats.keys, bytes: stats.bytes, millirequests })
}
