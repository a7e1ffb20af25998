//! Bodies of frames: messages, requests and answers, many to a frame.
//!
//! Layout, little-endian. Messages: `tag (1) | group (4, Raft messages only) | length (4) | bytes`.
//! Requests: `id (8) | remaining milliseconds (4) | length (4) | bytes`. Answers: `id (8) | length
//! (4) | bytes`. Raft messages are protobuf, everything else is `kvcore::codec`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use kvcore::cluster::ClusterState;
use kvcore::codec::{self, DecodeError};
use kvcore::message::{CopyFailure, CopyProgress, NodeHeartbeat, PeerMessage};
use kvcore::{GroupId, ReplicaId, Revision};
use protobuf::{Message as _, ProtobufError};
use raft::eraftpb::Message;
use thiserror::Error;

use super::request::{PeerAnswer, PeerRequest, state_size};
use super::scan::count_entries;

/// The most messages and entries, or requests, or answers, that one frame may hold. A few bytes on
/// the wire become a hundred in memory: this keeps a hostile frame from becoming a flood.
pub const ITEMS_PER_FRAME_MAX: usize = 1 << 17;

const TAG_RAFT: u8 = 1;
const TAG_HEARTBEAT: u8 = 2;
const TAG_VIEW: u8 = 3;
const TAG_VIEW_REQUEST: u8 = 4;
const TAG_SNAPSHOT_FAILED: u8 = 5;
const TAG_SNAPSHOT_TAKING: u8 = 6;

