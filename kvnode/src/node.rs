//! A running node: the composition root.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvcore::cluster::Registration;
use kvcore::event::Alarm;
use kvcore::faults::Hold;
use kvcore::group::GroupSummary;
use kvcore::{ClusterId, CoreConfig, Event, Faults, Settings};
use metrics::gauge;
use placement::{NodeId, NodeName, Weight, Zone};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::clock;
use crate::core_thread::{Alarms, CoreHandle, CoreThread};
use crate::founding::{self, Acceptor, Founded, FoundingOptions, InitError};
use crate::groups::GroupTable;
use crate::identity::LocalNode;
use crate::migrate::{ChunkFault, CopyControl, CopyThreads, SnapshotSource};
use crate::registration::{Registrar, RegistrationState};
use crate::report::{NodeReport, Reporter};
use crate::router::{LocalStore, ReadCounters, Router};
use crate::service::Service;
use crate::storage::{Database, DiskGuard, OpenError, StorageSettings};
use crate::transport::{Listener, Peers};
use crate::view::ViewHandle;
use crate::view_keeper::{ViewKeeper, epoch_watch};

/// Time to give leaderships away before the node stops all the same.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the core's thread and those around it to end.
const END_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for others to let go of the store once the core's thread has ended.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// How often it is checked whether leaderships are gone.
const HAND_OVER_POLL: Duration = Duration::from_millis(20);
/// How often disk and replicas are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name, unique in its cluster.
    pub name: NodeName,
    /// The zone whose loss it would not survive.
    pub zone: Zone,
    /// Its share of the data relative to other nodes.
    pub weight: Weight,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where it listens for other nodes; port 0 takes a free one.
    pub peer_listen: SocketAddr,
    /// Where other nodes reach it, as `host:port`; the address listened on if not given.
    pub peer_advertised: Option<String>,
    /// Where clients reach it, as `host:port`.
    pub client_advertised: String,
    /// Peer addresses of nodes that may know the cluster.
    pub seeds: Vec<String>,
    /// The longest value taken, in bytes.
    pub value_bytes_max: usize,
    /// Writes of clients are refused when the disk has fewer bytes free.
    pub disk_reserve_bytes: u64,
    /// What an operator may set about the store.
    pub storage: StorageSettings,
    /// Times and limits of the core.
    pub settings: Settings,
    /// Deliberate faults, for tests.
    pub faults: Faults,
    /// A file that says where plans are to be held back; only tests name one.
    pub hold_file: Option<PathBuf>,
}

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The peer address cannot be listened on.
    #[error("cannot listen for other nodes on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's word.
        source: std::io::Error,
    },
    /// The store does not open.
    #[error(transparent)]
    Storage(#[from] OpenError),
    /// The opening of the store was interrupted.
    #[error("the opening of the store was interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// What a node says of itself.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Identity, name, zone, weight and addresses.
    pub registration: Registration,
    /// The cluster it belongs to, for ever; none before it was founded or registered.
    pub cluster: Option<ClusterId>,
    /// How far its registration has come.
    pub registration_state: RegistrationState,
    /// Time since its view was last confirmed; none without a view.
    pub view_age: Option<Duration>,
    /// What an operator should know, newest last.
    pub alarms: Vec<Alarm>,
    /// The peers that cannot be reached now, and why.
    pub unreachable: BTreeMap<NodeId, String>,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    local: LocalNode,
    peers: Peers,
    router: Arc<Router>,
    core: CoreHandle,
    groups: GroupTable,
    database: Database,
    disk: Arc<DiskGuard>,
    alarms: Alarms,
    copies: CopyControl,
    registration: watch::Receiver<RegistrationState>,
    reporter: Reporter,
    listener: Listener,
    tasks: Tasks,
    thread: JoinHandle<()>,
}

