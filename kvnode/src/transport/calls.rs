//! Requests to one peer: many under way on one connection, each answered by its number.
//!
//! A request is in one of three phases. While it waits, whoever takes it away knows that no byte
//! of it left. Once the writer has taken it, it counts as sent, whatever becomes of the write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram, counter, histogram};
use placement::NodeId;
use thiserror::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

use super::body::{append_request, parse_answers};
use super::frame::{FrameError, FrameKind, FrameReader, append_frame};
use super::hello::{Channel, Greeted};
use super::link::Link;
use super::outbox::{BUFFER_BYTES_KEPT, FRAME_BYTES_SOFT};
use super::request::{PeerAnswer, PeerRequest};

/// Requests that may wait for one connection.
const QUEUE_MAX: usize = 4096;
/// Bytes of requests that may wait for one connection.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Requests of one connection that may be without an answer.
const PENDING_MAX: usize = 16 << 10;

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// No byte of the request left this node: it was not applied.
    #[error("the request was not sent: {0}")]
    NotSent(NotSent),
    /// The connection ended after the request was sent: its outcome is unknown.
    #[error("the connection ended before the answer came")]
    Lost,
    /// The deadline passed after the request was sent: its outcome is unknown.
    #[error("the answer did not come in time")]
    Deadline,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotSent {
    /// The node is not in the directory.
    #[error("the node is not in the directory")]
    UnknownNode,
    /// There is no connection to the node now.
    #[error("the node cannot be reached")]
    Unreachable,
    /// Too many requests wait for the node.
    #[error("too many requests wait for the node")]
    Overloaded,
    /// The deadline passed while the request waited.
    #[error("the deadline passed while the request waited")]
    Expired,
    /// The request is longer than a frame may be.
    #[error("the request is too long")]
    TooLong,
}

type Answered = Result<PeerAnswer, CallError>;

/// Who may still decide that a request was not sent.
#[derive(Debug, Default)]
struct Phase(AtomicU8);

impl Phase {
    const WAITING: u8 = 0;
    const SENT: u8 = 1;
    const ABANDONED: u8 = 2;

    /// The writer takes the request; `false` if it was abandoned before.
    fn send(&self) -> bool {
        self.leave(Self::SENT)
    }

    /// The caller gives the request up; `false` if it was sent before.
    fn abandon(&self) -> bool {
        self.leave(Self::ABANDONED)
    }

    fn leave(&self, to: u8) -> bool {
        self.0.compare_exchange(Self::WAITING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[derive(Debug)]
struct QueuedCall {
    request: PeerRequest,
    bytes: usize,
    deadline: Instant,
    phase: Arc<Phase>,
    answer: oneshot::Sender<Answered>,
}

#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    /// The last attempt to connect failed and the next one is still to come.
    away: AtomicBool,
}

/// The callers' end of a peer's requests.
#[derive(Debug)]
pub(super) struct Calls {
    queue: mpsc::Sender<QueuedCall>,
    shared: Arc<Shared>,
}

/// The task's end of a peer's requests.
#[derive(Debug)]
pub(super) struct CallsTask {
    queue: mpsc::Receiver<QueuedCall>,
    shared: Arc<Shared>,
    frames: Counter,
    requests_per_frame: Histogram,
}

/// A peer's requests and the task that sends them.
pub(super) fn calls() -> (Calls, CallsTask) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let shared = Arc::<Shared>::default();
    let task = CallsTask {
        queue: receiver,
        shared: Arc::clone(&shared),
        frames: counter!("ringkv_peer_frames_total", "kind" => "requests"),
        requests_per_frame: histogram!("ringkv_forwarded_requests_per_frame"),
    };
    (Calls { queue: sender, shared }, task)
}

/// Takes the request back if its caller goes away before it was sent.
struct AbandonOnDrop<'a>(&'a Phase);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Calls {
    /// Sends a request and waits for its answer.
    pub async fn call(&self, request: PeerRequest, deadline: Instant) -> Answered {
        if self.shared.away.load(Ordering::Acquire) {
            return Err(CallError::NotSent(NotSent::Unreachable));
        }
        let bytes = request.size();
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let phase = Arc::<Phase>::default();
        let call = QueuedCall { request, bytes, deadline, phase: Arc::clone(&phase), answer };
        if queued.saturating_add(bytes) > QUEUE_BYTES_MAX || self.queue.try_send(call).is_err() {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(CallError::NotSent(NotSent::Overloaded));
        }
        let _abandon = AbandonOnDrop(&phase);
        match tokio::time::timeout_at(deadline.into(), answered).await {
            Ok(Ok(answered)) => answered,
            // The task is gone, with the node that it belongs to.
            Ok(Err(_gone)) if phase.abandon() => Err(CallError::NotSent(NotSent::Unreachable)),
            Ok(Err(_gone)) => Err(CallError::Lost),
            Err(_elapsed) if phase.abandon() => Err(CallError::NotSent(NotSent::Expired)),
            Err(_elapsed) => Err(CallError::Deadline),
        }
    }
}

