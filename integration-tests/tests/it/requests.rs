//! Requests byte by byte against real nodes: what stands in the contract, through a node of each kind.
//!
//! The long table is tested against the HTTP face alone, in its crate; here stands one row of each
//! sort, asked at every node, so that forwarding is part of it.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::wire::{Connection, Reply};
use kvapi::paths::{encode_key64, percent_encode};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// A request and what must come back.
struct Row {
    line: String,
    headers: &'static str,
    body: Vec<u8>,
    status: u16,
    /// Code of the problem; empty where the answer is none.
    code: &'static str,
}

fn row(line: &str, headers: &'static str, body: &[u8], status: u16, code: &'static str) -> Row {
    Row { line: line.to_owned(), headers, body: body.to_vec(), status, code }
}

/// In this order, on a key that is fresh at each node: `{k}` stands for it.
fn rows() -> Vec<Row> {
    let long = "%41".repeat(4097);
    vec![
        row("GET /v1/kv/{k}", "", b"", 404, "not-found"),
        row("HEAD /v1/kv/{k}", "", b"", 404, ""),
        row("DELETE /v1/kv/{k}", "", b"", 204, ""),
        row("DELETE /v1/kv/{k}", "If-Match: \"1\"\r\n", b"", 412, "precondition-failed"),
        row("PUT /v1/kv/{k}", "If-Match: *\r\n", b"v", 412, "precondition-failed"),
        row("PUT /v1/kv/{k}", "If-None-Match: *\r\nContent-Type: text/x\r\n", b"first", 204, ""),
        row("PUT /v1/kv/{k}", "If-None-Match: *\r\n", b"v", 412, "precondition-failed"),
        row("GET /v1/kv/{k}", "", b"", 200, ""),
        row("HEAD /v1/kv/{k}", "", b"", 200, ""),
        row("GET /v1/kv/{k}", "If-None-Match: *\r\n", b"", 304, ""),
        row("GET /v1/kv/{k}?consistency=linearizable", "", b"", 200, ""),
        row("GET /v1/kv/{k}?consistency=eventual", "", b"", 400, "malformed-request"),
        row("GET /v1/kv/{k}?color=red", "", b"", 400, "malformed-request"),
        row("PUT /v1/kv/{k}", "If-Match: W/\"1\"\r\n", b"v", 400, "malformed-condition"),
        row("PUT /v1/kv/{k}", "If-Match: \"1\", \"2\"\r\n", b"v", 400, "malformed-condition"),
        row(
            "PUT /v1/kv/{k}",
            "If-Match: *\r\nIf-None-Match: *\r\n",
            b"v",
            400,
            "malformed-condition",
        ),
        row("PUT /v1/kv/{k}?ttl=5", "", b"v", 501, "not-implemented"),
        row("PUT /v1/kv/{k}", "Idempotency-Key: a\r\n", b"v", 501, "not-implemented"),
        row("PUT /v1/kv/{k}", "", b"", 204, ""),
        row("PATCH /v1/kv/{k}", "", b"", 405, "method-not-allowed"),
        row("POST /v1/kv/{k}", "", b"v", 405, "method-not-allowed"),
        row("PUT /v1/kv/", "", b"v", 400, "empty-key"),
        row("PUT /v1/kv64/", "", b"v", 400, "empty-key"),
        row("PUT /v1/kv/a%zz", "", b"v", 400, "malformed-key"),
        row("PUT /v1/kv/a%4", "", b"v", 400, "malformed-key"),
        row("PUT /v1/kv64/a=", "", b"v", 400, "malformed-key"),
        row(&format!("PUT /v1/kv/{long}"), "", b"v", 414, "key-too-long"),
        row("GET /v1/nothing", "", b"", 404, "no-such-route"),
        row("PUT /v1/kv/{k}", "", &vec![b'v'; (1 << 20) - 1], 204, ""),
        row("PUT /v1/kv/{k}", "", &vec![b'v'; 1 << 20], 204, ""),
        row("PUT /v1/kv/{k}", "", &vec![b'v'; (1 << 20) + 1], 413, "value-too-large"),
        row("PUT /v1/kv/{k}", "Expect: 100-continue\r\n", b"expected", 204, ""),
        row("GET /v1/ring", "", b"", 200, ""),
        row("GET /v1/ring?after_epoch=1&wait=100ms", "", b"", 304, ""),
        row("GET /v1/locate/{k}", "", b"", 200, ""),
        row("GET /v1/kv?prefix=a", "", b"", 501, "not-implemented"),
        row(
            "POST /v1/admin/init",
            "Content-Type: text/plain\r\n",
            b"{}",
            415,
            "unsupported-media-type",
        ),
        row(
            "POST /v1/admin/init",
            "Content-Type: application/json\r\n",
            b"{",
            400,
            "malformed-request",
        ),
        row("GET /version", "", b"", 200, ""),
        row("GET /metrics", "", b"", 200, ""),
        row("GET /openapi.json", "", b"", 200, ""),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_as_the_contract_says_by_every_node() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions { nodes: 4, ..ClusterOptions::default() }).await?;
    for node in cluster.nodes() {
        let mut connection = Connection::open(&node.client_address()).await?;
        let key = format!("row-{}", node.name);
        for row in rows() {
            let line = row.line.replace("{k}", &key);
            let reply = ask(&mut connection, &line, row.headers, &row.body).await;
            let what = || format!("{} {:.80} {:?}", node.name, line, row.headers);
            let reply = reply.with_context(what)?;
            check(&row, &reply).with_context(what)?;
            if reply.header("connection") == Some("close") {
                connection = Connection::open(&node.client_address()).await?;
            }
        }
    }
    cluster.finish()
}