/// Tasks that end with the node.
#[derive(Debug, Default)]
struct Tasks(Vec<AbortHandle>);

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(task).abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Node {
    /// Starts a node. It must be called within a tokio runtime of several threads.
    ///
    /// # Errors
    /// [`StartError`] when the node cannot run; nothing is left running then.
    pub async fn start(config: NodeConfig) -> Result<Self, StartError> {
        let address = config.peer_listen;
        let listen_failed = |source| StartError::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(listen_failed)?;
        let listened = socket.local_addr().map_err(listen_failed)?;

        let (data_dir, storage) = (config.data_dir.clone(), config.storage.clone());
        let open = move || Database::open(&data_dir, storage);
        let (database, boot, identity) = tokio::task::spawn_blocking(open).await??;

        let registration = Registration {
            id: identity.node,
            name: config.name,
            zone: config.zone,
            weight: config.weight,
            client_address: config.client_advertised,
            peer_address: config.peer_advertised.unwrap_or_else(|| listened.to_string()),
        };
        let view = ViewHandle::new();
        let local = LocalNode::new(registration, identity.cluster, view.clone());
        let peers = Peers::new(local.clone());
        let groups = GroupTable::default();
        let alarms = Alarms::default();
        let disk = Arc::new(DiskGuard::new(database.path(), config.disk_reserve_bytes));
        let (core, inputs) = CoreHandle::new();
        let copies = CopyControl::new(core.clone());
        let copy_threads = CopyThreads::spawn().map_err(StartError::Thread)?;

        let lease = config.settings.lease();
        let store = LocalStore {
            node: local.id(),
            view: view.clone(),
            groups: groups.clone(),
            core: core.clone(),
            database: database.clone(),
            disk: Arc::clone(&disk),
            value_bytes_max: config.value_bytes_max,
            // Late enough that few renewals are for nothing, early enough for a slow round.
            renew_within: lease / 3,
            counters: ReadCounters::default(),
            closing: Arc::default(),
        };
        let router = Arc::new(Router::new(local.clone(), store, peers.clone()));
        let acceptor = Acceptor::new(local.clone(), database.clone(), core.clone());
        let (epochs, sightings) = epoch_watch();
        let reporter = Reporter::new(database.clone(), Arc::clone(&disk), groups.clone());
        let service = Service {
            local: local.clone(),
            router: Arc::clone(&router),
            acceptor: acceptor.clone(),
            snapshots: SnapshotSource::new(
                database.clone(),
                core.clone(),
                copy_threads.clone(),
                copies.watch(),
                ChunkFault::new(config.faults.corrupt_chunks),
            ),
            epochs,
            reporter: reporter.clone(),
        };

        let (thread, booted) = CoreThread {
            config: CoreConfig {
                node: identity.node,
                settings: config.settings,
                faults: config.faults,
                now: clock::now(),
                unix_ms: clock::wall_ms(),
            },
            boot,
            database: database.clone(),
            handle: core.clone(),
            inputs,
            view,
            groups: groups.clone(),
            peers: peers.clone(),
            alarms: alarms.clone(),
            disk: Arc::clone(&disk),
            copies: copies.clone(),
            copy_threads,
        }
        .spawn()
        .map_err(StartError::Thread)?;
        // Before the tables are filled, a member would say that it knows no cluster.
        let _ = booted.await;
        let listener =
            Listener::start(socket, local.clone(), Arc::new(service)).map_err(listen_failed)?;

        let (state, registration) = watch::channel(RegistrationState::default());
        let registrar = Registrar {
            local: local.clone(),
            peers: peers.clone(),
            router: Arc::clone(&router),
            acceptor,
            seeds: config.seeds,
            state,
        };
        let keeper = ViewKeeper::new(
            local.clone(),
            peers.clone(),
            Arc::clone(&router),
            core.clone(),
            sightings,
        );
        let mut tasks = Tasks::default();
        tasks.spawn(registrar.run());
        tasks.spawn(keeper.run());
        tasks.spawn(keep_house(
            core.clone(),
            Arc::clone(&router),
            Arc::clone(&disk),
            database.clone(),
            reporter.clone(),
        ));
        if let Some(file) = config.hold_file {
            tasks.spawn(follow_hold(core.clone(), file));
        }
        tracing::info!(node = %local.id(), peer_address = %listened, "the node runs");
        Ok(Self {
            local,
            peers,
            router,
            core,
            groups,
            database,
            disk,
            alarms,
            copies,
            registration,
            reporter,
            listener,
            tasks,
            thread,
        })
    }

    /// The node's identity.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.local.id()
    }

    /// Gives back the disk space of what was deleted here.
    pub async fn give_space_back(&self) {
        let database = self.database.clone();
        let reclaimed = tokio::task::spawn_blocking(move || database.give_all_space_back());
        // A panic there has ended the process.
        let _ = reclaimed.await;
    }

    /// Waits until the node has left the cluster for which it was started.
    pub async fn departed(&self) {
        let mut state = self.registration.clone();
        let left = |state: &RegistrationState| matches!(state, RegistrationState::Departed { .. });
        if state.wait_for(left).await.is_err() {
            // The registrar ends with the node alone.
            std::future::pending::<()>().await;
        }
    }

    /// What the node says of itself now.
    #[must_use]
    pub fn info(&self) -> NodeInfo {
        NodeInfo {
            registration: self.local.registration().clone(),
            cluster: self.local.cluster(),
            registration_state: self.registration.borrow().clone(),
            view_age: self.local.view().age(),
            alarms: self.alarms.list(),
            unreachable: self.peers.troubles(),
        }
    }

    /// The replicas on this node, as they were at most a second or two ago.
    #[must_use]
    pub fn summaries(&self) -> Arc<Vec<GroupSummary>> {
        self.reporter.summaries()
    }

    /// The replicas on this node, now.
    pub async fn fresh_summaries(&self) -> Vec<GroupSummary> {
        self.core.summaries().await
    }

    /// The address at which the node listens for others.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Executes clients' requests.
    #[must_use]
    pub fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// The view in force.
    #[must_use]
    pub fn view(&self) -> &ViewHandle {
        self.local.view()
    }

    /// What the node knows of each group.
    #[must_use]
    pub fn groups(&self) -> &GroupTable {
        &self.groups
    }

    /// The node's store, for status and measurements.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Whether the disk has room.
    #[must_use]
    pub fn disk(&self) -> &DiskGuard {
        &self.disk
    }

    /// What the nodes that answer in time tell of their disks and replicas; only this one's unless
    /// `others` are asked.
    pub async fn reports(&self, others: bool, deadline: Instant) -> BTreeMap<NodeId, NodeReport> {
        match self.local.view().load() {
            Some(view) if others => {
                self.reporter.all(self.id(), &view, &self.peers, deadline).await
            }
            Some(_) | None => BTreeMap::from([(self.id(), self.reporter.own().await)]),
        }
    }

    /// Sets how much of the node copies may use.
    #[must_use]
    pub fn copies(&self) -> &CopyControl {
        &self.copies
    }

    /// The way into the core, for orders that are nobody's request.
    #[must_use]
    pub fn core(&self) -> &CoreHandle {
        &self.core
    }

    /// Founds a cluster of the nodes at these peer addresses.
    ///
    /// # Errors
    /// [`InitError`]; unless it says otherwise, nothing was changed.
    pub async fn init(
        &self,
        founders: Vec<String>,
        options: FoundingOptions,
    ) -> Result<Founded, InitError> {
        founding::init(&self.peers, founders, options).await
    }

    /// Gives every leadership away, makes everything durable and stops, within ten seconds.
    pub async fn stop(self) {
        self.core.deliver(Event::HandOver).await;
        let give_up = Instant::now() + HAND_OVER_TIMEOUT;
        while self.leads_what_others_could() && Instant::now() < give_up {
            tokio::time::sleep(HAND_OVER_POLL).await;
        }
        let left = self.groups.load().led_here();
        if left > 0 {
            tracing::warn!(left, "stopping with leaderships that nobody took");
        }
        self.router.close();
        let Self { core, database, listener, tasks, thread, router, reporter, .. } = self;
        drop((listener, tasks, router, reporter));
        core.stop().await;
        let end = tokio::task::spawn_blocking(move || {
            // A panic there has ended the process.
            let _ = thread.join();
            if let Err(error) = database.sync() {
                tracing::error!(%error, "the last sync failed");
            }
            // Tasks that were told to end let go of the store a moment later.
            if !database.close(CLOSE_PATIENCE) {
                tracing::warn!("somebody still holds on to the store");
            }
        });
        if tokio::time::timeout(END_TIMEOUT, end).await.is_err() {
            tracing::error!("the core's thread did not end in time");
        }
    }

    /// Whether this node leads a group that has members elsewhere.
    fn leads_what_others_could(&self) -> bool {
        let Some(view) = self.local.view().load() else { return false };
        let groups = self.groups.load();
        groups
            .local()
            .any(|(group, known, _)| known.leads_here && view.state.members(group).len() > 1)
    }
}

