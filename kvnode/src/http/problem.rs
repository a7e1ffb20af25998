//! The one place where errors become problems: every variant of every error that a call can meet,
//! mapped to a code, and thereby to status, outcome and advice.

use kvapi::problem::{Outcome, Retry};
use kvapi::{ConditionError, KeyPathError, Problem, ProblemCode};
use kvcore::cluster::ClusterRefusal;
use placement::PlanRefusal;

use super::backend::TransferError;
use super::body::BodyError;
use super::preview::Refused;
use super::query::QueryError;
use super::{describe, describe_plans};
use crate::founding::InitError;
use crate::router::RequestError;
use crate::view::View;

/// Seconds after which a client that was told to come back should.
pub const RETRY_AFTER_SECONDS: u32 = 1;

/// A refused call. Boxed, since a problem has many fields and refusals are the rare case.
pub type Refusal = Box<Problem>;

/// A refusal with its code's defaults.
#[must_use]
pub fn refuse(code: ProblemCode, detail: impl Into<String>) -> Refusal {
    Box::new(Problem::new(code, detail))
}

/// A call, parameter or header of the contract that this version does not have yet.
#[must_use]
pub fn not_implemented(what: &str) -> Refusal {
    refuse(ProblemCode::NotImplemented, format!("{what}: not implemented in this version"))
}

/// For every call that needs a cluster before there is one.
#[must_use]
pub fn not_initialised() -> Refusal {
    let problem = Problem::new(
        ProblemCode::ClusterNotInitialised,
        "the cluster is not initialised; an operator founds it with `kvctl init`",
    );
    Box::new(problem.with_hint("kvctl init"))
}

/// Maps the errors of data requests. The view puts names and addresses to the nodes.
#[must_use]
pub fn of_request(error: RequestError, view: Option<&View>) -> Refusal {
    let detail = error.to_string();
    let problem = |code| Problem::new(code, detail);
    Box::new(match error {
        RequestError::NotInitialised => return not_initialised(),
        RequestError::NotLeader { partition, leader, owners, epoch } => {
            let leader = leader.and_then(|node| describe::leader(view?, node));
            let owners = view.map(|view| describe::owners(view, owners)).unwrap_or_default();
            problem(ProblemCode::NotLeader)
                .with_partition(partition)
                .with_leader(leader, owners)
                .with_epoch(epoch)
        }
        RequestError::NoLeader { partition } => {
            problem(ProblemCode::NoLeader).with_partition(partition).with_hint("kvctl status")
        }
        RequestError::Overloaded => problem(ProblemCode::Overloaded),
        RequestError::OutcomeUnknown => problem(ProblemCode::OutcomeUnknown),
        RequestError::KeyLength { bytes: 0 } => problem(ProblemCode::EmptyKey),
        RequestError::KeyLength { bytes: _ } => problem(ProblemCode::KeyTooLong),
        RequestError::ValueTooLarge { bytes: _, bytes_max: _ } => {
            problem(ProblemCode::ValueTooLarge)
        }
        RequestError::ContentTypeTooLong { bytes: _ } => problem(ProblemCode::MalformedRequest),
        RequestError::DiskFull => problem(ProblemCode::DiskFull).with_hint("kvctl status"),
        RequestError::Storage { reason: _ } => {
            problem(ProblemCode::Internal).with_outcome(Outcome::NotApplied, Retry::Safe)
        }
        RequestError::ShuttingDown => problem(ProblemCode::ShuttingDown),
    })
}

/// Maps the errors of founding a cluster.
#[must_use]
pub fn of_init(error: InitError) -> Refusal {
    let detail = chain(&error);
    let problem = |code| Problem::new(code, detail);
    Box::new(match error {
        InitError::Unreachable { address: _, reason: _ } => problem(ProblemCode::NodeUnreachable),
        InitError::SameNode { first: _, second: _ } | InitError::Impossible(_) => {
            problem(ProblemCode::MalformedRequest)
        }
        InitError::NameTaken { name: _, first: _, second: _ } => problem(ProblemCode::NameTaken),
        InitError::OtherCluster { address: _, theirs: _, ours: _ } => {
            problem(ProblemCode::Conflict)
        }
        InitError::NotAFounder { address: _, node: _, cluster: _ } => {
            problem(ProblemCode::Conflict).with_hint("kvctl join")
        }
        InitError::TooLate { cluster: _, epoch: _, address: _ } => {
            problem(ProblemCode::Conflict).with_hint("kvctl join")
        }
        InitError::Refused { address: _, cluster: _, reason: _ } => problem(ProblemCode::Conflict),
        InitError::Interrupted { cluster: _, accepted: _, founders: _, address: _, reason: _ } => {
            problem(ProblemCode::OutcomeUnknown)
                .with_outcome(Outcome::Unknown, Retry::Safe)
                .with_hint("kvctl init, with the same nodes")
        }
    })
}

