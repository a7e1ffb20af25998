//! The router between a core and peers that do as they are told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::message::PeerMessage;
use kvcore::store::{Command, Condition, WriteOutcome};
use kvcore::{Event, NotLeader, Refusal, Reply, Version};
use placement::{Epoch, NodeId};
use tempfile::TempDir;

use super::{Consistency, LocalStore, Outcome, ReadCounters, RequestError, RequestOptions, Router};
use crate::core_thread::{CoreHandle, Input, ReplyTo};
use crate::groups::GroupTable;
use crate::storage::{Database, DiskGuard, StorageSettings};
use crate::transport::tests::support::{CLUSTER, member, registration, socket, state};
use crate::transport::{
    Answerer, Listener, PeerAnswer, PeerRefusal, PeerRequest, PeerService, Peers,
};

/// What a node does with the next request for a key.
#[derive(Debug)]
enum Reaction {
    /// Applies it.
    Apply,
    /// Does not lead, and names who does.
    Name(Option<u128>),
    /// Refuses it.
    Refuse(PeerRefusal),
    /// Takes it and never answers.
    Hold,
}

/// Reactions of one node, in order; the last one is for all that follow.
#[derive(Clone, Debug, Default)]
struct Script {
    reactions: Arc<Mutex<VecDeque<Reaction>>>,
    asked: Arc<Mutex<usize>>,
    held: Arc<Mutex<Vec<Answerer>>>,
}

impl Script {
    fn new(reactions: impl IntoIterator<Item = Reaction>) -> Self {
        let reactions = Arc::new(Mutex::new(reactions.into_iter().collect()));
        Self { reactions, ..Self::default() }
    }