/// Looks at disk, store and replicas from time to time.
async fn keep_house(
    core: CoreHandle,
    router: Arc<Router>,
    disk: Arc<DiskGuard>,
    database: Database,
    reporter: Reporter,
) {
    let replicas = gauge!("ringkv_replicas");
    let log_bytes = gauge!("ringkv_log_bytes");
    loop {
        let (checked, store) = (Arc::clone(&disk), database.clone());
        let look = move || {
            store.publish_stats();
            checked.check()
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(_state)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot see how full the disk is"),
            Err(_interrupted) => return,
        }
        let now = core.summaries().await;
        replicas.set(now.len() as f64);
        log_bytes.set(now.iter().map(|summary| summary.log_bytes).sum::<u64>() as f64);
        reporter.note(now);
        core.hint(Event::Misrouted { per_mille: router.take_misrouted_per_mille() });
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// How often the file is looked at that says where plans are held back.
const HOLD_POLL: Duration = Duration::from_millis(20);

/// Holds plans back where a test's file says, as long as it says so.
async fn follow_hold(core: CoreHandle, file: PathBuf) {
    let mut last = None;
    loop {
        let text = tokio::fs::read_to_string(&file).await.unwrap_or_default();
        let hold = Hold::named(text.trim());
        if hold != last {
            core.deliver(Event::Hold(hold)).await;
            last = hold;
        }
        tokio::time::sleep(HOLD_POLL).await;
    }
}
