use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kvcore::message::PeerMessage;
use kvcore::{ClusterId, Revision};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{
    CLUSTER, Manner, REVERSED, Recorder, member, registration, socket, soon, state, wait_for,
};
use crate::identity::LocalNode;
use crate::transport::frame::{FrameKind, append_frame};
use crate::transport::hello::{Channel, Hello, greeting};
use crate::transport::{
    AddressCallError, CallError, ConnectError, Listener, NotSent, PeerAnswer, PeerRefusal,
    PeerRequest, Peers,
};
use crate::view::ViewHandle;

/// Node 1, which dials, and node 2, which listens.
struct Pair {
    peers: Peers,
    dialling: LocalNode,
    recorder: std::sync::Arc<Recorder>,
    address: String,
    listener: Listener,
}

async fn pair(manner: Manner) -> Pair {
    let (socket, address) = socket().await;
    let (one, two) = (registration(1, "127.0.0.1:1"), registration(2, &address));
    let state = state(CLUSTER, vec![one.clone(), two.clone()]);
    let recorder = Recorder::new(member(two, &state), manner);
    let dialling = member(one, &state);
    let listener = recorder.listen(socket);
    Pair { peers: Peers::new(dialling.clone()), dialling, recorder, address, listener }
}

fn numbered(number: u64) -> PeerMessage {
    PeerMessage::ViewRequest { known: Revision(number) }
}

