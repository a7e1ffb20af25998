//! What a node tells others of its disk and its replicas, for plans, status pages and simulations.
//!
//! Sizes, which are those before compression, and numbers of keys are estimates: the store knows the
//! bytes of its files by partition, but what is in memory, how well it compresses, and the number of
//! keys, only in total. Nothing is decided by them except whether
//! a plan fits on a disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use kvcore::GroupId;
use kvcore::group::{GroupSummary, Role};
use placement::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::groups::GroupTable;
use crate::storage::{Compression, Database, DiskGuard};
use crate::transport::{PeerAnswer, PeerRequest, Peers};
use crate::view::View;

/// Samples of requests that rates are taken from: one per second of housekeeping.
const SAMPLES_MAX: usize = 10;
/// How well records are compressed is looked at this rarely: every file has to be asked.
const COMPRESSION_AGE_MAX: Duration = Duration::from_secs(30);

/// A node's disk and its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Bytes that are free on its disk.
    pub disk_available: u64,
    /// Bytes of its whole disk.
    pub disk_total: u64,
    /// Bytes that it keeps free.
    pub disk_reserve: u64,
    /// Its replicas of partitions, by number.
    pub replicas: Vec<ReplicaReport>,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// The partition.
    pub partition: PartitionId,
    /// What the replica is.
    pub part: Part,
    /// Number of keys, estimated.
    pub keys: u64,
    /// Bytes of keys and values, estimated.
    pub bytes: u64,
    /// Thousandths of reads per second that this node served, lately.
    pub millireads: u64,
    /// Thousandths of writes per second that this node took as the leader, lately.
    pub milliwrites: u64,
}

/// What a replica is in its group. Stored on the wire by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// It leads.
    Leader,
    /// It follows and votes.
    Follower,
    /// It follows without a vote.
    Learner,
    /// It tries to become leader.
    Candidate,
}

impl From<Role> for Part {
    fn from(role: Role) -> Self {
        match role {
            Role::Leader => Self::Leader,
            Role::Follower => Self::Follower,
            Role::Learner => Self::Learner,
            Role::Candidate => Self::Candidate,
        }
    }
}

/// Makes reports of this node, and asks the others for theirs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reporter {
    database: Database,
    disk: Arc<DiskGuard>,
    summaries: Arc<ArcSwap<Vec<GroupSummary>>>,
    groups: GroupTable,
    samples: Arc<Mutex<VecDeque<Sample>>>,
    compression: Arc<Mutex<Option<(Instant, Compression)>>>,
}

/// How many requests the replicas had served at some moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    counts: Vec<(PartitionId, u64, u64)>,
}

impl Reporter {
    pub(crate) fn new(database: Database, disk: Arc<DiskGuard>, groups: GroupTable) -> Self {
        Self {
            database,
            disk,
            summaries: Arc::default(),
            groups,
            samples: Arc::default(),
            compression: Arc::default(),
        }
    }

