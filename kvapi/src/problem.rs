//! Error answers: RFC 9457 problems with a stable code and, always, the request's outcome.
//!
//! One exhaustive function maps a code to its status, title, outcome and advice; the fields of a
//! single answer may then differ from the defaults. A client tolerates codes it does not know.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use placement::{Epoch, PartitionId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::headers::{CONTENT_TYPE_PROBLEM, KV_RING_EPOCH, etag_value};
use crate::kv::{LeaderHint, OwnerHint};

/// Prefix of a problem's `type`; the code follows.
pub const TYPE_PREFIX: &str = "urn:ringkv:problem:";

/// Whether the request had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was applied, once.
    Applied,
    /// It was not applied and will not be.
    NotApplied,
    /// It may have been applied, or may still be.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What a caller may do about a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Send the same request again.
    Safe,
    /// Send it again only with the `Idempotency-Key` it had.
    SameIdempotencyKey,
    /// Read the key first, then decide.
    ReadFirst,
    /// Sending it again unchanged does not help.
    #[default]
    #[serde(other)]
    No,
}

macro_rules! problem_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// Stable names of everything that goes wrong.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum ProblemCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)+
            /// A code that this version does not know; a server never sends it.
            #[default]
            #[serde(other)]
            Unrecognised,
        }

        impl ProblemCode {
            /// Every code that a server sends.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code as it stands on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                    Self::Unrecognised => "unrecognised",
                }
            }
        }
    };
}

problem_codes! {
    /// The request cannot be parsed: query, body or headers.
    MalformedRequest = "malformed-request",
    /// The path is not the encoding of a key.
    MalformedKey = "malformed-key",
    /// The key is empty.
    EmptyKey = "empty-key",
    /// `If-Match` or `If-None-Match` is not `*` or one strong version tag.
    MalformedCondition = "malformed-condition",
    /// A token is missing or wrong.
    Unauthenticated = "unauthenticated",
    /// The token does not allow this call.
    Forbidden = "forbidden",
    /// The node's identity was given up, for good.
    Barred = "barred",
    /// The key is absent.
    NotFound = "not-found",
    /// No call has this path.
    NoSuchRoute = "no-such-route",
    /// No member has this name or id.
    NoSuchNode = "no-such-node",
    /// No partition has this number, or this node holds no replica of it.
    NoSuchPartition = "no-such-partition",
    /// No plan on record has this id.
    NoSuchPlan = "no-such-plan",
    /// No ring of this epoch is kept.
    NoSuchEpoch = "no-such-epoch",
    /// The path exists, the method does not.
    MethodNotAllowed = "method-not-allowed",
    /// The request did not arrive in time.
    RequestTimeout = "request-timeout",
    /// The current state excludes the request.
    Conflict = "conflict",
    /// The cluster was founded before.
    AlreadyInitialised = "already-initialised",
    /// Another member has this node name.
    NameTaken = "name-taken",
    /// The staged changes break a rule, which `rule` names.
    PlanRefused = "plan-refused",
    /// Another plan has not come to serve yet.
    PlanUnderWay = "plan-under-way",
    /// How far the plan is excludes the order.
    WrongPhase = "wrong-phase",
    /// A request with this idempotency key is being executed.
    RequestInFlight = "request-in-flight",
    /// The condition is false.
    PreconditionFailed = "precondition-failed",
    /// The plan was made for another epoch or is not the staged one.
    StalePlan = "stale-plan",
    /// The value is larger than this node takes.
    ValueTooLarge = "value-too-large",
    /// The key is larger than any node takes.
    KeyTooLong = "key-too-long",
    /// The body is not JSON where JSON is needed.
    UnsupportedMediaType = "unsupported-media-type",
    /// The request was to be executed here or not at all, and another node leads.
    NotLeader = "not-leader",
    /// The idempotency key was used with another payload.
    IdempotencyKeyReused = "idempotency-key-reused",
    /// Too many requests for this key or prefix.
    RateLimited = "rate-limited",
    /// The headers are larger than this node takes.
    HeadersTooLarge = "headers-too-large",
    /// A defect of the server.
    Internal = "internal",
    /// The contract has this, this version does not.
    NotImplemented = "not-implemented",
    /// The partition, or group 0, has no leader with a quorum.
    NoLeader = "no-leader",
    /// A node that the request needs does not answer.
    NodeUnreachable = "node-unreachable",
    /// A queue is full.
    Overloaded = "overloaded",
    /// The cluster was not founded yet.
    ClusterNotInitialised = "cluster-not-initialised",
    /// This node is shutting down.
    ShuttingDown = "shutting-down",
    /// The deadline passed or the leader was lost before the outcome was known.
    OutcomeUnknown = "outcome-unknown",
    /// This node's disk has no room for more.
    DiskFull = "disk-full",
}

