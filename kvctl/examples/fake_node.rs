//! A node without Raft and disk, for testing `kvctl` alone: it takes a node's flags, remembers in a
//! file beside its directory whether the cluster was founded, and keeps keys in memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kvapi::headers::{KV_PARTITION, KV_SERVED_BY, etag_value};
use kvapi::{
    InitAnswer, KeyPath, NodeInfo, NodeStage, Precondition, Problem, ProblemCode, RedundancyStatus,
};
use placement::{Epoch, NodeId, NodeName, PartitionId, Zone};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

struct Node {
    name: NodeName,
    zone: Zone,
    client_address: String,
    peer_address: String,
    /// Shared by all nodes of a test: its presence means that the cluster was founded.
    founded: PathBuf,
    /// Shared, too: `METHOD path` with `_` for `/`, such as `GET_v1_admin_plan`, is what is answered
    /// to that call, a problem with its status; what was posted is kept beside it, as `asked-...`.
    answers: PathBuf,
    store: Mutex<Store>,
}

/// Keys with their versions, and the last version given.
#[derive(Default)]
struct Store {
    last_version: u64,
    values: HashMap<Bytes, (u64, Bytes)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).cloned().ok_or(format!("{name} is missing"))
    };
    if arguments.iter().any(|argument| argument == "--fail") {
        return Err("told to fail".into());
    }
    let data_dir = PathBuf::from(flag("--data-dir")?);
    let node = Arc::new(Node {
        name: flag("--name")?.parse()?,
        zone: flag("--zone")?.parse()?,
        client_address: flag("--client-addr")?,
        peer_address: flag("--peer-addr")?,
        founded: data_dir.join("../../founded"),
        answers: data_dir.join("../../answers"),
        store: Mutex::default(),
    });
    let is_stubborn = arguments.iter().any(|argument| argument == "--stubborn");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&node.client_address).await?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let node = Arc::clone(&node);
                    tokio::spawn(async move {
                        let service = service_fn(|request| answer(Arc::clone(&node), request));
                        let stream = TokioIo::new(accepted?.0);
                        // A client that goes away is no event.
                        let _ = http1::Builder::new().serve_connection(stream, service).await;
                        Ok::<(), std::io::Error>(())
                    });
                }
                _ = terminate.recv(), if !is_stubborn => return Ok(()),
            }
        }
    })
}

