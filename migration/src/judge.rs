//! What a leader's facts mean for a move: the transition to be logged, if any.

use std::collections::BTreeSet;

use placement::NodeId;
use serde::{Deserialize, Serialize};

use crate::actual::{Actual, CopyTrouble, Follower, Verification};
use crate::gate::{Gate, may_retire};
use crate::ids::{LogIndex, Member, ReplicaId};
use crate::moves::Move;
use crate::reconcile::LAG_MAX;
use crate::stage::{AbortReason, BlockReason, Stage, Step, Transition};

/// How a copy does, as last recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes in all; 0 while unknown.
    pub bytes_total: u64,
    /// Bytes per second since the last record.
    pub bytes_per_second: u64,
    /// Attempts that failed.
    pub failures: u32,
    /// What went wrong last, in words.
    pub last_error: Option<String>,
    /// When it is tried again, in unix milliseconds.
    pub retry_at_ms: Option<u64>,
    /// When this was recorded, in unix milliseconds.
    pub at_ms: u64,
}

/// What is logged about a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advance {
    /// The stage's change.
    pub transition: Option<Transition>,
    /// How the copy does.
    pub progress: Option<Progress>,
    /// The watermark, when the copy is installed.
    pub watermark: Option<LogIndex>,
    /// The gate, when it is passed.
    pub gate: Option<Gate>,
    /// The agreement after the swap.
    pub after_swap: Option<Gate>,
    /// The replica of a move that was given up is destroyed.
    pub residue_gone: bool,
}

impl Advance {
    /// Nothing but a transition.
    #[must_use]
    pub fn to(transition: Transition) -> Self {
        Self { transition: Some(transition), ..Self::default() }
    }

    /// Whether nothing is to be logged.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What the leader of group 0 knows beside records and facts.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// Owners of the move's partition in the published epoch.
    pub owners: &'a [Member],
    /// Those of them that stay when the plan is done.
    pub staying: &'a [Member],
    /// Nodes that are down.
    pub down: &'a BTreeSet<NodeId>,
    /// Whether the grace of the move's plan is over.
    pub grace_over: bool,
    /// Now, in unix milliseconds.
    pub now_ms: u64,
}

/// Records of a copy's progress are at least this far apart, unless a stage changes.
const PROGRESS_EVERY_MS: u64 = 1000;

/// What is to be logged about a move, given the facts of its group's leader.
#[must_use]
pub fn judge(subject: &Move, actual: &Actual, standing: &Standing<'_>) -> Advance {
    let Some(step) = subject.stage.step() else {
        let gone = subject.residue.is_some_and(|it| is_gone(it, actual));
        return Advance { residue_gone: gone, ..Advance::default() };
    };
    let mut advance = match step {
        Step::Pending => Advance::default(),
        Step::Copying => copying(subject, actual),
        Step::CatchingUp => catching_up(subject, actual, standing),
        Step::Verified => verified(subject, actual),
        Step::Swapping => swapping(actual, standing),
        Step::Serving => serving(subject, actual, standing),
        Step::Retiring => retiring(subject, actual),
    };
    if advance.transition.is_none() {
        advance.transition = block(subject, step, actual, standing);
    }
    if matches!(step, Step::Copying) {
        advance.progress = progress(subject, actual, &advance, standing.now_ms);
    }
    advance
}

fn copying(subject: &Move, actual: &Actual) -> Advance {
    let installed = subject.gain.is_some_and(|gain| {
        actual.follower(gain.replica).is_some_and(|it| !it.copying && it.matched > LogIndex(0))
            || actual.voters.contains(&gain.replica)
    });
    match installed {
        true => Advance { watermark: Some(actual.committed), ..Advance::to(Transition::Installed) },
        false => Advance::default(),
    }
}

/// Whether the new replica takes a snapshot again.
fn is_lost(subject: &Move, actual: &Actual) -> bool {
    subject.gain.is_some_and(|gain| {
        actual.follower(gain.replica).is_some_and(|it| it.copying) || !actual.contains(gain.replica)
    })
}

fn catching_up(subject: &Move, actual: &Actual, standing: &Standing<'_>) -> Advance {
    if is_lost(subject, actual) {
        return Advance::to(Transition::Lost);
    }
    let (Some(watermark), Some(verification)) = (subject.watermark, &actual.verification) else {
        return Advance::default();
    };
    match verification {
        Verification::Differs { index, .. } if *index < actual.changed_at => Advance::default(),
        Verification::Differs { member, range, .. } => {
            let reason = AbortReason::Mismatch { node: member.node, range: range.clone() };
            Advance::to(Transition::Abort(reason))
        }
        Verification::Agreed { index, digest, replicas } => {
            let asked = must_agree(subject, standing.staying).all(|id| replicas.contains(&id));
            let fresh = *index >= watermark && *index >= actual.changed_at;
            let close = subject.gain.is_none_or(|it| actual.is_close(it.replica, LAG_MAX));
            match asked && fresh && close {
                true => Advance {
                    gate: Some(Gate { index: *index, digest: *digest }),
                    ..Advance::to(Transition::Verified)
                },
                false => Advance::default(),
            }
        }
    }
}

