//! What the groups have committed, learnt by watching: the reference that replicas are held to.
//!
//! The first replica that applies an entry defines it; every other must apply the same (I4) and,
//! having applied it, must have the same state (I5). The oracle applies the entries itself as well,
//! so that a snapshot or a restart that changed the state is found at the next look.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvcore::cluster::{self, ClusterCommand, ClusterState};
use kvcore::storage::Configuration;
use kvcore::store::{
    self, Command, Digest, DigestBuilder, EntryPayload, PartitionState, Record, WriteOutcome,
};
use kvcore::{GroupId, Revision, Version, codec};
use protobuf::ProtobufEnum as _;
use raft::eraftpb::{Entry, EntryType};
use xxhash_rust::xxh3::xxh3_64;

use super::report::Violation;

/// A write that took effect.
#[derive(Clone, Debug)]
pub struct Effected {
    /// The version it was given.
    pub version: Version,
    /// What it stored; `None` if it made the key absent.
    pub value: Option<Bytes>,
}

#[derive(Default)]
struct Group {
    /// Fingerprints of the entries, from index 2 on.
    entries: Vec<u64>,
    /// Digests of the state after them.
    digests: Vec<Digest>,
    /// Configurations at them, as far as they are known.
    configurations: BTreeMap<u64, Configuration>,
    state: PartitionState,
    records: BTreeMap<Bytes, Bytes>,
    cluster: Option<Arc<ClusterState>>,
    /// The states between the commands of the last entry, the one before it first.
    steps: Vec<Arc<ClusterState>>,
}

/// The reference.
#[derive(Default)]
pub struct Oracle {
    groups: BTreeMap<GroupId, Group>,
    effected: BTreeMap<Bytes, Vec<Effected>>,
    /// The key, version and place of each stored value.
    values: BTreeMap<Bytes, (Bytes, Version)>,
}

/// Index of the first entry: groups are born at index 1.
const FIRST: u64 = 2;

fn offset(index: u64) -> usize {
    usize::try_from(index - FIRST).expect("logs fit memory")
}

impl Oracle {
    /// A reference for a cluster founded like this.
    #[must_use]
    pub fn new(founding: &Arc<ClusterState>) -> Self {
        let mut oracle = Self::default();
        for group in founding.groups() {
            let mut known = Group::default();
            if group == GroupId::CLUSTER {
                known.cluster = Some(Arc::clone(founding));
            }
            oracle.groups.insert(group, known);
        }
        oracle
    }

    /// The last index known to be committed in a group.
    #[must_use]
    pub fn last(&self, group: GroupId) -> u64 {
        self.groups.get(&group).map_or(0, |known| FIRST - 1 + known.entries.len() as u64)
    }

    /// The writes of a key that took effect, by version.
    #[must_use]
    pub fn effected(&self, key: &[u8]) -> &[Effected] {
        self.effected.get(key).map_or(&[], Vec::as_slice)
    }

    /// The version under which a value was stored.
    #[must_use]
    pub fn version_of(&self, value: &[u8]) -> Option<Version> {
        self.values.get(value).map(|(_, version)| *version)
    }

    /// Takes note of an entry that a replica applied.
    ///
    /// # Errors
    /// A violation of I3 or I4.
    pub fn applied(&mut self, group: GroupId, entry: &Entry) -> Result<(), Violation> {
        let known = self.groups.get_mut(&group).expect("groups are founded");
        let fingerprint = fingerprint(entry);
        let last = FIRST - 1 + known.entries.len() as u64;
        if entry.index <= last {
            let first = known.entries[offset(entry.index)];
            return i4_one_entry_per_place(group, entry, first, fingerprint);
        }
        if entry.index != last + 1 {
            return Err(Violation::new(
                "I4",
                format!("group {group} applied {} before {}", entry.index, last + 1),
            ));
        }
        known.entries.push(fingerprint);
        self.advance(group, entry)
    }