/// What holds for every problem with one code, unless an answer says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemFacts {
    /// HTTP status of the answer.
    pub status: StatusCode,
    /// One line for people, the same for every occurrence.
    pub title: &'static str,
    /// Whether the request had an effect.
    pub outcome: Outcome,
    /// What the caller may do.
    pub retry: Retry,
}

/// An error answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Problem {
    /// URN of the code.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// One line for people, the same for every problem with this code.
    pub title: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// Stable name, for programs.
    pub code: ProblemCode,
    /// Whether the request had an effect.
    pub outcome: Outcome,
    /// What the caller may do.
    pub retry: Retry,
    /// Epoch of the ring at the node that answered; 0 before the cluster was founded.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// The next command, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The rule that the staged changes break, by its stable name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Partition of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub partition: Option<PartitionId>,
    /// The leader that the answering node knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderHint>,
    /// Owners by the answering node's ring, the primary first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<OwnerHint>,
    /// Tag of the key's current version, where a condition failed and the key exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

impl ProblemCode {
    /// Status, title, outcome and advice of this code: the only such table.
    #[rustfmt::skip]
    pub fn facts(self) -> ProblemFacts {
        use Outcome::{NotApplied, Unknown};
        use Retry::{No, ReadFirst, Safe};
        let (status, title, outcome, retry) = match self {
            Self::MalformedRequest => (400, "The request cannot be understood", NotApplied, No),
            Self::MalformedKey => (400, "The path is not the encoding of a key", NotApplied, No),
            Self::EmptyKey => (400, "The key is empty", NotApplied, No),
            Self::MalformedCondition => (400, "The condition cannot be understood", NotApplied, No),
            Self::Unauthenticated => (401, "A valid token is needed", NotApplied, No),
            Self::Forbidden => (403, "The token does not allow this", NotApplied, No),
            Self::Barred => (403, "The node was given up", NotApplied, No),
            Self::NotFound => (404, "The key is absent", NotApplied, No),
            Self::NoSuchRoute => (404, "No call has this path", NotApplied, No),
            Self::NoSuchNode => (404, "No such node", NotApplied, No),
            Self::NoSuchPartition => (404, "No such partition", NotApplied, No),
            Self::NoSuchPlan => (404, "No such plan", NotApplied, No),
            Self::NoSuchEpoch => (404, "No such ring", NotApplied, No),
            Self::MethodNotAllowed => (405, "The method does not apply here", NotApplied, No),
            Self::RequestTimeout => (408, "The request did not arrive in time", NotApplied, Safe),
            Self::Conflict => (409, "The current state excludes this", NotApplied, No),
            Self::AlreadyInitialised => (409, "The cluster was founded before", NotApplied, No),
            Self::NameTaken => (409, "Another member has this name", NotApplied, No),
            Self::PlanRefused => (409, "The changes break a rule", NotApplied, No),
            Self::PlanUnderWay => (409, "Another plan is under way", NotApplied, No),
            Self::WrongPhase => (409, "How far the plan is excludes this", NotApplied, No),
            Self::RequestInFlight => (409, "The same request is being executed", Unknown, Retry::SameIdempotencyKey),
            Self::PreconditionFailed => (412, "The condition is false", NotApplied, ReadFirst),
            Self::StalePlan => (412, "The plan is not current", NotApplied, ReadFirst),
            Self::ValueTooLarge => (413, "The value is too large", NotApplied, No),
            Self::KeyTooLong => (414, "The key is too long", NotApplied, No),
            Self::UnsupportedMediaType => (415, "The body must be JSON", NotApplied, No),
            Self::NotLeader => (421, "Another node leads this partition", NotApplied, Safe),
            Self::IdempotencyKeyReused => (422, "The idempotency key belongs to another request", NotApplied, No),
            Self::RateLimited => (429, "Too many requests", NotApplied, Safe),
            Self::HeadersTooLarge => (431, "The headers are too large", NotApplied, No),
            Self::Internal => (500, "Internal error", Unknown, ReadFirst),
            Self::NotImplemented => (501, "Not implemented in this version", NotApplied, No),
            Self::NoLeader => (503, "No leader with a quorum", NotApplied, Safe),
            Self::NodeUnreachable => (503, "A node does not answer", NotApplied, Safe),
            Self::Overloaded => (503, "Overloaded", NotApplied, Safe),
            Self::ClusterNotInitialised => (503, "The cluster is not initialised", NotApplied, Safe),
            Self::ShuttingDown => (503, "The node is shutting down", NotApplied, Safe),
            Self::OutcomeUnknown => (504, "The outcome is unknown", Unknown, ReadFirst),
            Self::DiskFull => (507, "The disk is full", NotApplied, Safe),
            Self::Unrecognised => (500, "Unrecognised problem", Unknown, No),
        };
        let status = StatusCode::from_u16(status).expect("the table holds valid statuses");
        ProblemFacts { status, title, outcome, retry }
    }
}