/// Requests that were sent, by number.
type Pending = Mutex<HashMap<u64, oneshot::Sender<Answered>>>;

impl CallsTask {
    /// Connects, sends and hands answers out until the callers' end is gone.
    pub async fn run(mut self, node: NodeId, mut link: Link) {
        while !self.queue.is_closed() {
            match link.connect(node, Channel::Requests).await {
                Ok(connection) => {
                    self.shared.away.store(false, Ordering::Release);
                    let error = self.drive(&link, connection).await;
                    link.lost("requests", error.err());
                }
                Err(pause) => {
                    self.shared.away.store(true, Ordering::Release);
                    self.fail_queued();
                    tokio::time::sleep(pause).await;
                    self.fail_queued();
                }
            }
        }
    }

    /// Uses a connection until it ends; what was sent and not answered by then is lost.
    async fn drive(&mut self, link: &Link, connection: Greeted) -> Result<(), FrameError> {
        let Greeted { node: _, mut reader, mut writer } = connection;
        let pending = Pending::default();
        let ended = tokio::select! {
            ended = read_answers(&mut reader, &pending) => ended,
            ended = self.write_requests(link, &mut writer, &pending) => ended,
        };
        for (_, answer) in lock(&pending).drain() {
            // A caller that is gone does not mind.
            let _ = answer.send(Err(CallError::Lost));
        }
        ended
    }

    async fn write_requests(
        &mut self,
        link: &Link,
        writer: &mut (impl AsyncWrite + Unpin),
        pending: &Pending,
    ) -> Result<(), FrameError> {
        let mut next_id = 1;
        let mut buffer = Vec::new();
        let mut queued = Vec::new();
        while self.queue.recv_many(&mut queued, QUEUE_MAX).await > 0 {
            let bytes = queued.iter().map(|call: &QueuedCall| call.bytes).sum();
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let mut calls = queued.drain(..).peekable();
            while calls.peek().is_some() {
                let now = Instant::now();
                let sender = link.local().sender();
                let count = append_frame(&mut buffer, FrameKind::Requests, &sender, |body| {
                    let start = body.len();
                    let mut count = 0;
                    while body.len() - start < FRAME_BYTES_SOFT
                        && let Some(call) = calls.next()
                    {
                        count += usize::from(take(call, next_id, now, body, pending));
                        next_id += 1;
                    }
                    count
                })?;
                if count > 0 {
                    self.frames.increment(1);
                    self.requests_per_frame.record(count as f64);
                    writer.write_all(&buffer).await?;
                }
                buffer.clear();
                buffer.shrink_to(BUFFER_BYTES_KEPT);
            }
        }
        Ok(())
    }

    fn fail_queued(&mut self) {
        while let Ok(call) = self.queue.try_recv() {
            self.shared.queued_bytes.fetch_sub(call.bytes, Ordering::Relaxed);
            refuse(call, NotSent::Unreachable);
        }
    }
}

/// Says that a request was not sent, unless its caller has said so already.
fn refuse(call: QueuedCall, why: NotSent) {
    if call.phase.abandon() {
        let _ = call.answer.send(Err(CallError::NotSent(why)));
    }
}

/// Puts a request into a frame's body, unless it is too late for it; returns whether it did.
fn take(call: QueuedCall, id: u64, now: Instant, body: &mut Vec<u8>, pending: &Pending) -> bool {
    let Some(remaining) = call.deadline.checked_duration_since(now).filter(|left| !left.is_zero())
    else {
        refuse(call, NotSent::Expired);
        return false;
    };
    if call.bytes > FrameKind::Requests.body_bytes_max() / 2 {
        refuse(call, NotSent::TooLong);
        return false;
    }
    let mut pending = lock(pending);
    if pending.len() >= PENDING_MAX {
        // Callers that gave up leave their numbers behind until then.
        pending.retain(|_, answer| !answer.is_closed());
    }
    if pending.len() >= PENDING_MAX {
        refuse(call, NotSent::Overloaded);
        return false;
    }
    if !call.phase.send() {
        return false;
    }
    append_request(body, id, remaining.max(Duration::from_millis(1)), &call.request);
    pending.insert(id, call.answer);
    true
}

async fn read_answers(
    reader: &mut FrameReader<OwnedReadHalf>,
    pending: &Pending,
) -> Result<(), FrameError> {
    while let Some(frame) = reader.next().await? {
        if frame.kind != FrameKind::Answers {
            return Err(FrameError::NotAFrame);
        }
        let answers = parse_answers(&frame.body).map_err(|error| {
            tracing::warn!(node = %frame.sender.node, %error, "malformed answers");
            FrameError::NotAFrame
        })?;
        let mut pending = lock(pending);
        for (id, answer) in answers {
            if let Some(caller) = pending.remove(&id) {
                let _ = caller.send(answer.ok_or(CallError::Lost));
            }
        }
    }
    Err(FrameError::Truncated)
}

fn lock(pending: &Pending) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answered>>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
