use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kvapi::headers::KV_ROUTE;
use kvapi::{Directory, DirectoryNode, Health, ProblemCode, RingDocument};
use placement::{
    NodeId, NodeName, NodeSpec, NodeState, PartitionBits, ReplicationFactor, RingSnapshot,
    SnapshotParts, TokenPolicy, Topology, Weight, Zone,
};
use tokio::net::TcpListener;

use super::*;
use crate::bench::plan::{Distribution, PlanOptions};
use crate::bench::tally::Report;

/// What a node of these tests does with every request.
#[derive(Clone)]
enum Manner {
    /// It leads every partition.
    Leads,
    /// It names this node.
    Names(DirectoryNode),
    /// It names this node to so many requests, and leads from then on.
    NamesAtFirst(DirectoryNode, u64),
    /// It refuses with this code.
    Refuses(ProblemCode),
    /// It takes the request and closes the connection.
    Breaks,
    /// It never answers.
    Hangs,
}

async fn node(listener: TcpListener, manner: Manner, calls: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (manner, calls) = (manner.clone(), Arc::clone(&calls));
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, manner.clone(), &calls));
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    manner: Manner,
    calls: &AtomicU64,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let earlier = calls.fetch_add(1, Ordering::SeqCst);
    assert_eq!(request.headers().get(KV_ROUTE).map(|value| value.as_bytes()), Some(&b"direct"[..]));
    let _ = request.into_body().collect().await;
    let refused = |code| Problem::new(code, "as told");
    Ok(match manner {
        Manner::NamesAtFirst(_, count) if earlier >= count => Response::new(Full::default()),
        Manner::Leads => Response::new(Full::default()),
        Manner::Names(leader) | Manner::NamesAtFirst(leader, _) => {
            let refusal = refused(ProblemCode::NotLeader);
            refusal.with_leader(Some(leader.leader_hint()), vec![]).to_response(0).map(Full::new)
        }
        Manner::Refuses(code) => refused(code).to_response(0).map(Full::new),
        Manner::Breaks => return Err("closed"),
        Manner::Hangs => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
    })
}

/// Two nodes with one copy of each of 16 partitions, and how often each was asked.
struct Pair {
    document: RingDocument,
    calls: [Arc<AtomicU64>; 2],
}

impl Pair {
    /// The second node leads nothing on its own account: the manners are given the directory.
    async fn start(manners: impl Fn(&[DirectoryNode]) -> [Manner; 2]) -> Self {
        let mut listeners = Vec::new();
        let mut nodes = Vec::new();
        for number in 1..=2u128 {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            nodes.push(DirectoryNode {
                id: NodeId::from_u128(number),
                name: NodeName::parse(&format!("n{number}")).expect("a name"),
                zone: Zone::parse("z").expect("a zone"),
                weight: 1,
                client_address: listener.local_addr().expect("an address").to_string(),
                peer_address: String::new(),
                health: Health::Up,
            });
            listeners.push(listener);
        }
        let calls = [Arc::default(), Arc::default()];
        for ((listener, manner), calls) in listeners.into_iter().zip(manners(&nodes)).zip(&calls) {
            tokio::spawn(node(listener, manner, Arc::clone(calls)));
        }
        let specs = nodes.iter().map(|node| NodeSpec {
            id: node.id,
            name: node.name.clone(),
            zone: node.zone.clone(),
            weight: Weight::ONE,
            state: NodeState::Active,
        });
        let topology = Topology::new(specs.collect()).expect("a legal topology");
        let partition_bits = PartitionBits::new(4).expect("few bits");
        let replication_factor = ReplicationFactor::new(2).expect("two copies");
        let policy = TokenPolicy::Random;
        let tokens =
            placement::allocate(&topology, partition_bits, replication_factor, 16, None, policy);
        let tokens = tokens.expect("tokens for two nodes");
        let parts = SnapshotParts {
            partition_bits,
            replication_factor,
            topology,
            tokens,
            activated_at_ms: 0,
        };
        let snapshot = RingSnapshot::publish(parts, None).expect("a legal ring");
        let document = RingDocument { snapshot, directory: Directory { revision: 1, nodes } };
        Self { document, calls }
    }

