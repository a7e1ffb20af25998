//! The thread that owns the core: it takes what happened, makes a turn, and carries out what the
//! turn decided. No other thread ever waits for it while it holds anything, and it waits for none.

mod background;
mod effects;
mod handle;
mod reply;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use kvcore::cluster::ClusterState;
use kvcore::storage::Boot;
use kvcore::{Core, CoreConfig, Event};
use metrics::{Histogram, histogram};
use tokio::sync::oneshot;

use crate::clock;
use crate::fatal::{AbortOnPanic, store_failed};
use crate::groups::{GroupTable, GroupWriter};
use crate::migrate::{CopyControl, CopyThreads, ReceiverParts, SnapshotReceiver};
use crate::storage::{Database, DiskGuard, StoreHandle, SyncThread};
use crate::transport::Peers;
use crate::view::ViewHandle;

use background::{Background, Workshop};
use effects::Executor;

pub use effects::Alarms;
pub use handle::{CoreHandle, Input};
pub(crate) use reply::peer_answer;
pub use reply::{Budget, ReplyTo, Reservation};

/// Inputs handled in one turn: enough to share a sync widely, few enough that no turn is long.
const INPUTS_PER_TURN_MAX: usize = 4096;

/// What the core's thread is started with.
pub(crate) struct CoreThread {
    pub config: CoreConfig,
    pub boot: Boot,
    pub database: Database,
    pub handle: CoreHandle,
    pub inputs: Receiver<Input>,
    pub view: ViewHandle,
    pub groups: GroupTable,
    pub peers: Peers,
    pub alarms: Alarms,
    pub disk: Arc<DiskGuard>,
    pub copies: CopyControl,
    pub copy_threads: CopyThreads,
}

impl CoreThread {
    /// Starts the thread, and with it those that make writes durable and read the disk for it. The
    /// receiver is told when what was found on disk is in the tables.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn spawn(self) -> std::io::Result<(JoinHandle<()>, oneshot::Receiver<()>)> {
        let Self { config, boot, database, handle, inputs, view, groups, peers, alarms, .. } = self;
        let Self { disk, copies, copy_threads: threads, .. } = self;
        // A node that stopped between accepting a cluster and creating its replicas has accepted a
        // view and none in force: the core is given it again, before any message.
        let accepted = match &boot.view {
            Some(_) => None,
            None => database.accepted_view().map_err(std::io::Error::other)?,
        };
        let sync = SyncThread::spawn(database.clone(), {
            let handle = handle.clone();
            move |sync| handle.tell(Event::Synced { sync })
        })?;
        let executor = Executor {
            view,
            groups: GroupWriter::new(groups),
            background: Background::spawn(Workshop {
                node: config.node,
                database: database.clone(),
                core: handle.clone(),
                alarms: alarms.clone(),
                disk: Arc::clone(&disk),
                corrupt_digest: config.faults.corrupt_digest,
                stopping: Arc::default(),
                newest_digests: Arc::default(),
            })?,
            snapshots: SnapshotReceiver::new(
                ReceiverParts {
                    peers: peers.clone(),
                    database: database.clone(),
                    core: handle.clone(),
                    threads,
                    disk,
                },
                copies.watch(),
            ),
            peers,
            sync,
            alarms,
            copies,
            database: database.clone(),
            outgoing: HashMap::new(),
        };
        let store = StoreHandle::new(database);
        let (booted, is_booted) = oneshot::channel();
        let thread = std::thread::Builder::new().name("core".to_owned()).spawn(move || {
            let _abort = AbortOnPanic("the core's thread");
            Runner { store, inputs, executor, booted: Some(booted) }.run(config, boot, accepted);
        })?;
        Ok((thread, is_booted))
    }
}

/// What lives on the thread beside the core.
struct Runner {
    store: StoreHandle,
    inputs: Receiver<Input>,
    executor: Executor,
    booted: Option<oneshot::Sender<()>>,
}

impl Runner {
    fn run(mut self, config: CoreConfig, boot: Boot, accepted: Option<Arc<ClusterState>>) {
        let mut effects = Vec::new();
        let mut events: Vec<Event<ReplyTo>> = Vec::new();
        events.extend(accepted.map(Event::AdoptView));
        let mut core = Core::boot(config, boot, &mut effects);
        self.executor.carry_out(&mut effects);
        if events.is_empty() {
            self.tell_booted();
        }
        let turn_seconds: Histogram = histogram!("ringkv_core_turn_seconds");
        let turn_events: Histogram = histogram!("ringkv_core_events_per_turn");
        while self.gather(&core, &mut events) {
            let began = clock::now();
            turn_events.record(events.len() as f64);
            if let Err(error) = core.turn(began, &mut events, &mut self.store, &mut effects) {
                store_failed(&error);
            }
            self.executor.carry_out(&mut effects);
            self.tell_booted();
            turn_seconds.record(clock::now().since(began).as_secs_f64());
        }
        // The threads that feed the core end when they find nobody at the other end of the queue.
        let Self { store: _, inputs, executor, booted: _ } = self;
        drop(inputs);
        drop(executor);
    }

    /// Waits until something happened or the core wants a turn, and takes what there is; `false`
    /// when the thread is to end.
    fn gather(&self, core: &Core<ReplyTo>, events: &mut Vec<Event<ReplyTo>>) -> bool {
        if events.is_empty() {
            let wait = core.next_wake().since(clock::now());
            match self.inputs.recv_timeout(wait) {
                Ok(input) => {
                    if !take(input, core, events) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        while events.len() < INPUTS_PER_TURN_MAX
            && let Ok(input) = self.inputs.try_recv()
        {
            if !take(input, core, events) {
                return false;
            }
        }
        true
    }

    fn tell_booted(&mut self) {
        if let Some(booted) = self.booted.take() {
            // Whoever started the node may have given up.
            let _ = booted.send(());
        }
    }
}

/// Takes one input; `false` when the thread is to end.
fn take(input: Input, core: &Core<ReplyTo>, events: &mut Vec<Event<ReplyTo>>) -> bool {
    match input {
        Input::Event(event) => events.push(event),
        // Whoever asked and left does not mind.
        Input::Summaries(reply) => drop(reply.send(core.summaries())),
        Input::Copies(reply) => drop(reply.send(core.copies())),
        Input::Stop => return false,
    }
    true
}