/// The replicas whose digests must agree before a move is verified: the new one and every owner
/// that stays.
pub(crate) fn must_agree<'a>(
    subject: &'a Move,
    staying: &'a [Member],
) -> impl Iterator<Item = ReplicaId> + 'a {
    subject.gain.iter().chain(staying).map(|member| member.replica)
}

/// Whether a partition's replicas should be compared for the sake of this move: what is compared is
/// there, and the last comparison does not tell yet.
#[must_use]
pub fn verification_wanted(
    subject: &Move,
    actual: &Actual,
    owners: &[Member],
    staying: &[Member],
) -> bool {
    let known = |from: LogIndex, asked: Vec<ReplicaId>| {
        actual.verification.as_ref().is_some_and(|verification| match verification {
            Verification::Agreed { index, replicas, .. } => {
                *index >= from.max(actual.changed_at)
                    && asked.iter().all(|id| replicas.contains(id))
            }
            Verification::Differs { index, .. } => *index >= from.max(actual.changed_at),
        })
    };
    let close = |id: ReplicaId| actual.is_close(id, LAG_MAX);
    match (subject.stage.step(), subject.watermark) {
        (Some(Step::CatchingUp), Some(watermark)) => {
            let applied = |gain: Member| {
                gain.replica == actual.leader
                    || actual.follower(gain.replica).is_some_and(|it| it.matched >= watermark)
            };
            subject.gain.is_none_or(applied)
                && must_agree(subject, staying).all(close)
                && !known(watermark, must_agree(subject, staying).collect())
        }
        (Some(Step::Serving), _) => {
            subject.after_swap.is_none()
                && votes_as_owned(actual, owners)
                && owners.iter().all(|owner| close(owner.replica))
                && !known(LogIndex(0), owners.iter().map(|owner| owner.replica).collect())
        }
        _ => false,
    }
}

fn verified(subject: &Move, actual: &Actual) -> Advance {
    if is_lost(subject, actual) {
        return Advance::to(Transition::Lost);
    }
    // One that is silent for a moment has still been compared; publication asks whether it lives.
    let lags =
        |it: &Follower| it.matched > LogIndex(0) && it.matched.get() + LAG_MAX < actual.last.get();
    let behind = subject.gain.is_some_and(|it| actual.follower(it.replica).is_some_and(lags));
    match behind {
        true => {
            Advance { watermark: Some(actual.committed), ..Advance::to(Transition::FellBehind) }
        }
        false => Advance::default(),
    }
}

fn swapping(actual: &Actual, standing: &Standing<'_>) -> Advance {
    match votes_as_owned(actual, standing.owners) {
        true => Advance::to(Transition::Swapped),
        false => Advance::default(),
    }
}

/// Whether the voters are the owners, no more and no fewer.
fn votes_as_owned(actual: &Actual, owners: &[Member]) -> bool {
    !actual.is_joint()
        && actual.voters.len() == owners.len()
        && owners.iter().all(|owner| actual.voters.contains(&owner.replica))
}

fn serving(subject: &Move, actual: &Actual, standing: &Standing<'_>) -> Advance {
    let mut advance = Advance::default();
    if mismatch(actual).is_some() {
        return advance;
    }
    match &actual.verification {
        Some(Verification::Agreed { index, digest, replicas })
            if subject.after_swap.is_none()
                && votes_as_owned(actual, standing.owners)
                && *index >= actual.changed_at
                && standing.owners.iter().all(|owner| replicas.contains(&owner.replica)) =>
        {
            advance.after_swap = Some(Gate { index: *index, digest: *digest });
        }
        Some(Verification::Agreed { .. } | Verification::Differs { .. }) | None => {}
    }
    let retire = may_retire(subject, standing.owners, actual, standing.grace_over);
    match (subject.lose, retire) {
        (None, _) if subject.after_swap.is_some() => {
            advance.transition = Some(Transition::Ended);
        }
        (Some(_), Ok(())) => advance.transition = Some(Transition::Retire),
        (None, _) | (Some(_), Err(_)) => {}
    }
    advance
}

fn retiring(subject: &Move, actual: &Actual) -> Advance {
    let Some(lose) = subject.lose else { return Advance::to(Transition::Retired) };
    let left = !actual.contains(lose.replica);
    match is_gone(lose, actual) || (left && subject.lose_is_dead) {
        true => Advance::to(Transition::Retired),
        false => Advance::default(),
    }
}

