//! Nodes that answer by script, over real loopback connections.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use placement::{
    NodeId, NodeName, NodeSpec, NodeState, PartitionBits, ReplicationFactor, RingSnapshot,
    SnapshotParts, TokenPolicy, Topology, Weight, Zone,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::{Client, ClientOptions, Endpoint};
use crate::headers::{KV_PARTITION, KV_RING_EPOCH, KV_ROUTE, KV_SERVED_BY, etag_value};
use crate::kv::{Directory, DirectoryNode, Health, RingDocument};
use crate::problem::{Problem, ProblemCode};

/// A request as a node saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn is_direct(&self) -> bool {
        self.headers.get(KV_ROUTE).is_some_and(|route| route == "direct")
    }
}

/// What a node does with a request.
pub enum Reply {
    Answer(Response<Bytes>),
    /// Close the connection without an answer.
    Reset,
    /// Never answer.
    Hang,
    /// Answer, then close the connection although the client would keep it.
    AnswerAndClose(Response<Bytes>),
}

type Script = Arc<dyn Fn(&Seen, usize) -> Reply + Send + Sync>;

/// One scripted node; key calls go to the script, `/v1/ring` is answered from the document.
pub struct MockNode {
    pub name: &'static str,
    pub address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    script: Arc<Mutex<Script>>,
    document: Arc<Mutex<Option<RingDocument>>>,
    task: JoinHandle<()>,
}

impl MockNode {
    pub async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let script: Script = Arc::new(|_, _| Reply::Answer(problem(ProblemCode::Internal)));
        let mut node = Self {
            name,
            address,
            seen: Arc::default(),
            connections: Arc::default(),
            script: Arc::new(Mutex::new(script)),
            document: Arc::default(),
            task: tokio::spawn(async {}),
        };
        let seen = Arc::clone(&node.seen);
        let connections = Arc::clone(&node.connections);
        let script = Arc::clone(&node.script);
        let document = Arc::clone(&node.document);
        node.task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let seen = Arc::clone(&seen);
                let script = Arc::clone(&script);
                let document = Arc::clone(&document);
                tokio::spawn(async move {
                    let service = service_fn(|request| {
                        answer(request, Arc::clone(&seen), Arc::clone(&script), &document)
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        node
    }

    /// Replaces the script; it gets the request and how many key calls came before it.
    pub fn reply(&self, script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    pub fn publish(&self, document: &RingDocument) {
        *self.document.lock().unwrap() = Some(document.clone());
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Stops listening; connections that are open stay.
    pub async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Arc<Mutex<Script>>,
    document: &Mutex<Option<RingDocument>>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/v1/ring" {
        let document = document.lock().unwrap().clone();
        return Ok(ring_answer(document).map(Full::new));
    }
    let body = body.collect().await.expect("a whole body").to_bytes();
    let path = head.uri.to_string();
    let call = Seen { method: head.method, path, headers: head.headers, body };
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(call.clone());
        seen.len() - 1
    };
    let script = Arc::clone(&*script.lock().unwrap());
    match script(&call, before) {
        Reply::Answer(answer) => Ok(answer.map(Full::new)),
        Reply::AnswerAndClose(mut answer) => {
            answer.headers_mut().insert("connection", "close".parse().unwrap());
            Ok(answer.map(Full::new))
        }
        Reply::Reset => Err("reset"),
        Reply::Hang => {
            std::future::pending::<Infallible>().await;
            unreachable!("a pending future never ends")
        }
    }
}

fn ring_answer(document: Option<RingDocument>) -> Response<Bytes> {
    match document {
        None => problem(ProblemCode::ClusterNotInitialised),
        Some(document) => {
            let json = serde_json::to_vec(&document).expect("a document serialises");
            Response::new(Bytes::from(json))
        }
    }
}

/// Three nodes in three zones under one ring of eight partitions.
pub struct MockCluster {
    pub nodes: Vec<MockNode>,
    pub document: RingDocument,
}

impl MockCluster {
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        for name in ["n1", "n2", "n3"] {
            nodes.push(MockNode::start(name).await);
        }
        let snapshot = RingSnapshot::publish(parts(7), None).expect("a legal ring");
        let document = RingDocument { snapshot, directory: directory(&nodes) };
        for node in &nodes {
            node.publish(&document);
        }
        Self { nodes, document }
    }

    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.nodes.iter().map(|node| node.address.parse().expect("an endpoint")).collect()
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.endpoints(), options()).await.expect("the mock cluster is up")
    }

