//! The loop around exchanges: choose a node, send, learn from the answer, and decide whether to
//! send again. Every decision about repetition is in [`judge`] and in the match of [`Client::call`].

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use placement::{Epoch, PartitionId};
use tokio::time::Instant;

use super::exchange::{Exchange, exchange};
use super::{Client, ClientError, RouteTable, Routing};
use crate::headers::{CONTENT_TYPE_PROBLEM, KV_RING_EPOCH, KV_ROUTE, KV_SERVED_BY};
use crate::problem::{Outcome, Problem, ProblemCode, Retry};

/// Refusals that name another leader are followed at once this often in a row, then with a pause:
/// while a leader changes, two nodes may name each other.
const REDIRECTS_AT_ONCE_MAX: u32 = 2;

/// Whether a call may be sent again without knowing what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It changes nothing.
    Read,
    /// It changes something.
    Write,
}

/// Who should get a call.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The leader of the partition with this key hash.
    Key(u64),
    /// Any node.
    Any,
    /// One node, by address.
    Node(Arc<str>),
}

/// A call before it is bound to a node.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) effect: Effect,
    pub(super) target: Target,
    /// Whether the node that answers is worth remembering as the leader.
    pub(super) learns_leader: bool,
}

/// A node to send to.
struct Choice {
    authority: Arc<str>,
    /// Whether the node is to execute the call itself or refuse it.
    is_direct: bool,
}

/// What an answer means for the call.
enum Verdict {
    Done(Response<Bytes>),
    Failed(ClientError),
    Again(Problem, Again),
}

/// How to go on after a refusal.
enum Again {
    /// The problem names the leader.
    Redirected,
    /// Another node, after a pause.
    Elsewhere(Duration),
    /// Another node at once, if there is one: a spare that has just started knows of no cluster.
    ElsewhereAtOnce,
    /// The same node, after a pause.
    Here(Duration),
}

/// What a call remembers between its exchanges.
struct Progress {
    started: Instant,
    deadline: Instant,
    /// Nodes not to try again before all others were tried.
    avoided: Vec<Arc<str>>,
    backoff: Duration,
    redirects: u32,
    last: Option<ClientError>,
}

impl Client {
    /// Sends a call until it is answered, must not be sent again, or is out of time.
    pub(super) async fn call(&self, call: &Call) -> Result<Response<Bytes>, ClientError> {
        let options = &self.shared.options;
        let started = Instant::now();
        let mut progress = Progress {
            started,
            deadline: started + options.deadline,
            avoided: Vec::new(),
            backoff: options.backoff_min,
            redirects: 0,
            last: None,
        };
        loop {
            let routes = self.routes();
            let Some(choice) = self.choose(call, routes.as_deref(), &progress.avoided) else {
                if progress.is_not_founded() {
                    return Err(progress.give_up());
                }
                progress.avoided.clear();
                self.pause(&mut progress, Duration::ZERO).await?;
                continue;
            };
            let pool = self.shared.pool(&choice.authority)?;
            let request = bind(call, &choice, routes.as_deref());
            let deadline = match call.effect {
                Effect::Read => {
                    progress.deadline.min(Instant::now() + options.read_attempt_timeout)
                }
                Effect::Write => progress.deadline,
            };
            match exchange(&pool, &request, options.connect_timeout, deadline).await {
                Exchange::Answered(answer) => {
                    self.notice_epoch(&answer, &choice.authority);
                    match judge(call, &choice.authority, answer) {
                        Verdict::Done(answer) => {
                            self.learn_server(call, routes.as_deref(), &answer);
                            return Ok(answer);
                        }
                        Verdict::Failed(error) => return Err(error),
                        Verdict::Again(problem, again) => {
                            let wait = self.follow(call, &choice, &problem, again, &mut progress);
                            progress.last = Some(ClientError::Problem(Box::new(problem)));
                            if let Some(wait) = wait {
                                self.pause(&mut progress, wait).await?;
                            }
                        }
                    }
                }
                Exchange::NotSent(reason) => {
                    self.give_up_on(call, &choice.authority);
                    progress.avoided.push(choice.authority);
                    progress.last = Some(progress.unreachable(reason));
                    progress.check_deadline()?;
                    self.refresh_in_background(None);
                }
                Exchange::Broken(reason) => match call.effect {
                    Effect::Write => return Err(ClientError::Unknown { reason }),
                    Effect::Read => {
                        self.give_up_on(call, &choice.authority);
                        progress.avoided.push(choice.authority);
                        progress.last = Some(progress.unreachable(reason));
                        self.pause(&mut progress, Duration::ZERO).await?;
                    }
                },
            }
        }
    }