fn numbers(recorder: &Recorder) -> Vec<u64> {
    let messages = recorder.messages.lock().unwrap();
    let number = |message: &PeerMessage| match message {
        PeerMessage::ViewRequest { known } => known.get(),
        _ => panic!("only numbered messages were sent"),
    };
    messages.iter().map(|(_, message)| number(message)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_arrive_in_order_and_many_to_a_frame() {
    let pair = pair(Manner::Silent).await;
    let to = pair.recorder.local.id();
    for number in 0..1000 {
        pair.peers.send(to, vec![numbered(number)]);
    }
    wait_for("all messages", || pair.recorder.message_count() == 1000).await;
    assert!(numbers(&pair.recorder).into_iter().eq(0..1000));
    let frames = *pair.recorder.frames.lock().unwrap();
    assert!(frames < 500, "{frames} frames for 1000 messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_find_their_requests_in_whatever_order_they_come() {
    let pair = pair(Manner::Reverse).await;
    let to = pair.recorder.local.id();
    let calls = (0..10 * REVERSED as u64).map(|number| {
        let request = PeerRequest::FetchView { newer_than: Revision(number) };
        let peers = pair.peers.clone();
        async move { (number, peers.call(to, request, soon()).await) }
    });
    for (number, answer) in join_all(calls).await {
        let reason = number.to_string();
        assert_eq!(answer, Ok(PeerAnswer::Refused(PeerRefusal::Storage { reason })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_restarts_is_reached_again_soon() {
    let pair = pair(Manner::Silent).await;
    let to = pair.recorder.local.id();
    pair.peers.send(to, vec![numbered(0)]);
    wait_for("the first message", || pair.recorder.message_count() == 1).await;

    drop(pair.listener);
    wait_for("the loss is noticed", || !pair.peers.troubles().is_empty()).await;
    let away = pair.peers.call(to, PeerRequest::Identify, soon()).await;
    assert_eq!(away, Err(CallError::NotSent(NotSent::Unreachable)));

    let socket = TcpListener::bind(&pair.address).await.unwrap();
    let _listener = pair.recorder.listen(socket);
    let back = Instant::now();
    wait_for("messages flow again", || {
        pair.peers.send(to, vec![numbered(1)]);
        pair.recorder.message_count() > 1
    })
    .await;
    assert!(back.elapsed() < Duration::from_secs(3), "it took {:?}", back.elapsed());
    let identified = loop {
        match pair.peers.call(to, PeerRequest::Identify, soon()).await {
            Err(CallError::NotSent(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            other => break other,
        }
    };
    assert!(matches!(identified, Ok(PeerAnswer::Identity(_))), "{identified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_connection_ends_is_lost_and_a_late_one_is_overdue() {
    let pair = pair(Manner::Silent).await;
    let to = pair.recorder.local.id();
    let request = PeerRequest::FetchView { newer_than: Revision(0) };
    let deadline = Instant::now() + Duration::from_millis(300);
    let overdue = pair.peers.call(to, request.clone(), deadline).await;
    assert_eq!(overdue, Err(CallError::Deadline));

    let peers = pair.peers.clone();
    let call = tokio::spawn(async move { peers.call(to, request, soon()).await });
    wait_for("the request is there", || pair.recorder.held.lock().unwrap().len() == 2).await;
    drop(pair.listener);
    assert_eq!(call.await.unwrap(), Err(CallError::Lost));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_outside_the_directory_is_not_dialled() {
    let pair = pair(Manner::Silent).await;
    let stranger = registration(9, "x:1").id;
    let refused = pair.peers.call(stranger, PeerRequest::Identify, soon()).await;
    assert_eq!(refused, Err(CallError::NotSent(NotSent::UnknownNode)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_is_refused_and_reported() {
    let (socket, address) = socket().await;
    let (one, two) = (registration(1, "127.0.0.1:1"), registration(2, &address));
    let ours = state(CLUSTER, vec![one.clone(), two.clone()]);
    let theirs = state(ClusterId(0xbad), vec![two.clone()]);
    let recorder = Recorder::new(member(two.clone(), &theirs), Manner::Silent);
    let _listener = recorder.listen(socket);
    let peers = Peers::new(member(one, &ours));
    peers.send(two.id, vec![numbered(0)]);
    let refused = peers.call(two.id, PeerRequest::Identify, soon()).await;
    assert_eq!(refused, Err(CallError::NotSent(NotSent::Unreachable)));
    let trouble = peers.troubles().remove(&two.id).unwrap();
    assert!(trouble.contains(&theirs.cluster.to_string()), "{trouble}");
    assert_eq!(recorder.message_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_at_a_known_address_is_refused_and_reported() {
    let (socket, address) = socket().await;
    let (one, two) = (registration(1, "127.0.0.1:1"), registration(2, &address));
    let state = state(CLUSTER, vec![one.clone(), two.clone()]);
    // The disk of node 2 was wiped: whoever listens there now is node 3 and knows no cluster.
    let wiped = LocalNode::new(registration(3, &address), None, ViewHandle::new());
    let recorder = Recorder::new(wiped, Manner::Silent);
    let _listener = recorder.listen(socket);
    let peers = Peers::new(member(one, &state));
    let refused = peers.call(two.id, PeerRequest::Identify, soon()).await;
    assert_eq!(refused, Err(CallError::NotSent(NotSent::Unreachable)));
    let trouble = peers.troubles().remove(&two.id).unwrap();
    assert!(trouble.contains(&recorder.local.id().to_string()), "{trouble}");

    // By its address it says who it is.
    let identified = peers.call_address(&address, PeerRequest::Identify, soon()).await;
    assert_eq!(identified.unwrap().0, recorder.local.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_wiped_node_are_refused_at_the_address_of_the_old_one() {
    let pair = pair(Manner::Silent).await;
    let old_address = pair.dialling.registration().peer_address.clone();
    let state = pair.dialling.view().load().unwrap().state.clone();
    let wiped = member(registration(3, &old_address), &state);
    let peers = Peers::new(wiped);
    let to = pair.recorder.local.id();
    peers.send(to, vec![numbered(0)]);
    wait_for("the refusal", || !peers.troubles().is_empty()).await;
    assert!(peers.troubles()[&to].contains(&pair.dialling.id().to_string()));
    assert_eq!(pair.recorder.message_count(), 0);
}

/// Reads until the other end closes; fails if it does not.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    // A reset is an end as well.
    let _ = ended.expect("the connection was left open");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_silence_end_a_connection_and_nothing_else() {
    let pair = pair(Manner::Silent).await;
    let mut garbage = TcpStream::connect(&pair.address).await.unwrap();
    garbage.write_all(&[0x47; 4096]).await.unwrap();
    closed(&mut garbage).await;

    let mut silent = TcpStream::connect(&pair.address).await.unwrap();
    closed(&mut silent).await;

    // A proper greeting, and then a frame that does not belong there.
    let hello = Hello {
        channel: Channel::Messages,
        name: pair.dialling.registration().name.clone(),
        peer_address: pair.dialling.registration().peer_address.clone(),
        expected: None,
    };
    let mut bytes = greeting(&pair.dialling, FrameKind::Hello, &hello);
    let sender = pair.dialling.sender();
    append_frame(&mut bytes, FrameKind::Requests, &sender, |_| ()).unwrap();
    let mut misplaced = TcpStream::connect(&pair.address).await.unwrap();
    misplaced.write_all(&bytes).await.unwrap();
    closed(&mut misplaced).await;

    pair.peers.send(pair.recorder.local.id(), vec![numbered(0)]);
    wait_for("a message", || pair.recorder.message_count() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_read_holds_up_nobody() {
    // It greets, and reads nothing more.
    let (socket, address) = socket().await;
    let (one, two) = (registration(1, "127.0.0.1:1"), registration(2, &address));
    let state = state(CLUSTER, vec![one.clone(), two.clone()]);
    let stuck = member(two.clone(), &state);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = socket.accept().await {
            let mut hello = [0; 256];
            let _ = stream.read(&mut hello).await;
            let name = stuck.registration().name.clone();
            let welcome = crate::transport::hello::HelloAnswer::Welcome { name };
            let _ = stream.write_all(&greeting(&stuck, FrameKind::HelloAnswer, &welcome)).await;
            open.push(stream);
        }
    });
    let peers = Peers::new(member(one, &state));
    let began = Instant::now();
    for number in 0..200_000 {
        peers.send(two.id, vec![numbered(number)]);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "sending took {:?}", began.elapsed());
    let deadline = Instant::now() + Duration::from_millis(200);
    let unanswered = peers.call(two.id, PeerRequest::Identify, deadline).await;
    assert!(
        matches!(unanswered, Err(CallError::Deadline | CallError::NotSent(_))),
        "{unanswered:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_cluster_answers_requests_and_takes_no_messages() {
    let (socket, address) = socket().await;
    let new = LocalNode::new(registration(2, &address), None, ViewHandle::new());
    let recorder = Recorder::new(new, Manner::Silent);
    let _listener = recorder.listen(socket);
    let dialling = LocalNode::new(registration(1, "127.0.0.1:1"), None, ViewHandle::new());
    let peers = Peers::new(dialling.clone());
    let identified = peers.call_address(&address, PeerRequest::Identify, soon()).await;
    assert!(matches!(identified, Ok((_, PeerAnswer::Identity(_)))));

    let refused = crate::transport::hello::dial(&dialling, &address, None, Channel::Messages).await;
    assert!(matches!(refused, Err(ConnectError::Refused { .. })), "{refused:?}");
    let absent = peers.call_address("127.0.0.1:1", PeerRequest::Identify, soon()).await;
    assert!(matches!(absent, Err(AddressCallError::Connect(ConnectError::Unreachable { .. }))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_epoch_in_a_frame_is_reported() {
    let (socket, address) = socket().await;
    let (one, two) = (registration(1, "127.0.0.1:1"), registration(2, &address));
    let state = state(CLUSTER, vec![one.clone(), two.clone()]);
    // Node 2 has accepted the cluster and has no view yet.
    let behind = LocalNode::new(two.clone(), Some(CLUSTER), ViewHandle::new());
    let recorder = Recorder::new(behind, Manner::Silent);
    let _listener = recorder.listen(socket);
    let peers = Peers::new(member(one, &state));
    peers.send(two.id, vec![numbered(0)]);
    wait_for("the message", || recorder.message_count() == 1).await;
    assert_eq!(recorder.epochs.lock().unwrap()[..], [state.epoch()]);
}
