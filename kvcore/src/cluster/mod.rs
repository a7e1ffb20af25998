//! What group 0 replicates: the cluster state, its commands, and the judgement of nodes' health.

mod apply;
mod command;
mod founding;
mod health;
mod node_state;
mod plans;
mod settings;
mod state;
mod voters;

pub use apply::apply;
pub use command::{ClusterCommand, ClusterOutcome, ClusterRefusal, PlanOrder};
pub use founding::{FOUNDING_REVISION, Founder, Founding, FoundingError, found};
pub use health::{HealthMonitor, HealthSettings};
pub use node_state::node_state;
pub use plans::rollback_order;
pub use settings::{ClusterSettings, CopyLimits, SettingsChange};
pub use state::{
    ClusterState, Departure, EpochRecord, Health, NodeRecord, Registration, ViewError,
    check_successor,
};

#[cfg(test)]
mod tests;
