use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvcore::message::{CopyFailure, CopyProgress, NodeHeartbeat, PeerMessage};
use kvcore::store::{Command, Condition};
use kvcore::{GroupId, LogIndex, ReplicaId, Revision, SnapshotId, Version};
use placement::{Epoch, NodeId, PartitionId};
use proptest::prelude::*;
use raft::eraftpb::{Entry, Message, MessageType};

use super::support::{CLUSTER, registration, state};
use crate::router::Consistency;
use crate::transport::body::{
    BodyError, append_answer, append_message, append_request, message_size, parse_answers,
    parse_messages, parse_requests,
};
use crate::transport::{PeerAnswer, PeerRefusal, PeerRequest};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn append_entries(entries: usize, data: &[u8]) -> Message {
    let entry =
        |index| Entry { index, term: 3, data: Bytes::copy_from_slice(data), ..Entry::default() };
    let mut message = Message { to: 2, from: 1, term: 3, ..Message::default() };
    message.set_msg_type(MessageType::MsgAppend);
    message.mut_entries().extend((1..=entries as u64).map(entry));
    message
}

fn snapshot_failed() -> PeerMessage {
    let reason = CopyFailure::Damaged { chunk: 3 };
    PeerMessage::SnapshotFailed { group: GroupId::CLUSTER, replica: ReplicaId(6), reason }
}

fn snapshot_taking() -> PeerMessage {
    let progress = CopyProgress { index: LogIndex(8), bytes_done: 1, bytes_total: 2 };
    PeerMessage::SnapshotTaking { group: GroupId::from_raw(9), replica: ReplicaId(6), progress }
}

fn messages() -> Vec<PeerMessage> {
    let heartbeat = NodeHeartbeat {
        revision: Revision(5),
        disk_ok: true,
        epoch: placement::Epoch::new(1),
        led: kvcore::message::LedPartitions::default(),
        misrouted_per_mille: 0,
    };
    let view = state(CLUSTER, vec![registration(1, "a:1"), registration(2, "b:2")]);
    vec![
        PeerMessage::Raft { group: GroupId::from_raw(9), message: append_entries(3, b"data") },
        PeerMessage::Heartbeat(heartbeat),
        PeerMessage::View(Arc::new(view)),
        PeerMessage::ViewRequest { known: Revision(4) },
        snapshot_failed(),
        PeerMessage::SnapshotFailed {
            group: GroupId::from_raw(2),
            replica: ReplicaId(7),
            reason: CopyFailure::storage("x".repeat(CopyFailure::REASON_BYTES_MAX)),
        },
        snapshot_taking(),
    ]
}

#[test]
fn messages_come_out_as_they_went_in() {
    let mut body = Vec::new();
    for message in messages() {
        let before = body.len();
        append_message(&mut body, &message);
        let written = body.len() - before;
        assert!(message_size(&message) + 64 >= written, "{message:?} takes {written} bytes");
    }
    let parsed = parse_messages(&body).unwrap();
    // Messages of raft have no equality of their own that reaches through the enum.
    assert_eq!(format!("{parsed:?}"), format!("{:?}", messages()));
}

#[test]
fn the_bytes_of_messages_do_not_change() {
    let mut body = Vec::new();
    append_message(
        &mut body,
        &PeerMessage::Raft { group: GroupId::from_raw(9), message: append_entries(1, b"d") },
    );
    assert_eq!(hex(&body), "01090000001100000008031002180120033a0710031801220164");
    body.clear();
    let heartbeat = NodeHeartbeat {
        revision: Revision(5),
        disk_ok: true,
        epoch: placement::Epoch::new(1),
        led: kvcore::message::LedPartitions::default(),
        misrouted_per_mille: 0,
    };
    append_message(&mut body, &PeerMessage::Heartbeat(heartbeat));
    append_message(&mut body, &PeerMessage::ViewRequest { known: Revision(4) });
    append_message(&mut body, &snapshot_failed());
    append_message(&mut body, &snapshot_taking());
    let golden = concat!(
        "02",
        "26000000",
        "01",
        "0500000000000000",
        "01",
        "0100000000000000",
        "0000000000000000",
        "0000000000000000",
        "00000000", // heartbeat
        "04",
        "09000000",
        "01",
        "0400000000000000", // request for a view
        "05",
        "15000000",
        "01",
        "00000000",
        "0600000000000000",
        "0100000003000000", // snapshot failed
        "06",
        "25000000",
        "01",
        "09000000",
        "0600000000000000",
        "0800000000000000",
        "0100000000000000",
        "0200000000000000", // snapshot being taken
    );
    assert_eq!(hex(&body), golden);
}

#[test]
fn the_bytes_of_requests_and_answers_do_not_change() {
    let write = PeerRequest::Write {
        partition: PartitionId::new(3),
        command: Command::Put {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"v"),
            content_type: None,
            condition: Condition::Version(Version(2)),
        },
    };
    let mut body = Vec::new();
    append_request(&mut body, 1, Duration::from_millis(250), &write);
    let golden = concat!(
        "0100000000000000", // id
        "fa000000",         // milliseconds left
        "2c000000",         // length
        "01",               // format
        "00000000",         // write
        "03000000",         // partition
        "00000000",         // put
        "0100000000000000",
        "6b", // key
        "0100000000000000",
        "76", // value
        "00", // no content type
        "03000000",
        "0200000000000000", // if the version is 2
    );
    assert_eq!(hex(&body), golden);
    body.clear();
    let refusal = PeerRefusal::NotLeader { leader: None, epoch: Epoch::new(1) };
    append_answer(&mut body, 2, &PeerAnswer::Refused(refusal));
    append_answer(&mut body, 3, &PeerAnswer::FoundingAccepted);
    let golden = concat!(
        "0200000000000000",
        "12000000",
        "01", // id, length, format
        "08000000",
        "01000000",
        "00",
        "0100000000000000", // refused: not the leader
        "0300000000000000",
        "05000000",
        "01",       // id, length, format
        "03000000", // founding accepted
    );
    assert_eq!(hex(&body), golden);
}

