//! What a call ends in when it does not end well.

use std::time::Duration;

use crate::paths::KeyPathError;
use crate::problem::{Outcome, Problem, ProblemCode};

/// Why a call failed. Each variant says something else about the outcome.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// A node refused; the problem states outcome and reason.
    #[error("{}", describe(.0))]
    Problem(Box<Problem>),
    /// The write may have been applied, or may still be.
    #[error("the outcome is unknown: {reason}")]
    Unknown {
        /// What kept the outcome from being known.
        reason: String,
    },
    /// No node took the call before the deadline; it was not applied.
    #[error("no node could be reached within {} ms: {last}", .waited.as_millis())]
    Unreachable {
        /// Time spent.
        waited: Duration,
        /// The last failure seen.
        last: String,
    },
    /// A node answered something outside the contract.
    #[error("unexpected answer from {node}: {reason}")]
    Unexpected {
        /// `host:port` of the node.
        node: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The key cannot be sent.
    #[error(transparent)]
    Key(#[from] KeyPathError),
    /// Some other argument cannot be sent.
    #[error("{reason}")]
    Argument {
        /// What is wrong with it.
        reason: String,
    },
}

impl ClientError {
    /// The problem, if a node stated one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::Unknown { .. }
            | Self::Unreachable { .. }
            | Self::Unexpected { .. }
            | Self::Key(_)
            | Self::Argument { .. } => None,
        }
    }

    /// Whether the cluster was not founded yet.
    pub fn is_not_initialised(&self) -> bool {
        self.problem().is_some_and(|problem| problem.code == ProblemCode::ClusterNotInitialised)
    }

    /// Whether the call had an effect.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Problem(problem) => problem.outcome,
            Self::Unknown { .. } | Self::Unexpected { .. } => Outcome::Unknown,
            Self::Unreachable { .. } | Self::Key(_) | Self::Argument { .. } => Outcome::NotApplied,
        }
    }
}

fn describe(problem: &Problem) -> String {
    let code = match problem.code {
        ProblemCode::Unrecognised => problem.type_uri.as_str(),
        code => code.as_str(),
    };
    let mut text = format!("{} {code}", problem.status);
    for part in [&problem.title, &problem.detail] {
        if !part.is_empty() {
            text.push_str(": ");
            text.push_str(part);
        }
    }
    text
}
