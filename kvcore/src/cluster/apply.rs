//! Applying commands to the cluster state: a pure function, the same on every voter of group 0.

use super::command::{ClusterCommand, ClusterOutcome, ClusterRefusal};
use super::state::{ClusterState, Health, NodeRecord, Registration};
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
    let outcome = match command {
        ClusterCommand::Register(registration) => register(state, registration),
        ClusterCommand::SetHealth(changes) => {
            for (node, health) in changes {
                if let Some(record) = state.nodes.get_mut(&node)
                    && record.health != health
                {
                    record.health = health;
                    state.directory_revision += 1;
                }
            }
            ClusterOutcome::Done
        }
        ClusterCommand::Truncate { through } => ClusterOutcome::Truncate(through),
    };
    if state.directory_revision != directory_before {
        state.revision = revision;
    }
    outcome
}

fn register(state: &mut ClusterState, registration: Registration) -> ClusterOutcome {
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
            let owns = state.replicas.iter().flatten().any(|member| member.node == registration.id);
            if owns && known.registration.zone != registration.zone {
                return ClusterOutcome::Refused(ClusterRefusal::ZoneInUse {
                    node: registration.id,
                    zone: known.registration.zone.to_string(),
                });
            }
            known.health
        }
        None => Health::Up,
    };
    state.nodes.insert(registration.id, NodeRecord { registration, health });
    state.directory_revision += 1;
    ClusterOutcome::Done
}
