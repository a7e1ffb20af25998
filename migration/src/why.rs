//! Why a move is where it is, in words, with the command that takes it on.

use placement::NodeId;

use crate::moves::Move;
use crate::plan::{Phase, Plan};
use crate::stage::{AbortReason, BlockReason, Stage, Step};

/// An explanation for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What the move waits for.
    pub reason: String,
    /// The command that unblocks it, if one does.
    pub command: Option<String>,
}

/// Explains what a move waits for.
///
/// `bytes_per_second` is the copy rate in force, and `name` gives nodes the names that operators
/// know them by.
pub fn why(
    plan: &Plan,
    subject: &Move,
    bytes_per_second: u64,
    name: impl Fn(NodeId) -> String,
) -> Explanation {
    let say = |reason: String, command: Option<String>| Explanation { reason, command };
    match &subject.stage {
        Stage::Done => say("the move is done".to_owned(), None),
        Stage::Aborted(AbortReason::Mismatch { node, range }) => {
            let node = name(*node);
            let reason = format!("the move was given up: the replica on {node} differs in {range}");
            let command = format!("look at the disk of {node}, or take another node in its place");
            say(reason, Some(command))
        }
        Stage::Aborted(
            reason @ (AbortReason::Cancelled
            | AbortReason::PlanAborted
            | AbortReason::Superseded(_)),
        ) => say(format!("the move was given up: {reason}"), None),
        Stage::Blocked { at, reason } => {
            let (reason, command) = blocked(reason, name);
            say(format!("{at}: {reason}"), command)
        }
        Stage::Running(step) => {
            let (reason, command) = running(plan, subject, *step, bytes_per_second, name);
            say(reason, command)
        }
    }
}

fn blocked(reason: &BlockReason, name: impl Fn(NodeId) -> String) -> (String, Option<String>) {
    match reason {
        BlockReason::TargetDown(node) => {
            let node = name(*node);
            let command = format!("start {node}, or: kvctl migrate cancel");
            (format!("the target {node} is down"), Some(command))
        }
        BlockReason::VoterDown(node) => {
            let node = name(*node);
            let reason = format!("the voter on {node}, which stays, is down or far behind");
            (reason, Some(format!("start {node}, or: kvctl remove {node}")))
        }
        BlockReason::OldOwnerDown(node) => {
            let node = name(*node);
            let reason = format!("the old owner {node} is down and still holds its copy");
            (reason, Some(format!("start {node}, or: kvctl remove {node}")))
        }
        BlockReason::TargetDiskFull(node) => {
            let node = name(*node);
            let command = format!("free space on {node}, or: kvctl migrate cancel");
            (format!("the disk of the target {node} is full"), Some(command))
        }
        BlockReason::CopyTooSlow(node, times) => {
            let reason = format!(
                "the copy to {} is slower than the writes: it fell off the log {times} times; \
                 the throttle or the target's disk is too slow",
                name(*node),
            );
            (reason, Some("kvctl migrate throttle --bytes-per-second N".to_owned()))
        }
        BlockReason::CopyFails(node, words) => {
            let node = name(*node);
            let command = format!(
                "look at the disk, memory and network of {node} and of its sources, or: kvctl migrate cancel"
            );
            (format!("the copy to {node} fails: {words}"), Some(command))
        }
        BlockReason::Mismatch { node, range } => {
            let node = name(*node);
            let reason = format!("the replica on {node} differs in {range}");
            (reason, Some("kvctl migrate rollback".to_owned()))
        }
    }
}

fn running(
    plan: &Plan,
    subject: &Move,
    step: Step,
    bytes_per_second: u64,
    name: impl Fn(NodeId) -> String,
) -> (String, Option<String>) {
    if plan.paused && step.is_before_publication() {
        return ("the plan is paused".to_owned(), Some("kvctl migrate resume".to_owned()));
    }
    let target = subject.gain.map(|gain| name(gain.node)).unwrap_or_default();
    let throttled = bytes_per_second == 0;
    let raise = || Some("kvctl migrate throttle --bytes-per-second N".to_owned());
    match step {
        Step::Pending | Step::Copying if throttled => {
            ("the throttle is 0: no byte is copied".to_owned(), raise())
        }
        Step::Pending => {
            let reason = "waits for its turn: only so many moves copy at a time".to_owned();
            (reason, Some("kvctl migrate throttle --moves-per-node N".to_owned()))
        }
        Step::Copying => {
            let progress = &subject.progress;
            let mut reason = format!(
                "copies to {target}: {} of {} bytes, {} bytes/s",
                progress.bytes_done, progress.bytes_total, progress.bytes_per_second
            );
            if let Some(error) = &progress.last_error {
                reason.push_str(&format!(
                    "; {} failed attempts, the last: {error}",
                    progress.failures
                ));
            }
            (reason, None)
        }
        Step::CatchingUp => {
            (format!("{target} takes the log and is then compared with the voters"), None)
        }
        Step::Verified => {
            let left =
                plan.moves.iter().filter(|it| it.stage != Stage::Running(Step::Verified)).count();
            (format!("verified; {left} other moves of the plan are not yet"), None)
        }
        Step::Swapping => ("the group changes its voters".to_owned(), None),
        Step::Serving => match plan.phase {
            Phase::Published { .. } if !plan.grace_ended => {
                let reason = "serving; the old owner follows until the grace ends".to_owned();
                (reason, Some("kvctl migrate finish, or: kvctl migrate rollback".to_owned()))
            }
            Phase::Published { .. }
            | Phase::Moving
            | Phase::Finished { .. }
            | Phase::Aborted { .. } => {
                ("serving; all owners must be up, caught up and compared".to_owned(), None)
            }
        },
        Step::Retiring => ("the old copy is being destroyed".to_owned(), None),
    }
}
