//! A client that sends exactly what it is told and reads answers off the wire.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest time any answer may take in these tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
pub struct Raw {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer off the wire.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    /// Names in lower case, in the order of the wire.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl RawAnswer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The problem's code.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        problem["code"].as_str().unwrap().to_owned()
    }
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request of a head and a body, and reads the answer.
    pub async fn ask(&mut self, request_line: &str, headers: &str, body: &[u8]) -> RawAnswer {
        let length = match body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        let head = format!("{request_line} HTTP/1.1\r\nHost: t\r\n{headers}{length}\r\n");
        self.send([head.as_bytes(), body].concat()).await;
        self.answer(request_line.starts_with("HEAD")).await
    }

    /// Reads the next answer.
    pub async fn answer(&mut self, is_head: bool) -> RawAnswer {
        timeout(PATIENCE, self.read_answer(is_head)).await.expect("an answer in time")
    }

    /// Waits until the server closes the connection; what came before that.
    pub async fn rest(&mut self) -> Vec<u8> {
        let read = async {
            // A reset counts as a close.
            let _ = self.stream.read_to_end(&mut self.buffer).await;
        };
        timeout(PATIENCE, read).await.expect("the connection is closed in time");
        std::mem::take(&mut self.buffer)
    }

    async fn read_answer(&mut self, is_head: bool) -> RawAnswer {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await;
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let mut lines = head.lines();
        let status_line = lines.next().unwrap();
        let status: u16 = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<_> = lines
            .filter(|line| !line.is_empty())
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = RawAnswer { status, headers, body: Vec::new() };
        if !is_head && status >= 200 && status != 204 && status != 304 {
            let length: usize = answer.header("content-length").expect("a length").parse().unwrap();
            while self.buffer.len() < length {
                self.read_more().await;
            }
            answer.body = self.buffer.drain(..length).collect();
        }
        answer
    }

    async fn read_more(&mut self) {
        let count = self.stream.read_buf(&mut self.buffer).await.unwrap();
        let seen = String::from_utf8_lossy(&self.buffer);
        assert_ne!(count, 0, "closed after {seen:?}");
    }
}

/// Waits until something holds, or fails with what was waited for.
pub async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}