    /// Adjusts routes after a refusal; the pause that is due before the next exchange, if any.
    fn follow(
        &self,
        call: &Call,
        choice: &Choice,
        problem: &Problem,
        again: Again,
        progress: &mut Progress,
    ) -> Option<Duration> {
        match again {
            Again::Here(wait) => Some(wait),
            Again::Elsewhere(wait) => {
                self.give_up_on(call, &choice.authority);
                progress.avoided.push(Arc::clone(&choice.authority));
                Some(wait)
            }
            Again::ElsewhereAtOnce => {
                self.give_up_on(call, &choice.authority);
                progress.avoided.push(Arc::clone(&choice.authority));
                None
            }
            Again::Redirected => {
                self.give_up_on(call, &choice.authority);
                let learned = self.learn_named(call, problem);
                let is_new = learned.is_some_and(|leader| {
                    leader != choice.authority && !progress.avoided.contains(&leader)
                });
                progress.redirects += 1;
                if is_new && progress.redirects <= REDIRECTS_AT_ONCE_MAX {
                    return None;
                }
                progress.redirects = 0;
                if !is_new {
                    progress.avoided.push(Arc::clone(&choice.authority));
                }
                Some(Duration::ZERO)
            }
        }
    }

    fn choose(
        &self,
        call: &Call,
        routes: Option<&RouteTable>,
        avoided: &[Arc<str>],
    ) -> Option<Choice> {
        let is_avoided = |authority: &str| avoided.iter().any(|other| other.as_ref() == authority);
        let key_hash = match &call.target {
            Target::Node(authority) => {
                let authority = Arc::clone(authority);
                let chosen = (!is_avoided(&authority)).then_some(authority);
                return chosen.map(|authority| Choice { authority, is_direct: false });
            }
            Target::Key(hash) => Some(*hash),
            Target::Any => None,
        };
        if self.shared.options.routing == Routing::Ring
            && let (Some(routes), Some(hash)) = (routes, key_hash)
        {
            let partition = routes.ring().partition_bits().partition_of(hash);
            let leader_first = routes.leader(partition).into_iter().chain(routes.owners(partition));
            let mut addresses = leader_first.map(|place| &routes.nodes()[place].client_address);
            if let Some(address) = addresses.find(|address| !is_avoided(address)) {
                return Some(Choice { authority: Arc::from(address.as_str()), is_direct: true });
            }
        }
        let endpoints = self.shared.endpoints.iter().map(|endpoint| endpoint.authority().as_ref());
        let nodes = routes.map_or(&[][..], RouteTable::nodes);
        let known = nodes.iter().map(|node| node.client_address.as_str());
        let free: Vec<&str> = endpoints.filter(|address| !is_avoided(address)).collect();
        let spread = jitter(u64::MAX) as usize;
        let authority = match free.len() {
            0 => known.into_iter().find(|address| !is_avoided(address))?,
            count => free[spread % count],
        };
        Some(Choice { authority: Arc::from(authority), is_direct: false })
    }

    /// Waits before the next exchange, or ends the call if that would be too late.
    async fn pause(&self, progress: &mut Progress, at_least: Duration) -> Result<(), ClientError> {
        let half = progress.backoff / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        let jittered = half + Duration::from_nanos(jitter(nanos));
        progress.backoff = (progress.backoff * 2).min(self.shared.options.backoff_max);
        let until = Instant::now() + jittered.max(at_least);
        if until >= progress.deadline {
            return Err(progress.give_up());
        }
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    fn partition_of(&self, call: &Call) -> Option<(Arc<RouteTable>, PartitionId)> {
        let Target::Key(hash) = call.target else {
            return None;
        };
        let routes = self.routes()?;
        let partition = routes.ring().partition_bits().partition_of(hash);
        Some((routes, partition))
    }

    /// The node did not take the call: it is not remembered as the leader any longer.
    fn give_up_on(&self, call: &Call, authority: &str) {
        if let Some((routes, partition)) = self.partition_of(call)
            && let Some(place) = routes.node_by_address(authority)
        {
            routes.forget(partition, place);
        }
    }

    /// Remembers the leader that a refusal names; its address.
    fn learn_named(&self, call: &Call, problem: &Problem) -> Option<Arc<str>> {
        let (routes, partition) = self.partition_of(call)?;
        let leader = problem.leader.as_ref()?;
        let place = routes
            .node_by_name(leader.name.as_str())
            .or_else(|| routes.node_by_address(&leader.client_address))?;
        routes.learn(partition, place);
        Some(Arc::from(routes.nodes()[place].client_address.as_str()))
    }

    fn learn_server(&self, call: &Call, routes: Option<&RouteTable>, answer: &Response<Bytes>) {
        let (Target::Key(hash), Some(routes), true) = (&call.target, routes, call.learns_leader)
        else {
            return;
        };
        let server = answer.headers().get(KV_SERVED_BY).and_then(|name| name.to_str().ok());
        if let Some(place) = server.and_then(|name| routes.node_by_name(name)) {
            routes.learn(routes.ring().partition_bits().partition_of(*hash), place);
        }
    }

    /// Fetches the ring in the background if the node that answered has a newer one.
    fn notice_epoch(&self, answer: &Response<Bytes>, authority: &Arc<str>) {
        let Some(theirs) = epoch_of(answer.headers()) else {
            return;
        };
        let ours = self.routes().map_or(Epoch::ZERO, |routes| routes.epoch());
        if theirs > ours {
            self.refresh_in_background(Some(Arc::clone(authority)));
        }
    }
}

impl Progress {
    fn unreachable(&self, last: String) -> ClientError {
        ClientError::Unreachable { waited: self.started.elapsed(), last }
    }

