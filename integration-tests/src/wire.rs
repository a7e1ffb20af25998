//! HTTP/1.1 by hand over one connection: full control over when a request leaves and when its answer
//! is read, and no decision of a library about sending again.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use kvapi::Problem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Longest answer that is read.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A request before it is bound to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// Path and query, as they stand in the request line.
    pub path: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// A request without body.
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A `GET`.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// A `PUT` with a body.
    pub fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::new("PUT", path) }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The bytes on the wire.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: {host}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || matches!(self.method, "PUT" | "POST") {
            text.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The version in its `ETag`.
    pub fn version(&self) -> Option<u64> {
        kvapi::headers::parse_etag(self.header("etag")?)
    }

    /// The problem that it states.
    pub fn problem(&self) -> Option<Problem> {
        let is_problem = self.header("content-type") == Some(kvapi::headers::CONTENT_TYPE_PROBLEM);
        if is_problem { serde_json::from_slice(&self.body).ok() } else { None }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]);
        write!(formatter, "{} {body}", self.status)
    }
}

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The node answered.
    Answered(Reply),
    /// No byte left.
    NotSent(String),
    /// The request may have left, and no whole answer came.
    Lost(String),
}

/// A connection with what was read too far.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// Opens a connection.
    pub async fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads one answer. The answer to a `HEAD` has no body, whatever its length says.
    pub async fn receive(&mut self, is_head: bool) -> anyhow::Result<Reply> {
        let (head, mut reply) = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                let reply = parse_head(&self.read[..end])?;
                // An interim answer is followed by the real one.
                if reply.status == 100 {
                    self.read.drain(..end + 4);
                    continue;
                }
                break (end + 4, reply);
            }
            self.fill().await?;
        };
        self.read.drain(..head);
        ensure!(reply.header("transfer-encoding").is_none(), "a chunked answer");
        let has_body = !is_head && !matches!(reply.status, 204 | 304);
        let length = match reply.header("content-length") {
            Some(length) if has_body => length.parse()?,
            _ => 0,
        };
        ensure!(length <= REPLY_BYTES_MAX, "an answer of {length} bytes");
        while self.read.len() < length {
            self.fill().await?;
        }
        reply.body = self.read.drain(..length).collect();
        Ok(reply)
    }

    /// Reads until the other side closes; what it sent.
    pub async fn read_to_end(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.read);
        self.stream.read_to_end(&mut bytes).await?;
        Ok(bytes)
    }

    /// Whether it is fit for another request: open, and nothing to read.
    fn is_idle(&mut self) -> bool {
        let mut byte = [0];
        let nothing = self.stream.try_read(&mut byte);
        self.read.is_empty()
            && nothing.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read_buf(&mut self.read).await?;
        ensure!(read > 0, "the connection was closed before the answer was complete");
        Ok(())
    }
}

/// The way to one node: at most one connection, opened when needed and kept.
#[derive(Debug)]
pub struct Wire {
    address: String,
    connection: Option<Connection>,
}

impl Wire {
    /// A way that has no connection yet.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), connection: None }
    }

    /// Opens the connection, so that the next request finds it.
    pub async fn connect(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + timeout;
        self.connection = Some(self.connection(until).await.map_err(anyhow::Error::msg)?);
        Ok(())
    }

    /// Sends a request and reads its answer. A connection without a whole answer is given up.
    pub async fn exchange(&mut self, request: &Request, timeout: Duration) -> Exchange {
        let until = Instant::now() + timeout;
        let bytes = request.bytes(&self.address);
        let mut connection = match self.connection(until).await {
            Ok(connection) => connection,
            Err(why) => return Exchange::NotSent(why),
        };
        let is_head = request.method == "HEAD";
        let answered = timeout_at(until, async {
            connection.send(&bytes).await.context("while sending")?;
            connection.receive(is_head).await
        });
        match answered.await {
            Err(_) => Exchange::Lost(format!("no answer within {timeout:?}")),
            Ok(Err(error)) => Exchange::Lost(format!("{error:#}")),
            Ok(Ok(reply)) => {
                if reply.header("connection") != Some("close") {
                    self.connection = Some(connection);
                }
                Exchange::Answered(reply)
            }
        }
    }

    /// Takes the idle connection or opens one. The caller gives it back by keeping it.
    async fn connection(&mut self, until: Instant) -> Result<Connection, String> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_idle()
        {
            return Ok(connection);
        }
        match timeout_at(until, Connection::open(&self.address)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the connection was not accepted in time".to_owned()),
        }
    }
}

fn parse_head(head: &[u8]) -> anyhow::Result<Reply> {
    let head = std::str::from_utf8(head).context("headers that are no text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let Some(status) = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) else {
        bail!("{status:?} is no status line");
    };
    let mut reply = Reply { status: status.parse()?, ..Reply::default() };
    for line in lines {
        let (name, value) = line.split_once(':').context("a header without a colon")?;
        reply.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(reply)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
