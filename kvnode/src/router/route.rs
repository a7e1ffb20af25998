//! One request's way through the nodes that may execute it.

use std::time::{Duration, Instant};

use kvcore::GroupId;
use placement::NodeId;
use tokio::time::sleep;

use super::{RequestError, RequestOptions, Router};
use crate::transport::{CallError, NotSent, PeerAnswer, PeerRefusal, PeerRequest};
use crate::view::View;

/// Pause after every node that might lead was asked in vain; doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// The longest such pause: an election takes longer, a transfer of leadership does not.
const PAUSE_LONGEST: Duration = Duration::from_millis(80);

/// A read that has no answer after this long is asked of another node: the one asked may hang, or
/// lead a group without a quorum. Twice an election's time, so that a new leader is there by then.
const READ_ATTEMPT: Duration = Duration::from_secs(1);

/// What an attempt that served nothing leaves to do.
enum Next {
    /// The request was not applied: ask this node, or else another one.
    Ask(Option<NodeId>),
    /// There is no point in asking anybody else.
    Give(RequestError),
}

impl Router {
    /// Finds the node that executes a request, and returns its answer.
    pub(super) async fn route(
        &self,
        group: GroupId,
        request: PeerRequest,
        options: RequestOptions,
    ) -> Result<(PeerAnswer, NodeId), RequestError> {
        let RequestOptions { direct, deadline } = options;
        let mut asked: Vec<NodeId> = Vec::new();
        let mut named = None;
        let mut pause = PAUSE_FIRST;
        loop {
            let view = self.view().ok_or(RequestError::NotInitialised)?;
            let here = self.node.id();
            let to = if direct { Some(here) } else { self.choose(&view, group, named, &asked) };
            let Some(to) = to else {
                // Everybody was asked: an election is under way, or nobody can be reached.
                if Instant::now() + pause >= deadline {
                    return Err(no_leader(group));
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_LONGEST);
                asked.clear();
                named = None;
                continue;
            };
            asked.push(to);
            let give_up = match is_read(&request) {
                true => deadline.min(Instant::now() + READ_ATTEMPT),
                false => deadline,
            };
            let answer = if to == here {
                Ok(self.execute(request.clone(), give_up).await)
            } else {
                self.peers.call(to, request.clone(), give_up).await
            };
            let next = match answer {
                Ok(PeerAnswer::Refused(refusal)) => self.after_refusal(group, &request, refusal),
                Ok(answer) => {
                    self.note_leader(group, Some(to));
                    self.routed.note(asked.len());
                    return Ok((answer, to));
                }
                Err(error) => after_failure(&request, error),
            };
            match next {
                Next::Ask(_) if Instant::now() >= deadline => return Err(no_leader(group)),
                Next::Ask(leader) if direct => return Err(self.not_leader(&view, group, leader)),
                Next::Ask(leader) => {
                    self.note_leader(group, leader);
                    named = leader;
                }
                Next::Give(error) => return Err(error),
            }
        }
    }

    /// Executes a request on this node.
    pub(crate) async fn execute(&self, request: PeerRequest, deadline: Instant) -> PeerAnswer {
        match request {
            PeerRequest::Write { partition, command } => {
                self.store.write(partition, command, deadline).await
            }
            PeerRequest::Read { partition, key, consistency } => {
                self.store.read(partition, &key, consistency, deadline).await
            }
            PeerRequest::Cluster(command) => self.store.cluster(command, deadline).await,
            PeerRequest::TransferLeadership { group, to } => {
                self.store.transfer(group, to, deadline).await
            }
            PeerRequest::Identify
            | PeerRequest::AcceptFounding(_)
            | PeerRequest::Register(_)
            | PeerRequest::FetchView { .. }
            | PeerRequest::FetchFounding
            | PeerRequest::Report
            | PeerRequest::SnapshotChunk { .. } => PeerAnswer::Refused(PeerRefusal::Malformed),
        }
    }

