//! What a run met, and what it found wrong.

use std::fmt;
use std::ops::AddAssign;

/// A broken invariant, by its name in the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, or what else went wrong.
    pub invariant: &'static str,
    /// What was seen.
    pub seen: String,
}

impl Violation {
    /// A violation of an invariant.
    pub fn new(invariant: &'static str, seen: impl Into<String>) -> Self {
        Self { invariant, seen: seen.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.invariant, self.seen)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// How often a run met what it claims to test.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Counters {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(formatter, "{:>10}  {}", self.$name, stringify!($name))?;)*
                Ok(())
            }
        }
    };
}

counters! {
    /// Events handled.
    events,
    /// Leaderships that went to another replica.
    leader_changes,
    /// Transfers of leadership that succeeded.
    transfers,
    /// Transfers of leadership that were given up.
    transfers_given_up,
    /// Snapshots put in place.
    snapshots_installed,
    /// Snapshot copies that broke off.
    snapshots_broken_off,
    /// Snapshot copies that went on with chunks from before.
    snapshots_resumed,
    /// Logs truncated.
    truncations,
    /// Processes ended.
    crashes,
    /// Crashes in which unsynced bytes were lost.
    crashes_with_loss,
    /// Nodes paused.
    pauses,
    /// Links cut in at least one direction.
    cuts,
    /// Syncs that hung.
    disk_stalls,
    /// Messages delivered.
    messages,
    /// Messages delivered a second time.
    messages_duplicated,
    /// Messages that overtook an earlier one.
    messages_reordered,
    /// Messages lost.
    messages_lost,
    /// Messages delivered seconds late.
    messages_late,
    /// Configuration changes applied.
    configuration_changes,
    /// Leaders that ended while their configuration was joint.
    joint_leaders_killed,
    /// Leaders seen outside their applied configuration.
    leaders_outside,
    /// Replicas ended by their own removal.
    replicas_removed,
    /// Reads served under a lease.
    lease_reads,
    /// Reads served after a round.
    round_reads,
    /// Writes acknowledged.
    writes_acknowledged,
    /// Conditions found false.
    conditions_refused,
    /// Requests refused as not applied.
    requests_refused,
    /// Requests of which the outcome is unknown.
    outcomes_unknown,
    /// Nodes registered with group 0.
    registrations,
    /// Orders that group 0 refused.
    orders_refused,
    /// Changes that no plan was made for.
    plans_refused_by_the_planner,
    /// Pairs of plans applied at once of which one was taken.
    duels_decided,
    /// Plans applied.
    plans_applied,
    /// Plans applied that lead back to an earlier ring.
    plans_rolling_back,
    /// Plans published.
    plans_published,
    /// Plans finished.
    plans_finished,
    /// Plans given up before their ring was published.
    plans_aborted,
    /// Plans given up for a repair.
    plans_superseded,
    /// Moves of the plans applied.
    moves,
    /// Moves whose copy agreed with its sources.
    verifications,
    /// Moves whose group took its new voters.
    swaps,
    /// Moves whose old copy was retired.
    retirements,
    /// Moves held up, each time.
    blocks,
    /// Members of group 0 replaced.
    group0_replacements,
    /// Moves whose nodes lost their power as they came to a step.
    moves_struck,
    /// Nodes lost for good.
    nodes_lost,
    /// Nodes given an empty disk.
    nodes_wiped,
    /// Drawings of a removal of a node that lives.
    living_nodes_removed,
    /// Judgements of health that changed a view.
    views_changed,
    /// Entries fetched from disk for a follower.
    fetches,
}

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it met.
    pub counters: Counters,
    /// Hash of everything that happened, in order.
    pub trace: u64,
    /// Simulated time, in nanoseconds.
    pub simulated: u64,
    /// What it found wrong.
    pub violation: Option<Violation>,
}
