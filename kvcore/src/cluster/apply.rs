//! Applying commands to the cluster state: a pure function, the same on every voter of group 0.

use super::command::{ClusterCommand, ClusterOutcome, ClusterRefusal};
use super::plans;
use super::state::{ClusterState, Health, NodeRecord, Registration};
use super::voters;
use crate::ids::Revision;

/// Applies one command at `revision`, its index in group 0's log.
///
/// The state's own revision moves only when something else does, so that equal states are equal.
#[must_use]
pub fn apply(
    state: &mut ClusterState,
    revision: Revision,
    command: ClusterCommand,
) -> ClusterOutcome {
    let directory_before = state.directory_revision;
    let (outcome, plans_changed) = match command {
        ClusterCommand::Register(registration) => (register(state, registration), false),
        ClusterCommand::SetHealth(changes) => {
            for (node, health) in changes {
                if let Some(record) = state.nodes.get_mut(&node)
                    && record.health != health
                {
                    record.health = health;
                    state.directory_revision += 1;
                }
            }
            (ClusterOutcome::Done, false)
        }
        ClusterCommand::Truncate { through } => (ClusterOutcome::Truncate(through), false),
        ClusterCommand::Advance { epoch, moves, at_ms } => {
            let changed = epoch == state.epoch() && plans::advance(state, moves, at_ms);
            (ClusterOutcome::Done, changed)
        }
        other => match change_plans(state, other) {
            Ok(outcome) => (outcome, true),
            Err(refusal) => (ClusterOutcome::Refused(refusal), false),
        },
    };
    if plans_changed || state.directory_revision != directory_before {
        state.revision = revision;
    }
    outcome
}

/// The commands that either change draft, plans or settings, or are refused.
fn change_plans(
    state: &mut ClusterState,
    command: ClusterCommand,
) -> Result<ClusterOutcome, ClusterRefusal> {
    match command {
        ClusterCommand::Stage(change) => plans::stage(state, change),
        ClusterCommand::ClearDraft => {
            state.draft.clear();
            Ok(ClusterOutcome::Done)
        }
        ClusterCommand::Apply(order) => plans::apply_order(state, *order),
        ClusterCommand::Publish { plan, base_epoch, at_ms } => {
            plans::publish(state, plan, base_epoch, at_ms)
        }
        ClusterCommand::Cancel { plan, at_ms } => plans::cancel(state, plan, at_ms),
        ClusterCommand::Pause { plan, paused } => plans::pause(state, plan, paused),
        ClusterCommand::EndGrace { plan } => plans::end_grace(state, plan),
        ClusterCommand::Configure(change) => {
            state.settings.change(change);
            Ok(ClusterOutcome::Done)
        }
        ClusterCommand::NoteSignals { plan, signals, at_ms } => {
            plans::note_signals(state, plan, signals, at_ms)
        }
        ClusterCommand::GiveUp(node) => plans::give_up(state, node),
        ClusterCommand::RetireGroup0 { epoch } => voters::retire_group0(state, epoch),
        ClusterCommand::Register(_)
        | ClusterCommand::SetHealth(_)
        | ClusterCommand::Truncate { .. }
        | ClusterCommand::Advance { .. } => Ok(ClusterOutcome::Done),
    }
}

fn register(state: &mut ClusterState, registration: Registration) -> ClusterOutcome {
    if state.is_barred(registration.id) {
        let node = registration.id;
        return ClusterOutcome::Refused(ClusterRefusal::Barred { node });
    }
    let holder = state.nodes.values().find(|node| node.registration.name == registration.name);
    if let Some(holder) = holder
        && holder.registration.id != registration.id
    {
        return ClusterOutcome::Refused(ClusterRefusal::NameTaken {
            name: registration.name.to_string(),
            owner: holder.registration.id,
        });
    }
    let health = match state.nodes.get(&registration.id) {
        Some(known) if known.registration == registration => return ClusterOutcome::Done,
        Some(known) => {
            let is_needed = state.is_needed(registration.id);
            if is_needed && known.registration.zone != registration.zone {
                return ClusterOutcome::Refused(ClusterRefusal::ZoneInUse {
                    node: registration.id,
                    zone: known.registration.zone.to_string(),
                });
            }
            known.health
        }
        None => Health::Up,
    };
    state.departed.remove(&registration.id);
    state.nodes.insert(registration.id, NodeRecord { registration, health });
    state.directory_revision += 1;
    ClusterOutcome::Done
}