    fn is_not_founded(&self) -> bool {
        self.last.as_ref().is_some_and(ClientError::is_not_initialised)
    }

    fn check_deadline(&mut self) -> Result<(), ClientError> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(self.give_up()) }
    }

    fn give_up(&mut self) -> ClientError {
        match self.last.take() {
            Some(ClientError::Unreachable { last, .. }) => self.unreachable(last),
            Some(error) => error,
            None => self.unreachable("no node was left to try".to_owned()),
        }
    }
}

/// Decides what an answer means. A write is sent again only after `not_applied` and `safe`.
fn judge(call: &Call, authority: &str, answer: Response<Bytes>) -> Verdict {
    let status = answer.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Verdict::Done(answer);
    }
    let Some(problem) = problem_of(&answer) else {
        let reason = format!("status {status} without a problem document");
        let node = authority.to_owned();
        return Verdict::Failed(match (call.effect, status.is_server_error()) {
            (Effect::Write, true) => ClientError::Unknown { reason: format!("{node}: {reason}") },
            (Effect::Write | Effect::Read, _) => ClientError::Unexpected { node, reason },
        });
    };
    let is_unknown = problem.outcome == Outcome::Unknown;
    if call.effect == Effect::Write && is_unknown {
        let reason = ClientError::Problem(Box::new(problem)).to_string();
        return Verdict::Failed(ClientError::Unknown { reason: format!("{authority}: {reason}") });
    }
    // That a key is absent is an answer, and its server is worth remembering.
    if problem.code == ProblemCode::NotFound {
        return Verdict::Done(answer);
    }
    let wait = retry_after(answer.headers());
    let is_safe = problem.outcome == Outcome::NotApplied && problem.retry == Retry::Safe;
    match problem.code {
        ProblemCode::OutcomeUnknown => Verdict::Again(problem, Again::Elsewhere(wait)),
        _ if !is_safe => Verdict::Failed(ClientError::Problem(Box::new(problem))),
        ProblemCode::NotLeader => Verdict::Again(problem, Again::Redirected),
        ProblemCode::ClusterNotInitialised => Verdict::Again(problem, Again::ElsewhereAtOnce),
        // Waiting does not help without an operator; the caller should hear of it at once.
        ProblemCode::DiskFull => Verdict::Failed(ClientError::Problem(Box::new(problem))),
        ProblemCode::Overloaded | ProblemCode::RateLimited => {
            Verdict::Again(problem, Again::Here(wait))
        }
        _ => Verdict::Again(problem, Again::Elsewhere(wait)),
    }
}

fn bind(call: &Call, choice: &Choice, routes: Option<&RouteTable>) -> Request<Bytes> {
    let mut request = Request::new(call.body.clone());
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.uri.clone();
    *request.headers_mut() = call.headers.clone();
    if let Some(routes) = routes {
        request.headers_mut().insert(KV_RING_EPOCH, HeaderValue::from(routes.epoch().get()));
    }
    if choice.is_direct {
        request.headers_mut().insert(KV_ROUTE, HeaderValue::from_static("direct"));
    }
    request
}

/// The epoch that an answer was given under.
pub(super) fn epoch_of(headers: &HeaderMap) -> Option<Epoch> {
    let text = headers.get(KV_RING_EPOCH)?.to_str().ok()?;
    text.parse().ok().map(Epoch::new)
}

/// The problem document in an answer, if it is one.
pub(super) fn problem_of(answer: &Response<Bytes>) -> Option<Problem> {
    let content_type = answer.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    if !content_type.starts_with(CONTENT_TYPE_PROBLEM) {
        return None;
    }
    serde_json::from_slice(answer.body()).ok()
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// A number below `bound`, different from call to call; not for secrets.
fn jitter(bound: u64) -> u64 {
    RandomState::new().hash_one(0u8).checked_rem(bound).unwrap_or(0)
}
