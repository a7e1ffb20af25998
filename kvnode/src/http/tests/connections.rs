//! Connections: order, limits, silence, garbage, both protocols, and the orderly end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::fake::Fake;
use super::raw::wait_for;
use super::{HttpLimits, TestServer};

/// Type of the first frame that a server sends.
const HTTP2_SETTINGS: u8 = 4;

/// Limits short enough for a test to meet them.
fn short() -> HttpLimits {
    HttpLimits {
        head_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(400),
        body_pause_max: Duration::from_millis(400),
        drain_timeout: Duration::from_millis(300),
        ..HttpLimits::default()
    }
}

#[tokio::test]
async fn requests_sent_together_are_answered_in_order() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let mut requests = String::new();
    for number in 0..50 {
        requests += &format!(
            "PUT /v1/kv/k{number} HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\n{number:03}"
        );
        requests += &format!("GET /v1/kv/k{number} HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    connection.send(requests).await;
    for number in 0..50 {
        let put = connection.answer(false).await;
        assert_eq!((put.status, put.header("etag")), (204, Some(&*format!("\"{}\"", number + 1))));
        let got = connection.answer(false).await;
        assert_eq!(got.body, format!("{number:03}").into_bytes());
    }
}

#[tokio::test]
async fn a_client_may_close_its_side_and_still_get_its_answer() {
    let server = TestServer::founded().await;
    server.backend().held.send_replace(true);
    let mut connection = server.connect().await;
    connection.send("PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nv").await;
    connection.stream.shutdown().await.unwrap();
    tokio::task::yield_now().await;
    server.backend().held.send_replace(false);
    assert_eq!(connection.answer(false).await.status, 204);
}

#[tokio::test]
async fn headers_have_a_limit() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let filler = format!("X-Filler: {}\r\n", "a".repeat(30_000));
    assert_eq!(connection.ask("GET /livez", &filler, b"").await.status, 200);
    let filler = format!("X-Filler: {}\r\n", "a".repeat(70_000));
    let answer = connection.ask("GET /livez", &filler, b"").await;
    assert_eq!(answer.status, 431);
    let many = "X: y\r\n".repeat(200);
    let mut connection = server.connect().await;
    assert_eq!(connection.ask("GET /livez", &many, b"").await.status, 431);
}

