//! What the node knows of each group, for readers outside the core: the local gate and the leader.
//!
//! The core's thread is the only writer. It changes its own copy while it carries out the effects
//! of a turn and publishes the whole table once, if anything changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use kvcore::group::ReadGate;
use kvcore::{GroupId, Time};
use placement::{NodeId, PartitionId};

/// One group as this node knows it.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The replica on this node, if there is one.
    pub replica: Option<LocalReplica>,
    /// The node that leads, as far as the local replica knows.
    pub leader: Option<NodeId>,
    /// Whether this node leads.
    pub leads_here: bool,
}

/// A replica on this node, as readers see it.
#[derive(Clone, Debug)]
pub struct LocalReplica {
    /// The gate through which reads pass without the core.
    pub gate: Arc<ReadGate>,
    activity: Arc<Activity>,
}

/// What has happened at a replica. Each is one atomic, as each request counts.
#[derive(Debug)]
struct Activity {
    /// When a message of the group's leader last arrived, in nanoseconds of the core's clock.
    heard_at: AtomicU64,
    /// Reads served here.
    reads: AtomicU64,
    /// Clients' writes taken here while this node led.
    writes: AtomicU64,
}

impl LocalReplica {
    fn new(gate: Arc<ReadGate>, now: Time) -> Self {
        let activity = Activity {
            heard_at: AtomicU64::new(now.as_nanos()),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        };
        Self { gate, activity: Arc::new(activity) }
    }

    /// When a message of a leader last arrived; the replica's creation if none did.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        Time::from_nanos(self.activity.heard_at.load(Ordering::Relaxed))
    }

    /// Notes a message of the group's leader.
    pub(crate) fn note_heard(&self, now: Time) {
        self.activity.heard_at.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Reads served and writes taken here since the replica was created.
    #[must_use]
    pub fn served(&self) -> (u64, u64) {
        let Activity { heard_at: _, reads, writes } = &*self.activity;
        (reads.load(Ordering::Relaxed), writes.load(Ordering::Relaxed))
    }

    /// Counts a read that was served here.
    pub(crate) fn note_read(&self) {
        self.activity.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write that was taken here.
    pub(crate) fn note_write(&self) {
        self.activity.writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// All groups, by number.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
}

impl Groups {
    /// What is known of a group.
    #[must_use]
    pub fn get(&self, group: GroupId) -> Option<&Group> {
        self.groups.get(group.get() as usize)
    }

    /// What is known of a partition's group.
    #[must_use]
    pub fn of_partition(&self, partition: PartitionId) -> Option<&Group> {
        self.get(GroupId::of_partition(partition))
    }

    /// The groups that have a replica here.
    pub fn local(&self) -> impl Iterator<Item = (GroupId, &Group, &LocalReplica)> {
        (0u32..).zip(&self.groups).filter_map(|(number, group)| {
            group.replica.as_ref().map(|replica| (GroupId::from_raw(number), group, replica))
        })
    }

    /// How many groups this node leads.
    #[must_use]
    pub fn led_here(&self) -> usize {
        self.groups.iter().filter(|group| group.leads_here).count()
    }

    fn entry(&mut self, group: GroupId) -> &mut Group {
        let index = group.get() as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, Group::default);
        }
        &mut self.groups[index]
    }
}

/// Shared access to the table. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct GroupTable {
    current: Arc<ArcSwap<Groups>>,
}

impl GroupTable {
    /// The table as last published.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Groups>> {
        self.current.load()
    }
}

/// The core thread's side of the table.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    groups: Groups,
    changed: bool,
    table: GroupTable,
}

impl GroupWriter {
    /// The writer of an empty table.
    pub(crate) fn new(table: GroupTable) -> Self {
        Self { groups: Groups::default(), changed: false, table }
    }

    pub(crate) fn replica_created(&mut self, group: GroupId, gate: Arc<ReadGate>, now: Time) {
        self.groups.entry(group).replica = Some(LocalReplica::new(gate, now));
        self.changed = true;
    }

    pub(crate) fn replica_removed(&mut self, group: GroupId) {
        *self.groups.entry(group) = Group::default();
        self.changed = true;
    }

    pub(crate) fn leader_changed(&mut self, group: GroupId, leader: Option<NodeId>, here: bool) {
        let entry = self.groups.entry(group);
        entry.leader = leader;
        entry.leads_here = here;
        self.changed = true;
    }

    /// Shows the table to readers, if it changed.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.table.current.store(Arc::new(self.groups.clone()));
        }
    }
}
