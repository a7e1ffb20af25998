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

use crate::clock;
use crate::fatal::{AbortOnPanic, store_failed};
use crate::groups::{GroupTable, GroupWriter};
use crate::snapshots::SnapshotReceiver;
use crate::storage::{Database, StoreHandle, SyncThread};
use crate::transport::Peers;
use crate::view::ViewHandle;

use background::Background;
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
}

impl CoreThread {
    /// Starts the thread, and with it those that make writes durable and read the disk for it.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        let Self { config, boot, database, handle, inputs, view, groups, peers, alarms } = self;
        let sync = SyncThread::spawn(database.clone(), {
            let handle = handle.clone();
            move |sync| handle.tell(Event::Synced { sync })
        })?;
        let executor = Executor {
            view,
            groups: GroupWriter::new(groups),
            background: Background::spawn(config.node, &database, &handle)?,
            snapshots: SnapshotReceiver::new(peers.clone(), database.clone(), handle.clone()),
            peers,
            sync,
            alarms,
            outgoing: HashMap::new(),
        };
        let store = StoreHandle::new(database);
        std::thread::Builder::new().name("core".to_owned()).spawn(move || {
            let _abort = AbortOnPanic("the core's thread");
            run(config, boot, store, inputs, executor);
        })
    }
}

/// A node that was stopped between accepting a cluster and creating its replicas has the view on
/// disk and nothing else: taking the view again creates them. A view that came later is written in
/// the same batch as the replicas that follow from it.
fn view_to_adopt(boot: &mut Boot) -> Option<Arc<ClusterState>> {
    let untouched = boot.replicas.is_empty() && boot.tombstones.is_empty();
    if untouched { boot.view.take() } else { None }
}

fn run(
    config: CoreConfig,
    mut boot: Boot,
    mut store: StoreHandle,
    inputs: Receiver<Input>,
    mut executor: Executor,
) {
    let mut events = Vec::new();
    let mut effects = Vec::new();
    events.extend(view_to_adopt(&mut boot).map(Event::AdoptView));
    let mut core = Core::boot(config, boot, &mut effects);
    executor.carry_out(&mut effects);
    let turn_seconds: Histogram = histogram!("ringkv_core_turn_seconds");
    let turn_events: Histogram = histogram!("ringkv_core_events_per_turn");
    loop {
        let mut stopping = false;
        let mut take = |input, events: &mut Vec<_>| match input {
            Input::Event(event) => events.push(event),
            // Whoever asked and left does not mind.
            Input::Summaries(reply) => drop(reply.send(core.summaries())),
            Input::Stop => stopping = true,
        };
        if events.is_empty() {
            let wait = core.next_wake().since(clock::now());
            match inputs.recv_timeout(wait) {
                Ok(input) => take(input, &mut events),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        while events.len() < INPUTS_PER_TURN_MAX
            && let Ok(input) = inputs.try_recv()
        {
            take(input, &mut events);
        }
        if stopping {
            break;
        }
        let began = clock::now();
        turn_events.record(events.len() as f64);
        if let Err(error) = core.turn(began, &mut events, &mut store, &mut effects) {
            store_failed(&error);
        }
        executor.carry_out(&mut effects);
        turn_seconds.record(clock::now().since(began).as_secs_f64());
    }
    // The threads that feed the core end when they find nobody at the other end of the queue.
    drop(inputs);
    drop(executor);
}