    /// The primary of a key first, then the other nodes.
    pub fn by_ring(&self, key: &[u8]) -> [&MockNode; 3] {
        let ring = placement::Ring::new(Arc::new(self.document.snapshot.clone()));
        let owners: Vec<&MockNode> = ring
            .owner_ids(ring.partition_of(key))
            .map(|id| {
                let name = self.document.directory.by_id(id).expect("a member").name.clone();
                self.nodes.iter().find(|node| node.name == name.as_str()).expect("a mock")
            })
            .collect();
        owners.try_into().unwrap_or_else(|_| panic!("three nodes own every key"))
    }

    /// Lets every node acknowledge what it gets.
    pub fn all_acknowledge(&self) {
        for node in &self.nodes {
            let name = node.name;
            node.reply(move |_, _| Reply::Answer(acknowledged(name, 1)));
        }
    }

    /// How many key calls all nodes saw.
    pub fn calls(&self) -> usize {
        self.nodes.iter().map(|node| node.seen().len()).sum()
    }
}

pub fn options() -> ClientOptions {
    ClientOptions {
        deadline: Duration::from_millis(1500),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        ..ClientOptions::default()
    }
}

pub fn parts(activated_at_ms: u64) -> SnapshotParts {
    let specs = (1..=3u128).map(|number| NodeSpec {
        id: NodeId::from_u128(number),
        name: NodeName::parse(&format!("n{number}")).expect("a name"),
        zone: Zone::parse(&format!("z{number}")).expect("a zone"),
        weight: Weight::ONE,
        state: NodeState::Active,
    });
    let topology = Topology::new(specs.collect()).expect("a legal topology");
    let partition_bits = PartitionBits::new(3).expect("few bits");
    let replication_factor = ReplicationFactor::DEFAULT;
    let tokens = placement::allocate(
        &topology,
        partition_bits,
        replication_factor,
        8,
        None,
        TokenPolicy::Random,
    );
    let tokens = tokens.expect("tokens for three nodes");
    SnapshotParts { partition_bits, replication_factor, topology, tokens, activated_at_ms }
}

fn directory(nodes: &[MockNode]) -> Directory {
    let node = |(number, node): (u128, &MockNode)| DirectoryNode {
        id: NodeId::from_u128(number),
        name: NodeName::parse(node.name).expect("a name"),
        zone: Zone::parse(&format!("z{number}")).expect("a zone"),
        weight: 1,
        client_address: node.address.clone(),
        peer_address: "127.0.0.1:1".to_owned(),
        health: Health::Up,
    };
    Directory { revision: 1, nodes: (1..).zip(nodes).map(node).collect() }
}

/// 204 with a version, as a leader acknowledges a write.
pub fn acknowledged(name: &str, version: u64) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = http::StatusCode::NO_CONTENT;
    answer.headers_mut().insert("etag", etag_value(version));
    served_by(answer, name)
}

/// 200 with a value.
pub fn value(name: &str, bytes: &'static [u8]) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from_static(bytes));
    answer.headers_mut().insert("etag", etag_value(5));
    answer.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    served_by(answer, name)
}

pub fn problem(code: ProblemCode) -> Response<Bytes> {
    Problem::new(code, "as scripted").to_response(0)
}

/// 421 that names a leader.
pub fn not_leader(leader: Option<&DirectoryNode>) -> Response<Bytes> {
    let leader = leader.map(DirectoryNode::leader_hint);
    let problem = Problem::new(ProblemCode::NotLeader, "as scripted");
    problem.with_leader(leader, Vec::new()).to_response(0)
}

fn served_by(mut answer: Response<Bytes>, name: &str) -> Response<Bytes> {
    let headers = answer.headers_mut();
    headers.insert(KV_SERVED_BY, name.parse().unwrap());
    headers.insert(KV_RING_EPOCH, "1".parse().unwrap());
    headers.insert(KV_PARTITION, "3".parse().unwrap());
    answer
}

/// Waits for a condition, and says what was last seen if it does not come.
pub async fn wait_for<T: std::fmt::Debug>(what: impl Fn() -> T, holds: impl Fn(&T) -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let last = what();
        if holds(&last) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "last seen: {last:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
