//! Answers on their way back to one peer.
//!
//! Whoever answers never waits: the number of requests under way bounds the queue, and a peer that
//! does not take its answers is not asked for more requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::counter;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::body::append_answer;
use super::frame::{FrameError, FrameKind, append_frame};
use super::outbox::{BUFFER_BYTES_KEPT, FRAME_BYTES_SOFT};
use super::request::{PeerAnswer, PeerRefusal};
use crate::identity::LocalNode;

/// Requests of one connection that may be under way.
const UNDER_WAY_MAX: usize = 8192;
/// Answers of one connection that may wait to be written before no more requests are read.
const QUEUED_MAX: usize = 2 * UNDER_WAY_MAX;
/// Bytes of answers of one connection that may wait before no more requests are read.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Answers taken from the queue at a time.
const TAKEN_MAX: usize = 4096;

/// The answers of one connection.
#[derive(Debug)]
pub(super) struct AnswerQueue {
    answers: mpsc::UnboundedSender<(u64, PeerAnswer)>,
    under_way: AtomicUsize,
    queued: AtomicUsize,
    queued_bytes: AtomicUsize,
    written: Notify,
}

impl AnswerQueue {
    pub fn new(answers: mpsc::UnboundedSender<(u64, PeerAnswer)>) -> Self {
        Self {
            answers,
            under_way: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            written: Notify::new(),
        }
    }

    /// Takes a request on.
    pub fn admit(self: &Arc<Self>, id: u64) -> Answerer {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Answerer { id, queue: Some(Arc::clone(self)) }
    }

    /// Whether as many requests are under way as may be.
    pub fn is_overloaded(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > UNDER_WAY_MAX
    }

    /// Waits until the peer has taken enough of its answers.
    pub async fn room(&self) {
        loop {
            let written = self.written.notified();
            let full = self.queued.load(Ordering::Relaxed) >= QUEUED_MAX
                || self.queued_bytes.load(Ordering::Relaxed) >= QUEUED_BYTES_MAX;
            if !full {
                return;
            }
            written.await;
        }
    }

    fn push(&self, id: u64, answer: PeerAnswer) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.queued_bytes.fetch_add(answer.size(), Ordering::Relaxed);
        // A connection that is gone takes its answers with it.
        let _ = self.answers.send((id, answer));
    }
}

/// The one chance to answer a request; may be used from any thread.
#[derive(Debug)]
#[must_use = "a request must be answered"]
pub struct Answerer {
    id: u64,
    queue: Option<Arc<AnswerQueue>>,
}

impl Answerer {
    /// Answers the request.
    pub fn answer(mut self, answer: PeerAnswer) {
        if let Some(queue) = self.queue.take() {
            queue.push(self.id, answer);
        }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.push(self.id, PeerAnswer::Refused(PeerRefusal::OutcomeUnknown));
        }
    }
}

/// Writes answers until the connection ends.
pub(super) async fn write_answers(
    local: &LocalNode,
    writer: &mut (impl AsyncWrite + Unpin),
    receiver: &mut mpsc::UnboundedReceiver<(u64, PeerAnswer)>,
    queue: &AnswerQueue,
) -> Result<(), FrameError> {
    let frames = counter!("ringkv_peer_frames_total", "kind" => "answers");
    let mut buffer = Vec::new();
    let mut taken = Vec::new();
    while receiver.recv_many(&mut taken, TAKEN_MAX).await > 0 {
        let mut answers = taken.drain(..).peekable();
        while answers.peek().is_some() {
            let sender = local.sender();
            let (count, bytes) = append_frame(&mut buffer, FrameKind::Answers, &sender, |body| {
                let start = body.len();
                let mut count = 0;
                let mut bytes = 0;
                while body.len() - start < FRAME_BYTES_SOFT
                    && let Some((id, answer)) = answers.next()
                {
                    count += 1;
                    bytes += answer.size();
                    append_answer(body, id, &answer);
                }
                (count, bytes)
            })?;
            frames.increment(1);
            writer.write_all(&buffer).await?;
            buffer.clear();
            buffer.shrink_to(BUFFER_BYTES_KEPT);
            queue.queued.fetch_sub(count, Ordering::Relaxed);
            queue.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            queue.written.notify_one();
        }
    }
    Ok(())
}