impl Problem {
    /// A problem with the code's defaults and what happened this time.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let facts = code.facts();
        Self {
            type_uri: format!("{TYPE_PREFIX}{}", code.as_str()),
            title: facts.title.to_owned(),
            status: facts.status.as_u16(),
            detail: detail.into(),
            code,
            outcome: facts.outcome,
            retry: facts.retry,
            ..Self::default()
        }
    }

    /// Says under which ring this was decided.
    #[must_use]
    pub fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// Names the next command.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the rule that the staged changes break.
    #[must_use]
    pub fn with_rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    /// Replaces the code's default outcome and advice.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome, retry: Retry) -> Self {
        self.outcome = outcome;
        self.retry = retry;
        self
    }

    /// Names the key's partition.
    #[must_use]
    pub fn with_partition(mut self, partition: PartitionId) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Names the leader, where one is known, and the owners, the primary first.
    #[must_use]
    pub fn with_leader(mut self, leader: Option<LeaderHint>, owners: Vec<OwnerHint>) -> Self {
        self.leader = leader;
        self.owners = owners;
        self
    }

    /// Gives the version that the key has now.
    #[must_use]
    pub fn with_version(mut self, version: u64) -> Self {
        self.etag = Some(crate::headers::etag(version));
        self
    }

    /// The HTTP answer: body, content type, ring epoch, the current `ETag` where there is one, and
    /// `Retry-After` in whole seconds for 429 and 503.
    pub fn to_response(&self, retry_after_seconds: u32) -> Response<Bytes> {
        let body = serde_json::to_vec(self).expect("a problem has only strings and numbers");
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let waits = matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE_PROBLEM));
        headers.insert(KV_RING_EPOCH, HeaderValue::from(self.epoch.get()));
        if let Some(version) = self.etag.as_deref().and_then(crate::headers::parse_etag) {
            headers.insert(ETAG, etag_value(version));
        }
        if waits {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests;
