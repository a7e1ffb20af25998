//! Entering the directory: a new node asks its seeds, a member tells the cluster what changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvcore::cluster::{ClusterCommand, ClusterOutcome, ClusterRefusal};
use placement::Epoch;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::founding::Acceptor;
use crate::identity::LocalNode;
use crate::router::Router;
use crate::transport::{PeerAnswer, PeerRefusal, PeerRequest, Peers};

/// Time for one attempt to register.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a first attempt that failed; doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest pause between attempts.
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

/// How far a node's registration has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrationState {
    /// No cluster is known and no seeds are given: the node waits to be founded.
    #[default]
    Waiting,
    /// A cluster is looked for or asked.
    Asking,
    /// The directory says of this node what it says of itself.
    Registered {
        /// The epoch in which that was seen.
        epoch: Epoch,
    },
    /// The node has left the cluster: it holds nothing any more and is about to stop.
    Departed {
        /// Whether it was given up with its data.
        is_lost: bool,
    },
    /// The cluster refused this node; it is asked again, since a name may become free.
    Refused(ClusterRefusal),
}

/// Keeps the directory's line about this node true.
pub(crate) struct Registrar {
    pub local: LocalNode,
    pub peers: Peers,
    pub router: Arc<Router>,
    pub acceptor: Acceptor,
    /// Peer addresses of nodes that may know the cluster.
    pub seeds: Vec<String>,
    pub state: watch::Sender<RegistrationState>,
}

impl Registrar {
    /// Runs for as long as the node does: whenever view and node disagree, it asks for a change.
    pub async fn run(self) {
        let mut changes = self.local.view().changes();
        let mut pause = PAUSE_FIRST;
        let mut was_member = false;
        loop {
            changes.borrow_and_update();
            let next = match self.standing(was_member) {
                RegistrationState::Asking => self.ask().await,
                settled => settled,
            };
            let settled = match &next {
                RegistrationState::Waiting
                | RegistrationState::Registered { .. }
                | RegistrationState::Departed { .. } => true,
                RegistrationState::Asking | RegistrationState::Refused(_) => false,
            };
            was_member |= matches!(next, RegistrationState::Registered { .. });
            self.note(next);
            if settled {
                pause = PAUSE_FIRST;
                if changes.changed().await.is_err() {
                    return;
                }
            } else {
                // A founding or a view that comes in between ends the pause.
                let _ = timeout(pause, changes.changed()).await;
                pause = (pause * 2).min(PAUSE_LONGEST);
            }
        }
    }

    /// What follows from the view in force.
    ///
    /// A node that was in the directory while this process ran, and is no longer, has left. One that
    /// starts after it has left asks to be let in again.
    fn standing(&self, was_member: bool) -> RegistrationState {
        let local = &self.local;
        local.view().with(|view| match view {
            None if self.seeds.is_empty() => RegistrationState::Waiting,
            None => RegistrationState::Asking,
            Some(view) => {
                if let Some(departure) = view.state.departed.get(&local.id())
                    && was_member
                {
                    return RegistrationState::Departed { is_lost: departure.is_lost };
                }
                let line = view.node(local.id()).map(|record| &record.registration);
                match line == Some(local.registration()) {
                    true => RegistrationState::Registered { epoch: view.epoch() },
                    false => RegistrationState::Asking,
                }
            }
        })
    }

    fn note(&self, next: RegistrationState) {
        self.state.send_if_modified(|state| {
            if *state == next {
                return false;
            }
            match &next {
                RegistrationState::Waiting => tracing::info!("waiting to be founded"),
                RegistrationState::Asking => tracing::info!("asking to be registered"),
                RegistrationState::Registered { epoch } => {
                    tracing::info!(%epoch, "registered");
                }
                RegistrationState::Departed { is_lost } => {
                    tracing::info!(is_lost, "this node has left the cluster");
                }
                RegistrationState::Refused(refusal) => {
                    tracing::error!(%refusal, "the cluster refuses to register this node");
                }
            }
            *state = next;
            true
        });
    }

    async fn ask(&self) -> RegistrationState {
        if self.local.cluster().is_some() && self.local.view().load().is_some() {
            let command = ClusterCommand::Register(self.local.registration().clone());
            let deadline = Instant::now() + ATTEMPT_TIMEOUT;
            match self.router.cluster(command, deadline).await {
                Ok(ClusterOutcome::Refused(refusal)) => return RegistrationState::Refused(refusal),
                // The view will tell.
                Ok(
                    ClusterOutcome::Done | ClusterOutcome::Truncate(_) | ClusterOutcome::Planned(_),
                ) => {
                    return RegistrationState::Asking;
                }
                Err(error) => tracing::debug!(%error, "could not register"),
            }
        }
        self.ask_seeds().await
    }

    async fn ask_seeds(&self) -> RegistrationState {
        let own = &self.local.registration().peer_address;
        for seed in self.seeds.iter().filter(|seed| *seed != own) {
            let request = PeerRequest::Register(self.local.registration().clone());
            let deadline = Instant::now() + ATTEMPT_TIMEOUT;
            match self.peers.call_address(seed, request, deadline).await {
                Ok((_, PeerAnswer::Registered(state))) => {
                    if let Err(refusal) = self.acceptor.accept(*state).await {
                        tracing::error!(%seed, %refusal, "cannot belong to the seed's cluster");
                    }
                    return self.standing(false);
                }
                Ok((_, PeerAnswer::Refused(PeerRefusal::Cluster(refusal)))) => {
                    return RegistrationState::Refused(refusal);
                }
                Ok((_, PeerAnswer::Refused(refusal))) => {
                    tracing::debug!(%seed, %refusal, "the seed cannot register this node");
                }
                Ok(_) => tracing::debug!(%seed, "the seed answers something else"),
                Err(error) => tracing::debug!(%seed, %error, "the seed cannot be asked"),
            }
        }
        RegistrationState::Asking
    }
}