/// Maps the errors of moving a leadership.
#[must_use]
pub fn of_transfer(error: TransferError, view: Option<&View>) -> Refusal {
    let detail = error.to_string();
    let problem = |code| Problem::new(code, detail);
    Box::new(match error {
        TransferError::NoSuchNode { name: _ } => {
            problem(ProblemCode::NoSuchNode).with_hint("kvctl node ls")
        }
        TransferError::NoSuchPartition { partition } => {
            problem(ProblemCode::NoSuchPartition).with_partition(partition)
        }
        TransferError::NotAnOwner { name: _, partition } => {
            problem(ProblemCode::Conflict).with_partition(partition).with_hint("kvctl ring show")
        }
        // A leadership that moves twice is no harm.
        TransferError::Request(RequestError::OutcomeUnknown) => {
            problem(ProblemCode::OutcomeUnknown).with_outcome(Outcome::Unknown, Retry::Safe)
        }
        TransferError::Request(error) => return of_request(error, view),
    })
}

/// Maps the rules that staged changes break.
#[must_use]
pub fn of_plan(refused: &Refused, view: &View) -> Refusal {
    let rule = refused.rule();
    let detail = format!("{rule}: {}", describe_plans::with_names(refused, view));
    let problem = Problem::new(ProblemCode::PlanRefused, detail).with_rule(rule);
    Box::new(match refused {
        Refused::Rule(PlanRefusal::UnknownNode { .. } | PlanRefusal::AlreadyMember { .. }) => {
            problem.with_hint("kvctl node ls")
        }
        Refused::Rule(PlanRefusal::NoQuorum { .. }) => problem.with_hint("kvctl status"),
        Refused::Rule(PlanRefusal::DuplicateChange { .. } | PlanRefusal::TooManyChanges { .. }) => {
            problem.with_hint("kvctl plan show")
        }
        Refused::Rule(_) | Refused::DiskSpace { .. } => problem,
    })
}

/// Maps the refusals of group 0.
#[must_use]
pub fn of_cluster(refusal: &ClusterRefusal, view: &View) -> Refusal {
    let (code, hint) = match refusal {
        ClusterRefusal::NameTaken { .. } => (ProblemCode::NameTaken, None),
        ClusterRefusal::StaleEpoch { .. } | ClusterRefusal::StaleDraft => {
            (ProblemCode::StalePlan, Some("kvctl plan show"))
        }
        ClusterRefusal::NoSuchPlan { .. } => (ProblemCode::NoSuchPlan, Some("kvctl migrate ls")),
        ClusterRefusal::NoSuchNode { .. } => (ProblemCode::NoSuchNode, Some("kvctl node ls")),
        ClusterRefusal::Barred { .. } => (ProblemCode::Barred, None),
        ClusterRefusal::PlanUnderWay { .. } => {
            (ProblemCode::PlanUnderWay, Some("kvctl migrate watch"))
        }
        ClusterRefusal::WrongPhase { .. } => (ProblemCode::WrongPhase, Some("kvctl migrate ls")),
        ClusterRefusal::StagedAlready { .. } | ClusterRefusal::DraftFull => {
            (ProblemCode::Conflict, Some("kvctl plan show"))
        }
        ClusterRefusal::ZoneInUse { .. }
        | ClusterRefusal::InRing { .. }
        | ClusterRefusal::IllegalRing { .. }
        | ClusterRefusal::NotReady { .. } => (ProblemCode::Conflict, None),
    };
    let problem = Problem::new(code, describe_plans::with_names(refusal, view));
    Box::new(match hint {
        Some(hint) => problem.with_hint(hint),
        None => problem,
    })
}

/// Maps the errors of key paths.
#[must_use]
pub fn of_key(error: KeyPathError) -> Refusal {
    let code = match error {
        KeyPathError::Empty => ProblemCode::EmptyKey,
        KeyPathError::TooLong { bytes: _ } => ProblemCode::KeyTooLong,
        KeyPathError::BadEscape { at: _ } | KeyPathError::BadBase64 => ProblemCode::MalformedKey,
    };
    refuse(code, error.to_string())
}

/// Maps the errors of condition headers.
#[must_use]
pub fn of_condition(error: ConditionError) -> Refusal {
    refuse(ProblemCode::MalformedCondition, error.to_string())
}

/// Maps the errors of query strings.
#[must_use]
pub fn of_query(error: QueryError) -> Refusal {
    refuse(ProblemCode::MalformedRequest, error.to_string())
}

/// Maps the errors of reading a body.
#[must_use]
pub fn of_body(error: BodyError) -> Refusal {
    let code = match error {
        BodyError::TooLarge { bytes_max: _ } => ProblemCode::ValueTooLarge,
        BodyError::Overloaded => ProblemCode::Overloaded,
        BodyError::TooSlow => ProblemCode::RequestTimeout,
        BodyError::Broken => ProblemCode::MalformedRequest,
    };
    refuse(code, error.to_string())
}

/// An error with its sources, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
