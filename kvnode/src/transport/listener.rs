//! The way in from all other nodes.
//!
//! Whoever connects has a bounded time to greet, and a bounded number may be connected. A
//! connection that breaks a rule is closed; the reason is logged once a minute per address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvcore::message::PeerMessage;
use metrics::{Counter, counter};
use placement::{Epoch, NodeId};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::answers::{AnswerQueue, Answerer, write_answers};
use super::body::{BodyError, parse_messages, parse_requests};
use super::frame::{Frame, FrameError, FrameKind, FrameReader};
use super::hello::{
    Channel, GREETING_TIMEOUT, Hello, HelloAnswer, HelloRefusal, greeting, judge, parse_greeting,
};
use super::request::{PeerAnswer, PeerRefusal, PeerRequest};
use super::socket;
use crate::identity::LocalNode;

/// Connections that may be open at a time: four from each node of a cluster of hundreds.
const CONNECTIONS_MAX: usize = 2048;
/// A complaint about an address is repeated after this long.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);
/// Addresses whose complaints are remembered.
const COMPLAINTS_MAX: usize = 1024;
/// Pause after the system had no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the rest of the node does with what other nodes send. Nothing here may block.
pub trait PeerService: Send + Sync + 'static {
    /// Messages from another node's core.
    fn messages(&self, from: NodeId, messages: Vec<PeerMessage>);

    /// A request; it must be answered, and a dropped [`Answerer`] says that the outcome is unknown.
    fn request(&self, from: NodeId, request: PeerRequest, deadline: Instant, answerer: Answerer);

    /// Another node, reached at this peer address, works under this epoch.
    fn epoch_seen(&self, from: NodeId, peer_address: &str, epoch: Epoch);
}

/// Accepts connections until it is dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    task: AbortHandle,
}

impl Listener {
    /// Starts to accept connections.
    ///
    /// # Errors
    /// When the socket does not know its own address.
    pub fn start(
        socket: TcpListener,
        local: LocalNode,
        service: Arc<dyn PeerService>,
    ) -> std::io::Result<Self> {
        let address = socket.local_addr()?;
        let task = tokio::spawn(accept(socket, local, service)).abort_handle();
        Ok(Self { address, task })
    }

    /// The address listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why a connection was closed.
#[derive(Debug, Error)]
enum Closed {
    #[error("no greeting came in time")]
    NoGreeting,
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("refused: {0}")]
    Refused(HelloRefusal),
    #[error("a frame came from {found} on a connection of {expected}")]
    OtherSender { expected: NodeId, found: NodeId },
    #[error("a frame came from another cluster")]
    OtherCluster,
    #[error("a frame of kind {0:?} came on a connection that is not for them")]
    Misplaced(FrameKind),
}

impl Closed {
    /// Whether this is the ordinary end of a connection.
    fn is_ordinary(&self) -> bool {
        matches!(self, Self::Frame(FrameError::Io(_) | FrameError::Truncated))
    }
}

async fn accept(socket: TcpListener, local: LocalNode, service: Arc<dyn PeerService>) {
    let mut connections = JoinSet::new();
    let mut complaints = Complaints::default();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, from)) if connections.len() < CONNECTIONS_MAX => {
                    let connection = Connection { local: local.clone(), service: service.clone() };
                    connections.spawn(async move { (from, connection.serve(stream).await) });
                }
                Ok((_stream, from)) => complaints.log(from, "too many connections are open"),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Ok((from, Err(closed))) = ended && !closed.is_ordinary() {
                    complaints.log(from, &closed.to_string());
                }
            }
        }
    }
}

/// Complaints about addresses, so that none floods the log.
#[derive(Default)]
struct Complaints {
    last: HashMap<IpAddr, (String, Instant)>,
}

impl Complaints {
    fn log(&mut self, from: SocketAddr, reason: &str) {
        counter!("ringkv_peer_connections_refused_total").increment(1);
        let now = Instant::now();
        let recent = self.last.get(&from.ip()).is_some_and(|(last, at)| {
            last == reason && now.duration_since(*at) < COMPLAINT_INTERVAL
        });
        if recent {
            return;
        }
        if self.last.len() >= COMPLAINTS_MAX {
            self.last.clear();
        }
        self.last.insert(from.ip(), (reason.to_owned(), now));
        tracing::warn!(%from, reason, "closed a connection on the peer port");
    }
}

struct Connection {
    local: LocalNode,
    service: Arc<dyn PeerService>,
}

/// The other end of a connection, as it greeted.
struct Remote {
    node: NodeId,
    peer_address: String,
}

