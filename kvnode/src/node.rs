//! A running node: the composition root.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvcore::cluster::Registration;
use kvcore::event::Alarm;
use kvcore::{ClusterId, Faults, Settings};
use placement::{NodeId, NodeName, Weight, Zone};
use thiserror::Error;

use crate::founding::{Founded, FoundingOptions, InitError};
use crate::registration::RegistrationState;
use crate::router::Router;
use crate::view::ViewHandle;

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name, unique in its cluster.
    pub name: NodeName,
    /// The zone whose loss it would not survive.
    pub zone: Zone,
    /// Its share of the data relative to other nodes.
    pub weight: Weight,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where it listens for other nodes; port 0 takes a free one.
    pub peer_listen: SocketAddr,
    /// Where other nodes reach it, as `host:port`; the address listened on if not given.
    pub peer_advertised: Option<String>,
    /// Where clients reach it, as `host:port`.
    pub client_advertised: String,
    /// Peer addresses of nodes that may know the cluster.
    pub seeds: Vec<String>,
    /// The longest value taken, in bytes.
    pub value_bytes_max: usize,
    /// Times and limits of the core.
    pub settings: Settings,
    /// Deliberate faults, for tests.
    pub faults: Faults,
}

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The peer address cannot be listened on.
    #[error("cannot listen for other nodes on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's word.
        source: std::io::Error,
    },
    /// The store does not open.
    #[error("cannot open the store in {}", data_dir.display())]
    Storage {
        /// Where it is.
        data_dir: PathBuf,
        /// What it says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A thread cannot be started.
    #[error("cannot start the thread {name}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// The system's word.
        source: std::io::Error,
    },
}

/// What a node says of itself.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Identity, name, zone, weight and addresses.
    pub registration: Registration,
    /// The cluster it belongs to, for ever; none before it was founded or registered.
    pub cluster: Option<ClusterId>,
    /// How far its registration has come.
    pub registration_state: RegistrationState,
    /// Time since its view was last confirmed; none without a view.
    pub view_age: Option<Duration>,
    /// What an operator should know, newest last.
    pub alarms: Vec<Alarm>,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    info: NodeInfo,
    router: Arc<Router>,
    view: ViewHandle,
}

impl Node {
    /// Starts a node. It must be called within a tokio runtime of several threads.
    ///
    /// # Errors
    /// [`StartError`] when the node cannot run; nothing is left running then.
    pub async fn start(config: NodeConfig) -> Result<Self, StartError> {
        let _ = config;
        Err(StartError::Thread { name: "core", source: std::io::ErrorKind::Unsupported.into() })
    }

    /// The node's identity.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.info.registration.id
    }

    /// What the node says of itself now.
    #[must_use]
    pub fn info(&self) -> NodeInfo {
        self.info.clone()
    }

    /// Executes clients' requests.
    #[must_use]
    pub fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// The view in force.
    #[must_use]
    pub fn view(&self) -> &ViewHandle {
        &self.view
    }

    /// Founds a cluster of the nodes at these peer addresses.
    ///
    /// # Errors
    /// [`InitError`]; unless it says otherwise, nothing was changed.
    pub async fn init(
        &self,
        founders: Vec<String>,
        options: FoundingOptions,
    ) -> Result<Founded, InitError> {
        let _ = options;
        Err(InitError::Unreachable {
            address: founders.first().cloned().unwrap_or_default(),
            reason: "not started".to_owned(),
        })
    }

    /// Gives every leadership away, makes everything durable and stops, within ten seconds.
    pub async fn stop(self) {}
}
