//! Keeping the view new: asking group 0 whether it is, and fetching one that others work under.
//!
//! Cores push views and ask for them as well. This task is for what they do not see: an epoch in the
//! header of a frame, and the age of a view that nobody changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvcore::cluster::ClusterState;
use kvcore::{Event, GroupId, Revision};
use placement::{Epoch, NodeId};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::core_thread::CoreHandle;
use crate::identity::LocalNode;
use crate::router::Router;
use crate::transport::{PeerAnswer, PeerRequest, Peers};

/// How often the view is confirmed.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time to ask one node.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// Sightings of newer epochs that may wait; one is enough to fetch what all of them saw.
const SIGHTINGS_MAX: usize = 8;

/// A newer epoch in the header of a frame.
#[derive(Debug)]
struct Sighting {
    node: NodeId,
    peer_address: String,
    epoch: Epoch,
}

/// Tells the keeper of newer epochs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EpochWatch {
    sightings: mpsc::Sender<Sighting>,
}

impl EpochWatch {
    /// Another node works under a newer epoch.
    pub fn seen(&self, node: NodeId, peer_address: &str, epoch: Epoch) {
        // With a full queue the view is being fetched already.
        if self.sightings.capacity() > 0 {
            let peer_address = peer_address.to_owned();
            let _ = self.sightings.try_send(Sighting { node, peer_address, epoch });
        }
    }
}

/// Keeps the view new, for as long as the node runs.
pub(crate) struct ViewKeeper {
    local: LocalNode,
    peers: Peers,
    router: Arc<Router>,
    core: CoreHandle,
    sightings: mpsc::Receiver<Sighting>,
}

/// The way to a keeper that is made later, since whoever tells it of epochs is made earlier.
pub(crate) struct EpochSightings(mpsc::Receiver<Sighting>);

/// Both ends of the queue of sightings.
pub(crate) fn epoch_watch() -> (EpochWatch, EpochSightings) {
    let (sender, receiver) = mpsc::channel(SIGHTINGS_MAX);
    (EpochWatch { sightings: sender }, EpochSightings(receiver))
}

impl ViewKeeper {
    pub fn new(
        local: LocalNode,
        peers: Peers,
        router: Arc<Router>,
        core: CoreHandle,
        sightings: EpochSightings,
    ) -> Self {
        Self { local, peers, router, core, sightings: sightings.0 }
    }

    pub async fn run(mut self) {
        loop {
            match timeout(INTERVAL, self.sightings.recv()).await {
                Ok(Some(sighting)) => self.fetch(sighting).await,
                Ok(None) => return,
                Err(_elapsed) => self.confirm().await,
            }
        }
    }

    /// Fetches the view of a node that works under a newer epoch.
    async fn fetch(&self, sighting: Sighting) {
        if self.local.view().epoch() >= sighting.epoch || self.local.cluster().is_none() {
            return;
        }
        let request = PeerRequest::FetchView { newer_than: self.local.view().revision() };
        let deadline = Instant::now() + ASK_TIMEOUT;
        let answer =
            self.peers.call_address(&sighting.peer_address, request, deadline).await;
        match answer {
            Ok((_, PeerAnswer::View { newer: Some(state), confirmed: _ })) => {
                self.adopt(*state).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(node = %sighting.node, %error, "cannot fetch a newer view");
            }
        }
    }

    /// Asks the nodes of group 0 for a newer view, until its leader has been among them.
    async fn confirm(&self) {
        let Some(view) = self.local.view().load() else { return };
        let leader = self.router.known_leader(GroupId::CLUSTER);
        if leader == Some(self.local.id()) {
            self.local.view().note_verified();
            return;
        }
        let members = view.state.group0.iter().map(|member| member.node);
        let others = members.filter(|node| Some(*node) != leader && *node != self.local.id());
        for node in leader.into_iter().chain(others) {
            if self.ask(node, view.state.revision).await {
                return;
            }
        }
    }

    /// Asks one node; returns whether it knows what is newest.
    async fn ask(&self, node: NodeId, known: Revision) -> bool {
        let request = PeerRequest::FetchView { newer_than: known };
        let deadline = Instant::now() + ASK_TIMEOUT;
        match self.peers.call(node, request, deadline).await {
            Ok(PeerAnswer::View { newer, confirmed }) => {
                match newer {
                    Some(state) => self.adopt(*state).await,
                    None if confirmed => self.local.view().note_verified(),
                    None => {}
                }
                confirmed
            }
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(%node, %error, "cannot confirm the view");
                false
            }
        }
    }

    async fn adopt(&self, state: ClusterState) {
        if Some(state.cluster) == self.local.cluster() {
            self.core.deliver(Event::AdoptView(Arc::new(state))).await;
        }
    }
}
