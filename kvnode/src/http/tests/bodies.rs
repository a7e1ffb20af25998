//! Request bodies: their limits in bytes, memory and time, and what half of one does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::fake::Fake;
use super::raw::Raw;
use super::{HttpLimits, TestServer};

const MIB: usize = 1 << 20;

fn chunked(pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

async fn put_chunked(connection: &mut Raw, key: &str, body: &[u8]) -> super::raw::RawAnswer {
    let head =
        format!("PUT /v1/kv/{key} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    let pieces: Vec<&[u8]> = body.chunks(100_000).collect();
    connection.send([head.into_bytes(), chunked(&pieces)].concat()).await;
    connection.answer(false).await
}

#[tokio::test]
async fn values_of_any_length_up_to_the_limit_come_back_whole() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    for length in [0, 1, 255, 65_536, MIB - 1, MIB] {
        let value: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let put = connection.ask("PUT /v1/kv/declared", "", &value).await;
        assert_eq!(put.status, 204, "{length}");
        let put = put_chunked(&mut connection, "chunked", &value).await;
        assert_eq!(put.status, 204, "{length}");
        for key in ["declared", "chunked"] {
            let got = connection.ask(&format!("GET /v1/kv/{key}"), "", b"").await;
            assert_eq!(got.header("content-length"), Some(length.to_string().as_str()));
            assert_eq!(got.body, value, "{key}, {length}");
            let head = connection.ask(&format!("HEAD /v1/kv/{key}"), "", b"").await;
            assert_eq!(head.header("content-length"), Some(length.to_string().as_str()));
        }
    }
}

#[tokio::test]
async fn a_value_one_byte_too_long_is_refused_and_the_connection_goes_on() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let value = vec![7; MIB + 1];
    let declared = connection.ask("PUT /v1/kv/a", "", &value).await;
    assert_eq!((declared.status, declared.code().as_str()), (413, "value-too-large"));
    let in_pieces = put_chunked(&mut connection, "a", &value).await;
    assert_eq!((in_pieces.status, in_pieces.code().as_str()), (413, "value-too-large"));
    let got = connection.ask("GET /v1/kv/a", "", b"").await;
    assert_eq!(got.status, 404);
    assert_eq!(server.backend().writes.load(Ordering::SeqCst), 0);
    assert_eq!(server.app.bodies().used(), 0);
}

#[tokio::test]
async fn a_client_that_sends_a_huge_value_before_it_listens_sees_why_it_is_refused() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let value = vec![7; 20 * MIB];
    let answer = connection.ask("PUT /v1/kv/a", "", &value).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "value-too-large"));
    assert_eq!(connection.ask("GET /livez", "", b"").await.status, 200);
}

#[tokio::test]
async fn a_refusal_for_another_reason_also_takes_the_body_off_the_wire() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let value = vec![7; MIB];
    for (line, status) in [
        ("PUT /v1/kv/%zz", 400),
        ("PUT /v1/kv/a?ttl=5", 501),
        ("POST /v1/kv/a", 405),
        ("PUT /nowhere", 404),
        ("POST /v1/admin/init", 415),
    ] {
        assert_eq!(connection.ask(line, "", &value).await.status, status, "{line}");
    }
}

#[tokio::test]
async fn half_a_body_changes_nothing() {
    let server = TestServer::founded().await;
    for head in ["Content-Length: 10\r\n\r\nhalf!", "Transfer-Encoding: chunked\r\n\r\na\r\nhalf!"]
    {
        let mut connection = server.connect().await;
        connection.send(format!("PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\n{head}")).await;
        connection.stream.shutdown().await.unwrap();
        let rest = String::from_utf8(connection.rest().await).unwrap();
        assert!(!rest.contains("204"), "{rest}");
    }
    assert_eq!(server.backend().writes.load(Ordering::SeqCst), 0);
    assert!(server.backend().record(b"a").is_none());
}

