//! `kvctl check`: one line per check, and an exit code.

use std::collections::BTreeSet;
use std::sync::Arc;

use comfy_table::Cell;
use kvapi::plans::{MIGRATIONS_PATH, Migrations};
use kvapi::{ClusterStatus, Health, NodeInfo, NodeStage, ReplicaRole, RingDocument};
use placement::{NodeId, PartitionId, Ring};
use serde::Serialize;

use crate::cli::Globals;
use crate::commands::plan::bytes;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::survey;

/// Wall clocks may differ by this much; the survey itself takes some of it.
const CLOCKS_APART_MS: u64 = 2000;
/// A disk with less than this part of it free deserves a look.
const DISK_FREE_PERCENT_MIN: u64 = 10;
/// Partitions that are named one by one.
const PARTITIONS_NAMED_MAX: usize = 8;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// All is well.
    Pass,
    /// Nothing is wrong, and yet it deserves a look.
    Warn,
    /// Something is wrong.
    Fail,
}

/// One check.
#[derive(Debug, Serialize)]
struct Line {
    verdict: Verdict,
    check: &'static str,
    detail: String,
}

type Answers<'a> = [(&'a str, &'a Result<NodeInfo, String>)];

/// Runs the command.
pub async fn run(globals: &Globals) -> Result<(), Failure> {
    let client = globals.client();
    let status = client.status().await?;
    let told: Migrations = client.ask(MIGRATIONS_PATH).await?;
    let ring: RingDocument = client.ring().await?;
    let ring = Ring::new(Arc::new(ring.snapshot));
    let addresses: Vec<String> =
        status.nodes.iter().map(|node| node.client_address.clone()).collect();
    let answers = survey::ask_all_for_replicas(&addresses).await;
    let named: Vec<_> = status.nodes.iter().map(|node| node.name.as_str()).zip(&answers).collect();
    let lines = [
        nodes(&status, &named),
        epochs(&status, &named),
        replicas(&status, &named, &ring),
        orphans(&status, &named, &ring, &told),
        leaders(&status, &named),
        zones(&status),
        plans(&told),
        digests(&told),
        disks(&named),
        clocks(&named),
        alarms(&named),
    ];
    let failed = lines.iter().filter(|line| line.verdict == Verdict::Fail).count();
    match globals.output {
        Format::Json => output::json(&lines)?,
        Format::Table => {
            let mut table = output::table(&["verdict", "check", "detail"]);
            for line in &lines {
                let verdict = match line.verdict {
                    Verdict::Pass => Cell::new("PASS"),
                    Verdict::Warn => output::alarming("WARN"),
                    Verdict::Fail => output::alarming("FAIL"),
                };
                table.add_row([verdict, Cell::new(line.check), Cell::new(&line.detail)]);
            }
            output::print_table(&table)?;
        }
    }
    match failed {
        0 => Ok(()),
        count => {
            let failure = Failure::new(Exit::CheckFailed, format!("{count} checks failed"));
            Err(failure.with_hint("kvctl status"))
        }
    }
}

/// A check that passes unless there are complaints.
fn line(check: &'static str, complaints: &[String], fine: String) -> Line {
    match complaints.is_empty() {
        true => Line { verdict: Verdict::Pass, check, detail: fine },
        false => Line { verdict: Verdict::Fail, check, detail: complaints.join("; ") },
    }
}

fn nodes(status: &ClusterStatus, answers: &Answers<'_>) -> Line {
    let mut complaints = Vec::new();
    for (name, answer) in answers {
        if let Err(error) = answer {
            complaints.push(format!("{name} does not answer: {error}"));
        }
    }
    let down = status.nodes.iter().filter(|node| node.health != Health::Up);
    complaints.extend(down.map(|node| format!("{} is not up", node.name)));
    line("nodes", &complaints, format!("all {} answer and are up", answers.len()))
}

fn epochs(status: &ClusterStatus, answers: &Answers<'_>) -> Line {
    let behind = answers.iter().filter_map(|(name, answer)| {
        let info = answer.as_ref().ok()?;
        let differs = info.epoch != status.epoch;
        differs.then(|| format!("{name} is at epoch {}", info.epoch))
    });
    let complaints: Vec<String> = behind.collect();
    line("epochs", &complaints, format!("all nodes have adopted epoch {}", status.epoch))
}

/// The partitions whose copies the ring gives to a node.
fn owned(ring: &Ring, node: NodeId) -> BTreeSet<PartitionId> {
    let partitions = ring.partition_bits().partitions();
    partitions.filter(|partition| ring.owner_ids(*partition).any(|owner| owner == node)).collect()
}

/// The partitions of which a node holds a replica, those without a vote aside.
fn held(info: &NodeInfo, voting: bool) -> BTreeSet<PartitionId> {
    let replicas = info.replicas.iter().flatten();
    let counts = replicas.filter(|it| !voting || it.role != ReplicaRole::Learner);
    counts.map(|it| it.partition).collect()
}