#[tokio::test]
async fn garbage_is_answered_or_cut_off_and_nothing_else_happens() {
    let server = TestServer::founded().await;
    for garbage in [
        &b"\0\x01\x02\x03\xff\xfe\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/kv/a b HTTP/1.1\r\n\r\n",
        b"GET /v1/kv/\xff HTTP/1.1\r\n\r\n",
        b"PUT /v1/kv/a HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"PUT /v1/kv/a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all",
    ] {
        let mut connection = server.connect().await;
        connection.send(garbage).await;
        connection.stream.shutdown().await.unwrap();
        let rest = connection.rest().await;
        let shown = String::from_utf8_lossy(&rest);
        assert!(
            rest.is_empty() || shown.starts_with("HTTP/1.1 400") || rest[3] == HTTP2_SETTINGS,
            "{shown:?}"
        );
    }
    assert_eq!(server.backend().writes.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(server.connect().await.ask("GET /livez", "", b"").await.status, 200);
}

#[tokio::test]
async fn silence_slow_heads_and_idleness_end_in_time() {
    let server = TestServer::start(Fake::founded(), short()).await;
    let before = Instant::now();
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    let mut slow_second = server.connect().await;
    let mut idle = server.connect().await;
    slow.send("GET /livez HTTP/1.1\r\nHost:").await;
    assert_eq!(slow_second.ask("GET /livez", "", b"").await.status, 200);
    slow_second.send("GET /li").await;
    assert_eq!(idle.ask("GET /livez", "", b"").await.status, 200);
    for connection in [&mut silent, &mut slow, &mut slow_second, &mut idle] {
        assert!(connection.rest().await.is_empty());
    }
    assert!(before.elapsed() >= short().idle_timeout, "an idle connection ended too early");
    let text = server.app.metrics().render(&[]);
    for line in [r#"{reason="slow_head"} 3"#, r#"{reason="idle"} 1"#] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn a_connection_in_use_stays_open_beyond_all_limits() {
    let server = TestServer::start(Fake::founded(), short()).await;
    let mut connection = server.connect().await;
    let before = Instant::now();
    while before.elapsed() < 2 * short().idle_timeout {
        assert_eq!(connection.ask("GET /v1/kv/a", "", b"").await.status, 404);
        tokio::time::sleep(short().head_timeout / 4).await;
    }
    server.backend().held.send_replace(true);
    connection.send("PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nv").await;
    tokio::time::sleep(2 * short().idle_timeout).await;
    server.backend().held.send_replace(false);
    assert_eq!(connection.answer(false).await.status, 204);
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_is_cut_off() {
    let server = TestServer::start(Fake::founded(), short()).await;
    let mut connection = server.connect().await;
    let value = vec![7; 1 << 20];
    assert_eq!(connection.ask("PUT /v1/kv/a", "", &value).await.status, 204);
    let many = "GET /v1/kv/a HTTP/1.1\r\nHost: t\r\n\r\n".repeat(64);
    connection.send(many).await;
    let metrics = server.app.metrics();
    wait_for("the stalled connection to be closed", || {
        metrics.render(&[]).contains(r#"{reason="stalled"} 1"#)
    })
    .await;
}

#[tokio::test]
async fn connections_over_the_limit_are_told_so() {
    let limits = HttpLimits { connections_max: 2, ..HttpLimits::default() };
    let server = TestServer::start(Fake::founded(), limits).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    assert_eq!(first.ask("GET /livez", "", b"").await.status, 200);
    assert_eq!(second.ask("GET /livez", "", b"").await.status, 200);
    let mut third = server.connect().await;
    let refused = third.ask("GET /livez", "", b"").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
    assert!(third.rest().await.is_empty());
    drop(second);
    let metrics = server.app.metrics();
    wait_for("the second connection to end", || {
        metrics.render(&[]).contains("ringkv_http_connections 1\n")
    })
    .await;
    // The place may be given back a moment after the count was.
    let mut fourth = server.connect().await;
    let answer = fourth.ask("GET /livez", "", b"").await;
    assert!(matches!(answer.status, 200 | 503));
}

#[tokio::test]
async fn stopping_lets_requests_end_and_takes_no_more() {
    let server = TestServer::start(Fake::founded(), HttpLimits::default()).await;
    server.backend().held.send_replace(true);
    let mut idle = server.connect().await;
    assert_eq!(idle.ask("GET /readyz", "", b"").await.status, 200);
    let mut polling = server.connect().await;
    polling.send("GET /v1/ring?after_epoch=1&wait=30s HTTP/1.1\r\nHost: t\r\n\r\n").await;
    let mut busy = server.connect().await;
    busy.send("PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nv").await;
    wait_for("the requests to be under way", || {
        let writes = server.backend().writes.load(std::sync::atomic::Ordering::SeqCst);
        writes == 1 && server.app.waiters().used() == 1
    })
    .await;

    server.stop.send_replace(true);
    assert_eq!(polling.answer(false).await.status, 304);
    assert!(idle.rest().await.is_empty());
    assert!(TcpStream::connect(server.address).await.is_err(), "it still listens");
    server.backend().held.send_replace(false);
    assert_eq!(busy.answer(false).await.status, 204);
    server.task.await.unwrap();
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let server = TestServer::start(Fake::founded(), short()).await;
    server.backend().held.send_replace(true);
    let mut busy = server.connect().await;
    busy.send("PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nv").await;
    wait_for("the write to be under way", || {
        server.backend().writes.load(std::sync::atomic::Ordering::SeqCst) == 1
    })
    .await;
    server.stop.send_replace(true);
    server.task.await.unwrap();
    assert!(busy.rest().await.is_empty());
}

#[tokio::test]
async fn both_protocols_share_a_port() {
    let server = TestServer::founded().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let long_key = "%ff".repeat(4096);
    let value = Bytes::from(vec![7; 1 << 20]);
    let mut ask = async |method: &str, path: &str, body: Bytes| {
        let uri = format!("http://t{path}");
        let request = Request::builder().method(method).uri(uri).body(Full::new(body)).unwrap();
        sender.ready().await.unwrap();
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        (head, body.collect().await.unwrap().to_bytes())
    };
    let path = format!("/v1/kv/{long_key}");
    let (put, _) = ask("PUT", &path, value.clone()).await;
    assert_eq!(put.status, StatusCode::NO_CONTENT);
    let (got, body) = ask("GET", &path, Bytes::new()).await;
    assert_eq!((got.status, body), (StatusCode::OK, value.clone()));
    let (head, body) = ask("HEAD", &path, Bytes::new()).await;
    assert_eq!((head.status, body), (StatusCode::OK, Bytes::new()));
    assert_eq!(head.headers["content-length"], value.len().to_string().as_str());
    let (refused, _) = ask("PUT", "/v1/kv/a", Bytes::from(vec![7; (1 << 20) + 1])).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    let (got, _) = ask("GET", "/v1/kv/a", Bytes::new()).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_long_poll_ends_with_news_or_with_its_time() {
    let server = TestServer::start(Fake::uninitialised(), HttpLimits::default()).await;
    let mut connection = server.connect().await;
    let answer = connection.ask("GET /v1/ring?after_epoch=0&wait=20ms", "", b"").await;
    assert_eq!((answer.status, answer.header("kv-ring-epoch")), (304, Some("0")));
    connection.send("GET /v1/ring?after_epoch=0&wait=30s HTTP/1.1\r\nHost: t\r\n\r\n").await;
    wait_for("the poll to wait", || server.app.waiters().used() == 1).await;
    server.backend().publish();
    let answer = connection.answer(false).await;
    assert_eq!((answer.status, answer.header("etag")), (200, Some("\"1\"")));
    let document: kvapi::RingDocument = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document.directory.nodes.len(), 3);
    assert_eq!(server.app.waiters().used(), 0);
}

#[tokio::test]
async fn long_polls_have_a_limit() {
    let limits = HttpLimits { waiters_max: 1, ..HttpLimits::default() };
    let server = TestServer::start(Fake::founded(), limits).await;
    let mut first = server.connect().await;
    first.send("GET /v1/ring?after_epoch=1&wait=30s HTTP/1.1\r\nHost: t\r\n\r\n").await;
    wait_for("the poll to wait", || server.app.waiters().used() == 1).await;
    let mut second = server.connect().await;
    let refused = second.ask("GET /v1/ring?after_epoch=1&wait=30s", "", b"").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
    let known = second.ask("GET /v1/ring?after_epoch=0&wait=30s", "", b"").await;
    assert_eq!(known.status, 200);
}

#[tokio::test]
async fn the_ring_comes_as_canonical_bytes_if_asked_for() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let accept = "Accept: application/octet-stream\r\n";
    let answer = connection.ask("GET /v1/ring", accept, b"").await;
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    let ring = placement::RingSnapshot::from_canonical_bytes(&answer.body).unwrap();
    assert_eq!(ring, super::fake::first_view().state.ring);
    let accept = "Accept: application/json, application/octet-stream\r\n";
    let answer = connection.ask("GET /v1/ring", accept, b"").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
}