    /// Whom to ask next: who was named, who is known to lead, then the owners in order.
    fn choose(
        &self,
        view: &View,
        group: GroupId,
        named: Option<NodeId>,
        asked: &[NodeId],
    ) -> Option<NodeId> {
        let owners = view.state.members(group).iter().map(|member| member.node);
        let mut candidates = named.into_iter().chain(self.known_leader(group)).chain(owners);
        candidates.find(|node| !asked.contains(node))
    }

    /// Remembers who leads a group of which no replica is here to know it.
    fn note_leader(&self, group: GroupId, leader: Option<NodeId>) {
        let groups = self.store.groups.load();
        if groups.get(group).is_none_or(|known| known.replica.is_none()) {
            self.hints.set(group, leader);
        }
    }

    fn after_refusal(&self, group: GroupId, request: &PeerRequest, refusal: PeerRefusal) -> Next {
        match refusal {
            PeerRefusal::NotLeader { leader, epoch: _ } => Next::Ask(leader),
            PeerRefusal::NoReplica { epoch: _ }
            | PeerRefusal::NotInitialised
            | PeerRefusal::Overwritten
            | PeerRefusal::Expired
            | PeerRefusal::ShuttingDown
            | PeerRefusal::NotNow
            | PeerRefusal::CopyBudget
            | PeerRefusal::OtherCluster { .. } => Next::Ask(None),
            PeerRefusal::OutcomeUnknown => after_unknown(request),
            PeerRefusal::Overloaded => Next::Give(RequestError::Overloaded),
            PeerRefusal::DiskFull => Next::Give(RequestError::DiskFull),
            PeerRefusal::Storage { reason } => Next::Give(RequestError::Storage { reason }),
            PeerRefusal::OutOfLimits => Next::Give(self.out_of_limits(request)),
            PeerRefusal::Malformed
            | PeerRefusal::BadFounding { .. }
            | PeerRefusal::Cluster(_)
            | PeerRefusal::NoSnapshot => {
                let reason = format!("{}: {refusal}", super::describe(group));
                Next::Give(RequestError::Storage { reason })
            }
        }
    }

    /// The leader takes smaller values than this node does.
    fn out_of_limits(&self, request: &PeerRequest) -> RequestError {
        let bytes = request.size();
        RequestError::ValueTooLarge { bytes, bytes_max: bytes.min(self.store.value_bytes_max) }
    }

    fn not_leader(&self, view: &View, group: GroupId, named: Option<NodeId>) -> RequestError {
        let Some(partition) = group.partition() else { return no_leader(group) };
        let here = self.node.id();
        RequestError::NotLeader {
            partition,
            leader: named.or_else(|| self.known_leader(group)).filter(|leader| *leader != here),
            owners: view.owners(partition).collect(),
            epoch: view.epoch(),
        }
    }
}

fn after_failure(request: &PeerRequest, error: CallError) -> Next {
    match error {
        CallError::NotSent(NotSent::UnknownNode | NotSent::Unreachable | NotSent::Expired) => {
            Next::Ask(None)
        }
        CallError::NotSent(NotSent::Overloaded) => Next::Give(RequestError::Overloaded),
        CallError::NotSent(NotSent::TooLong) => {
            let bytes = request.size();
            Next::Give(RequestError::ValueTooLarge { bytes, bytes_max: bytes })
        }
        CallError::Lost | CallError::Deadline => after_unknown(request),
    }
}

/// A read whose answer was lost has changed nothing and may be asked of somebody else.
fn after_unknown(request: &PeerRequest) -> Next {
    if is_read(request) { Next::Ask(None) } else { Next::Give(RequestError::OutcomeUnknown) }
}

fn is_read(request: &PeerRequest) -> bool {
    matches!(request, PeerRequest::Read { .. })
}

fn no_leader(group: GroupId) -> RequestError {
    RequestError::NoLeader { partition: group.partition().unwrap_or_default() }
}