    /// Notes how the replicas are and how many requests each has served so far; to be called about
    /// once per second.
    pub(crate) fn note(&self, summaries: Vec<GroupSummary>) {
        self.summaries.store(Arc::new(summaries));
        let groups = self.groups.load();
        let count = |(group, _, replica): (GroupId, _, &crate::groups::LocalReplica)| {
            let (reads, writes) = replica.served();
            group.partition().map(|partition| (partition, reads, writes))
        };
        let counts = groups.local().filter_map(count).collect();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(Sample { at: Instant::now(), counts });
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    /// The replicas on this node, as they were when last noted.
    #[must_use]
    pub fn summaries(&self) -> Arc<Vec<GroupSummary>> {
        self.summaries.load_full()
    }

    /// This node's report.
    pub async fn own(&self) -> NodeReport {
        let reporter = self.clone();
        // Interrupted only when the runtime ends, and whoever asks with it.
        tokio::task::spawn_blocking(move || reporter.measure()).await.unwrap_or_default()
    }

    /// The reports of all nodes of the directory that answer in time.
    pub(crate) async fn all(
        &self,
        here: NodeId,
        view: &View,
        peers: &Peers,
        deadline: Instant,
    ) -> BTreeMap<NodeId, NodeReport> {
        let ask = async |node: NodeId| {
            if node == here {
                return Some((node, self.own().await));
            }
            match peers.call(node, PeerRequest::Report, deadline).await {
                Ok(PeerAnswer::Report(report)) => Some((node, *report)),
                Ok(_) | Err(_) => None,
            }
        };
        join_all(view.state.nodes.keys().map(|node| ask(*node)))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// May read the disk.
    fn measure(&self) -> NodeReport {
        let space = self.disk.space().ok();
        let rates = self.rates();
        let summaries = self.summaries();
        let local: Vec<_> = summaries
            .iter()
            .filter_map(|summary| Some((summary.group.partition()?, summary)))
            .collect();
        let totals = self.database.data_totals();
        let compression = self.compression();
        let in_files = local.iter().map(|(partition, summary)| {
            let stats = self.database.partition_stats(*partition, summary.generation);
            compression.expand(stats.bytes_on_disk)
        });
        let in_files: Vec<u64> = in_files.collect();
        // A partition's part of what is in memory goes by its part of all writes.
        let writes = local.iter().map(|(_, summary)| summary.state.version.get());
        let in_memory = shares(totals.memory_bytes, &writes.collect::<Vec<_>>());
        let bytes: Vec<u64> =
            in_files.iter().zip(in_memory).map(|(one, other)| one + other).collect();
        let keys = shares(totals.keys, &bytes);
        let replicas =
            local.iter().zip(bytes).zip(keys).map(|(((partition, summary), bytes), keys)| {
                let (millireads, milliwrites) = rates.get(partition).copied().unwrap_or_default();
                let part = summary.role.into();
                ReplicaReport { partition: *partition, part, keys, bytes, millireads, milliwrites }
            });
        let mut replicas: Vec<_> = replicas.collect();
        replicas.sort_by_key(|replica| replica.partition);
        NodeReport {
            disk_available: space.map_or(0, |space| space.available),
            disk_total: space.map_or(0, |space| space.total),
            disk_reserve: self.disk.reserve(),
            replicas,
        }
    }

    /// How well records are compressed, as of a while ago at most.
    fn compression(&self) -> Compression {
        let mut known = self.compression.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((at, compression)) if at.elapsed() < COMPRESSION_AGE_MAX => compression,
            Some(_) | None => {
                let compression = self.database.compression();
                *known = Some((Instant::now(), compression));
                compression
            }
        }
    }

    /// Thousandths of reads and of writes per second, by partition.
    fn rates(&self) -> BTreeMap<PartitionId, (u64, u64)> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return BTreeMap::new();
        };
        rates_between(first, last)
    }
}

fn rates_between(first: &Sample, last: &Sample) -> BTreeMap<PartitionId, (u64, u64)> {
    let millis = u64::try_from(last.at.duration_since(first.at).as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return BTreeMap::new();
    }
    let before: BTreeMap<_, _> = first
        .counts
        .iter()
        .map(|(partition, reads, writes)| (*partition, (*reads, *writes)))
        .collect();
    // A replica that was made anew counts from 0.
    let rate = |now: u64, then: u64| now.saturating_sub(then).saturating_mul(1_000_000) / millis;
    let of = |(partition, reads, writes): &(PartitionId, u64, u64)| {
        let then = before.get(partition).copied().unwrap_or_default();
        (*partition, (rate(*reads, then.0), rate(*writes, then.1)))
    };
    last.counts.iter().map(of).collect()
}

/// Divides a total in proportion to some weights.
fn shares(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let share = |weight: &u64| match sum {
        0 => 0,
        sum => u64::try_from(u128::from(total) * u128::from(*weight) / sum).unwrap_or(u64::MAX),
    };
    weights.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn totals_are_divided_by_weight_and_nothing_is_invented() {
        assert_eq!(shares(100, &[1, 3, 0]), [25, 75, 0]);
        assert_eq!(shares(100, &[0, 0]), [0, 0]);
        assert_eq!(shares(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2; 2]);
        assert!(shares(10, &[]).is_empty());
    }

    #[test]
    fn rates_are_those_between_the_samples_and_never_negative() {
        let start = Instant::now();
        let partition = PartitionId::new;
        let sample = |seconds, counts| Sample { at: start + Duration::from_secs(seconds), counts };
        let first = sample(0, vec![(partition(1), 100, 10), (partition(2), 500, 50)]);
        let last =
            sample(4, vec![(partition(1), 300, 11), (partition(2), 4, 0), (partition(3), 8, 4)]);
        let rates = rates_between(&first, &last);
        assert_eq!(rates[&partition(1)], (50_000, 250));
        assert_eq!(rates[&partition(2)], (0, 0), "it was made anew meanwhile");
        assert_eq!(rates[&partition(3)], (2000, 1000));
        assert!(rates_between(&first, &first).is_empty());
    }
}
