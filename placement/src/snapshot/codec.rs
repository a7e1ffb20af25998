//! The canonical byte layout of a snapshot, described for other languages in `docs/ring-format.md`.
//!
//! All integers are big-endian. There is exactly one document for one ring: the reader refuses any
//! order or length that the writer would not have produced.

use super::{Checksum, PackedToken, RingSnapshot};
use crate::error::SnapshotError;
use crate::hash::{HashSpec, PartitionBits};
use crate::ids::{Epoch, NodeId, NodeName, Zone};
use crate::ring::NodeIndex;
use crate::tokens::TOKENS_MAX;
use crate::topology::{NODES_MAX, NodeSpec, NodeState, ReplicationFactor, Topology, Weight};

const MAGIC: &[u8; 6] = b"RINGKV";
const LAYOUT: u16 = 1;
const CHECKSUM_BYTES: usize = 16;
/// Shortest node entry: identity, state, weight, and two texts of one byte with their lengths.
const NODE_BYTES_MIN: usize = 16 + 1 + 4 + 2 + 2;
const TOKEN_BYTES: usize = 4 + 2 + 2 + 4;

/// Everything that the checksum covers.
pub(super) fn encode_body(snapshot: &RingSnapshot) -> Vec<u8> {
    let nodes = snapshot.nodes();
    let tokens = snapshot.packed_tokens();
    let mut out = Vec::with_capacity(128 + nodes.len() * 64 + tokens.len() * TOKEN_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&LAYOUT.to_be_bytes());
    out.extend_from_slice(&snapshot.epoch.get().to_be_bytes());
    out.extend_from_slice(&snapshot.activated_at_ms.to_be_bytes());
    let previous = snapshot.previous_checksum.map_or(0, Checksum::as_u128);
    out.extend_from_slice(&previous.to_be_bytes());
    put_text(&mut out, &snapshot.hash_spec().algorithm);
    out.extend_from_slice(&snapshot.hash_spec().seed.to_be_bytes());
    put_text(&mut out, &snapshot.hash_spec().key_encoding);
    out.extend_from_slice(&snapshot.hash_spec().version.to_be_bytes());
    out.push(snapshot.partition_bits.get());
    out.push(snapshot.replication_factor.get());

    let node_count = u16::try_from(nodes.len()).expect("a topology holds at most NODES_MAX nodes");
    out.extend_from_slice(&node_count.to_be_bytes());
    for node in nodes {
        out.extend_from_slice(&node.id.as_u128().to_be_bytes());
        out.push(state_code(node.state));
        out.extend_from_slice(&node.weight.get().to_be_bytes());
        put_text(&mut out, node.name.as_str());
        put_text(&mut out, node.zone.as_str());
    }

    let token_count = u32::try_from(tokens.len()).expect("a ring holds at most TOKENS_MAX tokens");
    out.extend_from_slice(&token_count.to_be_bytes());
    for token in tokens {
        out.extend_from_slice(&token.partition.get().to_be_bytes());
        out.extend_from_slice(&token.rank.to_be_bytes());
        out.extend_from_slice(&token.node.get().to_be_bytes());
        out.extend_from_slice(&token.index.to_be_bytes());
    }
    out
}

/// Reads a document. What holds between tokens and nodes is left to the caller.
pub(super) fn decode(bytes: &[u8]) -> Result<RingSnapshot, SnapshotError> {
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().unwrap_or((bytes, &[0; 16]));
    let mut reader = Reader { rest: body };
    if reader.array::<6>().ok().as_ref() != Some(MAGIC) {
        return Err(SnapshotError::NotASnapshot);
    }
    let layout = reader.u16()?;
    if layout != LAYOUT {
        return Err(SnapshotError::UnsupportedLayout { found: layout, supported: LAYOUT });
    }
    // Before anything else is believed, so that damage is called damage wherever it is.
    let stated = Checksum(u128::from_be_bytes(*checksum));
    let computed = Checksum::of(body);
    if stated != computed {
        return Err(SnapshotError::ChecksumMismatch { stated, computed });
    }
    let epoch = Epoch::new(reader.u64()?);
    let activated_at_ms = reader.u64()?;
    let previous_checksum = read_previous_checksum(&mut reader, epoch)?;
    read_hash_spec(&mut reader)?.ensure_supported()?;
    let partition_bits = PartitionBits::new(reader.u8()?)?;
    let replication_factor = ReplicationFactor::new(reader.u8()?)?;
    let topology = read_nodes(&mut reader)?;
    let tokens = read_tokens(&mut reader, partition_bits, topology.len())?;
    if !reader.rest.is_empty() {
        return Err(SnapshotError::TrailingBytes { count: reader.rest.len() });
    }
    Ok(RingSnapshot {
        epoch,
        partition_bits,
        replication_factor,
        topology,
        tokens,
        previous_checksum,
        checksum: stated,
        activated_at_ms,
    })
}