    fn next(&self) -> Reaction {
        *self.asked.lock().unwrap() += 1;
        let mut reactions = self.reactions.lock().unwrap();
        reactions.pop_front().unwrap_or(Reaction::Name(None))
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

#[derive(Debug)]
struct Peer {
    script: Script,
}

impl PeerService for Peer {
    fn messages(&self, _: NodeId, _: Vec<PeerMessage>) {}

    fn request(&self, _: NodeId, request: PeerRequest, _: Instant, answerer: Answerer) {
        match self.script.next() {
            Reaction::Apply if matches!(request, PeerRequest::Read { .. }) => {
                answerer.answer(PeerAnswer::Value { record: None, staleness_ms: None });
            }
            Reaction::Apply => {
                answerer.answer(PeerAnswer::Written(WriteOutcome::Put(Version(7))));
            }
            Reaction::Name(leader) => {
                let leader = leader.map(NodeId::from_u128);
                answerer.refuse(PeerRefusal::NotLeader { leader, epoch: Epoch::new(1) });
            }
            Reaction::Refuse(refusal) => answerer.refuse(refusal),
            Reaction::Hold => self.script.held.lock().unwrap().push(answerer),
        }
    }

    fn epoch_seen(&self, _: NodeId, _: &str, _: Epoch) {}
}

/// Stands in for the core of node 1.
fn fake_core(script: Script) -> CoreHandle {
    let (handle, inputs) = CoreHandle::new();
    std::thread::spawn(move || {
        let mut held: Vec<ReplyTo> = Vec::new();
        for input in inputs {
            let Input::Event(Event::Write { reply, .. } | Event::Read { reply, .. }) = input else {
                continue;
            };
            let answer = match script.next() {
                Reaction::Apply => Reply::Written(WriteOutcome::Put(Version(7))),
                Reaction::Name(leader) => {
                    Reply::NotLeader(NotLeader { leader: leader.map(NodeId::from_u128) })
                }
                Reaction::Refuse(PeerRefusal::Overwritten) => Reply::Refused(Refusal::Overwritten),
                Reaction::Refuse(_) => Reply::Refused(Refusal::Overloaded),
                Reaction::Hold => {
                    held.push(reply);
                    continue;
                }
            };
            reply.answer(answer, Epoch::new(1));
        }
    });
    handle
}

/// Node 1 with its router; nodes 2 and 3 beside it.
struct Setup {
    router: Router,
    scripts: [Script; 3],
    listeners: Vec<Listener>,
    _dir: TempDir,
}

async fn setup(scripts: [Script; 3]) -> Setup {
    let dir = TempDir::new().unwrap();
    let settings = StorageSettings {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        ..StorageSettings::default()
    };
    let (database, _, _) = Database::open(&dir.path().join("store"), settings).unwrap();
    let mut registrations = vec![registration(1, "127.0.0.1:1")];
    let mut sockets = Vec::new();
    for number in [2, 3] {
        let (socket, address) = socket().await;
        registrations.push(registration(number, &address));
        sockets.push(socket);
    }
    let state = state(CLUSTER, registrations.clone());
    let mut listeners = Vec::new();
    for (place, socket) in (1..).zip(sockets) {
        let service = Arc::new(Peer { script: scripts[place].clone() });
        let local = member(registrations[place].clone(), &state);
        listeners.push(Listener::start(socket, local, service).unwrap());
    }
    let local = member(registrations.swap_remove(0), &state);
    let peers = Peers::new(local.clone());
    let store = LocalStore {
        node: local.id(),
        view: local.view().clone(),
        groups: GroupTable::default(),
        core: fake_core(scripts[0].clone()),
        disk: Arc::new(DiskGuard::new(database.path(), 0)),
        database,
        value_bytes_max: 1000,
        renew_within: Duration::from_millis(100),
        counters: ReadCounters::default(),
        closing: Arc::default(),
    };
    Setup { router: Router::new(local, store, peers), scripts, listeners, _dir: dir }
}

/// A key whose owners are nodes in this order.
fn key_of(router: &Router, owners: &[u128]) -> Bytes {
    let wanted: Vec<_> = owners.iter().copied().map(NodeId::from_u128).collect();
    let view = router.view().unwrap();
    (0..10_000)
        .map(|number| Bytes::from(format!("key-{number}")))
        .find(|key| {
            let partition = view.ring.partition_of(key);
            let members = view.state.replicas_of(partition).iter().map(|member| member.node);
            members.take(wanted.len()).eq(wanted.iter().copied())
        })
        .expect("some partition has these owners first")
}

fn put(key: &Bytes) -> Command {
    Command::Put {
        key: key.clone(),
        value: Bytes::from_static(b"v"),
        content_type: None,
        condition: Condition::Always,
    }
}

fn within(timeout: Duration) -> RequestOptions {
    RequestOptions { direct: false, deadline: Instant::now() + timeout }
}

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_write_goes_to_the_leader_that_a_refusal_names() {
    let named = Script::new([Reaction::Name(Some(3))]);
    let leader = Script::new([Reaction::Apply, Reaction::Apply]);
    let setup = setup([Script::default(), named, leader]).await;
    let key = key_of(&setup.router, &[2]);
    let served = setup.router.write(put(&key), within(LONG)).await.unwrap();
    assert_eq!(served.value, WriteOutcome::Put(Version(7)));
    assert_eq!(served.served_by.as_str(), "n3");
    // The next one goes there at once.
    setup.router.write(put(&key), within(LONG)).await.unwrap();
    assert_eq!(setup.scripts.each_ref().map(Script::asked), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_outcome_is_unknown_is_not_sent_to_another_node() {
    let unknown = Script::new([Reaction::Refuse(PeerRefusal::OutcomeUnknown)]);
    let setup = setup([Script::default(), unknown, Script::new([Reaction::Apply])]).await;
    let key = key_of(&setup.router, &[2]);
    let error = setup.router.write(put(&key), within(LONG)).await.unwrap_err();
    assert_eq!(error, RequestError::OutcomeUnknown);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(setup.scripts.each_ref().map(Script::asked), [0, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_connection_breaks_after_it_was_sent_is_unknown() {
    let holding = Script::new([Reaction::Hold]);
    let mut setup = setup([Script::default(), holding, Script::new([Reaction::Apply])]).await;
    let key = key_of(&setup.router, &[2]);
    let listener = setup.listeners.remove(0);
    let script = setup.scripts[1].clone();
    let breaking = tokio::spawn(async move {
        while script.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(listener);
    });
    let error = setup.router.write(put(&key), within(LONG)).await.unwrap_err();
    breaking.await.unwrap();
    assert_eq!(error, RequestError::OutcomeUnknown);
    assert_eq!(setup.scripts[2].asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_answer_was_lost_is_asked_of_another_node() {
    let unknown = Script::new([Reaction::Refuse(PeerRefusal::OutcomeUnknown)]);
    let setup = setup([Script::default(), unknown, Script::new([Reaction::Apply])]).await;
    let key = key_of(&setup.router, &[2, 3]);
    let served = setup.router.read(key, Consistency::Linearizable, within(LONG)).await.unwrap();
    assert_eq!(served.value, None);
    assert_eq!(served.served_by.as_str(), "n3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_hangs_is_asked_of_another_node() {
    let hanging = Script::new([Reaction::Hold]);
    let setup = setup([Script::default(), hanging, Script::new([Reaction::Apply])]).await;
    let key = key_of(&setup.router, &[2, 3]);
    let served = setup.router.read(key, Consistency::Linearizable, within(LONG)).await.unwrap();
    assert_eq!(served.served_by.as_str(), "n3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_about_to_stop_sends_requests_elsewhere() {
    let here = Script::new([Reaction::Apply]);
    let setup = setup([here, Script::new([Reaction::Apply]), Script::default()]).await;
    let key = key_of(&setup.router, &[1, 2]);
    setup.router.close();
    let served = setup.router.write(put(&key), within(LONG)).await.unwrap();
    assert_eq!(served.served_by.as_str(), "n2");
    assert_eq!(setup.scripts[0].asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_cannot_be_reached_is_passed_over() {
    let mut setup =
        setup([Script::default(), Script::default(), Script::new([Reaction::Apply])]).await;
    let key = key_of(&setup.router, &[2, 3]);
    drop(setup.listeners.remove(0));
    let served = setup.router.write(put(&key), within(LONG)).await.unwrap();
    assert_eq!(served.served_by.as_str(), "n3");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_a_write_is_refused_as_not_applied() {
    let setup = setup([Script::default(), Script::default(), Script::default()]).await;
    let key = key_of(&setup.router, &[2]);
    let began = Instant::now();
    let error = setup.router.write(put(&key), within(SHORT)).await.unwrap_err();
    assert!(matches!(error, RequestError::NoLeader { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(began.elapsed() < SHORT + Duration::from_secs(1));
    assert!(setup.scripts.iter().all(|script| (2..40).contains(&script.asked())));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_proposed_here_and_not_decided_in_time_is_unknown() {
    let setup = setup([Script::new([Reaction::Hold]), Script::default(), Script::default()]).await;
    let key = key_of(&setup.router, &[1]);
    let error = setup.router.write(put(&key), within(SHORT)).await.unwrap_err();
    assert_eq!(error, RequestError::OutcomeUnknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overwritten_command_is_tried_again() {
    let here = Script::new([Reaction::Refuse(PeerRefusal::Overwritten), Reaction::Name(Some(2))]);
    let setup = setup([here, Script::new([Reaction::Apply]), Script::default()]).await;
    let key = key_of(&setup.router, &[1, 2]);
    let served = setup.router.write(put(&key), within(LONG)).await.unwrap();
    assert_eq!(served.served_by.as_str(), "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_elsewhere_is_said_at_once() {
    let full = Script::new([Reaction::Refuse(PeerRefusal::Overloaded)]);
    let setup = setup([Script::default(), full, Script::new([Reaction::Apply])]).await;
    let key = key_of(&setup.router, &[2]);
    let error = setup.router.write(put(&key), within(LONG)).await.unwrap_err();
    assert_eq!(error, RequestError::Overloaded);
    assert_eq!(setup.scripts[2].asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_write_is_executed_here_or_refused() {
    let here = Script::new([Reaction::Name(Some(3)), Reaction::Apply]);
    let setup = setup([here, Script::new([Reaction::Apply]), Script::default()]).await;
    let key = key_of(&setup.router, &[2]);
    let direct = RequestOptions { direct: true, ..within(LONG) };
    let error = setup.router.write(put(&key), direct).await.unwrap_err();
    let RequestError::NotLeader { leader, owners, .. } = error else { panic!("{error:?}") };
    assert_eq!(leader, Some(NodeId::from_u128(3)));
    assert_eq!(owners.len(), 3);
    setup.router.write(put(&key), direct).await.unwrap();
    assert_eq!(setup.scripts[1].asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_a_limit_goes_nowhere() {
    let setup = setup([Script::default(), Script::default(), Script::default()]).await;
    let key = key_of(&setup.router, &[2]);
    let long = Command::Put {
        key,
        value: Bytes::from(vec![0; 1001]),
        content_type: None,
        condition: Condition::Always,
    };
    let error = setup.router.write(long, within(LONG)).await.unwrap_err();
    assert_eq!(error, RequestError::ValueTooLarge { bytes: 1001, bytes_max: 1000 });
    let empty = put(&Bytes::new());
    let error = setup.router.write(empty, within(LONG)).await.unwrap_err();
    assert_eq!(error, RequestError::KeyLength { bytes: 0 });
    let long_key = Bytes::from(vec![b'k'; 4097]);
    let read = setup.router.read(long_key, Consistency::Stale, within(LONG)).await;
    assert_eq!(read.unwrap_err(), RequestError::KeyLength { bytes: 4097 });
    assert_eq!(setup.scripts.each_ref().map(Script::asked), [0, 0, 0]);
}
