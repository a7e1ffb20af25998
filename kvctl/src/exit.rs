//! Exit codes, and the one place that maps failures to them.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use kvapi::{ClientError, ProblemCode};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Ok = 0,
    /// A check failed, or something unexpected happened.
    CheckFailed = 1,
    /// The command line, a file or the input is wrong.
    Usage = 2,
    /// The key, node or partition is not there.
    NotFound = 3,
    /// The state excludes it: a false condition, a taken name, a stale plan.
    Conflict = 4,
    /// Refused because it would lower redundancy.
    Unsafe = 5,
    /// No token, or one that does not allow it.
    Auth = 6,
    /// Nobody answered, or no quorum did; nothing was applied.
    Unreachable = 7,
    /// Whether it was applied is unknown.
    Unknown = 8,
}

/// Why a command failed, for one line on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of end.
    pub exit: Exit,
    /// What went wrong; empty when nothing is to be said.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// Something is wrong with what the user gave.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Names the next step.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A failed write to stdout. A reader that has gone away ends the program quietly.
    pub fn of_stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Exit::Ok, ""),
            _ => Self::new(Exit::CheckFailed, format!("cannot write to stdout: {error}")),
        }
    }

    /// Prints it to stderr and gives the code for the operating system.
    pub fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            // With stderr gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "{self}");
        }
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "kvctl: {}", one_line(&self.message))?;
        match &self.hint {
            Some(hint) => write!(formatter, "\nhint: {}", one_line(hint)),
            None => Ok(()),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Problem(problem) => match &problem.rule {
                Some(rule) => of_rule(rule),
                None => of_code(problem.code),
            },
            ClientError::Unknown { .. } => Exit::Unknown,
            ClientError::Unreachable { .. } => Exit::Unreachable,
            ClientError::Unexpected { .. } => Exit::CheckFailed,
            ClientError::Key(_) | ClientError::Argument { .. } => Exit::Usage,
        };
        let hint = match &error {
            ClientError::Problem(problem) => problem.hint.clone(),
            ClientError::Unknown { .. } => Some("read the state before you try again".to_owned()),
            ClientError::Unreachable { .. } => {
                Some("check --endpoints, or start a node with `kvctl dev up`".to_owned())
            }
            ClientError::Unexpected { .. } | ClientError::Key(_) | ClientError::Argument { .. } => {
                None
            }
        };
        let needs_init = error.is_not_initialised() && hint.is_none();
        let hint = if needs_init { Some("kvctl init".to_owned()) } else { hint };
        Self { exit, message: error.to_string(), hint }
    }
}

/// The exit of a plan that a rule forbids: rules about what does not fit together are conflicts, and all
/// others are there for safety.
pub fn of_rule(rule: &str) -> Exit {
    match rule {
        "unknown-node" => Exit::NotFound,
        "nothing-to-do" | "too-many-changes" | "duplicate-change" | "already-member"
        | "name-taken" => Exit::Conflict,
        _ => Exit::Unsafe,
    }
}

fn of_code(code: ProblemCode) -> Exit {
    match code {
        ProblemCode::MalformedRequest
        | ProblemCode::MalformedKey
        | ProblemCode::EmptyKey
        | ProblemCode::MalformedCondition
        | ProblemCode::MethodNotAllowed
        | ProblemCode::ValueTooLarge
        | ProblemCode::KeyTooLong
        | ProblemCode::UnsupportedMediaType
        | ProblemCode::HeadersTooLarge
        | ProblemCode::NotImplemented => Exit::Usage,
        ProblemCode::NotFound
        | ProblemCode::NoSuchRoute
        | ProblemCode::NoSuchNode
        | ProblemCode::NoSuchPlan
        | ProblemCode::NoSuchEpoch
        | ProblemCode::NoSuchPartition => Exit::NotFound,
        ProblemCode::Conflict
        | ProblemCode::AlreadyInitialised
        | ProblemCode::NameTaken
        | ProblemCode::RequestInFlight
        | ProblemCode::PreconditionFailed
        | ProblemCode::StalePlan
        | ProblemCode::PlanRefused
        | ProblemCode::PlanUnderWay
        | ProblemCode::WrongPhase
        | ProblemCode::IdempotencyKeyReused => Exit::Conflict,
        ProblemCode::Unauthenticated | ProblemCode::Forbidden | ProblemCode::Barred => Exit::Auth,
        ProblemCode::NotLeader
        | ProblemCode::NoLeader
        | ProblemCode::Overloaded
        | ProblemCode::RateLimited
        | ProblemCode::ClusterNotInitialised
        | ProblemCode::ShuttingDown
        | ProblemCode::NodeUnreachable
        | ProblemCode::RequestTimeout
        | ProblemCode::DiskFull => Exit::Unreachable,
        ProblemCode::OutcomeUnknown => Exit::Unknown,
        ProblemCode::Internal | ProblemCode::Unrecognised => Exit::CheckFailed,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