/// Why a body is none.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The body ends within an item.
    #[error("the body ends within an item")]
    Truncated,
    /// A kind of message that this version does not know.
    #[error("messages with tag {tag} are not known")]
    UnknownTag {
        /// The tag found.
        tag: u8,
    },
    /// More items than a frame may hold.
    #[error("the body holds more items than a frame may")]
    TooMany,
    /// A value does not decode.
    #[error("a value does not decode")]
    Value(#[from] DecodeError),
    /// A Raft message does not decode.
    #[error("a Raft message does not decode")]
    Raft(#[from] ProtobufError),
    /// The bytes are not of raft's schema.
    #[error("a Raft message uses a wire type that raft does not")]
    Wire,
}

/// Bytes that a message takes in a frame, roughly; used for limits only.
#[must_use]
pub fn message_size(message: &PeerMessage) -> usize {
    const OVERHEAD: usize = 64;
    OVERHEAD
        + match message {
            PeerMessage::Raft { group: _, message } => raft_message_size(message),
            PeerMessage::View(state) => state_size(state),
            PeerMessage::Heartbeat(_)
            | PeerMessage::ViewRequest { .. }
            | PeerMessage::SnapshotTaking { .. } => 0,
            PeerMessage::SnapshotFailed { .. } => CopyFailure::REASON_BYTES_MAX,
        }
}

fn raft_message_size(message: &Message) -> usize {
    const ENTRY_OVERHEAD: usize = 24;
    let entries = message.get_entries().iter();
    let entries: usize = entries.map(|entry| ENTRY_OVERHEAD + entry.get_data().len()).sum();
    entries + message.get_snapshot().get_data().len() + message.get_context().len()
}

/// How much of [`ITEMS_PER_FRAME_MAX`] a message uses up.
#[must_use]
pub fn message_items(message: &PeerMessage) -> usize {
    match message {
        PeerMessage::Raft { group: _, message } => 1 + message.get_entries().len(),
        PeerMessage::Heartbeat(_)
        | PeerMessage::View(_)
        | PeerMessage::ViewRequest { .. }
        | PeerMessage::SnapshotFailed { .. }
        | PeerMessage::SnapshotTaking { .. } => 1,
    }
}

/// Appends a message to a body.
pub fn append_message(body: &mut Vec<u8>, message: &PeerMessage) {
    match message {
        PeerMessage::Raft { group, message } => {
            body.push(TAG_RAFT);
            body.extend_from_slice(&group.get().to_le_bytes());
            append_sized(body, |body| {
                message.write_to_vec(body).expect("a message without required fields is complete");
            });
        }
        PeerMessage::Heartbeat(heartbeat) => append_value(body, TAG_HEARTBEAT, heartbeat),
        PeerMessage::View(state) => append_value(body, TAG_VIEW, state.as_ref()),
        PeerMessage::ViewRequest { known } => append_value(body, TAG_VIEW_REQUEST, known),
        PeerMessage::SnapshotFailed { group, replica, reason } => {
            append_value(body, TAG_SNAPSHOT_FAILED, &(group, replica, reason));
        }
        PeerMessage::SnapshotTaking { group, replica, progress } => {
            append_value(body, TAG_SNAPSHOT_TAKING, &(group, replica, progress));
        }
    }
}

/// Reads a body of messages.
///
/// # Errors
/// [`BodyError`]; the connection must then be closed.
pub fn parse_messages(mut body: &[u8]) -> Result<Vec<PeerMessage>, BodyError> {
    let mut messages = Vec::new();
    let mut items_left = ITEMS_PER_FRAME_MAX;
    while body.has_remaining() {
        let tag = body.try_get_u8().map_err(|_| BodyError::Truncated)?;
        let group = match tag {
            TAG_RAFT => GroupId::from_raw(body.try_get_u32_le().map_err(|_| BodyError::Truncated)?),
            _ => GroupId::CLUSTER,
        };
        let bytes = take_sized(&mut body)?;
        let items = if tag == TAG_RAFT { 1 + count_entries(bytes)? } else { 1 };
        items_left = items_left.checked_sub(items).ok_or(BodyError::TooMany)?;
        messages.push(parse_message(tag, group, bytes)?);
    }
    Ok(messages)
}

fn parse_message(tag: u8, group: GroupId, bytes: &[u8]) -> Result<PeerMessage, BodyError> {
    match tag {
        TAG_RAFT => {
            let mut message = Message::default();
            message.merge_from_bytes(bytes)?;
            Ok(PeerMessage::Raft { group, message })
        }
        TAG_HEARTBEAT => Ok(PeerMessage::Heartbeat(codec::decode::<NodeHeartbeat>(bytes)?)),
        TAG_VIEW => Ok(PeerMessage::View(Arc::new(codec::decode::<ClusterState>(bytes)?))),
        TAG_VIEW_REQUEST => {
            Ok(PeerMessage::ViewRequest { known: codec::decode::<Revision>(bytes)? })
        }
        TAG_SNAPSHOT_FAILED => {
            let (group, replica, reason) =
                codec::decode::<(GroupId, ReplicaId, CopyFailure)>(bytes)?;
            Ok(PeerMessage::SnapshotFailed { group, replica, reason })
        }
        TAG_SNAPSHOT_TAKING => {
            let (group, replica, progress) =
                codec::decode::<(GroupId, ReplicaId, CopyProgress)>(bytes)?;
            Ok(PeerMessage::SnapshotTaking { group, replica, progress })
        }
        tag => Err(BodyError::UnknownTag { tag }),
    }
}

/// A request as it stands in a frame.
#[derive(Debug)]
pub struct ParsedRequest {
    /// The sender's number for it.
    pub id: u64,
    /// How much time the sender still gives it.
    pub remaining: Duration,
    /// The request, unless this version does not understand it.
    pub request: Result<PeerRequest, DecodeError>,
}

/// Appends a request to a body.
pub fn append_request(body: &mut Vec<u8>, id: u64, remaining: Duration, request: &PeerRequest) {
    let remaining_ms = u32::try_from(remaining.as_millis()).unwrap_or(u32::MAX);
    body.extend_from_slice(&id.to_le_bytes());
    body.extend_from_slice(&remaining_ms.to_le_bytes());
    append_sized(body, |body| body.extend_from_slice(&codec::encode(request)));
}

/// Reads a body of requests.
///
/// # Errors
/// [`BodyError`]; the connection must then be closed.
pub fn parse_requests(mut body: &[u8]) -> Result<Vec<ParsedRequest>, BodyError> {
    let mut requests = Vec::new();
    while body.has_remaining() {
        let id = body.try_get_u64_le().map_err(|_| BodyError::Truncated)?;
        let remaining_ms = body.try_get_u32_le().map_err(|_| BodyError::Truncated)?;
        let request = codec::decode(take_sized(&mut body)?);
        if requests.len() == ITEMS_PER_FRAME_MAX {
            return Err(BodyError::TooMany);
        }
        let remaining = Duration::from_millis(u64::from(remaining_ms));
        requests.push(ParsedRequest { id, remaining, request });
    }
    Ok(requests)
}

/// Appends an answer to a body.
pub fn append_answer(body: &mut Vec<u8>, id: u64, answer: &PeerAnswer) {
    body.extend_from_slice(&id.to_le_bytes());
    append_sized(body, |body| body.extend_from_slice(&codec::encode(answer)));
}

/// Reads a body of answers. One that does not decode is none: its request was sent all the same.
///
/// # Errors
/// [`BodyError`]; the connection must then be closed.
pub fn parse_answers(mut body: &[u8]) -> Result<Vec<(u64, Option<PeerAnswer>)>, BodyError> {
    let mut answers = Vec::new();
    while body.has_remaining() {
        let id = body.try_get_u64_le().map_err(|_| BodyError::Truncated)?;
        let answer = codec::decode(take_sized(&mut body)?).ok();
        if answers.len() == ITEMS_PER_FRAME_MAX {
            return Err(BodyError::TooMany);
        }
        answers.push((id, answer));
    }
    Ok(answers)
}

fn append_value<T: serde::Serialize>(body: &mut Vec<u8>, tag: u8, value: &T) {
    body.push(tag);
    append_sized(body, |body| body.extend_from_slice(&codec::encode(value)));
}

fn append_sized(body: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = body.len();
    body.extend_from_slice(&[0; 4]);
    write(body);
    // A length that does not fit makes the frame too long as well, which its writer refuses.
    let length = u32::try_from(body.len() - start - 4).unwrap_or(u32::MAX);
    body[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn take_sized<'a>(body: &mut &'a [u8]) -> Result<&'a [u8], BodyError> {
    let length = body.try_get_u32_le().map_err(|_| BodyError::Truncated)?;
    let length = usize::try_from(length).map_err(|_| BodyError::Truncated)?;
    let (value, rest) = body.split_at_checked(length).ok_or(BodyError::Truncated)?;
    *body = rest;
    Ok(value)
}
