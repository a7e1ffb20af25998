//! The greeting: both ends of a connection say who they are before anything else passes.
//!
//! The end that dials says whom it means to reach; the end that accepts refuses what does not
//! belong together. A disk that was wiped makes a new node, so whoever answers at a known address
//! under another identity is not the node that the directory means.

use std::time::Duration;

use kvcore::{ClusterId, codec};
use placement::{NodeId, NodeName};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::frame::{Frame, FrameError, FrameKind, FrameReader, append_frame};
use super::socket;
use crate::identity::LocalNode;

/// How long the other end may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the other end may take to greet.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    /// Messages from the dialling core to the other.
    Messages,
    /// Requests of the dialling node and their answers.
    Requests,
}

/// Body of the first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the connection is for.
    pub channel: Channel,
    /// The dialling node's name.
    pub name: NodeName,
    /// Where other nodes reach the dialling node.
    pub peer_address: String,
    /// The node meant; none while only an address is known.
    pub expected: Option<NodeId>,
}

/// Body of the answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloAnswer {
    /// Go on.
    Welcome {
        /// The accepting node's name.
        name: NodeName,
    },
    /// The connection is closed.
    Refused(HelloRefusal),
}

/// Why a connection was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum HelloRefusal {
    /// The two nodes belong to different clusters.
    #[error("it belongs to cluster {theirs}")]
    OtherCluster {
        /// Cluster of the refusing node.
        theirs: ClusterId,
    },
    /// Messages pass only between nodes of a cluster, and one of these is in none yet.
    #[error("messages pass only between nodes that belong to a cluster")]
    NoCluster,
    /// Another node than the one meant listens at the address.
    #[error("it is node {found}, not {expected}")]
    OtherNode {
        /// The node meant.
        expected: NodeId,
        /// The refusing node.
        found: NodeId,
    },
    /// The directory knows another node at the dialling node's address.
    #[error("its directory knows the address {address} as that of node {known}")]
    AddressOfAnother {
        /// The dialling node's address.
        address: String,
        /// The node that the directory knows there.
        known: NodeId,
    },
}

/// Why no connection came about. Nothing but a greeting was sent.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The address cannot be connected to.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// The address.
        address: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// Nobody answered in time.
    #[error("{address} does not answer")]
    Silent {
        /// The address.
        address: String,
    },
    /// What answered does not speak the protocol.
    #[error("{address} does not greet as a node: {source}")]
    Protocol {
        /// The address.
        address: String,
        /// What is wrong.
        source: FrameError,
    },
    /// The other end refused.
    #[error("{address} refuses the connection: {refusal}")]
    Refused {
        /// The address.
        address: String,
        /// Its reason.
        refusal: HelloRefusal,
    },
    /// Another node answers at the address, as after its disk was wiped.
    #[error("{address} is node {found}, but the directory knows it as {expected}")]
    OtherNode {
        /// The address.
        address: String,
        /// The node meant.
        expected: NodeId,
        /// The node found.
        found: NodeId,
    },
    /// The node at the address belongs to another cluster.
    #[error("{address} belongs to cluster {theirs}, this node to {ours}")]
    OtherCluster {
        /// The address.
        address: String,
        /// This node's cluster.
        ours: ClusterId,
        /// The other node's cluster.
        theirs: ClusterId,
    },
    /// The node is not in the directory.
    #[error("node {node} is not in the directory")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
}

impl ConnectError {
    /// A short name for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Silent { .. } => "silent",
            Self::Protocol { .. } => "protocol",
            Self::Refused { .. } => "refused",
            Self::OtherNode { .. } => "other_node",
            Self::OtherCluster { .. } => "other_cluster",
            Self::UnknownNode { .. } => "unknown_node",
        }
    }
}

/// A connection on which both ends have greeted.
#[derive(Debug)]
pub(super) struct Greeted {
    pub node: NodeId,
    pub reader: FrameReader<OwnedReadHalf>,
    pub writer: OwnedWriteHalf,
}