fn check(row: &Row, reply: &Reply) -> anyhow::Result<()> {
    ensure!(reply.status == row.status, "answered with {reply}");
    ensure!(reply.header("kv-ring-epoch") == Some("1"), "the epoch: {reply:?}");
    if !row.code.is_empty() {
        let problem = reply.problem().with_context(|| format!("no problem: {reply:?}"))?;
        ensure!(problem.code.as_str() == row.code, "{problem:?}");
        ensure!(problem.outcome == kvapi::Outcome::NotApplied, "{problem:?}");
        ensure!(problem.status == row.status, "{problem:?}");
    }
    let is_data = row.line.contains("/v1/kv/{k}") && matches!(row.status, 200 | 204 | 304 | 412);
    if is_data {
        let partition = reply.header("kv-partition").context("no KV-Partition")?;
        ensure!(partition.parse::<u32>().is_ok_and(|number| number < 16), "{reply:?}");
        ensure!(reply.header("kv-served-by").is_some(), "no KV-Served-By");
    }
    if is_data && row.status == 200 {
        ensure!(reply.header("content-type") == Some("text/x"), "{reply:?}");
        ensure!(reply.header("x-content-type-options") == Some("nosniff"), "{reply:?}");
        ensure!(reply.version().is_some(), "{reply:?}");
        ensure!(row.line.starts_with("HEAD") || reply.body == b"first", "{reply:?}");
    }
    if row.status == 405 {
        ensure!(reply.header("allow") == Some("GET, HEAD, PUT, DELETE"), "{reply:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_make_a_key_and_every_node_finds_it() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions { nodes: 4, ..ClusterOptions::default() }).await?;
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let odd: [&[u8]; 9] =
        [b"..", b".", b"a/../b", b"//", b"a//b", b"a%2Fb", b"/", b"a b", b"\xff\x00"];
    keys.extend(odd.iter().map(|key| key.to_vec()));
    keys.push(vec![0xff; 4096]);
    let mut connections = Vec::new();
    for node in cluster.nodes() {
        connections.push(Connection::open(&node.client_address()).await?);
    }
    let count = connections.len();
    for (number, key) in keys.iter().enumerate() {
        let mut path = String::new();
        percent_encode(key, &mut path);
        let line = format!("PUT /v1/kv/{path}");
        let put = ask(&mut connections[number % count], &line, "", key).await?;
        ensure!(put.status == 204, "{line}: {put}");
    }
    for (number, key) in keys.iter().enumerate() {
        let line = format!("GET /v1/kv64/{}", encode_key64(key));
        let got = ask(&mut connections[(number + 1) % count], &line, "", b"").await?;
        ensure!(got.status == 200 && got.body == *key, "{line}: {got}");
    }
    // Unescaped, as only a raw socket sends them.
    for key in ["..", "a/../b", "//", "a//b"] {
        let got = ask(&mut connections[0], &format!("GET /v1/kv/{key}"), "", b"").await?;
        ensure!(got.status == 200 && got.body == key.as_bytes(), "{key}: {got}");
    }
    cluster.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_a_row_are_answered_in_order_and_heads_have_a_limit() -> anyhow::Result<()> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let address = cluster.node(1).client_address();
    let mut connection = Connection::open(&address).await?;
    let mut pipeline = String::new();
    for number in 0..50 {
        pipeline.push_str(&format!(
            "PUT /v1/kv/piped-{number} HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{number:02}\
             GET /v1/kv/piped-{number} HTTP/1.1\r\nhost: h\r\n\r\n"
        ));
    }
    connection.send(pipeline.as_bytes()).await?;
    for number in 0..50 {
        let put = timeout(PATIENCE, connection.receive(false)).await??;
        ensure!(put.status == 204, "{number}: {put}");
        let got = timeout(PATIENCE, connection.receive(false)).await??;
        ensure!(got.body == format!("{number:02}").as_bytes(), "{number}: {got}");
    }

    let mut connection = Connection::open(&address).await?;
    let head =
        format!("GET /v1/kv/k HTTP/1.1\r\nhost: h\r\nlarge: {}\r\n\r\n", "x".repeat(200_000));
    // The node may refuse before it has read everything.
    let _ = connection.send(head.as_bytes()).await;
    let refused = timeout(PATIENCE, connection.receive(false)).await??;
    ensure!(refused.status == 431, "{refused}");

    let mut connection = Connection::open(&address).await?;
    connection.send(b"this is no HTTP\r\n\r\n").await?;
    let rest = timeout(PATIENCE, connection.read_to_end()).await??;
    ensure!(rest.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&rest));
    cluster.finish()
}

/// Sends a request and reads its answer.
async fn ask(
    connection: &mut Connection,
    line: &str,
    headers: &str,
    body: &[u8],
) -> anyhow::Result<Reply> {
    let length = match body.len() {
        0 if !line.starts_with("PUT") => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    let head = format!("{line} HTTP/1.1\r\nHost: h\r\n{headers}{length}\r\n");
    connection.send(&[head.as_bytes(), body].concat()).await?;
    timeout(PATIENCE, connection.receive(line.starts_with("HEAD"))).await.context("no answer")?
}
