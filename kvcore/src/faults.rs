//! Deliberate faults, to show that the simulator would notice them.

/// Faults that a test asks the core to commit. Each is an argument of [`crate::Core::boot`], never a
/// global switch; a node in production is built with [`Faults::NONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Votes and acknowledgements leave before what they promise is durable.
    pub send_before_persist: bool,
    /// A lease is counted from the receipt of the confirming round instead of its sending.
    pub lease_from_receipt: bool,
    /// A lease is taken again in the term in which a transfer of leadership was aborted.
    pub lease_after_aborted_transfer: bool,
    /// A restarted node votes and campaigns at once.
    pub no_vote_refusal_after_restart: bool,
    /// After a stall the missed ticks come in one burst, with no refusal on the host's clock.
    pub tick_bursts: bool,
    /// Data is written in one batch, the applied index in another.
    pub applied_index_apart: bool,
    /// A leader outside its applied configuration goes on proposing and holding leases.
    pub leader_outside_serves: bool,
    /// The lease is not checked after the value was read.
    pub no_lease_check: bool,
    /// An epoch is published before its copies are verified, and they are swapped in as they are.
    pub publish_unverified: bool,
    /// An old copy is retired without a look at the owners.
    pub retire_unchecked: bool,
    /// A replica that comes votes at once.
    pub learner_counts: bool,
    /// A snapshot counts as installed before its data is here.
    pub half_copy_readable: bool,
    /// A replica that was removed goes on.
    pub removed_replica_votes: bool,
    /// The first so many chunks of snapshots leave their source damaged.
    pub corrupt_chunks: u32,
    /// Digests that are computed say that one sub-range differs.
    pub corrupt_digest: bool,
}

impl Faults {
    /// No fault: what every real node runs with.
    pub const NONE: Self = Self {
        send_before_persist: false,
        lease_from_receipt: false,
        lease_after_aborted_transfer: false,
        no_vote_refusal_after_restart: false,
        tick_bursts: false,
        applied_index_apart: false,
        leader_outside_serves: false,
        no_lease_check: false,
        publish_unverified: false,
        retire_unchecked: false,
        learner_counts: false,
        half_copy_readable: false,
        removed_replica_votes: false,
        corrupt_chunks: 0,
        corrupt_digest: false,
    };
}

/// Where a test holds plans back, to find them in that place when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Moves do not leave this step.
    At(migration::Step),
    /// Groups do not leave their joint configuration.
    Joint,
}

impl Hold {
    /// The place of this name: that of a step, or `joint`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let step = migration::Step::ALL.into_iter().find(|step| step.name() == name);
        match name {
            "joint" => Some(Self::Joint),
            _ => step.map(Self::At),
        }
    }
}
