//! The way out to all other nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use kvcore::message::PeerMessage;
use metrics::counter;
use placement::NodeId;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use super::body::{append_request, parse_answers};
use super::calls::{CallError, Calls, NotSent, calls};
use super::frame::{FrameError, FrameKind, append_frame};
use super::hello::{Channel, ConnectError, Greeted, dial};
use super::link::{Link, Troubles};
use super::outbox::{Outbox, outbox};
use super::request::{PeerAnswer, PeerRequest};
use crate::identity::LocalNode;

/// Sends messages and requests to other nodes. Cheap to clone; connections close with the last.
#[derive(Clone, Debug)]
pub struct Peers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    local: LocalNode,
    runtime: Handle,
    peers: ArcSwap<HashMap<NodeId, Arc<Peer>>>,
    changing: Mutex<()>,
    troubles: Troubles,
}

/// One peer: a connection for messages, another for requests.
#[derive(Debug)]
struct Peer {
    outbox: Outbox,
    calls: Calls,
    tasks: [AbortHandle; 2],
}

impl Drop for Peer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Why a request to an address has no answer.
#[derive(Debug, Error)]
pub enum AddressCallError {
    /// Nothing but a greeting was sent.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended after the request was sent.
    #[error("{address} closed the connection: {source}")]
    Lost {
        /// The address.
        address: String,
        /// What happened.
        source: FrameError,
    },
    /// The answer did not come in time.
    #[error("{address} did not answer in time")]
    Deadline {
        /// The address.
        address: String,
    },
}

impl Peers {
    /// The way out of this node. It must be made within a tokio runtime, on which connections run.
    #[must_use]
    pub fn new(local: LocalNode) -> Self {
        let shared = Shared {
            local,
            runtime: Handle::current(),
            peers: ArcSwap::default(),
            changing: Mutex::new(()),
            troubles: Troubles::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sends messages to a node, without waiting and from any thread. What has no room is dropped.
    pub fn send(&self, to: NodeId, messages: Vec<PeerMessage>) {
        match self.peer(to) {
            Some(peer) => peer.outbox.send(messages),
            None => {
                counter!("ringkv_peer_messages_dropped_total").increment(messages.len() as u64);
            }
        }
    }

    /// Sends a request to a node of the directory and waits for the answer.
    ///
    /// # Errors
    /// [`CallError`] tells whether the request may have been executed.
    pub async fn call(
        &self,
        to: NodeId,
        request: PeerRequest,
        deadline: Instant,
    ) -> Result<PeerAnswer, CallError> {
        let peer = self.peer(to).ok_or(CallError::NotSent(NotSent::UnknownNode))?;
        peer.calls.call(request, deadline).await
    }

    /// Sends a request to whoever listens at an address, on a connection of its own.
    ///
    /// # Errors
    /// [`AddressCallError`] tells whether the request may have been executed.
    pub async fn call_address(
        &self,
        address: &str,
        request: PeerRequest,
        deadline: Instant,
    ) -> Result<(NodeId, PeerAnswer), AddressCallError> {
        let lost = |source| AddressCallError::Lost { address: address.to_owned(), source };
        let exchange = async {
            let connection = dial(&self.shared.local, address, None, Channel::Requests).await?;
            self.ask(connection, &request, deadline).await.map_err(lost)
        };
        timeout_at(deadline.into(), exchange)
            .await
            .map_err(|_elapsed| AddressCallError::Deadline { address: address.to_owned() })?
    }

    async fn ask(
        &self,
        connection: Greeted,
        request: &PeerRequest,
        deadline: Instant,
    ) -> Result<(NodeId, PeerAnswer), FrameError> {
        const ID: u64 = 1;
        let Greeted { node, mut reader, mut writer } = connection;
        let mut buffer = Vec::new();
        let sender = self.shared.local.sender();
        let remaining = deadline.saturating_duration_since(Instant::now());
        append_frame(&mut buffer, FrameKind::Requests, &sender, |body| {
            append_request(body, ID, remaining, request);
        })?;
        writer.write_all(&buffer).await?;
        while let Some(frame) = reader.next().await? {
            if frame.kind != FrameKind::Answers {
                return Err(FrameError::NotAFrame);
            }
            let answers = parse_answers(&frame.body).map_err(|_malformed| FrameError::NotAFrame)?;
            for (id, answer) in answers {
                if id == ID {
                    return answer.map(|answer| (node, answer)).ok_or(FrameError::NotAFrame);
                }
            }
        }
        Err(FrameError::Truncated)
    }

    /// The peers that cannot be reached now, and why.
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<NodeId, String> {
        self.shared.troubles.list()
    }

    /// The peer with this identity, if the directory has it.
    fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        if let Some(peer) = self.shared.peers.load().get(&node) {
            return Some(Arc::clone(peer));
        }
        self.add(node)
    }

    /// Adds a peer of the directory, and lets go of those that are not in it any more.
    fn add(&self, node: NodeId) -> Option<Arc<Peer>> {
        let shared = &self.shared;
        let view = shared.local.view().load()?;
        if node == shared.local.id() || view.node(node).is_none() {
            return None;
        }
        let _changing = shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peers = HashMap::clone(&shared.peers.load());
        if let Some(peer) = peers.get(&node) {
            return Some(Arc::clone(peer));
        }
        peers.retain(|known, _| view.node(*known).is_some());
        let link = || Link::new(shared.local.clone(), shared.troubles.clone());
        let (outbox, outbox_task) = outbox();
        let (calls, calls_task) = calls();
        let tasks = [
            shared.runtime.spawn(outbox_task.run(node, link())).abort_handle(),
            shared.runtime.spawn(calls_task.run(node, link())).abort_handle(),
        ];
        let peer = Arc::new(Peer { outbox, calls, tasks });
        peers.insert(node, Arc::clone(&peer));
        shared.peers.store(Arc::new(peers));
        Some(peer)
    }
}