/// Dials an address and greets.
pub(super) async fn dial(
    local: &LocalNode,
    address: &str,
    expected: Option<NodeId>,
    channel: Channel,
) -> Result<Greeted, ConnectError> {
    let silent = || ConnectError::Silent { address: address.to_owned() };
    let unreachable =
        |source| ConnectError::Unreachable { address: address.to_owned(), source };
    let protocol = |source| ConnectError::Protocol { address: address.to_owned(), source };

    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
        .await
        .map_err(|_elapsed| silent())?
        .map_err(unreachable)?;
    socket::configure(&stream).map_err(unreachable)?;
    let (read_half, mut writer) = stream.into_split();
    let mut reader = FrameReader::new(read_half);

    let hello = Hello {
        channel,
        name: local.registration().name.clone(),
        peer_address: local.registration().peer_address.clone(),
        expected,
    };
    let greeting = greeting(local, FrameKind::Hello, &hello);
    let exchange = async {
        writer.write_all(&greeting).await?;
        reader.next().await?.ok_or(FrameError::Truncated)
    };
    let frame = timeout(GREETING_TIMEOUT, exchange).await.map_err(|_elapsed| silent())?;
    let frame = frame.map_err(protocol)?;
    let answer = parse_greeting(&frame, FrameKind::HelloAnswer).map_err(protocol)?;

    let found = frame.sender.node;
    if let Some(expected) = expected
        && found != expected
    {
        return Err(ConnectError::OtherNode { address: address.to_owned(), expected, found });
    }
    match answer {
        HelloAnswer::Welcome { name: _ } => {}
        HelloAnswer::Refused(refusal) => {
            return Err(ConnectError::Refused { address: address.to_owned(), refusal });
        }
    }
    if let (Some(ours), Some(theirs)) = (local.cluster(), frame.sender.cluster)
        && ours != theirs
    {
        return Err(ConnectError::OtherCluster { address: address.to_owned(), ours, theirs });
    }
    Ok(Greeted { node: found, reader, writer })
}

/// Whether the accepting node lets this greeting pass.
pub(super) fn judge(local: &LocalNode, frame: &Frame, hello: &Hello) -> Result<(), HelloRefusal> {
    if let Some(expected) = hello.expected
        && expected != local.id()
    {
        return Err(HelloRefusal::OtherNode { expected, found: local.id() });
    }
    match (local.cluster(), frame.sender.cluster) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            return Err(HelloRefusal::OtherCluster { theirs: ours });
        }
        (Some(_), Some(_)) => {}
        (None, _) | (_, None) if hello.channel == Channel::Requests => {}
        (None, _) | (_, None) => return Err(HelloRefusal::NoCluster),
    }
    if hello.channel == Channel::Requests {
        return Ok(());
    }
    let sender = frame.sender.node;
    let known = local.view().with(|view| {
        let nodes = view.map(|view| &view.state.nodes)?;
        if nodes.contains_key(&sender) {
            return None;
        }
        let at_address = |record: &&kvcore::cluster::NodeRecord| {
            record.registration.peer_address == hello.peer_address
        };
        nodes.values().find(at_address).map(|record| record.registration.id)
    });
    match known {
        Some(known) => {
            Err(HelloRefusal::AddressOfAnother { address: hello.peer_address.clone(), known })
        }
        None => Ok(()),
    }
}

/// A greeting's bytes.
pub(super) fn greeting<T: Serialize>(local: &LocalNode, kind: FrameKind, body: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_frame(&mut bytes, kind, &local.sender(), |buffer| {
        buffer.extend_from_slice(&codec::encode(body));
    })
    .expect("two names and an address are shorter than a greeting may be");
    bytes
}

/// Reads a greeting's body.
pub(super) fn parse_greeting<T: serde::de::DeserializeOwned>(
    frame: &Frame,
    kind: FrameKind,
) -> Result<T, FrameError> {
    if frame.kind != kind {
        return Err(FrameError::NotAFrame);
    }
    codec::decode(&frame.body).map_err(|_malformed| FrameError::NotAFrame)
}