#[tokio::test]
async fn a_body_with_broken_chunks_changes_nothing() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let head = "PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.send(format!("{head}zz\r\nabc\r\n0\r\n\r\n")).await;
    let rest = String::from_utf8(connection.rest().await).unwrap();
    assert!(rest.starts_with("HTTP/1.1 400"), "{rest}");
    assert_eq!(server.backend().writes.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_told_to_go_on_or_not() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let ask = "PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: ";
    connection.send(format!("{ask}5\r\n\r\n")).await;
    assert_eq!(connection.answer(false).await.status, 100);
    connection.send("hello").await;
    assert_eq!(connection.answer(false).await.status, 204);

    connection.send(format!("{ask}{}\r\n\r\n", MIB + 1)).await;
    let answer = connection.answer(false).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "value-too-large"));
    assert!(connection.rest().await.is_empty(), "nothing follows the refusal");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_given_up() {
    let limits = HttpLimits { body_pause_max: Duration::from_millis(100), ..HttpLimits::default() };
    let server = TestServer::start(Fake::founded(), limits).await;
    let mut connection = server.connect().await;
    connection.send("PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhe").await;
    let answer = connection.answer(false).await;
    assert_eq!((answer.status, answer.code().as_str()), (408, "request-timeout"));
    assert!(server.backend().record(b"a").is_none());
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up_after_its_time() {
    let limits = HttpLimits { body_timeout: Duration::from_millis(200), ..HttpLimits::default() };
    let server = TestServer::start(Fake::founded(), limits).await;
    let connection = server.connect().await;
    let Raw { stream, .. } = connection;
    let (mut reading, mut writing) = stream.into_split();
    let trickle = tokio::spawn(async move {
        let head = b"PUT /v1/kv/a HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n";
        writing.write_all(head).await.unwrap();
        let mut pause = tokio::time::interval(Duration::from_millis(10));
        loop {
            pause.tick().await;
            if writing.write_all(b"x").await.is_err() {
                return;
            }
        }
    });
    let mut head = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut reading, &mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 408");
    trickle.abort();
}

#[tokio::test]
async fn bodies_share_their_memory_and_more_are_refused_as_overload() {
    let limits = HttpLimits { bodies_bytes_max: 2 * MIB, ..HttpLimits::default() };
    let server = TestServer::start(Fake::founded(), limits).await;
    server.backend().held.send_replace(true);
    let value = vec![7; MIB];
    let mut waiting = Vec::new();
    for key in 0..2 {
        let mut connection = server.connect().await;
        let head = format!("PUT /v1/kv/{key} HTTP/1.1\r\nHost: t\r\nContent-Length: {MIB}\r\n\r\n");
        connection.send([head.as_bytes(), &value].concat()).await;
        waiting.push(connection);
    }
    super::raw::wait_for("both writes to wait", || {
        server.backend().writes.load(Ordering::SeqCst) == 2
    })
    .await;
    assert_eq!(server.app.bodies().used(), 2 * MIB);
    let mut third = server.connect().await;
    let refused = third.ask("PUT /v1/kv/c", "", b"v").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
    let refused = put_chunked(&mut third, "c", &value).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
    server.backend().held.send_replace(false);
    for connection in &mut waiting {
        assert_eq!(connection.answer(false).await.status, 204);
    }
    assert_eq!(server.app.bodies().used(), 0);
    assert_eq!(put_chunked(&mut third, "c", &value).await.status, 204);
}

#[tokio::test]
async fn large_values_share_the_memory_in_which_they_wait_for_their_clients() {
    let limits = HttpLimits {
        value_bytes_max: 16 * MIB,
        answers_bytes_max: 16 * MIB,
        ..HttpLimits::default()
    };
    let server = TestServer::start(Fake::founded(), limits).await;
    let mut writer = server.connect().await;
    let value = vec![7; 16 * MIB];
    assert_eq!(writer.ask("PUT /v1/kv/a", "", &value).await.status, 204);
    assert_eq!(writer.ask("PUT /v1/kv/small", "", b"v").await.status, 204);
    let mut slow = server.connect().await;
    slow.send("GET /v1/kv/a HTTP/1.1\r\nHost: t\r\n\r\n").await;
    super::raw::wait_for("the value to wait", || server.app.answers().used() == value.len()).await;
    let refused = writer.ask("GET /v1/kv/a", "", b"").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
    assert_eq!(writer.ask("GET /v1/kv/small", "", b"").await.status, 200);
    assert_eq!(slow.answer(false).await.body, value);
    super::raw::wait_for("the value to be let go of", || server.app.answers().used() == 0).await;
    assert_eq!(writer.ask("GET /v1/kv/a", "", b"").await.body, value);
}
