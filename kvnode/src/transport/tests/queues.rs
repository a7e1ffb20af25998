use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use kvcore::message::{NodeHeartbeat, PeerMessage};
use kvcore::{GroupId, Revision};
use raft::eraftpb::{Entry, Message};

use super::support::soon;
use crate::transport::PeerRequest;
use crate::transport::calls::{CallError, NotSent, calls};
use crate::transport::outbox::outbox;

fn large_message(bytes: usize) -> PeerMessage {
    let entry = Entry { data: Bytes::from(vec![0; bytes]), ..Entry::default() };
    let mut message = Message::default();
    message.mut_entries().push(entry);
    PeerMessage::Raft { group: GroupId::CLUSTER, message }
}

#[test]
fn an_outbox_that_is_full_drops_the_newest() {
    let (outbox, task) = outbox();
    let heartbeat = NodeHeartbeat {
        revision: Revision(1),
        disk_ok: true,
        epoch: placement::Epoch::new(1),
        led: kvcore::message::LedPartitions::default(),
        misrouted_per_mille: 0,
    };
    for _ in 0..5000 {
        outbox.send(vec![PeerMessage::Heartbeat(heartbeat)]);
    }
    assert_eq!(task.queued_batches(), 1024);
}

#[test]
fn an_outbox_is_full_by_bytes_as_well() {
    let (outbox, task) = outbox();
    for _ in 0..100 {
        outbox.send(vec![large_message(1 << 20)]);
    }
    assert!((60..64).contains(&task.queued_batches()), "{}", task.queued_batches());
    // What is small still has room.
    outbox.send(vec![large_message(1)]);
    assert!((61..65).contains(&task.queued_batches()));
}

#[tokio::test]
async fn a_queue_of_requests_that_is_full_refuses_at_once() {
    let (calls, _task) = calls();
    let mut waiting = Vec::new();
    for _ in 0..4096 {
        let mut call = Box::pin(calls.call(PeerRequest::Identify, soon()));
        assert!(call.as_mut().now_or_never().is_none());
        waiting.push(call);
    }
    let refused = calls.call(PeerRequest::Identify, soon()).now_or_never();
    assert_eq!(refused, Some(Err(CallError::NotSent(NotSent::Overloaded))));
}

#[tokio::test]
async fn a_request_that_waited_in_vain_was_not_sent() {
    let (calls, _task) = calls();
    let deadline = Instant::now() + Duration::from_millis(20);
    let expired = calls.call(PeerRequest::Identify, deadline).await;
    assert_eq!(expired, Err(CallError::NotSent(NotSent::Expired)));
}
