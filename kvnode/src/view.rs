//! The last verified view of the cluster, as everything outside the core sees it.
//!
//! Readers load it without a lock; the core's thread alone publishes, and only newer views.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use kvcore::cluster::{ClusterState, NodeRecord};
use kvcore::{Revision, Time};
use placement::{Epoch, NodeId, NodeName, PartitionId, Ring};
use tokio::sync::watch;

use crate::clock;

/// A verified cluster state with the ring evaluated.
#[derive(Debug)]
pub struct View {
    /// The cluster state.
    pub state: Arc<ClusterState>,
    /// Its ring, ready for lookups.
    pub ring: Ring,
}

impl View {
    /// Evaluates the ring of a state that the core verified.
    #[must_use]
    pub fn new(state: Arc<ClusterState>) -> Self {
        let ring = Ring::new(Arc::new(state.ring.clone()));
        Self { state, ring }
    }

    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.ring.epoch()
    }

    /// The directory's line about a node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeRecord> {
        self.state.nodes.get(&node)
    }

    /// The name of a node of the directory.
    #[must_use]
    pub fn name_of(&self, node: NodeId) -> Option<&NodeName> {
        self.node(node).map(|record| &record.registration.name)
    }

    /// The nodes that should hold a partition, the primary first.
    pub fn owners(&self, partition: PartitionId) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        self.ring.owner_ids(partition)
    }
}

/// Shared access to the view in force. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ViewHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    current: ArcSwapOption<View>,
    epoch: AtomicU64,
    verified_at: AtomicU64,
    changes: watch::Sender<Revision>,
}

impl Default for ViewHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl ViewHandle {
    /// A handle without a view: the node knows no cluster yet.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared {
            current: ArcSwapOption::empty(),
            epoch: AtomicU64::new(0),
            verified_at: AtomicU64::new(0),
            changes: watch::Sender::new(Revision(0)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The view in force; none before the node knows a cluster.
    #[must_use]
    pub fn load(&self) -> Option<Arc<View>> {
        self.shared.current.load_full()
    }

    /// Runs `use_view` on the view in force without counting a reference: for hot paths.
    pub fn with<T>(&self, use_view: impl FnOnce(Option<&View>) -> T) -> T {
        use_view(self.shared.current.load().as_deref())
    }

    /// The epoch in force; 0 before the node knows a cluster.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.shared.epoch.load(Ordering::Acquire))
    }

    /// The revision of the view in force; 0 before the node knows a cluster.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.shared.changes.borrow()
    }

    /// Time since the view was last known to be group 0's newest; none without a view.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let verified_at = self.shared.verified_at.load(Ordering::Acquire);
        (verified_at != 0).then(|| clock::now().since(Time::from_nanos(verified_at)))
    }

    /// Waits until the view in force satisfies `condition`.
    pub async fn wait_until(&self, mut condition: impl FnMut(&View) -> bool) -> Arc<View> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(view) = self.load()
                && condition(&view)
            {
                return view;
            }
            changes.changed().await.expect("the sender lives as long as this handle");
        }
    }

    /// Told of every change of the view.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Revision> {
        self.shared.changes.subscribe()
    }

    /// Puts a view in force. Only the core's thread calls this, in the order of its effects.
    pub(crate) fn publish(&self, state: Arc<ClusterState>) {
        let revision = state.revision;
        let view = View::new(state);
        let epoch = view.epoch();
        self.shared.current.store(Some(Arc::new(view)));
        self.shared.epoch.store(epoch.get(), Ordering::Release);
        self.note_verified();
        self.shared.changes.send_replace(revision);
    }

    /// Notes that the view in force is group 0's newest, as somebody just said who should know.
    pub(crate) fn note_verified(&self) {
        self.shared.verified_at.store(clock::now().as_nanos(), Ordering::Release);
    }
}