async fn answer(
    node: Arc<Node>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // A body that breaks off is as good as none here.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let is_founded = node.founded.exists();
    let path = head.uri.path();
    let answer = match path {
        "/livez" => text(StatusCode::OK, "alive"),
        "/readyz" if is_founded => text(StatusCode::OK, "ready"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not initialised"),
        "/v1/admin/node" => json(&info(&node, is_founded)),
        "/v1/admin/init" if is_founded => {
            problem(Problem::new(ProblemCode::AlreadyInitialised, "by an earlier run"))
        }
        "/v1/admin/init" => {
            let nodes = vec![node.name.clone()];
            match std::fs::write(&node.founded, body) {
                Ok(()) => json(&InitAnswer {
                    cluster_id: "c1".into(),
                    epoch: Epoch::new(1),
                    nodes,
                    redundancy: RedundancyStatus::default(),
                }),
                Err(error) => problem(Problem::new(ProblemCode::Internal, error.to_string())),
            }
        }
        _ if !is_founded => {
            problem(Problem::new(ProblemCode::ClusterNotInitialised, "no data yet"))
        }
        path if path.starts_with("/v1/admin/") || path == "/v1/ring" => canned(&node, &head, &body),
        path => match KeyPath::split(path).map(|path| path.key()) {
            Some(Ok(key)) => key_call(&node, &head, key, body),
            Some(Err(error)) => problem(Problem::new(ProblemCode::MalformedKey, error.to_string())),
            None => problem(Problem::new(ProblemCode::NoSuchRoute, path)),
        },
    };
    Ok(answer.map(Full::new))
}

/// What a test wants answered.
fn canned(node: &Node, head: &http::request::Parts, body: &Bytes) -> Response<Bytes> {
    let name = format!("{}{}", head.method, head.uri.path().replace('/', "_"));
    if head.method == Method::POST && std::fs::create_dir_all(&node.answers).is_ok() {
        // A test that looks for the file fails without it.
        let _ = std::fs::write(node.answers.join(format!("asked-{name}")), body);
    }
    let Ok(answer) = std::fs::read(node.answers.join(&name)) else {
        return problem(Problem::new(ProblemCode::NoSuchRoute, name));
    };
    match serde_json::from_slice::<Problem>(&answer) {
        Ok(refusal) if !refusal.type_uri.is_empty() => problem(refusal),
        Ok(_) | Err(_) => Response::new(Bytes::from(answer)),
    }
}

fn key_call(node: &Node, head: &http::request::Parts, key: Bytes, body: Bytes) -> Response<Bytes> {
    let mut store = node.store.lock().unwrap_or_else(PoisonError::into_inner);
    let Store { last_version, values } = &mut *store;
    let current = values.get(&key).map(|(version, _)| *version);
    let holds = match (Precondition::for_put(&head.headers), current) {
        (Err(error), _) => {
            return problem(Problem::new(ProblemCode::MalformedCondition, error.to_string()));
        }
        (Ok(Precondition::None), _) => true,
        (Ok(Precondition::Absent), current) => current.is_none(),
        (Ok(Precondition::Exists), current) => current.is_some(),
        (Ok(Precondition::Version(version)), current) => current == Some(version),
    };
    if !holds && head.method != Method::GET {
        let refusal = Problem::new(ProblemCode::PreconditionFailed, "another version");
        return problem(match current {
            Some(version) => refusal.with_version(version),
            None => refusal,
        });
    }
    let mut answer = Response::new(Bytes::new());
    if head.method == Method::PUT {
        *last_version += 1;
        values.insert(key, (*last_version, body));
        *answer.status_mut() = StatusCode::NO_CONTENT;
        answer.headers_mut().insert("etag", etag_value(*last_version));
    } else if head.method == Method::DELETE {
        values.remove(&key);
        *answer.status_mut() = StatusCode::NO_CONTENT;
    } else {
        let Some((version, value)) = values.get(&key) else {
            return problem(Problem::new(ProblemCode::NotFound, "no such key"));
        };
        *answer.body_mut() = value.clone();
        answer.headers_mut().insert("etag", etag_value(*version));
    }
    if let Ok(name) = node.name.as_str().parse() {
        answer.headers_mut().insert(KV_SERVED_BY, name);
    }
    answer.headers_mut().insert(KV_PARTITION, PartitionId::new(0).get().into());
    answer
}

fn info(node: &Node, is_founded: bool) -> NodeInfo {
    let number = node.name.as_str().trim_start_matches('n').parse().unwrap_or(0);
    NodeInfo {
        cluster_id: is_founded.then(|| "c1".to_owned()),
        id: NodeId::from_u128(number),
        name: node.name.clone(),
        zone: node.zone.clone(),
        weight: 1,
        client_address: node.client_address.clone(),
        peer_address: node.peer_address.clone(),
        stage: if is_founded { NodeStage::Member } else { NodeStage::Uninitialised },
        epoch: Epoch::new(u64::from(is_founded)),
        view_revision: 1,
        view_age_ms: 0,
        partitions: 0,
        leaders: 0,
        replicas: None,
        log_bytes: 0,
        data_bytes: 0,
        disk_available: 0,
        disk_total: 0,
        disk_ok: true,
        version: "fake".to_owned(),
        unix_ms: 0,
        alarms: Vec::new(),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from_static(text.as_bytes()));
    *answer.status_mut() = status;
    answer
}

fn json(document: &impl serde::Serialize) -> Response<Bytes> {
    match serde_json::to_vec(document) {
        Ok(json) => Response::new(Bytes::from(json)),
        Err(error) => problem(Problem::new(ProblemCode::Internal, error.to_string())),
    }
}

fn problem(problem: Problem) -> Response<Bytes> {
    problem.to_response(0)
}