fn named(partitions: &[PartitionId]) -> String {
    let names = partitions.iter().take(PARTITIONS_NAMED_MAX).map(ToString::to_string);
    let more = if partitions.len() > PARTITIONS_NAMED_MAX { ", ..." } else { "" };
    format!("{}{more}", names.collect::<Vec<_>>().join(", "))
}

/// Every node holds and votes for what the ring gives it.
fn replicas(status: &ClusterStatus, answers: &Answers<'_>, ring: &Ring) -> Line {
    let mut complaints = Vec::new();
    for (node, (name, answer)) in status.nodes.iter().zip(answers) {
        let Ok(info) = answer else { continue };
        let held = held(info, true);
        let missing: Vec<_> = owned(ring, node.id).difference(&held).copied().collect();
        if !missing.is_empty() {
            let count = missing.len();
            complaints.push(format!(
                "{name} has no vote in {count} of its partitions ({})",
                named(&missing)
            ));
        }
    }
    let under = status.redundancy.under_replicated_partitions;
    if under > 0 {
        complaints.push(format!("{under} partitions have too few owners"));
    }
    let copies = ring.owners_per_partition();
    line(
        "replicas",
        &complaints,
        format!("{copies} voters of each partition where the ring has them"),
    )
}

/// No node holds what the ring does not give it, once no plan needs that.
fn orphans(status: &ClusterStatus, answers: &Answers<'_>, ring: &Ring, told: &Migrations) -> Line {
    let settled = told.plans.iter().all(|plan| {
        plan.phase == "finished"
            || (plan.phase == "aborted" && plan.moves.iter().all(|it| !it.residue))
    });
    let mut complaints = Vec::new();
    let mut beside = 0;
    for (node, (name, answer)) in status.nodes.iter().zip(answers) {
        let Ok(info) = answer else { continue };
        let owned = owned(ring, node.id);
        let extra: Vec<_> = held(info, false).difference(&owned).copied().collect();
        beside += extra.len();
        if !extra.is_empty() && settled {
            let count = extra.len();
            complaints.push(format!(
                "{name} holds {count} copies that are not its own ({})",
                named(&extra)
            ));
        }
    }
    let fine = match beside {
        0 => "no copy is anywhere else".to_owned(),
        count => format!("{count} copies beside the ring's belong to plans that have not ended"),
    };
    line("old copies", &complaints, fine)
}

fn leaders(status: &ClusterStatus, answers: &Answers<'_>) -> Line {
    let led: u32 = answers.iter().filter_map(|(_, it)| it.as_ref().ok()).map(|it| it.leaders).sum();
    let complaints = match led == status.partitions {
        true => Vec::new(),
        false => vec![format!("{led} of {} partitions are led", status.partitions)],
    };
    line("leaders", &complaints, format!("all {led} partitions are led"))
}

fn zones(status: &ClusterStatus) -> Line {
    let redundancy = &status.redundancy;
    let detail = redundancy.detail.clone();
    let verdict = if redundancy.zones_achieved_min < redundancy.zones_possible {
        Verdict::Fail
    } else if redundancy.zones_possible < u32::from(status.replication_factor) {
        Verdict::Warn
    } else {
        Verdict::Pass
    };
    Line { verdict, check: "zones", detail }
}

fn plans(told: &Migrations) -> Line {
    let mut complaints = Vec::new();
    for plan in &told.plans {
        let left = plan.moves.iter().filter(|it| it.residue).count();
        match plan.phase.as_str() {
            "finished" => {}
            "aborted" if left == 0 => {}
            "aborted" => complaints.push(format!("plan {} left {left} copies", plan.id)),
            phase => complaints.push(format!("plan {} is {phase}", plan.id)),
        }
    }
    line("plans", &complaints, format!("{} on record, none under way", told.plans.len()))
}

fn digests(told: &Migrations) -> Line {
    let mut complaints = Vec::new();
    let mut compared = 0;
    // The newest plan comes first. A move whose old replica a later plan took back ends without a
    // comparison of its own: the later one speaks for the partition.
    let mut spoken_for = BTreeSet::new();
    for plan in &told.plans {
        for it in plan.moves.iter().filter(|_| plan.phase == "finished") {
            compared += usize::from(it.after_swap.is_some());
            let swapped = it.stage == "done" && it.lose.is_some() && it.gain.is_some();
            if swapped && it.after_swap.is_none() && !spoken_for.contains(&it.partition) {
                complaints.push(format!("partition {} of plan {}", it.partition, plan.id));
            }
        }
        spoken_for.extend(plan.moves.iter().map(|it| it.partition));
    }
    line("digests", &complaints, format!("all owners agreed after {compared} moves"))
}

