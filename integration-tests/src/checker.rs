//! Whether what clients saw of a key could have come from one copy of it.
//!
//! The model of a key: absent, or a value with a version; versions never repeat and never go back, not
//! even over deletions. Three cheap checks with plain words come first, then a search for an order of
//! all operations of each key (Wing and Gong's, by `porcupine_rs`).
//!
//! A write of unknown outcome may take effect at any moment after its call, also after the end, or
//! never, which is the same as after the end. If somebody saw its value, then it did take effect, and
//! with that version.

mod model;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use porcupine_rs::{CheckResult, check_operations_info_timeout, check_operations_timeout};

use crate::history::{Call, Operation, Outcome};
use model::KeyModel;

/// Most operations on one key: the search is fast up to here.
pub const OPERATIONS_PER_KEY_MAX: usize = 300;
/// Time to search one key. Running out of it is a failure, not a pass.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// All operations.
    pub operations: usize,
    /// Reads that were answered.
    pub reads: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// Conditions that were found false.
    pub refused: usize,
    /// Writes that were surely not applied.
    pub not_applied: usize,
    /// Writes whose outcome is unknown.
    pub unknown: usize,
    /// Among these, writes whose value somebody saw.
    pub unknown_seen: usize,
    /// Reads without an answer.
    pub reads_lost: usize,
    /// Keys.
    pub keys: usize,
    /// Operations on the busiest key.
    pub operations_per_key_max: usize,
}

/// Checks a whole history. On a violation the operations of that key are written to `directory`.
///
/// # Errors
/// If no order explains what was seen, or none was found in time.
pub fn check(history: &[Operation], directory: &Path) -> anyhow::Result<Verdict> {
    let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut verdict = Verdict { keys: keys.len(), ..Verdict::default() };
    for (key, operations) in &keys {
        let checked = check_key(operations, &mut verdict);
        checked.or_else(|error| {
            let path = directory.join(format!("violation-{key}.json"));
            std::fs::write(&path, serde_json::to_vec_pretty(operations)?)?;
            explain(operations, &path.with_extension("html"))?;
            Err(error.context(format!("key {key}, see {}", path.display())))
        })?;
    }
    Ok(verdict)
}

fn check_key(operations: &[&Operation], verdict: &mut Verdict) -> anyhow::Result<()> {
    count(operations, verdict);
    ensure!(
        operations.len() <= OPERATIONS_PER_KEY_MAX,
        "{} operations on one key cannot be searched",
        operations.len()
    );
    let seen = Seen::of(operations)?;
    verdict.unknown_seen += operations
        .iter()
        .filter(|operation| operation.outcome == Outcome::Unknown)
        .filter_map(|operation| operation.call.value())
        .filter(|value| seen.version_of.contains_key(value))
        .count();
    check_order_of_versions(operations)?;
    let steps = model::operations(operations, &seen.version_of);
    // Fewer reads may only make an order harder to find, so what is found for them holds for all.
    let merged = model::merge_reads(&steps);
    if check_operations_timeout(&merged, SEARCH_TIMEOUT) == CheckResult::Ok {
        return Ok(());
    }
    match check_operations_timeout(&steps, SEARCH_TIMEOUT) {
        CheckResult::Ok => Ok(()),
        CheckResult::Illegal => bail!("no order of the operations explains what was seen"),
        CheckResult::Unknown => bail!("no order was found within {SEARCH_TIMEOUT:?}"),
    }
}

fn count(operations: &[&Operation], verdict: &mut Verdict) {
    verdict.operations += operations.len();
    verdict.operations_per_key_max = verdict.operations_per_key_max.max(operations.len());
    for operation in operations {
        let counter = match (operation.call, operation.outcome) {
            (Call::Get, Outcome::Unknown | Outcome::NotApplied) => &mut verdict.reads_lost,
            (_, Outcome::Found { .. } | Outcome::Absent) => &mut verdict.reads,
            (_, Outcome::Written(_) | Outcome::Deleted) => &mut verdict.writes,
            (_, Outcome::Refused(_)) => &mut verdict.refused,
            (_, Outcome::NotApplied) => &mut verdict.not_applied,
            (_, Outcome::Unknown) => &mut verdict.unknown,
        };
        *counter += 1;
    }
}

/// What was seen of the values of one key.
struct Seen {
    version_of: HashMap<u64, u64>,
}

impl Seen {
    /// Collects it, and refuses what cannot be whatever the order: a value that nobody wrote or that
    /// was said not to be written, one value with two versions, two values with one version.
    fn of(operations: &[&Operation]) -> anyhow::Result<Self> {
        let mut writers: HashMap<u64, &Operation> = HashMap::new();
        for operation in operations {
            if let Some(value) = operation.call.value() {
                ensure!(writers.insert(value, operation).is_none(), "{value} was written twice");
            }
        }
        let mut version_of = HashMap::new();
        let mut value_of = HashMap::new();
        for operation in operations {
            let (value, version) = match (operation.call.value(), operation.outcome) {
                (_, Outcome::Found { value, version }) => (value, version),
                (Some(value), Outcome::Written(version)) => (value, version),
                _ => continue,
            };
            let writer =
                writers.get(&value).with_context(|| format!("{value} was never written"))?;
            ensure!(
                !matches!(writer.outcome, Outcome::NotApplied | Outcome::Refused(_)),
                "{value} was seen although its write was answered with {:?}",
                writer.outcome
            );
            let first = *version_of.entry(value).or_insert(version);
            ensure!(first == version, "{value} has version {version} and version {first}");
            let first = *value_of.entry(version).or_insert(value);
            ensure!(first == value, "version {version} belongs to {value} and to {first}");
        }
        Ok(Self { version_of })
    }
}

/// A version that was seen before an operation was called is not followed by an older one in its
/// answer. The search finds that as well; this says it in words.
fn check_order_of_versions(operations: &[&Operation]) -> anyhow::Result<()> {
    let version = |operation: &Operation| match operation.outcome {
        Outcome::Found { value: _, version } | Outcome::Written(version) => Some(version),
        Outcome::Refused(version) => version,
        Outcome::Absent | Outcome::Deleted | Outcome::NotApplied | Outcome::Unknown => None,
    };
    let versioned =
        operations.iter().filter_map(|operation| Some((version(operation)?, operation)));
    let mut by_call: Vec<(u64, &&Operation)> = versioned.collect();
    let mut by_return = by_call.clone();
    by_call.sort_unstable_by_key(|(_, operation)| operation.called);
    by_return.sort_unstable_by_key(|(_, operation)| operation.returned);
    let mut returned = by_return.into_iter().peekable();
    let mut newest: Option<(u64, &&Operation)> = None;
    for (version, operation) in by_call {
        while let Some(earlier) = returned.next_if(|(_, other)| other.returned < operation.called) {
            newest = newest.filter(|(newest, _)| *newest >= earlier.0).or(Some(earlier));
        }
        if let Some((newest, witness)) = newest {
            ensure!(
                version >= newest,
                "version {version} was answered after version {newest} was known:\n  {witness:?}\n  \
                 {operation:?}"
            );
        }
    }
    Ok(())
}

/// Draws the longest order that was found, for people.
fn explain(operations: &[&Operation], path: &Path) -> anyhow::Result<()> {
    let Ok(seen) = Seen::of(operations) else { return Ok(()) };
    let operations = model::operations(operations, &seen.version_of);
    let (_, info) = check_operations_info_timeout::<KeyModel>(&operations, SEARCH_TIMEOUT);
    porcupine_rs::visualize_path::<KeyModel>(&info, path).context("cannot draw the history")
}

#[cfg(test)]
mod tests;
