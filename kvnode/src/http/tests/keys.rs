//! Keys of every byte, in both encodings, off the raw path.

use kvapi::paths::{encode_key64, percent_encode};

use super::TestServer;
use super::fake::Fake;

#[tokio::test]
async fn every_byte_makes_a_key_of_its_own_in_both_encodings() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    for byte in 0..=u8::MAX {
        let mut path = String::new();
        percent_encode(&[byte], &mut path);
        let put = connection.ask(&format!("PUT /v1/kv/{path}"), "", &[byte]).await;
        assert_eq!(put.status, 204, "{path}");
    }
    for byte in 0..=u8::MAX {
        let path = encode_key64(&[byte]);
        let got = connection.ask(&format!("GET /v1/kv64/{path}"), "", b"").await;
        assert_eq!((got.status, got.body), (200, vec![byte]), "{path}");
        assert!(server.backend().record(&[byte]).is_some());
    }
}

#[tokio::test]
async fn bytes_that_may_stand_in_a_path_unescaped_are_taken_as_they_are() {
    let server = TestServer::founded().await;
    for key in [
        "/",
        "//",
        "a//b",
        "a/../b",
        "..",
        ".",
        "./",
        "../../etc/passwd",
        "a/./b/",
        "a+b",
        "a;b=c",
        "a:b@c",
        "a&b=c",
        "~",
        "a!$'()*,",
        "[a]",
        "a|b",
        "a\\b",
        "{a}",
        "\"a\"",
        "^a",
        "\u{e9}",
    ] {
        let mut connection = server.connect().await;
        let put = connection.ask(&format!("PUT /v1/kv/{key}"), "", b"v").await;
        assert_eq!(put.status, 204, "{key:?}: {put:?}");
        assert!(server.backend().record(key.as_bytes()).is_some(), "{key:?} became another key");
    }
}

#[tokio::test]
async fn an_absolute_request_target_names_the_same_key() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    let put = connection.ask("PUT http://other.example//v1/kv/a", "", b"v").await;
    assert_eq!((put.status, put.code().as_str()), (404, "no-such-route"));
    let put = connection.ask("PUT http://other.example/v1/kv/a//b", "", b"v").await;
    assert_eq!(put.status, 204);
    assert!(server.backend().record(b"a//b").is_some());
}

#[tokio::test]
async fn the_longest_key_fits_fully_escaped_and_one_byte_more_is_refused() {
    let server = TestServer::founded().await;
    let mut connection = server.connect().await;
    for (length, status) in [(4096, 204), (4097, 414)] {
        let key = vec![0xff; length];
        let mut path = String::new();
        percent_encode(&key, &mut path);
        let put = connection.ask(&format!("PUT /v1/kv/{path}"), "", b"v").await;
        assert_eq!(put.status, status, "percent, {length}");
        let path = encode_key64(&key);
        let put = connection.ask(&format!("PUT /v1/kv64/{path}"), "", b"v").await;
        assert_eq!(put.status, status, "base64, {length}");
        assert_eq!(server.backend().record(&key).is_some(), status == 204);
    }
}

#[tokio::test]
async fn before_the_founding_a_request_for_a_key_is_told_what_to_do() {
    let limits = super::HttpLimits::default();
    let server = TestServer::start(Fake::uninitialised(), limits).await;
    let mut connection = server.connect().await;
    for (line, body) in
        [("GET /v1/kv/a", &b""[..]), ("PUT /v1/kv/a", b"v"), ("DELETE /v1/kv/a", b"")]
    {
        let answer = connection.ask(line, "", body).await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "cluster-not-initialised"));
        assert_eq!(answer.header("kv-ring-epoch"), Some("0"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        let text = String::from_utf8(answer.body).unwrap();
        assert!(text.contains("kvctl init"), "{text}");
    }
}