fn disks(answers: &Answers<'_>) -> Line {
    let told = answers.iter().filter_map(|(name, it)| it.as_ref().ok().map(|info| (name, info)));
    let (mut bad, mut low) = (Vec::new(), Vec::new());
    let mut least = None;
    for (name, info) in told.filter(|(_, info)| info.disk_total > 0 || !info.disk_ok) {
        if !info.disk_ok {
            bad.push(format!("{name}: no room, or its last probe was late"));
        }
        let percent = info.disk_available.saturating_mul(100) / info.disk_total.max(1);
        if percent < DISK_FREE_PERCENT_MIN {
            low.push(format!("{name} has {} free, {percent} %", bytes(info.disk_available)));
        }
        least = Some(least.unwrap_or(u64::MAX).min(info.disk_available));
    }
    let fine =
        least.map_or("nobody told".to_owned(), |least| format!("at least {} free", bytes(least)));
    let line = line("disks", &bad, fine);
    match line.verdict {
        Verdict::Pass if !low.is_empty() => {
            Line { verdict: Verdict::Warn, detail: low.join("; "), ..line }
        }
        Verdict::Pass | Verdict::Warn | Verdict::Fail => line,
    }
}

fn clocks(answers: &Answers<'_>) -> Line {
    let times = answers.iter().filter_map(|(_, it)| it.as_ref().ok()).map(|it| it.unix_ms);
    let (first, last) =
        times.fold((u64::MAX, 0), |(first, last), it| (first.min(it), last.max(it)));
    let apart = last.saturating_sub(first);
    let complaints = match apart <= CLOCKS_APART_MS {
        true => Vec::new(),
        false => vec![format!("wall clocks are {apart} ms apart")],
    };
    line("clocks", &complaints, format!("within {apart} ms"))
}

fn alarms(answers: &Answers<'_>) -> Line {
    let told = answers.iter().filter_map(|(name, it)| it.as_ref().ok().map(|info| (name, info)));
    let mut complaints = Vec::new();
    for (name, info) in told {
        let mine = info.stage != NodeStage::Uninitialised;
        let alarms = info.alarms.iter().filter(|alarm| mine && alarm.code != "peer-unreachable");
        complaints.extend(alarms.map(|alarm| format!("{name}: {}: {}", alarm.code, alarm.detail)));
    }
    line("alarms", &complaints, "none".to_owned())
}

#[cfg(test)]
mod tests {
    use kvapi::{Alarm, ReplicaInfo};
    use placement::simulate::{FleetSpec, RingRules};
    use placement::{Epoch, PartitionBits, ReplicationFactor, TokenPolicy};
    use serde_json::json;

    use super::*;

    fn ring() -> Ring {
        let rules = RingRules {
            partition_bits: PartitionBits::from_count(4).expect("a power of two"),
            replication_factor: ReplicationFactor::DEFAULT,
            policy: TokenPolicy::Balanced,
            vnodes_per_node: 16,
        };
        let nodes = FleetSpec::equal(3, 3, 1).topology().expect("nodes");
        rules.ring(nodes, None).expect("a ring")
    }

    fn status(ring: &Ring) -> ClusterStatus {
        let node = |node: &placement::NodeSpec| {
            json!({
                "id": node.id, "name": node.name, "zone": node.zone, "weight": 1,
                "client_address": "c:1", "peer_address": "p:1", "health": "up",
                "stage": "member", "state": "active", "primaries": 1, "replicas": 4,
            })
        };
        let status = json!({
            "cluster_id": "c1", "epoch": 1, "revision": 9, "view_age_ms": 3, "partitions": 4,
            "replication_factor": 3, "group0": { "leader": null, "term": 1, "voters": [] },
            "nodes": ring.nodes().iter().map(node).collect::<Vec<_>>(),
            "redundancy": {
                "zones_achieved_min": 3, "zones_possible": 3, "under_replicated_partitions": 0,
                "detail": "all is well",
            },
        });
        serde_json::from_value(status).expect("a status")
    }

    /// A node that votes in these partitions, and leads the first of them.
    fn info(node: &placement::NodeSpec, partitions: &[u32]) -> Result<NodeInfo, String> {
        let replica = |number: &u32| ReplicaInfo {
            partition: PartitionId::new(*number),
            role: if *number == partitions[0] {
                ReplicaRole::Leader
            } else {
                ReplicaRole::Follower
            },
            leader: None,
            term: 1,
            commit_index: 1,
            applied_index: 1,
            generation: 1,
        };
        let replicas: Vec<ReplicaInfo> = partitions.iter().map(replica).collect();
        let info = json!({
            "cluster_id": "c1", "id": node.id, "name": node.name, "zone": node.zone, "weight": 1,
            "client_address": "c:1", "peer_address": "p:1", "stage": "member", "epoch": 1,
            "view_revision": 9, "view_age_ms": 3, "partitions": partitions.len(), "leaders": 1,
            "replicas": replicas, "log_bytes": 0, "data_bytes": 0, "disk_ok": true,
            "disk_available": 50, "disk_total": 100, "version": "1", "unix_ms": 1000,
        });
        Ok(serde_json::from_value(info).expect("an answer"))
    }

