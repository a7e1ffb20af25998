//! A typed client that routes by the ring on its own.
//!
//! It keeps the published ring, sends each key's calls straight to the leader it last learned, else
//! to the primary, and follows what the nodes answer. The rules for sending again:
//! - a call that no byte of was sent, or that was refused with `not_applied` and `safe`, goes again
//!   until its deadline, with a growing, jittered pause that honours `Retry-After`;
//! - a read goes again in any case;
//! - a write whose connection broke, whose deadline passed or that was answered with an unknown
//!   outcome is [`ClientError::Unknown`], and never sent again.
//!
//! Reading order: [`endpoint`], [`routes`], then the private modules pool, exchange and call.

pub mod endpoint;
pub mod routes;

mod call;
mod error;
mod exchange;
mod operations;
mod pool;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use bytes::Bytes;
use placement::{Epoch, PartitionId};

use crate::headers::{Consistency, Precondition, ReadCondition};

pub use endpoint::{Endpoint, EndpointError};
pub use error::ClientError;
pub use operations::RING_PATH;
pub use routes::RouteTable;

use pool::NodePool;

/// How requests find their node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// By the ring, straight to the leader.
    #[default]
    Ring,
    /// To any endpoint, which forwards.
    Any,
}

/// Settings of a [`Client`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// How requests find their node.
    pub routing: Routing,
    /// Time for a whole call, repetitions included.
    pub deadline: Duration,
    /// Time to open one connection.
    pub connect_timeout: Duration,
    /// Time for one answer to a read, after which another node is asked. A write waits for its
    /// whole deadline, as it must not be sent twice.
    pub read_attempt_timeout: Duration,
    /// Idle connections kept per node; more are opened in need and closed after use.
    pub connections_idle_max: usize,
    /// First pause before a repetition; doubles up to [`ClientOptions::backoff_max`].
    pub backoff_min: Duration,
    /// Longest pause before a repetition, unless a node asks for more.
    pub backoff_max: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            routing: Routing::Ring,
            deadline: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
            read_attempt_timeout: Duration::from_millis(1500),
            connections_idle_max: 64,
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(250),
        }
    }
}

/// Options of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Which state may be returned.
    pub consistency: Consistency,
    /// Whether the value is needed at all.
    pub condition: ReadCondition,
}

/// Options of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Condition, decided where the write is applied.
    pub precondition: Precondition,
    /// Content type to store with the value.
    pub content_type: Option<String>,
}

/// What every answer about a key carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerMeta {
    /// Epoch of the ring at the node that answered.
    pub epoch: Epoch,
    /// Partition of the key.
    pub partition: Option<PartitionId>,
    /// Name of the node that executed the call.
    pub served_by: Option<String>,
    /// The level that a read had.
    pub consistency: Consistency,
    /// Upper bound of a stale answer's age.
    pub staleness: Option<Duration>,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The raw bytes.
    pub bytes: Bytes,
    /// Version, the key's `ETag`.
    pub version: u64,
    /// Content type stored with the value.
    pub content_type: String,
    /// Who answered.
    pub meta: AnswerMeta,
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetAnswer {
    /// The key exists.
    Found(Value),
    /// The key is absent.
    Absent(AnswerMeta),
    /// The key exists and the condition made its value unnecessary.
    NotModified(AnswerMeta),
}

impl GetAnswer {
    /// The value, if the key exists and was sent.
    pub fn into_value(self) -> Option<Value> {
        match self {
            Self::Found(value) => Some(value),
            Self::Absent(_) | Self::NotModified(_) => None,
        }
    }
}

/// The answer to an acknowledged write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteAnswer {
    /// The key's new version; none for a deletion.
    pub version: Option<u64>,
    /// Who answered.
    pub meta: AnswerMeta,
}

/// A handle to a cluster; clones share connections and routes.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    options: ClientOptions,
    pools: Mutex<HashMap<Arc<str>, Arc<NodePool>>>,
    routes: RwLock<Option<Arc<RouteTable>>>,
    refreshing: AtomicBool,
}

impl Client {
    /// Makes a client and asks for the ring. A cluster that was not founded yet is no error: the
    /// ring is fetched later. Fails when no endpoint answers before the deadline.
    pub async fn connect(
        endpoints: &[Endpoint],
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let client = Self::new(endpoints, options);
        match client.refresh().await {
            Ok(_) => Ok(client),
            Err(error) if error.is_not_initialised() => Ok(client),
            Err(error) => Err(error),
        }
    }

    /// Makes a client without asking anybody anything; calls go to the endpoints until
    /// [`Client::refresh`] or an answer brings a ring.
    pub fn new(endpoints: &[Endpoint], options: ClientOptions) -> Self {
        assert!(!endpoints.is_empty(), "a client needs at least one endpoint");
        let shared = Shared {
            endpoints: endpoints.to_vec(),
            options,
            pools: Mutex::default(),
            routes: RwLock::default(),
            refreshing: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The endpoints it was made with.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.shared.endpoints
    }

    /// The routes of the newest ring it holds, if any.
    pub fn routes(&self) -> Option<Arc<RouteTable>> {
        self.shared.routes()
    }
}

#[cfg(test)]
mod tests;
