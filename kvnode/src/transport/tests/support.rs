//! Nodes that are nothing but their connections.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvcore::ClusterId;
use kvcore::cluster::{ClusterState, Founding, Registration, found};
use kvcore::message::PeerMessage;
use placement::{
    Epoch, NodeId, NodeName, PartitionBits, ReplicationFactor, TokenPolicy, Weight, Zone,
};
use tokio::net::TcpListener;

use crate::identity::LocalNode;
use crate::transport::{
    Answerer, Identity, Listener, PeerAnswer, PeerRefusal, PeerRequest, PeerService,
};
use crate::view::ViewHandle;

pub const CLUSTER: ClusterId = ClusterId(0xc1);

pub fn registration(number: u128, address: &str) -> Registration {
    Registration {
        id: NodeId::from_u128(number),
        name: NodeName::parse(&format!("n{number}")).unwrap(),
        zone: Zone::parse(&format!("z{number}")).unwrap(),
        weight: Weight::new(1).unwrap(),
        client_address: "127.0.0.1:1".to_owned(),
        peer_address: address.to_owned(),
    }
}

/// A state of a cluster of these nodes.
pub fn state(cluster: ClusterId, founders: Vec<Registration>) -> ClusterState {
    found(&Founding {
        cluster,
        founders,
        partition_bits: PartitionBits::new(2).unwrap(),
        replication_factor: ReplicationFactor::new(3).unwrap(),
        vnodes_per_node: 4,
        policy: TokenPolicy::Random,
        now_ms: 1,
    })
    .unwrap()
}

/// A member of the cluster that `state` describes.
pub fn member(own: Registration, state: &ClusterState) -> LocalNode {
    let view = ViewHandle::new();
    view.publish(Arc::new(state.clone()));
    LocalNode::new(own, Some(state.cluster), view)
}

/// A socket on a free port of the loopback interface, and its address.
pub async fn socket() -> (TcpListener, String) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// What a test service does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Names the sender's own request in the answer, after holding a few back and turning them round.
    Reverse,
    /// Keeps every request for ever.
    Silent,
}

/// A service that remembers what came.
#[derive(Debug)]
pub struct Recorder {
    pub manner: Manner,
    pub local: LocalNode,
    pub messages: Mutex<Vec<(NodeId, PeerMessage)>>,
    pub frames: Mutex<usize>,
    pub held: Mutex<Vec<(PeerRequest, Answerer)>>,
    pub epochs: Mutex<Vec<Epoch>>,
}

impl Recorder {
    pub fn new(local: LocalNode, manner: Manner) -> Arc<Self> {
        Arc::new(Self {
            manner,
            local,
            messages: Mutex::default(),
            frames: Mutex::default(),
            held: Mutex::default(),
            epochs: Mutex::default(),
        })
    }

    pub fn message_count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    pub fn listen(self: &Arc<Self>, socket: TcpListener) -> Listener {
        let service: Arc<dyn PeerService> = self.clone();
        Listener::start(socket, self.local.clone(), service).unwrap()
    }
}

/// Requests that the reversing service collects before it answers.
pub const REVERSED: usize = 8;

impl PeerService for Recorder {
    fn messages(&self, from: NodeId, messages: Vec<PeerMessage>) {
        *self.frames.lock().unwrap() += 1;
        self.messages.lock().unwrap().extend(messages.into_iter().map(|it| (from, it)));
    }

    fn request(&self, _: NodeId, request: PeerRequest, _: Instant, answerer: Answerer) {
        if request == PeerRequest::Identify {
            let registration = self.local.registration().clone();
            let identity = Identity { registration, cluster: self.local.cluster() };
            answerer.answer(PeerAnswer::Identity(Box::new(identity)));
            return;
        }
        let mut held = self.held.lock().unwrap();
        held.push((request, answerer));
        if self.manner == Manner::Reverse && held.len() == REVERSED {
            for (request, answerer) in held.drain(..).rev() {
                let PeerRequest::FetchView { newer_than } = request else { continue };
                // The number of the request comes back in an answer of another kind.
                let reason = newer_than.to_string();
                answerer.refuse(PeerRefusal::Storage { reason });
            }
        }
    }

    fn epoch_seen(&self, _: NodeId, _: &str, epoch: Epoch) {
        self.epochs.lock().unwrap().push(epoch);
    }
}

/// Waits for a condition, and fails when it does not come.
pub async fn wait_for(what: &str, mut check: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
