//! Conversations in `testdata/http/*.txt`: requests after `>`, answers after `<`.
//!
//! A request has a line without the protocol's version, headers, and after an empty line a body. The
//! runner adds `Host` and `Content-Length`. `{a*30}` stands for thirty times `a`, `\xNN` for a byte.
//! With `REWRITE=1` in the environment the answers are written anew, for a person to review.

use std::fmt::Write as _;
use std::path::Path;

use super::fake::Fake;
use super::raw::{Raw, RawAnswer};
use super::{HttpLimits, TestServer};

/// A body that is longer stands in the file as a word.
const BODY_SHOWN_MAX: usize = 1000;

#[tokio::test]
async fn conversations_go_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/http");
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(!names.is_empty(), "no conversations in {}", folder.display());
    for path in names {
        let text = std::fs::read_to_string(&path).unwrap();
        let fake = if path.ends_with("uninitialised.txt") {
            Fake::uninitialised()
        } else {
            Fake::founded()
        };
        let server = TestServer::start(fake, HttpLimits::default()).await;
        let got = converse(&server, &text).await;
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, &got).unwrap();
            continue;
        }
        for (number, (got, want)) in got.lines().zip(text.lines()).enumerate() {
            assert_eq!(got, want, "{}:{}", path.display(), number + 1);
        }
        assert_eq!(got, text, "{} has another length", path.display());
    }
}

/// The text with the answers that came.
async fn converse(server: &TestServer, text: &str) -> String {
    let mut out = String::new();
    let mut request: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('<')).chain([""]) {
        if let Some(part) = line.strip_prefix('>') {
            request.push(part.strip_prefix(' ').unwrap_or(part));
            writeln!(out, "{line}").unwrap();
            continue;
        }
        if !request.is_empty() {
            let mut connection = server.connect().await;
            let answer = exchange(&mut connection, &request).await;
            show(&answer, &mut out);
            request.clear();
        }
        writeln!(out, "{line}").unwrap();
    }
    let kept = out.trim_end_matches('\n').len();
    out.truncate(kept);
    out.push('\n');
    out
}

async fn exchange(connection: &mut Raw, request: &[&str]) -> RawAnswer {
    let mut parts = request.splitn(2, |line| line.is_empty());
    let head = parts.next().unwrap();
    let body: Vec<Vec<u8>> =
        parts.next().unwrap_or_default().iter().map(|line| expand(line)).collect();
    let body = body.join(&b'\n');
    let (line, headers) = head.split_first().unwrap();
    let mut bytes = expand(line);
    bytes.extend_from_slice(b" HTTP/1.1\r\nHost: t\r\n");
    for header in headers {
        bytes.extend(expand(header));
        bytes.extend_from_slice(b"\r\n");
    }
    if !body.is_empty() {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend(body);
    connection.send(bytes).await;
    connection.answer(line.starts_with("HEAD")).await
}

fn expand(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        if let Some((text, count, after)) = repetition(rest) {
            bytes.extend(text.repeat(count).into_bytes());
            rest = after;
        } else if let Some(digits) = rest.strip_prefix("\\x") {
            bytes.push(u8::from_str_radix(&digits[..2], 16).unwrap());
            rest = &digits[2..];
        } else {
            bytes.extend(character.to_string().into_bytes());
            rest = &rest[character.len_utf8()..];
        }
    }
    bytes
}

/// `{text*count}` at the start.
fn repetition(rest: &str) -> Option<(&str, usize, &str)> {
    let (inside, after) = rest.strip_prefix('{')?.split_once('}')?;
    let (text, count) = inside.split_once('*')?;
    Some((text, count.parse().ok()?, after))
}

fn show(answer: &RawAnswer, out: &mut String) {
    writeln!(out, "< {}", answer.status).unwrap();
    let mut headers = answer.headers.clone();
    headers.sort();
    let is_long = answer.body.len() > BODY_SHOWN_MAX;
    for (name, value) in headers {
        let is_variable = name == "date" || (is_long && name == "content-length");
        if !is_variable {
            writeln!(out, "< {name}: {value}").unwrap();
        }
    }
    if is_long {
        writeln!(out, "<\n< ...").unwrap();
    } else if !answer.body.is_empty() {
        writeln!(out, "<").unwrap();
        for line in String::from_utf8_lossy(&answer.body).lines() {
            writeln!(out, "< {line}").unwrap();
        }
    }
}
