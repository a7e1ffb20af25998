//! How much partitions hold and how much they are asked for: `GET /v1/admin/partitions`, and the same
//! figures for Prometheus.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use http::request::Parts;
use kvapi::admin::{PartitionReport, PartitionStats, ReplicaRole, ReplicaStats};
use placement::NodeName;

use super::app::{Answer, App, json};
use super::backend::Backend;
use super::problem::{Refusal, not_initialised, of_query};
use super::query::Query;
use crate::report::{NodeReport, Part, ReplicaReport};

/// Time for other nodes to answer.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Most replicas with series of their own in the metrics: those that are asked for most. A node of the
/// largest cluster planned for holds about a hundred.
const SERIES_MAX: usize = 256;

/// `GET /v1/admin/partitions`; `?replicas=true` adds those that do not lead, `?cluster=true` those of
/// the other nodes.
pub async fn partitions<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    let query = Query::parse(head.uri.query(), &["replicas", "cluster"]).map_err(of_query)?;
    let flag = |name| {
        let parse = |text: &str| text.parse::<bool>().ok();
        query.parsed(name, "`true` or `false`", parse).map_err(of_query)
    };
    let all = flag("replicas")?.unwrap_or(false);
    let everywhere = flag("cluster")?.unwrap_or(false);
    let view = app.backend().view().ok_or_else(not_initialised)?;
    let reports = app.backend().reports(everywhere, Instant::now() + REPORT_TIMEOUT).await;

    let mut answer = PartitionReport::default();
    for (node, record) in &view.state.nodes {
        let name = &record.registration.name;
        match reports.get(node) {
            Some(report) => answer.partitions.extend(stats(report, name, all)),
            None if everywhere => answer.missing.push(name.clone()),
            None => {}
        }
    }
    answer.missing.sort();
    let leader_first = |it: &ReplicaStats| (it.stats.partition, it.role != ReplicaRole::Leader);
    answer.partitions.sort_by_key(|it| (leader_first(it), it.node.clone()));
    Ok(json(&answer))
}

fn stats<'a>(
    report: &'a NodeReport,
    node: &'a NodeName,
    all: bool,
) -> impl Iterator<Item = ReplicaStats> + 'a {
    let shown = move |replica: &&ReplicaReport| all || replica.part == Part::Leader;
    report.replicas.iter().filter(shown).map(|replica| ReplicaStats {
        stats: PartitionStats {
            partition: replica.partition,
            keys: replica.keys,
            bytes: replica.bytes,
            reads_per_second: replica.millireads as f64 / 1000.0,
            writes_per_second: replica.milliwrites as f64 / 1000.0,
        },
        node: node.clone(),
        role: match replica.part {
            Part::Leader => ReplicaRole::Leader,
            Part::Follower => ReplicaRole::Follower,
            Part::Learner => ReplicaRole::Learner,
            Part::Candidate => ReplicaRole::Candidate,
        },
    })
}

/// The figures of the busiest replicas in Prometheus' text format.
pub fn series(report: &NodeReport) -> String {
    let mut busiest: Vec<&ReplicaReport> = report.replicas.iter().collect();
    busiest.sort_by_key(|replica| {
        let asked = replica.millireads.saturating_add(replica.milliwrites);
        (std::cmp::Reverse(asked), replica.partition)
    });
    busiest.truncate(SERIES_MAX);
    busiest.sort_by_key(|replica| replica.partition);
    type Figure = fn(&ReplicaReport) -> f64;
    let figures: [(&str, &str, Figure); 4] = [
        ("ringkv_partition_keys", "Keys of a replica here, estimated.", |it| it.keys as f64),
        ("ringkv_partition_bytes", "Bytes of a replica here, estimated.", |it| it.bytes as f64),
        ("ringkv_partition_reads_per_second", "Reads that a replica here served, lately.", |it| {
            it.millireads as f64 / 1000.0
        }),
        ("ringkv_partition_writes_per_second", "Writes that a leader here took, lately.", |it| {
            it.milliwrites as f64 / 1000.0
        }),
    ];
    let mut text = String::new();
    for (name, help, figure) in figures {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for replica in &busiest {
            let _ =
                writeln!(text, "{name}{{partition=\"{}\"}} {}", replica.partition, figure(replica));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use placement::PartitionId;

    use super::*;

    #[test]
    fn the_metrics_name_the_busiest_replicas_and_no_more() {
        let replica = |number: u32| ReplicaReport {
            partition: PartitionId::new(number),
            part: Part::Follower,
            keys: 10,
            bytes: 1000,
            millireads: if number >= 100 { 1500 } else { 0 },
            milliwrites: 0,
        };
        let report =
            NodeReport { replicas: (0..400).map(replica).collect(), ..NodeReport::default() };
        let text = series(&report);
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 4 * SERIES_MAX);
        assert!(text.contains("ringkv_partition_reads_per_second{partition=\"100\"} 1.5\n"));
        assert!(!text.contains("partition=\"99\""));
    }
}
