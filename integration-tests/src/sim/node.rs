//! One simulated node: its disk, its clock, and its process while it runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kvcore::group::{ReadGate, Role};
use kvcore::message::SnapshotManifest;
use kvcore::{Core, Event, Generation, GroupId, LogIndex, LogPosition, ReplicaId, Term, Time};
use placement::NodeId;

use super::disk::{Disk, Records};
use super::world::Happening;

/// A node's clock: it starts anywhere and runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it showed when the simulation began, in nanoseconds.
    pub offset: u64,
    /// Nanoseconds that it gains in a microsecond; negative if it is slow.
    pub rate_per_mille: i64,
}

impl Clock {
    /// What it shows at a moment.
    #[must_use]
    pub fn local(&self, now: u64) -> Time {
        let gained = i128::from(now) * i128::from(self.rate_per_mille) / 1000;
        let shown = i128::from(now) + gained + i128::from(self.offset);
        Time::from_nanos(u64::try_from(shown).expect("clocks start far enough from zero"))
    }

    /// The first moment, not before `now`, at which it shows a time.
    #[must_use]
    pub fn moment(&self, shown: Time, now: u64) -> u64 {
        let elapsed = i128::from(shown.as_nanos()) - i128::from(self.offset);
        let moment = elapsed * 1000 / i128::from(1000 + self.rate_per_mille) + 1;
        u64::try_from(moment.max(i128::from(now))).unwrap_or(u64::MAX)
    }
}

/// A snapshot file that a node offers; it outlives the process.
#[derive(Clone, Debug)]
pub struct File {
    /// The group whose state it is.
    pub group: GroupId,
    /// The entry whose effects are the last in it.
    pub position: LogPosition,
    /// What it says of itself.
    pub manifest: SnapshotManifest,
    /// Its records.
    pub records: Records,
}

/// A snapshot on its way to this node.
#[derive(Clone, Debug)]
pub struct Copying {
    /// What is copied.
    pub manifest: SnapshotManifest,
    /// Chunks that are here.
    pub chunks: u32,
    /// Tries of the next chunk that failed.
    pub failures: u32,
}

/// What was last seen of a replica; what has happened since is audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The replica.
    pub replica: ReplicaId,
    /// Applied index.
    pub applied: LogIndex,
    /// Committed index.
    pub commit: LogIndex,
    /// First index of the log.
    pub first: LogIndex,
    /// Term.
    pub term: Term,
    /// Role.
    pub role: Role,
    /// Whether it was outside its configuration.
    pub outside: bool,
    /// The generation of its data.
    pub generation: Generation,
}

/// A running process.
pub struct Process {
    /// The core.
    pub core: Core<u64>,
    /// What reads go through.
    pub gates: BTreeMap<GroupId, Arc<ReadGate>>,
    /// Events that wait for the next turn.
    pub inbox: Vec<Event<u64>>,
    /// When the next turn is due.
    pub turn_at: Option<u64>,
    /// When the last sync asked for will be complete.
    pub sync_ends: u64,
    /// Snapshots that it takes.
    pub copying: BTreeMap<(GroupId, Generation), Copying>,
    /// The epoch of the view that was last seen.
    pub epoch: u64,
    /// What was last seen of its replicas.
    pub seen: BTreeMap<GroupId, Seen>,
}

/// A node.
pub struct SimNode {
    /// Its identity; a wiped disk gets a new one.
    pub id: NodeId,
    /// Its disk.
    pub disk: Disk,
    /// Its clock.
    pub clock: Clock,
    /// Its process, while it runs.
    pub process: Option<Process>,
    /// Counts its processes: what belongs to an earlier one is void.
    pub incarnation: u64,
    /// What happens to it while it is stopped, in order; `None` while it runs on.
    pub(crate) backlog: Option<VecDeque<Happening>>,
    /// Its syncs hang until then.
    pub stalled_until: u64,
    /// It stays down until then, whatever else wants to start it.
    pub down_until: u64,
    /// It is gone for good, with its disk.
    pub lost: bool,
    /// How often its disk was replaced by an empty one.
    pub wipes: u64,
}

impl SimNode {
    /// Whether its process runs and is not stopped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_some() && self.backlog.is_none()
    }
}