    #[test]
    fn each_copy_is_where_the_ring_has_it_or_the_node_is_named() {
        let ring = ring();
        let status = status(&ring);
        let nodes = ring.nodes();
        let all = [0, 1, 2, 3];
        let good: Vec<_> = nodes.iter().map(|node| info(node, &all)).collect();
        let names = ["n1", "n2", "n3"];
        let answers: Vec<_> = names.into_iter().zip(&good).collect();
        let none = Migrations::default();
        assert_eq!(replicas(&status, &answers, &ring).verdict, Verdict::Pass);
        assert_eq!(orphans(&status, &answers, &ring, &none).verdict, Verdict::Pass);
        assert_eq!(disks(&answers).verdict, Verdict::Pass);
        assert_eq!(clocks(&answers).verdict, Verdict::Pass);
        assert_eq!(epochs(&status, &answers).verdict, Verdict::Pass);

        let mut bad = good.clone();
        bad[1] = info(&nodes[1], &[0, 1, 2, 9]);
        if let Ok(info) = &mut bad[2] {
            info.epoch = Epoch::new(7);
            info.unix_ms = 99_000;
            info.disk_available = 3;
            info.alarms.push(Alarm { code: "disk".to_owned(), detail: "slow".to_owned() });
        }
        let answers: Vec<_> = names.into_iter().zip(&bad).collect();
        let told = replicas(&status, &answers, &ring);
        assert_eq!(told.detail, "n2 has no vote in 1 of its partitions (3)");
        assert_eq!(told.verdict, Verdict::Fail);
        let told = orphans(&status, &answers, &ring, &none);
        assert_eq!(told.detail, "n2 holds 1 copies that are not its own (9)");
        assert_eq!(epochs(&status, &answers).detail, "n3 is at epoch 7");
        assert_eq!(clocks(&answers).detail, "wall clocks are 98000 ms apart");
        assert_eq!(disks(&answers).verdict, Verdict::Warn);
        assert_eq!(alarms(&answers).detail, "n3: disk: slow");
    }

    #[test]
    fn a_node_that_is_silent_and_a_lost_zone_fail_and_a_missing_zone_warns() {
        let ring = ring();
        let mut status = status(&ring);
        let silent = [Err("refused".to_owned()), info(&ring.nodes()[1], &[0])];
        let answers: Vec<_> = ["n1", "n2"].into_iter().zip(&silent).collect();
        assert_eq!(nodes(&status, &answers).detail, "n1 does not answer: refused");
        assert_eq!(leaders(&status, &answers).detail, "1 of 4 partitions are led");
        assert_eq!(zones(&status).verdict, Verdict::Pass);
        status.redundancy.zones_achieved_min = 2;
        assert_eq!(zones(&status).verdict, Verdict::Fail);
        status.redundancy.zones_possible = 2;
        assert_eq!(zones(&status).verdict, Verdict::Warn);
    }

    fn finished(id: u64, kind: &str, partition: u32, compared: bool) -> serde_json::Value {
        let gate = compared.then(|| json!({ "index": 7, "digest": "00" }));
        json!({
            "id": id, "kind": kind, "phase": "finished", "changes": [], "base_epoch": id,
            "applied_at": 0, "paused": false, "copies_min": 1, "bytes_done": 0, "bytes_total": 0,
            "bytes_per_second": 0,
            "moves": [{
                "number": 0, "partition": partition, "gain": "n4", "lose": "n1", "stage": "done",
                "since": 0, "bytes_done": 0, "bytes_total": 0, "bytes_per_second": 0,
                "failures": 0, "after_swap": gate, "residue": false,
            }],
        })
    }

    #[test]
    fn a_move_without_a_comparison_fails_unless_a_later_plan_speaks_for_its_partition() {
        let told = |plans: Vec<serde_json::Value>| -> Migrations {
            serde_json::from_value(json!({ "plans": plans })).expect("plans")
        };
        let back = |partition| finished(2, "rollback of plan 1", partition, true);
        let taken_back = told(vec![back(5), finished(1, "changes", 5, false)]);
        assert_eq!(digests(&taken_back).verdict, Verdict::Pass);
        let forgotten = told(vec![back(6), finished(1, "changes", 5, false)]);
        assert_eq!(digests(&forgotten).detail, "partition 5 of plan 1");
        assert_eq!(digests(&forgotten).verdict, Verdict::Fail);
    }
}