fn read_previous_checksum(
    reader: &mut Reader<'_>,
    epoch: Epoch,
) -> Result<Option<Checksum>, SnapshotError> {
    let checksum = u128::from_be_bytes(reader.array::<CHECKSUM_BYTES>()?);
    if epoch == Epoch::ZERO {
        return Err(SnapshotError::Malformed { reason: "a published ring has an epoch above 0" });
    }
    if epoch != Epoch::ZERO.next() {
        return Ok(Some(Checksum(checksum)));
    }
    if checksum != 0 {
        return Err(SnapshotError::Malformed { reason: "the first ring names a predecessor" });
    }
    Ok(None)
}

fn read_hash_spec(reader: &mut Reader<'_>) -> Result<HashSpec, SnapshotError> {
    Ok(HashSpec {
        algorithm: reader.text()?.to_owned().into(),
        seed: reader.u64()?,
        key_encoding: reader.text()?.to_owned().into(),
        version: reader.u32()?,
    })
}

fn read_nodes(reader: &mut Reader<'_>) -> Result<Topology, SnapshotError> {
    let count = usize::from(reader.u16()?);
    if count > NODES_MAX {
        return Err(SnapshotError::Malformed { reason: "too many nodes" });
    }
    reader.expect_at_least(count * NODE_BYTES_MIN)?;
    let mut nodes: Vec<NodeSpec> = Vec::with_capacity(count);
    for _ in 0..count {
        let id = NodeId::from_u128(u128::from_be_bytes(reader.array()?));
        if nodes.last().is_some_and(|last| last.id >= id) {
            return Err(SnapshotError::Malformed { reason: "nodes are not in order of identity" });
        }
        let state = state_of(reader.u8()?)?;
        let weight = Weight::new(reader.u32()?)?;
        let name = NodeName::parse(reader.text()?)?;
        let zone = Zone::parse(reader.text()?)?;
        nodes.push(NodeSpec { id, name, zone, weight, state });
    }
    Ok(Topology::new(nodes)?)
}

fn read_tokens(
    reader: &mut Reader<'_>,
    partition_bits: PartitionBits,
    node_count: usize,
) -> Result<Box<[PackedToken]>, SnapshotError> {
    let count = reader.u32()? as usize;
    if count > TOKENS_MAX {
        return Err(SnapshotError::Malformed { reason: "too many tokens" });
    }
    reader.expect_at_least(count * TOKEN_BYTES)?;
    let mut tokens: Vec<PackedToken> = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(partition) = partition_bits.partition(reader.u32()?) else {
            return Err(SnapshotError::Malformed { reason: "a token's partition does not exist" });
        };
        let rank = reader.u16()?;
        let node = usize::from(reader.u16()?);
        if node >= node_count {
            return Err(SnapshotError::Malformed { reason: "a token's node does not exist" });
        }
        let node = NodeIndex::from_usize(node);
        let token = PackedToken { partition, rank, node, index: reader.u32()? };
        if tokens.last().is_some_and(|last| *last >= token) {
            return Err(SnapshotError::Malformed { reason: "tokens are not in ring order" });
        }
        tokens.push(token);
    }
    Ok(tokens.into_boxed_slice())
}

const fn state_code(state: NodeState) -> u8 {
    match state {
        NodeState::Spare => 0,
        NodeState::Joining => 1,
        NodeState::Copying => 2,
        NodeState::CatchingUp => 3,
        NodeState::Active => 4,
        NodeState::Draining => 5,
        NodeState::Removed => 6,
    }
}

fn state_of(code: u8) -> Result<NodeState, SnapshotError> {
    let known = NodeState::ALL.into_iter().find(|state| state_code(*state) == code);
    known.ok_or(SnapshotError::Malformed { reason: "unknown node state" })
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("labels and hash names are short"));
    out.extend_from_slice(text.as_bytes());
}

/// Takes fields off the front of untrusted bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(SnapshotError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        Ok(self.take(N)?.try_into().expect("take returns as many bytes as asked for"))
    }

    fn u8(&mut self) -> Result<u8, SnapshotError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, SnapshotError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&'a str, SnapshotError> {
        let count = usize::from(self.u8()?);
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes)
            .map_err(|_| SnapshotError::Malformed { reason: "text is not UTF-8" })
    }

    /// Checked before memory is set aside for entries that a lying count promises.
    fn expect_at_least(&self, count: usize) -> Result<(), SnapshotError> {
        if self.rest.len() < count { Err(SnapshotError::Truncated) } else { Ok(()) }
    }
}
