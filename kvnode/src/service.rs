//! What this node does for others: it executes what it leads, says who it is, and hands out views
//! and chunks. Nothing that another node sent is forwarded, but for a registration, which goes to
//! group 0's leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvcore::GroupId;
use kvcore::Revision;
use kvcore::cluster::{ClusterCommand, ClusterOutcome, Registration};
use kvcore::message::PeerMessage;
use placement::{Epoch, NodeId};
use raft::eraftpb::MessageType;
use tokio::time::timeout;

use crate::clock;
use crate::founding::Acceptor;
use crate::identity::LocalNode;
use crate::migrate::SnapshotSource;
use crate::report::Reporter;
use crate::router::{RequestError, Router};
use crate::transport::{Answerer, Identity, PeerAnswer, PeerRefusal, PeerRequest, PeerService};
use crate::view_keeper::EpochWatch;

/// Time for this node's view to show a registration that group 0 has applied.
const REGISTRATION_VISIBLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves other nodes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub local: LocalNode,
    pub router: Arc<Router>,
    pub acceptor: Acceptor,
    pub snapshots: SnapshotSource,
    pub epochs: EpochWatch,
    pub reporter: Reporter,
}

impl PeerService for Service {
    fn messages(&self, from: NodeId, messages: Vec<PeerMessage>) {
        self.note_leaders(&messages);
        self.router.store().core.messages(from, messages);
    }

    fn request(&self, from: NodeId, request: PeerRequest, deadline: Instant, answerer: Answerer) {
        match request {
            PeerRequest::Write { partition, command } => {
                self.router.store().write_for_peer(partition, command, answerer);
            }
            PeerRequest::Read { partition, ref key, consistency } => {
                match self.router.store().read_quickly(partition, key, consistency) {
                    Some(answer) => answerer.answer(answer),
                    None => self.execute_later(request, deadline, answerer),
                }
            }
            PeerRequest::Cluster(_) | PeerRequest::TransferLeadership { .. } => {
                self.execute_later(request, deadline, answerer);
            }
            PeerRequest::Identify => {
                let registration = self.local.registration().clone();
                let identity = Identity { registration, cluster: self.local.cluster() };
                answerer.answer(PeerAnswer::Identity(Box::new(identity)));
            }
            PeerRequest::AcceptFounding(state) => {
                let acceptor = self.acceptor.clone();
                tokio::spawn(async move {
                    answerer.answer(match acceptor.accept_founding(*state).await {
                        Ok(()) => PeerAnswer::FoundingAccepted,
                        Err(refusal) => PeerAnswer::Refused(refusal),
                    });
                });
            }
            PeerRequest::Register(registration) => {
                let service = self.clone();
                tokio::spawn(async move {
                    answerer.answer(service.register(registration, deadline).await);
                });
            }
            PeerRequest::FetchView { newer_than } => answerer.answer(self.view(newer_than)),
            PeerRequest::FetchFounding => {
                let acceptor = self.acceptor.clone();
                tokio::spawn(async move { answerer.answer(acceptor.founding().await) });
            }
            PeerRequest::Report => {
                let reporter = self.reporter.clone();
                tokio::spawn(async move {
                    answerer.answer(PeerAnswer::Report(Box::new(reporter.own().await)));
                });
            }
            PeerRequest::SnapshotChunk { group, id, number } => {
                tokio::spawn(self.snapshots.clone().serve(from, group, id, number, answerer));
            }
        }
    }

    fn epoch_seen(&self, from: NodeId, peer_address: &str, epoch: Epoch) {
        self.epochs.seen(from, peer_address, epoch);
    }
}

impl Service {
    fn execute_later(&self, request: PeerRequest, deadline: Instant, answerer: Answerer) {
        let router = Arc::clone(&self.router);
        tokio::spawn(async move { answerer.answer(router.execute(request, deadline).await) });
    }

    /// Notes of which groups these messages come from the leader: only a leader sends such.
    fn note_leaders(&self, messages: &[PeerMessage]) {
        let groups = self.router.store().groups.load();
        let now = clock::now();
        for message in messages {
            if let PeerMessage::Raft { group, message } = message
                && let MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot =
                    message.get_msg_type()
                && let Some(replica) = groups.get(*group).and_then(|group| group.replica.as_ref())
            {
                replica.note_heard(now);
            }
        }
    }

    fn view(&self, newer_than: Revision) -> PeerAnswer {
        let Some(view) = self.local.view().load() else {
            return PeerAnswer::Refused(PeerRefusal::NotInitialised);
        };
        let newer = (view.state.revision > newer_than).then(|| Box::new((*view.state).clone()));
        let groups = self.router.store().groups.load();
        let confirmed = groups.get(GroupId::CLUSTER).is_some_and(|group| group.leads_here);
        PeerAnswer::View { newer, confirmed }
    }

    /// Enters a node into the directory, and answers with a view that shows it.
    async fn register(&self, registration: Registration, deadline: Instant) -> PeerAnswer {
        if self.local.view().load().is_none() {
            return PeerAnswer::Refused(PeerRefusal::NotInitialised);
        }
        let id = registration.id;
        let command = ClusterCommand::Register(registration);
        match self.router.cluster(command, deadline).await {
            Ok(ClusterOutcome::Done | ClusterOutcome::Truncate(_) | ClusterOutcome::Planned(_)) => {
            }
            Ok(ClusterOutcome::Refused(refusal)) => {
                return PeerAnswer::Refused(PeerRefusal::Cluster(refusal));
            }
            Err(error) => return PeerAnswer::Refused(refusal(error)),
        }
        let shown = self.local.view().wait_until(|view| view.node(id).is_some());
        let view = match timeout(REGISTRATION_VISIBLE_TIMEOUT, shown).await {
            Ok(view) => Some(view),
            // The newcomer will hear the rest from group 0's leader.
            Err(_elapsed) => self.local.view().load(),
        };
        match view {
            Some(view) => PeerAnswer::Registered(Box::new((*view.state).clone())),
            None => PeerAnswer::Refused(PeerRefusal::NotInitialised),
        }
    }
}

/// What a node that asked for a registration is told of its failure.
fn refusal(error: RequestError) -> PeerRefusal {
    match error {
        RequestError::NotInitialised => PeerRefusal::NotInitialised,
        RequestError::Overloaded => PeerRefusal::Overloaded,
        RequestError::OutcomeUnknown => PeerRefusal::OutcomeUnknown,
        RequestError::NoLeader { .. } => PeerRefusal::Expired,
        RequestError::DiskFull => PeerRefusal::DiskFull,
        RequestError::Storage { reason } => PeerRefusal::Storage { reason },
        RequestError::ShuttingDown => PeerRefusal::ShuttingDown,
        RequestError::NotLeader { .. }
        | RequestError::KeyLength { .. }
        | RequestError::ValueTooLarge { .. }
        | RequestError::ContentTypeTooLong { .. } => PeerRefusal::Malformed,
    }
}
