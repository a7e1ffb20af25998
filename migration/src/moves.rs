//! The durable record of one move.

use placement::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::gate::Gate;
use crate::ids::{LogIndex, Member, PlanId};
use crate::judge::{Advance, Progress};
use crate::stage::{OutOfOrder, Stage, Step};

/// Names a move for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoveId {
    /// Its plan.
    pub plan: PlanId,
    /// Its place in the plan.
    pub number: u32,
}

/// One partition gaining a replica on a node, losing one on another, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The partition.
    pub partition: PartitionId,
    /// The replica that comes.
    pub gain: Option<Member>,
    /// The replica that goes.
    pub lose: Option<Member>,
    /// The replica that goes is on a node that will not come back: there is no grace for it, and
    /// nobody waits for its word that its data is gone.
    pub lose_is_dead: bool,
    /// Where the move is.
    pub stage: Stage,
    /// When it came there, in unix milliseconds.
    pub since_ms: u64,
    /// How the copy does.
    pub progress: Progress,
    /// The log index that the copy must have applied before it may count.
    pub watermark: Option<LogIndex>,
    /// The gate passed before publication.
    pub gate: Option<Gate>,
    /// Agreement of all owners after the group's voters changed.
    pub after_swap: Option<Gate>,
    /// The replica of a move that was given up, until its data is destroyed.
    pub residue: Option<Member>,
}

impl Move {
    /// A move that waits for its turn.
    #[must_use]
    pub fn new(
        partition: PartitionId,
        gain: Option<Member>,
        lose: Option<Member>,
        now_ms: u64,
    ) -> Self {
        Self {
            partition,
            gain,
            lose,
            lose_is_dead: false,
            stage: Stage::Running(Step::Pending),
            since_ms: now_ms,
            progress: Progress::default(),
            watermark: None,
            gate: None,
            after_swap: None,
            residue: None,
        }
    }

    /// A move to a replica that still follows: it waits for no turn, since nothing is copied, and it
    /// is never without its place in the group.
    #[must_use]
    pub fn back_to(
        partition: PartitionId,
        gain: Member,
        lose: Option<Member>,
        now_ms: u64,
    ) -> Self {
        let stage = Stage::Running(Step::Copying);
        Self { stage, ..Self::new(partition, Some(gain), lose, now_ms) }
    }

    /// Whether nothing of the move is left: it has ended and no replica of it waits to be destroyed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage.is_ended() && self.residue.is_none()
    }

    /// Whether the move has, or had and has not destroyed, a replica on a node.
    #[must_use]
    pub fn is_on(&self, node: NodeId) -> bool {
        let here = |member: &Option<Member>| member.is_some_and(|it| it.node == node);
        match self.stage.is_ended() {
            true => here(&self.residue),
            false => here(&self.gain) || here(&self.lose),
        }
    }

    /// The replicas that must receive the log unless they vote: the one that comes from its copy on,
    /// the one that goes until it is retired.
    pub fn followers(&self) -> impl Iterator<Item = Member> + use<> {
        let (gain, lose) = match self.stage.step() {
            Some(Step::Copying | Step::CatchingUp | Step::Verified) => (self.gain, self.lose),
            Some(Step::Pending | Step::Swapping | Step::Serving) => (None, self.lose),
            Some(Step::Retiring) | None => (None, None),
        };
        gain.into_iter().chain(lose)
    }

    /// The replica that is to be destroyed.
    #[must_use]
    pub fn condemned(&self) -> Option<Member> {
        match self.stage.step() {
            Some(Step::Retiring) => self.lose,
            Some(_) => None,
            None => self.residue,
        }
    }

    /// Takes the move on.
    ///
    /// # Errors
    /// [`OutOfOrder`] when the stage does not allow it; nothing is changed then.
    pub fn advance(&mut self, advance: &Advance, now_ms: u64) -> Result<(), OutOfOrder> {
        if let Some(transition) = &advance.transition {
            let was = self.stage.step();
            let next = self.stage.after(transition)?;
            if next != self.stage {
                self.since_ms = now_ms;
            }
            self.stage = next;
            self.left(was);
        }
        if let Some(progress) = &advance.progress {
            self.progress = progress.clone();
        }
        self.watermark = advance.watermark.or(self.watermark);
        self.gate = advance.gate.or(self.gate);
        self.after_swap = advance.after_swap.or(self.after_swap);
        if advance.residue_gone {
            self.residue = None;
        }
        Ok(())
    }

    /// What no longer holds once a step was left.
    fn left(&mut self, was: Option<Step>) {
        match (&self.stage, was) {
            (Stage::Running(Step::Copying), Some(_)) => {
                self.watermark = None;
                self.gate = None;
            }
            (Stage::Running(Step::CatchingUp), Some(Step::Verified)) => self.gate = None,
            (Stage::Aborted(_), Some(step)) if step != Step::Pending => self.residue = self.gain,
            _ => {}
        }
    }
}
