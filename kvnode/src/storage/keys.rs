//! Every key on disk, in one place.
//!
//! Integers are big-endian, so that the order of the bytes is the order of the numbers: a group's
//! log is read by walking forward, and one installation of a partition's data is one contiguous
//! range, which a single range deletion removes. `docs/data-layout.md` shows the same layouts.

use std::fmt;

use kvcore::{Generation, GroupId, LogIndex, ReplicaId};
use placement::PartitionId;

/// A column family of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Records of partitions: `partition (4) | generation (8) | key`.
    Data,
    /// Entries of Raft logs: `group (4) | index (8)`.
    Log,
    /// Everything else; the first byte says what a key is.
    Meta,
}

impl Family {
    /// All column families, in the order in which they are opened.
    pub const ALL: [Self; 3] = [Self::Data, Self::Log, Self::Meta];

    /// Name of the column family in RocksDB.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Log => "log",
            Self::Meta => "meta",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Bytes before the key proper in a key of `data`: partition and generation.
pub const DATA_PREFIX_BYTES: usize = 12;
/// Bytes of a key of `log`.
pub const LOG_KEY_BYTES: usize = 12;
/// Bytes of a key of `log` that name the group.
pub const LOG_GROUP_BYTES: usize = 4;
/// Bytes of a key of `meta` that belongs to a group.
pub const META_GROUP_KEY_BYTES: usize = 5;

/// `meta`: the node's identity.
pub const IDENTITY: &[u8] = b"i";
/// `meta`: the last snapshot id given out.
pub const SNAPSHOT_ID: &[u8] = b"n";
/// `meta`: group 0's state machine.
pub const CLUSTER: &[u8] = b"c";
/// `meta`: the view that came with the cluster when the node accepted it.
pub const ACCEPTED_VIEW: &[u8] = b"a";
/// `meta`: the last verified view.
pub const VIEW: &[u8] = b"v";

const TAG_REPLICA: u8 = b'r';
const TAG_PROGRESS: u8 = b'p';
const TAG_TOMBSTONE: u8 = b't';

/// A contiguous range of keys: `from` inclusive, `to` exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in the range.
    pub from: Vec<u8>,
    /// The first key after the range.
    pub to: Vec<u8>,
}

/// What all keys of one installation of a partition begin with.
#[must_use]
pub fn data_prefix(partition: PartitionId, generation: Generation) -> [u8; DATA_PREFIX_BYTES] {
    let mut prefix = [0; DATA_PREFIX_BYTES];
    prefix[..4].copy_from_slice(&partition.get().to_be_bytes());
    prefix[4..].copy_from_slice(&generation.get().to_be_bytes());
    prefix
}

/// Writes the key of a record into `buffer`, whose memory is used again.
pub fn data_into(buffer: &mut Vec<u8>, partition: PartitionId, generation: Generation, key: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&data_prefix(partition, generation));
    buffer.extend_from_slice(key);
}

/// The key of a record.
#[must_use]
pub fn data(partition: PartitionId, generation: Generation, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(DATA_PREFIX_BYTES + key.len());
    data_into(&mut bytes, partition, generation, key);
    bytes
}

/// All records of one installation of a partition.
#[must_use]
pub fn data_range(partition: PartitionId, generation: Generation) -> KeyRange {
    KeyRange {
        from: data_prefix(partition, generation).to_vec(),
        to: data_successor(partition, generation).to_vec(),
    }
}

/// The first key after all records of one installation of a partition.
///
/// Saturates at the last partition number, which no ring has: there are at most 65536 partitions.
#[must_use]
pub fn data_successor(partition: PartitionId, generation: Generation) -> [u8; DATA_PREFIX_BYTES] {
    let next = generation.get().checked_add(1);
    let partition = match next {
        Some(_) => partition,
        None => PartitionId::new(partition.get().saturating_add(1)),
    };
    data_prefix(partition, Generation(next.unwrap_or(0)))
}

/// Splits a key of `data` into its parts; `None` if it is too short to be one.
#[must_use]
pub fn parse_data(bytes: &[u8]) -> Option<(PartitionId, Generation, &[u8])> {
    let (partition, rest) = bytes.split_first_chunk::<4>()?;
    let (generation, key) = rest.split_first_chunk::<8>()?;
    let partition = PartitionId::new(u32::from_be_bytes(*partition));
    Some((partition, Generation(u64::from_be_bytes(*generation)), key))
}

