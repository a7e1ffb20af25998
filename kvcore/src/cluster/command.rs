//! Commands of group 0's log and what they answer.

use migration::{Advance, MoveId, PlanId, PlanKind, Signals, Step};
use placement::{Change, Checksum, Epoch, NodeId, RingPlan, Token, Topology};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::settings::SettingsChange;
use super::state::{Health, Registration};
use crate::ids::LogIndex;

/// A command of group 0's log. New kinds are added at the end: the position is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterCommand {
    /// Enter a node into the directory as a spare, or renew what it says of itself.
    Register(Registration),
    /// Note how nodes do.
    SetHealth(Vec<(NodeId, Health)>),
    /// Drop the log up to and including an index.
    Truncate {
        /// The last index to drop.
        through: LogIndex,
    },
    /// Add a change to the draft.
    Stage(Change),
    /// Forget the draft.
    ClearDraft,
    /// Make a plan of the draft, or of a way back.
    Apply(Box<PlanOrder>),
    /// Take moves on, as judged under an epoch. Those that are not in the step named are left as
    /// they are, and all of them in another epoch.
    Advance {
        /// The epoch whose owners they were held against.
        epoch: Epoch,
        /// The moves, the step each is expected in, and what is logged about it.
        moves: Vec<(MoveId, Option<Step>, Advance)>,
        /// Now, in unix milliseconds.
        at_ms: u64,
    },
    /// Put a plan's ring in force.
    Publish {
        /// The plan.
        plan: PlanId,
        /// The epoch that it takes the place of.
        base_epoch: Epoch,
        /// Now, in unix milliseconds.
        at_ms: u64,
    },
    /// Give a plan up before its ring is published.
    Cancel {
        /// The plan.
        plan: PlanId,
        /// Now, in unix milliseconds.
        at_ms: u64,
    },
    /// Stop a plan where it is, or let it go on.
    Pause {
        /// The plan.
        plan: PlanId,
        /// Whether it stops.
        paused: bool,
    },
    /// End a plan's grace before its time: old copies may go.
    EndGrace {
        /// The plan.
        plan: PlanId,
    },
    /// Change settings.
    Configure(SettingsChange),
    /// Record how far a published plan is from being finished; it is when all signals pass.
    NoteSignals {
        /// The plan.
        plan: PlanId,
        /// The signals.
        signals: Signals,
        /// Now, in unix milliseconds.
        at_ms: u64,
    },
    /// Give up a node that is in no ring and will not come back: nobody waits for its word that its
    /// data is gone, and its identity is barred.
    GiveUp(NodeId),
    /// The former voters of group 0 have no place any more: its new ones, chosen in this epoch, vote.
    RetireGroup0 {
        /// The epoch.
        epoch: Epoch,
    },
}

/// A plan to be applied: the ring was computed before, from this base and these changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOrder {
    /// What the plan is for.
    pub kind: PlanKind,
    /// The epoch that it starts from.
    pub base_epoch: Epoch,
    /// Names base, changes and target together.
    pub digest: Checksum,
    /// The changes, as drafted; none for a rollback.
    pub changes: Vec<Change>,
    /// The nodes of the next ring.
    pub topology: Topology,
    /// The tokens of the next ring.
    pub tokens: Vec<Token>,
    /// The fewest copies that any way to the new balance moves.
    pub copies_min: u64,
    /// Now, in unix milliseconds.
    pub at_ms: u64,
}

impl PlanOrder {
    /// The order that carries out a plan of staged changes.
    #[must_use]
    pub fn of(plan: &RingPlan, at_ms: u64) -> Self {
        let parts = plan.parts(at_ms);
        Self {
            kind: PlanKind::Changes,
            base_epoch: plan.base_epoch,
            digest: plan.digest,
            changes: plan.changes.clone(),
            topology: parts.topology,
            tokens: parts.tokens,
            copies_min: plan.diff.copies_moved_min,
            at_ms,
        }
    }
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterOutcome {
    /// It took effect, or nothing was left to do.
    Done,
    /// It was refused and changed nothing.
    Refused(ClusterRefusal),
    /// The log may be dropped through this index.
    Truncate(LogIndex),
    /// The plan was applied under this id.
    Planned(PlanId),
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum ClusterRefusal {
    /// Another node of the directory has the name.
    #[error("the name {name:?} belongs to node {owner}, which is another node")]
    NameTaken {
        /// The name.
        name: String,
        /// The node that has it.
        owner: NodeId,
    },
    /// The zone of a node that holds tokens cannot change.
    #[error(
        "node {node} owns partitions in zone {zone:?}; drain it before it moves to another zone"
    )]
    ZoneInUse {
        /// The node.
        node: NodeId,
        /// The zone it is in.
        zone: String,
    },
    /// The identity was given up with its node's data.
    #[error("node {node} was removed as lost; wipe its data directory and it joins as a new node")]
    Barred {
        /// The node.
        node: NodeId,
    },
    /// The plan was made for another ring.
    #[error("the plan starts from epoch {base}, and epoch {epoch} is in force: look at it again")]
    StaleEpoch {
        /// The plan's base.
        base: Epoch,
        /// The epoch in force.
        epoch: Epoch,
    },
    /// The draft changed since the plan was looked at.
    #[error("the draft is another than the plan was made of: look at it again")]
    StaleDraft,
    /// A change names a node that another staged change names.
    #[error("a staged change names node {node} already")]
    StagedAlready {
        /// The node.
        node: NodeId,
    },
    /// More changes than one plan may have.
    #[error("the draft is full")]
    DraftFull,
    /// Another plan has not come to serve yet.
    #[error("plan {plan} is under way: let it finish, or cancel it")]
    PlanUnderWay {
        /// The plan.
        plan: PlanId,
    },
    /// There is no such plan, or it is no longer on record.
    #[error("there is no plan {plan}")]
    NoSuchPlan {
        /// The plan.
        plan: PlanId,
    },
    /// The plan's phase does not allow it.
    #[error("plan {plan} is {phase}")]
    WrongPhase {
        /// The plan.
        plan: PlanId,
        /// Its phase.
        phase: String,
    },
    /// The ring of the plan is not legal.
    #[error("the plan's ring is not legal: {reason}")]
    IllegalRing {
        /// Why.
        reason: String,
    },
    /// The directory does not have the node.
    #[error("there is no node {node}")]
    NoSuchNode {
        /// The node.
        node: NodeId,
    },
    /// The node is part of the ring in force, or of the one that a plan leads to.
    #[error(
        "node {node} is part of the ring, or of the one that is being made: remove it by a plan"
    )]
    InRing {
        /// The node.
        node: NodeId,
    },
    /// Moves are not verified.
    #[error("plan {plan} is not ready to be published: {reason}")]
    NotReady {
        /// The plan.
        plan: PlanId,
        /// Why.
        reason: String,
    },
}