/// Whether a replica is in no configuration and its data is destroyed.
fn is_gone(member: Member, actual: &Actual) -> bool {
    !actual.contains(member.replica) && actual.gone.contains(&member.replica)
}

/// Notes what holds a move up, or that nothing does any more.
fn block(
    subject: &Move,
    step: Step,
    actual: &Actual,
    standing: &Standing<'_>,
) -> Option<Transition> {
    match (hindrance(subject, step, actual, standing), &subject.stage) {
        (Some(reason), Stage::Blocked { reason: known, .. }) if reason == *known => None,
        (Some(reason), _) => Some(Transition::Block(reason)),
        (None, Stage::Blocked { .. }) => Some(Transition::Unblock),
        (None, _) => None,
    }
}

/// What the last comparison found wrong, unless the voters have changed since.
fn mismatch(actual: &Actual) -> Option<BlockReason> {
    match &actual.verification {
        Some(Verification::Differs { index, member, range }) if *index >= actual.changed_at => {
            Some(BlockReason::Mismatch { node: member.node, range: range.clone() })
        }
        Some(Verification::Differs { .. } | Verification::Agreed { .. }) | None => None,
    }
}

fn hindrance(
    subject: &Move,
    step: Step,
    actual: &Actual,
    standing: &Standing<'_>,
) -> Option<BlockReason> {
    if let Some(reason) = mismatch(actual).filter(|_| step == Step::Serving) {
        return Some(reason);
    }
    let is_down = |node: &NodeId| standing.down.contains(node);
    let needs_target = |gain: &Member| match step {
        Step::Copying | Step::CatchingUp | Step::Verified => true,
        // A later plan may have replaced it before it voted.
        Step::Swapping => standing.owners.contains(gain),
        Step::Pending | Step::Serving | Step::Retiring => false,
    };
    if let Some(gain) = subject.gain.filter(needs_target) {
        if is_down(&gain.node) {
            return Some(BlockReason::TargetDown(gain.node));
        }
        if let Some(reason) = copy_trouble(gain, actual).filter(|_| step == Step::Copying) {
            return Some(reason);
        }
    }
    let needs_voters =
        matches!(step, Step::CatchingUp | Step::Verified | Step::Serving | Step::Retiring);
    let mut staying = standing.staying.iter().map(|it| it.node);
    if let Some(owner) = staying.find(is_down).filter(|_| needs_voters) {
        return Some(BlockReason::VoterDown(owner));
    }
    match (step, subject.lose) {
        (Step::Retiring, Some(lose)) if is_down(&lose.node) && !subject.lose_is_dead => {
            Some(BlockReason::OldOwnerDown(lose.node))
        }
        _ => None,
    }
}

fn copy_trouble(gain: Member, actual: &Actual) -> Option<BlockReason> {
    let copy = &actual.follower(gain.replica)?.copy;
    match copy.trouble.as_ref()? {
        CopyTrouble::DiskFull => Some(BlockReason::TargetDiskFull(gain.node)),
        CopyTrouble::FellOff => Some(BlockReason::CopyTooSlow(gain.node, copy.failures)),
        CopyTrouble::Other(words) if copy.failures >= FAILURES_TOLD => {
            Some(BlockReason::CopyFails(gain.node, words.clone()))
        }
        CopyTrouble::Other(_) => None,
    }
}

/// Failures in a row after which a copy counts as held up.
const FAILURES_TOLD: u32 = 3;

fn progress(subject: &Move, actual: &Actual, advance: &Advance, now_ms: u64) -> Option<Progress> {
    let copy = &actual.follower(subject.gain?.replica)?.copy;
    let known = &subject.progress;
    let since = now_ms.saturating_sub(known.at_ms);
    if advance.transition.is_none() && since < PROGRESS_EVERY_MS {
        return None;
    }
    let moved = copy.bytes_done.saturating_sub(known.bytes_done);
    let next = Progress {
        bytes_done: copy.bytes_done.max(known.bytes_done),
        bytes_total: copy.bytes_total.max(known.bytes_total),
        bytes_per_second: moved.saturating_mul(1000) / since.max(1),
        failures: copy.failures,
        last_error: copy.trouble.as_ref().map(ToString::to_string),
        retry_at_ms: copy.retry_in_ms.map(|wait| now_ms + wait),
        at_ms: known.at_ms,
    };
    let told = Progress {
        bytes_per_second: known.bytes_per_second,
        retry_at_ms: known.retry_at_ms,
        ..next.clone()
    };
    (told != *known).then_some(Progress { at_ms: now_ms, ..next })
}