/// The key of an entry.
#[must_use]
pub fn log(group: GroupId, index: LogIndex) -> [u8; LOG_KEY_BYTES] {
    let mut key = [0; LOG_KEY_BYTES];
    key[..4].copy_from_slice(&group.get().to_be_bytes());
    key[4..].copy_from_slice(&index.get().to_be_bytes());
    key
}

/// The entries of a group with indexes in `from..to`.
#[must_use]
pub fn log_range(group: GroupId, from: LogIndex, to: LogIndex) -> KeyRange {
    KeyRange { from: log(group, from).to_vec(), to: log(group, to).to_vec() }
}

/// The whole log of a group.
#[must_use]
pub fn log_of(group: GroupId) -> KeyRange {
    log_range(group, LogIndex(0), LogIndex(u64::MAX))
}

/// Splits a key of `log` into its parts; `None` if it is none.
#[must_use]
pub fn parse_log(bytes: &[u8]) -> Option<(GroupId, LogIndex)> {
    let (group, rest) = bytes.split_first_chunk::<4>()?;
    let index = <[u8; 8]>::try_from(rest).ok()?;
    Some((GroupId::from_raw(u32::from_be_bytes(*group)), LogIndex(u64::from_be_bytes(index))))
}

fn of_group(tag: u8, group: GroupId) -> [u8; META_GROUP_KEY_BYTES] {
    let mut key = [tag; META_GROUP_KEY_BYTES];
    key[1..].copy_from_slice(&group.get().to_be_bytes());
    key
}

/// `meta`: the record of a group's replica.
#[must_use]
pub fn replica(group: GroupId) -> [u8; META_GROUP_KEY_BYTES] {
    of_group(TAG_REPLICA, group)
}

/// `meta`: the progress of a group's replica.
#[must_use]
pub fn progress(group: GroupId) -> [u8; META_GROUP_KEY_BYTES] {
    of_group(TAG_PROGRESS, group)
}

/// `meta`: a replica that ended on this node.
#[must_use]
pub fn tombstone(group: GroupId, replica: ReplicaId) -> [u8; 13] {
    let mut key = [TAG_TOMBSTONE; 13];
    key[1..5].copy_from_slice(&group.get().to_be_bytes());
    key[5..].copy_from_slice(&replica.get().to_be_bytes());
    key
}

/// A key of `meta`, read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// The node's identity.
    Identity,
    /// The last snapshot id given out.
    SnapshotId,
    /// Group 0's state machine.
    Cluster,
    /// The view that came with the cluster.
    AcceptedView,
    /// The last verified view.
    View,
    /// The record of a group's replica.
    Replica(GroupId),
    /// The progress of a group's replica.
    Progress(GroupId),
    /// A replica that ended on this node.
    Tombstone(GroupId, ReplicaId),
}

/// Reads a key of `meta`; `None` if it is none.
#[must_use]
pub fn parse_meta(bytes: &[u8]) -> Option<MetaKey> {
    let (&tag, rest) = bytes.split_first()?;
    let group = |raw: &[u8; 4]| GroupId::from_raw(u32::from_be_bytes(*raw));
    match (tag, rest.len()) {
        (TAG_REPLICA, 4) => Some(MetaKey::Replica(group(rest.first_chunk()?))),
        (TAG_PROGRESS, 4) => Some(MetaKey::Progress(group(rest.first_chunk()?))),
        (TAG_TOMBSTONE, 12) => {
            let (raw, replica) = rest.split_first_chunk::<4>()?;
            let replica = ReplicaId(u64::from_be_bytes(*replica.first_chunk()?));
            Some(MetaKey::Tombstone(group(raw), replica))
        }
        (_, 0) if bytes == IDENTITY => Some(MetaKey::Identity),
        (_, 0) if bytes == SNAPSHOT_ID => Some(MetaKey::SnapshotId),
        (_, 0) if bytes == CLUSTER => Some(MetaKey::Cluster),
        (_, 0) if bytes == ACCEPTED_VIEW => Some(MetaKey::AcceptedView),
        (_, 0) if bytes == VIEW => Some(MetaKey::View),
        _ => None,
    }
}

/// Bytes of a key as error messages show them: hexadecimal, shortened after 48 bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;

    const SHOWN_BYTES: usize = 48;
    let mut text = String::with_capacity(2 * bytes.len().min(SHOWN_BYTES) + 3);
    for byte in bytes.iter().take(SHOWN_BYTES) {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    if bytes.len() > SHOWN_BYTES {
        text.push_str("...");
    }
    text
}
