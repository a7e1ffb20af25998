//! What group 0 replicates: the cluster state, its commands, and the judgement of nodes' health.

mod apply;
mod command;
mod founding;
mod health;
mod state;

pub use apply::apply;
pub use command::{ClusterCommand, ClusterOutcome, ClusterRefusal};
pub use founding::{FOUNDING_REVISION, Founder, Founding, FoundingError, found};
pub use health::{HealthMonitor, HealthSettings};
pub use state::{
    ClusterState, EpochRecord, Health, NodeRecord, Registration, ViewError, check_successor,
};

#[cfg(test)]
mod tests;