#[test]
fn requests_and_answers_come_out_as_they_went_in() {
    let founders = vec![registration(1, "a:1")];
    let requests = [
        PeerRequest::Read {
            partition: PartitionId::new(1),
            key: Bytes::from_static(b"key"),
            consistency: Consistency::Stale,
        },
        PeerRequest::Identify,
        PeerRequest::AcceptFounding(Box::new(state(CLUSTER, founders.clone()))),
        PeerRequest::Register(registration(7, "c:3")),
        PeerRequest::FetchView { newer_than: Revision(0) },
        PeerRequest::SnapshotChunk { group: GroupId::CLUSTER, id: SnapshotId(1), number: 2 },
        PeerRequest::TransferLeadership { group: GroupId::from_raw(2), to: NodeId::from_u128(1) },
    ];
    let mut body = Vec::new();
    for (id, request) in requests.iter().enumerate() {
        append_request(&mut body, id as u64, Duration::from_secs(1), request);
    }
    let parsed = parse_requests(&body).unwrap();
    assert!(parsed.iter().all(|it| it.remaining == Duration::from_secs(1)));
    let parsed: Vec<_> = parsed.into_iter().map(|it| it.request.unwrap()).collect();
    assert_eq!(parsed, requests);

    let answers = [
        PeerAnswer::Value { record: Some(Bytes::from_static(b"r")), staleness_ms: Some(3) },
        PeerAnswer::Registered(Box::new(state(CLUSTER, founders))),
        PeerAnswer::View { newer: None, confirmed: true },
        PeerAnswer::Chunk(Bytes::from_static(b"chunk")),
        PeerAnswer::Transferred,
    ];
    let mut body = Vec::new();
    for (id, answer) in answers.iter().enumerate() {
        append_answer(&mut body, id as u64, answer);
    }
    let parsed = parse_answers(&body).unwrap();
    assert!(parsed.iter().enumerate().all(|(place, (id, _))| place as u64 == *id));
    assert!(parsed.into_iter().map(|(_, answer)| answer.unwrap()).eq(answers));
}

/// A Raft message in a body of messages.
fn raft_body(message: &[u8]) -> Vec<u8> {
    let mut body = vec![1, 0, 0, 0, 0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
    body.extend_from_slice(message);
    body
}

#[test]
fn a_flood_of_empty_entries_is_refused_before_it_takes_memory() {
    let flood = [7 << 3 | 2, 0].repeat(1 << 20);
    assert!(matches!(parse_messages(&raft_body(&flood)), Err(BodyError::TooMany)));
}

#[test]
fn nested_groups_do_not_exhaust_the_stack() {
    let start_group = 1 << 3 | 3;
    let nested = vec![start_group; 1 << 20];
    assert!(matches!(parse_messages(&raft_body(&nested)), Err(BodyError::Wire)));
    // The same within an entry.
    let mut message = vec![7 << 3 | 2, 0x80, 0x80, 0x40];
    message.extend(nested);
    assert!(matches!(parse_messages(&raft_body(&message)), Err(BodyError::Wire)));
}

#[test]
fn a_request_of_an_unknown_kind_is_refused_alone() {
    let mut body = Vec::new();
    append_request(&mut body, 1, Duration::from_secs(1), &PeerRequest::Identify);
    let kind = body.len() - 4;
    body[kind] = 99;
    append_request(&mut body, 2, Duration::from_secs(1), &PeerRequest::Identify);
    let parsed = parse_requests(&body).unwrap();
    assert!(parsed[0].request.is_err());
    assert_eq!(parsed[1].request.as_ref().unwrap(), &PeerRequest::Identify);
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_messages(&bytes);
        let _ = parse_requests(&bytes);
        let _ = parse_answers(&bytes);
        let _ = parse_messages(&raft_body(&bytes));
    }

    #[test]
    fn damaged_messages_are_parsed_without_panic(
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut body = Vec::new();
        for message in messages() {
            append_message(&mut body, &message);
        }
        let place = place.index(body.len());
        body[place] = value;
        let _ = parse_messages(&body);
    }

    #[test]
    fn entries_of_any_size_come_out_as_they_went_in(
        data in prop::collection::vec(any::<u8>(), 0..100),
        count in 0..40_usize,
    ) {
        let mut body = Vec::new();
        let message = append_entries(count, &data);
        append_message(&mut body, &PeerMessage::Raft { group: GroupId::CLUSTER, message: message.clone() });
        let parsed = parse_messages(&body).unwrap();
        let [PeerMessage::Raft { group: _, message: found }] = &parsed[..] else {
            panic!("one message went in");
        };
        prop_assert_eq!(found, &message);
    }
}