impl Connection {
    async fn serve(self, stream: TcpStream) -> Result<(), Closed> {
        socket::configure(&stream).map_err(FrameError::Io)?;
        let (read_half, mut writer) = stream.into_split();
        let mut reader = FrameReader::new(read_half);
        let Ok(first) = timeout(GREETING_TIMEOUT, reader.next()).await else {
            return Err(Closed::NoGreeting);
        };
        // Somebody looked whether the port is open.
        let Some(first) = first? else { return Ok(()) };
        let hello: Hello = parse_greeting(&first, FrameKind::Hello)?;
        let verdict = judge(&self.local, &first, &hello);
        let answer = match &verdict {
            Ok(()) => HelloAnswer::Welcome { name: self.local.registration().name.clone() },
            Err(refusal) => HelloAnswer::Refused(refusal.clone()),
        };
        let answer = greeting(&self.local, FrameKind::HelloAnswer, &answer);
        writer.write_all(&answer).await.map_err(FrameError::Io)?;
        verdict.map_err(Closed::Refused)?;

        let remote = Remote { node: first.sender.node, peer_address: hello.peer_address };
        match hello.channel {
            // The writer is kept: to let it go would end the connection.
            Channel::Messages => self.take_messages(&mut reader, &remote).await,
            Channel::Requests => self.take_requests(&mut reader, &mut writer, &remote).await,
        }
    }

    async fn take_messages(
        &self,
        reader: &mut FrameReader<OwnedReadHalf>,
        remote: &Remote,
    ) -> Result<(), Closed> {
        let frames = counter!("ringkv_peer_frames_received_total", "kind" => "messages");
        while let Some(frame) = reader.next().await? {
            self.check(&frame, FrameKind::Messages, remote)?;
            frames.increment(1);
            self.service.messages(remote.node, parse_messages(&frame.body)?);
        }
        Ok(())
    }

    async fn take_requests(
        &self,
        reader: &mut FrameReader<OwnedReadHalf>,
        writer: &mut OwnedWriteHalf,
        remote: &Remote,
    ) -> Result<(), Closed> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(AnswerQueue::new(sender));
        tokio::select! {
            ended = self.read_requests(reader, &queue, remote) => ended,
            ended = write_answers(&self.local, writer, &mut receiver, &queue) => Ok(ended?),
        }
    }

    async fn read_requests(
        &self,
        reader: &mut FrameReader<OwnedReadHalf>,
        queue: &Arc<AnswerQueue>,
        remote: &Remote,
    ) -> Result<(), Closed> {
        let frames: Counter = counter!("ringkv_peer_frames_received_total", "kind" => "requests");
        loop {
            queue.room().await;
            let Some(frame) = reader.next().await? else { return Ok(()) };
            self.check(&frame, FrameKind::Requests, remote)?;
            frames.increment(1);
            let now = Instant::now();
            for parsed in parse_requests(&frame.body)? {
                let admitted = queue.admit(parsed.id);
                let request = match parsed.request {
                    Ok(request) => request,
                    Err(_undecodable) => {
                        admitted.refuse(PeerRefusal::Malformed);
                        continue;
                    }
                };
                if queue.is_overloaded() {
                    admitted.refuse(PeerRefusal::Overloaded);
                    continue;
                }
                self.service.request(remote.node, request, now + parsed.remaining, admitted);
            }
        }
    }

    /// Whether a frame fits its connection.
    fn check(&self, frame: &Frame, kind: FrameKind, remote: &Remote) -> Result<(), Closed> {
        if frame.kind != kind {
            return Err(Closed::Misplaced(frame.kind));
        }
        if frame.sender.node != remote.node {
            let (expected, found) = (remote.node, frame.sender.node);
            return Err(Closed::OtherSender { expected, found });
        }
        match (self.local.cluster(), frame.sender.cluster) {
            (Some(ours), Some(theirs)) if ours != theirs => return Err(Closed::OtherCluster),
            (Some(_), Some(_)) => {}
            (None, _) | (_, None) if kind == FrameKind::Requests => {}
            (None, _) | (_, None) => return Err(Closed::OtherCluster),
        }
        if frame.sender.epoch > self.local.view().epoch() {
            self.service.epoch_seen(remote.node, &remote.peer_address, frame.sender.epoch);
        }
        Ok(())
    }
}

impl Answerer {
    /// Refuses the request.
    pub fn refuse(self, refusal: PeerRefusal) {
        self.answer(PeerAnswer::Refused(refusal));
    }
}