    fn advance(&mut self, group: GroupId, entry: &Entry) -> Result<(), Violation> {
        let normal = entry.get_entry_type() == EntryType::EntryNormal && !entry.data.is_empty();
        let malformed = |error: codec::DecodeError| Violation::new("codec", error.to_string());
        let known = self.groups.get_mut(&group).expect("groups are founded");
        if let Some(state) = &mut known.cluster {
            known.steps.clear();
            if normal {
                let commands: Vec<ClusterCommand> =
                    codec::decode(&entry.data).map_err(malformed)?;
                known.steps = vec![Arc::clone(state)];
                for command in commands {
                    let next = Arc::make_mut(state);
                    let _ = cluster::apply(next, Revision(entry.index), command);
                    known.steps.push(Arc::clone(state));
                }
            }
            let digest = digest_of_cluster(state);
            known.digests.push(digest);
            return Ok(());
        }
        if normal {
            let payload = EntryPayload::decode(&entry.data).map_err(malformed)?;
            for command in payload.commands {
                let key = match &command {
                    Command::Put { key, .. } | Command::Delete { key, .. } => Some(key.clone()),
                    Command::Truncate { .. } | Command::Verify => None,
                };
                let known = self.groups.get_mut(&group).expect("groups are founded");
                let mut records = Map(&mut known.records);
                let outcome = store::apply(&mut known.state, &mut records, command)
                    .unwrap_or_else(|never| match never {});
                if let Some(key) = key {
                    self.note(key, group, outcome)?;
                }
            }
        }
        let known = self.groups.get_mut(&group).expect("groups are founded");
        let mut digest = DigestBuilder::default();
        for (key, record) in &known.records {
            digest.add(key, record);
        }
        known.digests.push(digest.finish(&known.state));
        Ok(())
    }

    fn note(&mut self, key: Bytes, group: GroupId, outcome: WriteOutcome) -> Result<(), Violation> {
        let (version, stored) = match outcome {
            WriteOutcome::Put(version) => (version, true),
            WriteOutcome::Deleted(version) => (version, false),
            WriteOutcome::ConditionFailed(_) | WriteOutcome::Truncate(_) | WriteOutcome::Verify => {
                return Ok(());
            }
        };
        let value = if stored {
            let record = self.groups[&group].records[&key].clone();
            let record = Record::decode(record)
                .map_err(|error| Violation::new("codec", error.to_string()))?;
            self.values.insert(record.value.clone(), (key.clone(), version));
            Some(record.value)
        } else {
            None
        };
        let effected = self.effected.entry(key.clone()).or_default();
        i3_versions_increase(&key, effected.last().map(|last| last.version), version)?;
        effected.push(Effected { version, value });
        Ok(())
    }

    /// Holds a replica's state at an applied index to the reference.
    ///
    /// # Errors
    /// A violation of I5.
    pub fn check_digest(
        &self,
        group: GroupId,
        applied: u64,
        digest: Digest,
        who: &str,
    ) -> Result<(), Violation> {
        if applied < FIRST {
            return Ok(());
        }
        let expected = self.groups[&group].digests.get(offset(applied)).copied();
        i5_one_digest_per_index(group, applied, digest, expected, who)
    }

    /// Holds a replica's configuration at an applied index to that of the others. Returns whether
    /// it is the first one there, beyond all others that are known.
    ///
    /// # Errors
    /// A violation of I5.
    pub fn check_configuration(
        &mut self,
        group: GroupId,
        applied: u64,
        configuration: &Configuration,
        who: &str,
    ) -> Result<bool, Violation> {
        let known = self.groups.get_mut(&group).expect("groups are founded");
        let newest = known.configurations.last_key_value();
        let is_news = newest.is_none_or(|(index, newest)| {
            *index < applied && newest.changed_at < configuration.changed_at
        });
        let mut sorted = configuration.clone();
        for ids in [
            &mut sorted.voters,
            &mut sorted.learners,
            &mut sorted.voters_outgoing,
            &mut sorted.learners_next,
        ] {
            ids.sort_unstable();
        }
        let first = known.configurations.entry(applied).or_insert_with(|| sorted.clone());
        if *first == sorted {
            return Ok(is_news);
        }
        Err(Violation::new(
            "I5",
            format!(
                "{who}: configuration of group {group} at {applied}: {sorted:?}, not {first:?}"
            ),
        ))
    }