    /// Lets one worker write each of 64 keys once.
    async fn write_all(&self, pace: Pace) -> Report {
        let table = Arc::new(RouteTable::new(self.document.clone()));
        let plan = Plan::new(PlanOptions {
            seed: 1,
            keys: 64,
            read_share: 0.0,
            distribution: Distribution::Uniform,
            value_bytes: 8,
            key_prefix: "k".to_owned(),
        });
        let load = Load {
            plan,
            route: Route::Ring(Arc::new(Routes::new(table))),
            pace,
            next: AtomicU64::new(0),
            timeout: Duration::from_millis(100),
            read_query: "",
            is_ended: Arc::default(),
        };
        let tally = Arc::new(Mutex::new(Tally::new()));
        Worker::new(Arc::new(load), Arc::clone(&tally), 0).run().await;
        let tally = tally.lock().expect("no worker panicked");
        tally.report(Duration::from_secs(1))
    }

    fn calls(&self) -> [u64; 2] {
        [0, 1].map(|node| self.calls[node].load(Ordering::SeqCst))
    }
}

fn briefly() -> Pace {
    Pace::Closed(Instant::now() + Duration::from_millis(60))
}

#[tokio::test]
async fn requests_go_to_the_primary_of_each_key() {
    let pair = Pair::start(|_| [Manner::Leads, Manner::Leads]).await;
    let report = pair.write_all(Pace::Preload).await;
    assert_eq!((report.operations, report.redirects), (64, 0));
    let [first, second] = pair.calls();
    assert!(first > 5 && second > 5 && first + second == 64, "{first} and {second}");
}

#[tokio::test]
async fn a_leader_that_a_refusal_names_is_remembered_for_its_partition() {
    let pair = Pair::start(|nodes| [Manner::Names(nodes[1].clone()), Manner::Leads]).await;
    let report = pair.write_all(Pace::Preload).await;
    assert_eq!(report.operations, 64);
    assert!(report.errors.is_empty(), "{report:?}");
    let [asked_in_vain, led] = pair.calls();
    assert_eq!(led, 64);
    assert!((1..=16).contains(&asked_in_vain), "once per partition, not {asked_in_vain} times");
    assert_eq!(report.redirects, asked_in_vain);
}

#[tokio::test]
async fn an_operation_waits_while_a_leader_changes() {
    let pair = Pair::start(|nodes| {
        [Manner::Names(nodes[1].clone()), Manner::NamesAtFirst(nodes[0].clone(), 7)]
    })
    .await;
    let report = pair.write_all(Pace::Preload).await;
    assert_eq!(report.operations, 64);
    assert!(report.errors.is_empty(), "{report:?}");
    let [asked_in_vain, asked_of_the_leader] = pair.calls();
    assert_eq!(asked_of_the_leader, 64 + 7);
    assert_eq!(report.redirects, asked_in_vain + 7);
}

#[tokio::test]
async fn nodes_that_name_each_other_end_an_operation_and_not_the_run() {
    let pair =
        Pair::start(|nodes| [Manner::Names(nodes[1].clone()), Manner::Names(nodes[0].clone())])
            .await;
    let report = pair.write_all(briefly()).await;
    assert_eq!(report.operations, 0);
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["too-many-redirects"]);
}

#[tokio::test]
async fn failures_are_counted_by_kind() {
    let table = [
        (Manner::Refuses(ProblemCode::Overloaded), "retryable-503"),
        (Manner::Refuses(ProblemCode::OutcomeUnknown), "outcome-unknown"),
        (Manner::Refuses(ProblemCode::Internal), "status-500"),
        (Manner::Breaks, "connection-broken"),
        (Manner::Hangs, "timeout"),
    ];
    for (manner, kind) in table {
        let pair = Pair::start(|_| [manner.clone(), manner.clone()]).await;
        let report = pair.write_all(briefly()).await;
        assert_eq!(report.operations, 0, "{kind}");
        assert_eq!(report.errors.keys().collect::<Vec<_>>(), [kind]);
        let sent: u64 = pair.calls().iter().sum();
        assert_eq!(sent, report.errors[kind], "{kind}: nothing is sent twice");
    }
}
