//! Truncation of the log: a command like any other, proposed by the leader.

use super::propose::Work;
use super::replica::{Machine, Replica};
use super::turn::Turn;
use crate::cluster::ClusterCommand;
use crate::ids::LogIndex;
use crate::storage::WriteOp;
use crate::store::Command;

impl<R> Replica<R> {
    /// Proposes to truncate the log if it is long.
    ///
    /// It is cut up to what every member has. A log beyond the bound is cut without waiting for
    /// members that are behind; while one of them takes a snapshot, the entries it needs
    /// afterwards are kept up to a bound of the copy's own (see [`super::copies`]).
    pub fn propose_truncation(&mut self, turn: &mut Turn<'_, R>) {
        let settings = turn.settings;
        let progress = self.log().progress;
        let bytes = progress.log_bytes;
        if !self.is_leader()
            || bytes < settings.log_truncate_bytes
            || self.truncating.is_some_and(|through| through > self.log().record.truncated.index)
        {
            return;
        }
        let applied = progress.applied.index;
        let tracked = self.raw.raft.prs().iter();
        let had_by_all = tracked.map(|(_, it)| LogIndex(it.matched)).min().unwrap_or(applied);
        let mut through = had_by_all.min(applied);
        if bytes > settings.log_retain_bytes_max {
            let entries = self.log().last().get() - self.log().record.truncated.index.get();
            let kept = settings.log_retain_bytes_max / 2 * entries / bytes.max(1);
            let wanted = LogIndex(self.log().last().get().saturating_sub(kept)).min(applied);
            through = through.max(wanted);
        }
        if let Some(floor) = self.snapshot_floor(bytes) {
            through = through.min(floor);
        }
        if through <= self.log().record.truncated.index {
            return;
        }
        self.truncating = Some(through);
        let work = match self.machine {
            Machine::Cluster(_) => Work::Cluster(ClusterCommand::Truncate { through }),
            Machine::Partition { .. } => Work::Partition(Command::Truncate { through }),
        };
        self.submit(work, None, turn);
    }

    /// Truncates the log as an applied command says.
    pub fn truncate_log(&mut self, through: LogIndex, turn: &mut Turn<'_, R>) {
        if let Some((from, to)) = self.raw.mut_store().truncate(through) {
            turn.write(WriteOp::DropEntries { group: self.group, from, to });
            self.record_dirty = true;
        }
    }
}
