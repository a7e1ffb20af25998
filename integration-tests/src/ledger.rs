//! What must be there after a disaster: every key is written once, so whatever was acknowledged is
//! either readable for ever or lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::cluster::{Cluster, Node};
use crate::history::{Call, Outcome};

/// Readers at a time while a ledger is read back.
const READERS: usize = 8;
/// Time for one read; the cluster is healthy when a ledger is read back.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a read is sent again after a refusal.
const READ_ATTEMPTS: usize = 20;

/// What became of the one write of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It must be there with this version.
    Acknowledged(u64),
    /// It must not be there.
    NotApplied,
    /// It may be there.
    Unknown,
}

/// All writes of a run. Keys and values are derived from one number.
#[derive(Debug, Default)]
pub struct Ledger {
    fates: Mutex<BTreeMap<String, (u64, Fate)>>,
}

/// How many writes met which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Acknowledged.
    pub acknowledged: usize,
    /// Surely not applied.
    pub not_applied: usize,
    /// Unknown.
    pub unknown: usize,
}

impl Ledger {
    /// Notes the fate of a key's write.
    pub fn note(&self, key: String, value: u64, outcome: Outcome) -> anyhow::Result<()> {
        let fate = match outcome {
            Outcome::Written(version) => Fate::Acknowledged(version),
            Outcome::NotApplied => Fate::NotApplied,
            Outcome::Unknown => Fate::Unknown,
            Outcome::Found { .. } | Outcome::Absent | Outcome::Deleted | Outcome::Refused(_) => {
                bail!("{outcome:?} is no answer to a write")
            }
        };
        let before = self.fates().insert(key, (value, fate));
        ensure!(before.is_none(), "a key of the ledger was written twice");
        Ok(())
    }

    /// How many writes met which fate.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (_, fate) in self.fates().values() {
            match fate {
                Fate::Acknowledged(_) => totals.acknowledged += 1,
                Fate::NotApplied => totals.not_applied += 1,
                Fate::Unknown => totals.unknown += 1,
            }
        }
        totals
    }

    /// Reads every key through a node and compares.
    ///
    /// # Errors
    /// For the first keys that are not as they must be.
    pub async fn check_through(&self, addresses: &[String], node: usize) -> anyhow::Result<()> {
        let all: Vec<(String, (u64, Fate))> =
            self.fates().iter().map(|(key, fate)| (key.clone(), *fate)).collect();
        let mut readers = JoinSet::new();
        for part in all.chunks(all.len().div_ceil(READERS).max(1)) {
            let part = part.to_vec();
            let mut caller = Caller::new(addresses);
            readers.spawn(async move {
                let mut wrong = Vec::new();
                for (key, (value, fate)) in part {
                    let outcome = read(&mut caller, node, &key).await?;
                    if !is_as_it_must_be(value, fate, outcome) {
                        wrong.push(format!("{key}: {fate:?}, and reading it says {outcome:?}"));
                    }
                }
                anyhow::Ok(wrong)
            });
        }
        let mut wrong = Vec::new();
        while let Some(part) = readers.join_next().await {
            wrong.extend(part??);
        }
        wrong.truncate(10);
        ensure!(
            wrong.is_empty(),
            "{} through node {node}, among others:\n{}",
            "keys are not as they must be",
            wrong.join("\n")
        );
        Ok(())
    }

    /// Reads every key through each node that runs.
    pub async fn check_everywhere(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let running = cluster.nodes().iter().filter(|node| node.is_started());
        let running: Vec<String> = running.map(Node::client_address).collect();
        for node in 0..running.len() {
            self.check_through(&running, node).await?;
        }
        Ok(())
    }

    fn fates(&self) -> MutexGuard<'_, BTreeMap<String, (u64, Fate)>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_as_it_must_be(value: u64, fate: Fate, outcome: Outcome) -> bool {
    match (fate, outcome) {
        (Fate::Acknowledged(version), outcome) => outcome == Outcome::Found { value, version },
        (Fate::NotApplied, outcome) => outcome == Outcome::Absent,
        (Fate::Unknown, Outcome::Found { value: found, version: _ }) => found == value,
        (Fate::Unknown, outcome) => outcome == Outcome::Absent,
    }
}

async fn read(caller: &mut Caller, node: usize, key: &str) -> anyhow::Result<Outcome> {
    let mut last = String::new();
    for _ in 0..READ_ATTEMPTS {
        let told = caller.call(node, key.as_bytes(), Call::Get, READ_TIMEOUT).await?;
        match told.outcome {
            Outcome::Found { .. } | Outcome::Absent => return Ok(told.outcome),
            _ => last = told.reason,
        }
    }
    bail!("{key} cannot be read through node {node}: {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_fate_allows_may_be_found() {
        let found = |value, version| Outcome::Found { value, version };
        let table = [
            (Fate::Acknowledged(3), found(7, 3), true),
            (Fate::Acknowledged(3), found(7, 4), false),
            (Fate::Acknowledged(3), found(8, 3), false),
            (Fate::Acknowledged(3), Outcome::Absent, false),
            (Fate::NotApplied, Outcome::Absent, true),
            (Fate::NotApplied, found(7, 3), false),
            (Fate::Unknown, Outcome::Absent, true),
            (Fate::Unknown, found(7, 9), true),
            (Fate::Unknown, found(8, 9), false),
        ];
        for (fate, outcome, want) in table {
            assert_eq!(is_as_it_must_be(7, fate, outcome), want, "{fate:?} {outcome:?}");
        }
    }
}