    /// The last committed configuration of a group that any replica has applied.
    #[must_use]
    pub fn configuration(&self, group: GroupId) -> Option<&Configuration> {
        let known = self.groups.get(&group)?;
        known.configurations.last_key_value().map(|(_, last)| last)
    }

    /// The cluster states that the last entry of group 0 led through, the one before it first.
    #[must_use]
    pub fn cluster_steps(&self) -> Vec<Arc<ClusterState>> {
        self.groups.get(&GroupId::CLUSTER).map_or(Vec::new(), |known| known.steps.clone())
    }

    /// The cluster state after everything committed.
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<ClusterState>> {
        self.groups.get(&GroupId::CLUSTER)?.cluster.as_ref()
    }

    /// The value and version that a key has after everything committed.
    #[must_use]
    pub fn current(&self, group: GroupId, key: &[u8]) -> Option<Record> {
        let record = self.groups.get(&group)?.records.get(key)?;
        Record::decode(record.clone()).ok()
    }
}

/// I3: a version never decreases or repeats.
fn i3_versions_increase(
    key: &[u8],
    last: Option<Version>,
    version: Version,
) -> Result<(), Violation> {
    if last.is_none_or(|last| last < version) {
        return Ok(());
    }
    Err(Violation::new("I3", format!("key {key:?}: version {version} after {last:?}")))
}

/// I4: at one (group, index) every replica has the same entry.
fn i4_one_entry_per_place(
    group: GroupId,
    entry: &Entry,
    first: u64,
    fingerprint: u64,
) -> Result<(), Violation> {
    if first == fingerprint {
        return Ok(());
    }
    let seen = format!(
        "group {group}, index {}: an entry of term {} that is not the one applied elsewhere",
        entry.index, entry.term
    );
    Err(Violation::new("I4", seen))
}

/// I5: at one applied index every replica has the same digest.
fn i5_one_digest_per_index(
    group: GroupId,
    applied: u64,
    digest: Digest,
    expected: Option<Digest>,
    who: &str,
) -> Result<(), Violation> {
    match expected {
        Some(expected) if expected == digest => Ok(()),
        Some(expected) => Err(Violation::new(
            "I5",
            format!("{who}: digest of group {group} at {applied} is {digest}, not {expected}"),
        )),
        None => Err(Violation::new(
            "I5",
            format!("{who}: group {group} is at {applied}, which nobody applied"),
        )),
    }
}

/// Digest of group 0's state.
#[must_use]
pub fn digest_of_cluster(state: &ClusterState) -> Digest {
    Digest(xxhash_rust::xxh3::xxh3_128(&codec::encode(state)))
}

fn fingerprint(entry: &Entry) -> u64 {
    let kind = u64::try_from(entry.get_entry_type().value()).expect("kinds are small");
    let mut bytes = [entry.term.to_le_bytes(), kind.to_le_bytes()].concat();
    bytes.extend_from_slice(&entry.data);
    bytes.extend_from_slice(&entry.context);
    xxh3_64(&bytes)
}

struct Map<'a>(&'a mut BTreeMap<Bytes, Bytes>);

impl store::Records for Map<'_> {
    type Error = std::convert::Infallible;

    fn version(&self, key: &[u8]) -> Result<Option<Version>, Self::Error> {
        let record = self.0.get(key).and_then(|bytes| Record::decode(bytes.clone()).ok());
        Ok(record.map(|record| record.version))
    }

    fn put(&mut self, key: Bytes, record: Record) {
        self.0.insert(key, record.encode());
    }

    fn delete(&mut self, key: Bytes) {
        self.0.remove(&key);
    }
}
