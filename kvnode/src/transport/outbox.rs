//! Messages on their way to one peer: a bounded outbox and the task that empties it.
//!
//! Losing a message is allowed, waiting for a slow peer is not: what does not fit is dropped and
//! counted. Whatever waits when the connection is free goes out in one write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvcore::message::PeerMessage;
use metrics::{Counter, Histogram, counter, histogram};
use placement::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::body::{ITEMS_PER_FRAME_MAX, append_message, message_items, message_size};
use super::frame::{FrameError, FrameKind, Sender, append_frame};
use super::hello::{Channel, Greeted};
use super::link::Link;

/// Batches, one per turn of the core, that may wait for one peer.
const BATCHES_MAX: usize = 1024;
/// Bytes of messages that may wait for one peer.
const BYTES_MAX: usize = 64 << 20;
/// A frame is closed when it holds this much, so that one write stays within a socket's reach.
pub(super) const FRAME_BYTES_SOFT: usize = 1 << 20;
/// Memory of a write buffer that is kept for the next write.
pub(super) const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// The sending end of a peer's outbox.
#[derive(Debug)]
pub(super) struct Outbox {
    batches: mpsc::Sender<Vec<PeerMessage>>,
    queued_bytes: Arc<AtomicUsize>,
    dropped: Counter,
}

/// The task's end of a peer's outbox.
#[derive(Debug)]
pub(super) struct OutboxTask {
    batches: mpsc::Receiver<Vec<PeerMessage>>,
    queued_bytes: Arc<AtomicUsize>,
    dropped: Counter,
    frames: Counter,
    messages_per_frame: Histogram,
}

/// An outbox and the task that empties it.
pub(super) fn outbox() -> (Outbox, OutboxTask) {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let dropped = counter!("ringkv_peer_messages_dropped_total");
    let task = OutboxTask {
        batches: receiver,
        queued_bytes: Arc::clone(&queued_bytes),
        dropped: dropped.clone(),
        frames: counter!("ringkv_peer_frames_total", "kind" => "messages"),
        messages_per_frame: histogram!("ringkv_peer_messages_per_frame"),
    };
    (Outbox { batches: sender, queued_bytes, dropped }, task)
}

impl Outbox {
    /// Queues messages without waiting; drops them all if there is no room.
    pub fn send(&self, messages: Vec<PeerMessage>) {
        let bytes: usize = messages.iter().map(message_size).sum();
        let count = messages.len() as u64;
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued.saturating_add(bytes) > BYTES_MAX || self.batches.try_send(messages).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.increment(count);
        }
    }
}

impl OutboxTask {
    /// Connects and sends until the outbox is gone.
    pub async fn run(mut self, node: NodeId, mut link: Link) {
        while !self.batches.is_closed() {
            match link.connect(node, Channel::Messages).await {
                Ok(connection) => {
                    let ended = self.drive(&link, connection).await;
                    link.lost("messages", ended.err());
                }
                Err(pause) => {
                    // What waited for a peer that is away says nothing new when it is back.
                    self.drop_queued();
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn drive(&mut self, link: &Link, connection: Greeted) -> Result<(), FrameError> {
        let Greeted { node: _, mut reader, mut writer } = connection;
        let mut buffer = Vec::new();
        let mut batches = Vec::new();
        loop {
            tokio::select! {
                biased;
                // Nothing comes back on this connection but its end.
                ended = reader.next() => return ended.and(Err(FrameError::Truncated)),
                count = self.batches.recv_many(&mut batches, BATCHES_MAX) => if count == 0 {
                    return Ok(());
                }
            }
            let bytes: usize = batches.iter().flatten().map(message_size).sum();
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let sender = link.local().sender();
            let mut messages = batches.drain(..).flatten().peekable();
            while messages.peek().is_some() {
                match append_messages(&mut buffer, &sender, &mut messages) {
                    Ok(count) => {
                        self.frames.increment(1);
                        self.messages_per_frame.record(count as f64);
                    }
                    Err(error) => {
                        tracing::error!(%error, "a message is too long for a frame and was dropped");
                        self.dropped.increment(1);
                    }
                }
                if buffer.len() >= FRAME_BYTES_SOFT || messages.peek().is_none() {
                    writer.write_all(&buffer).await?;
                    buffer.clear();
                    buffer.shrink_to(BUFFER_BYTES_KEPT);
                }
            }
        }
    }

    /// How many batches wait.
    #[cfg(test)]
    pub fn queued_batches(&self) -> usize {
        self.batches.len()
    }

    fn drop_queued(&mut self) {
        while let Ok(batch) = self.batches.try_recv() {
            let bytes: usize = batch.iter().map(message_size).sum();
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.increment(batch.len() as u64);
        }
    }
}

/// Appends one frame with as many of the messages as fit, at least one; returns how many.
fn append_messages(
    buffer: &mut Vec<u8>,
    sender: &Sender,
    messages: &mut std::iter::Peekable<impl Iterator<Item = PeerMessage>>,
) -> Result<usize, FrameError> {
    append_frame(buffer, FrameKind::Messages, sender, |body| {
        let start = body.len();
        let mut items = 0;
        let mut count = 0;
        loop {
            let room = FRAME_BYTES_SOFT.saturating_sub(body.len() - start);
            let fits = |message: &PeerMessage| {
                count == 0
                    || (message_size(message) <= room
                        && items + message_items(message) <= ITEMS_PER_FRAME_MAX)
            };
            let Some(message) = messages.next_if(fits) else { return count };
            items += message_items(&message);
            count += 1;
            append_message(body, &message);
        }
    })
}
