//! Connections to one node, each with one request in flight.
//!
//! Idle connections are kept up to a bound; a connection goes back only after its answer was read
//! to the end. A connection that the node closed while idle is noticed and passed over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The sending half of a connection.
pub(super) type Connection = SendRequest<Full<Bytes>>;

/// The idle connections of one node.
#[derive(Debug)]
pub(super) struct NodePool {
    authority: Arc<str>,
    host: HeaderValue,
    idle: Mutex<Vec<Connection>>,
    idle_max: usize,
}

impl NodePool {
    /// An empty pool; `None` if the address cannot stand in a `Host` header.
    pub(super) fn new(authority: &Arc<str>, idle_max: usize) -> Option<Self> {
        let host = HeaderValue::from_str(authority).ok()?;
        Some(Self { authority: Arc::clone(authority), host, idle: Mutex::default(), idle_max })
    }

    /// `host:port` of the node.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// The same as a header.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// An idle connection that is still open.
    pub(super) fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Gives a connection back whose answer was read to the end.
    pub(super) fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !connection.is_closed() && idle.len() < self.idle_max {
            idle.push(connection);
        }
    }

    /// Opens a new connection; the error says why in one line.
    pub(super) async fn dial(&self, timeout: Duration) -> Result<Connection, String> {
        let opening = TcpStream::connect(self.authority.as_ref());
        let stream = match tokio::time::timeout(timeout, opening).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(format!("{}: {error}", self.authority)),
            Err(_) => return Err(format!("{}: connection timed out", self.authority)),
        };
        let prepared = async {
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let handshake = http1::handshake(TokioIo::new(stream)).await;
            handshake.map_err(|error| error.to_string())
        };
        let (sender, connection) =
            prepared.await.map_err(|error| format!("{}: {error}", self.authority))?;
        tokio::spawn(async move {
            // The request in flight gets the error; an idle connection's end is no event.
            let _ = connection.await;
        });
        Ok(sender)
    }
}
