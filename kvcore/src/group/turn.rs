//! What one turn of the core gathers from all groups.

use super::learner_mail::LearnerMail;
use crate::event::{Effect, Reply};
use crate::faults::Faults;
use crate::ids::SyncId;
use crate::settings::Settings;
use crate::storage::{WriteBatch, WriteOp};
use crate::time::Time;

/// The turn that is being made: one batch, one sync, one list of effects for all groups.
pub(crate) struct Turn<'a, R> {
    pub now: Time,
    pub settings: &'a Settings,
    pub faults: Faults,
    pub batch: &'a mut WriteBatch,
    pub effects: &'a mut Vec<Effect<R>>,
    /// What leaves for learners with the next tick.
    pub learner_mail: &'a mut LearnerMail,
    /// The sync that this turn asks for if anything in it must be durable.
    pub sync: SyncId,
    pub sync_needed: bool,
    /// The disk has hung for so long that leaders here fall silent, so that others take over even
    /// where a transfer of leadership did not succeed.
    pub muted: bool,
    /// Effects that wait until this turn is durable.
    pub after_sync: Vec<Effect<R>>,
}

impl<R> Turn<'_, R> {
    pub fn write(&mut self, op: WriteOp) {
        self.batch.ops.push(op);
    }

    pub fn reply(&mut self, to: R, reply: Reply) {
        self.effects.push(Effect::Reply { to, reply });
    }

    pub fn reply_all(&mut self, to: impl IntoIterator<Item = R>, reply: &Reply) {
        for to in to {
            self.reply(to, reply.clone());
        }
    }
}
