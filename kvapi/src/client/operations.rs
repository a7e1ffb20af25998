//! The calls of the API as methods, and the keeping of the ring.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use placement::{PartitionId, SnapshotError, key_hash};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::call::{Call, Effect, Target, epoch_of, problem_of};
use super::exchange::{Exchange, exchange};
use super::pool::NodePool;
use super::{
    AnswerMeta, Client, ClientError, GetAnswer, GetOptions, PutOptions, RouteTable, Shared, Value,
    WriteAnswer,
};
use crate::admin::{
    ClusterStatus, INIT_PATH, InitAnswer, InitRequest, NODE_PATH, NodeInfo, RING_HISTORY_PATH,
    RingHistory, STATUS_PATH, TRANSFER_PATH, TransferAnswer, TransferRequest,
};
use crate::headers::{
    CONTENT_TYPE_DEFAULT, Consistency, KV_CONSISTENCY, KV_PARTITION, KV_SERVED_BY, KV_STALENESS_MS,
    Precondition, ReadCondition, parse_etag,
};
use crate::kv::{LocateAnswer, RingDocument};
use crate::paths::{KEY_BYTES_MAX, KeyPathError, kv_path, locate_path};

/// Path of [`RingDocument`].
pub const RING_PATH: &str = "/v1/ring";

impl Client {
    /// Reads a key.
    pub async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetAnswer, ClientError> {
        let mut call = key_call(Method::GET, key, Effect::Read)?;
        call.learns_leader = options.consistency == Consistency::Linearizable;
        if options.consistency != Consistency::Linearizable {
            let level = options.consistency.as_str();
            call.uri = uri(&format!("{}?consistency={level}", call.uri.path()))?;
        }
        let tag = match options.condition {
            ReadCondition::None => None,
            ReadCondition::NotExists => Some(HeaderValue::from_static("*")),
            ReadCondition::NotVersion(version) => Some(crate::headers::etag_value(version)),
        };
        call.headers.extend(tag.map(|tag| (header::IF_NONE_MATCH, tag)));
        let answer = self.call(&call).await?;
        match answer.status() {
            StatusCode::NOT_MODIFIED => Ok(GetAnswer::NotModified(meta_of(answer.headers()))),
            StatusCode::NOT_FOUND => Ok(GetAnswer::Absent(meta_of(answer.headers()))),
            _ => value_of(answer).map(GetAnswer::Found),
        }
    }

    /// Writes a key. [`ClientError::Unknown`] means that the value may or may not be there.
    pub async fn put(
        &self,
        key: &[u8],
        value: Bytes,
        options: &PutOptions,
    ) -> Result<WriteAnswer, ClientError> {
        let mut call = key_call(Method::PUT, key, Effect::Write)?;
        call.headers.extend(options.precondition.to_header());
        if let Some(content_type) = &options.content_type {
            let value = HeaderValue::from_str(content_type).map_err(|_| ClientError::Argument {
                reason: "the content type cannot stand in a header".to_owned(),
            })?;
            call.headers.insert(header::CONTENT_TYPE, value);
        }
        call.body = value;
        let answer = self.call(&call).await?;
        match version_of(answer.headers()) {
            Some(version) => {
                Ok(WriteAnswer { version: Some(version), meta: meta_of(answer.headers()) })
            }
            None => Err(unexpected(&answer, "a write was acknowledged without an ETag")),
        }
    }

    /// Deletes a key; also fine when it is absent.
    pub async fn delete(
        &self,
        key: &[u8],
        precondition: Precondition,
    ) -> Result<WriteAnswer, ClientError> {
        let mut call = key_call(Method::DELETE, key, Effect::Write)?;
        call.headers.extend(precondition.to_header());
        let answer = self.call(&call).await?;
        let meta = meta_of(answer.headers());
        Ok(WriteAnswer { version: version_of(answer.headers()), meta })
    }

    /// Asks a node where a key lives and who leads its partition.
    pub async fn locate(&self, key: &[u8]) -> Result<LocateAnswer, ClientError> {
        check_key(key)?;
        let path = locate_path(key);
        self.json(Method::GET, &path, Target::Any, None::<&()>).await
    }

    /// Fetches the ring document from any node, without keeping it.
    pub async fn ring(&self) -> Result<RingDocument, ClientError> {
        self.json(Method::GET, RING_PATH, Target::Any, None::<&()>).await
    }

    /// What the node at this address says about itself.
    pub async fn node_info(&self, address: &str) -> Result<NodeInfo, ClientError> {
        let target = Target::Node(Arc::from(address));
        self.json(Method::GET, NODE_PATH, target, None::<&()>).await
    }

    /// What any node says about the cluster.
    pub async fn status(&self) -> Result<ClusterStatus, ClientError> {
        self.json(Method::GET, STATUS_PATH, Target::Any, None::<&()>).await
    }

    /// Asks any node a question of `/v1/admin`.
    pub async fn ask<Answer: DeserializeOwned>(&self, path: &str) -> Result<Answer, ClientError> {
        self.json(Method::GET, path, Target::Any, None::<&()>).await
    }

    /// Gives any node an order of `/v1/admin`; it is not repeated unless it surely was not carried out.
    pub async fn order<Answer: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, ClientError> {
        self.json(Method::POST, path, Target::Any, Some(body)).await
    }

    /// Founds the cluster.
    pub async fn init(&self, request: &InitRequest) -> Result<InitAnswer, ClientError> {
        self.json(Method::POST, INIT_PATH, Target::Any, Some(request)).await
    }

    /// Moves the leadership of a partition.
    pub async fn transfer(&self, request: &TransferRequest) -> Result<TransferAnswer, ClientError> {
        self.json(Method::POST, TRANSFER_PATH, Target::Any, Some(request)).await
    }

    /// The published epochs.
    pub async fn ring_history(&self) -> Result<RingHistory, ClientError> {
        self.json(Method::GET, RING_HISTORY_PATH, Target::Any, None::<&()>).await
    }

    /// Fetches the ring, verifies it and routes by it from now on. Each node is asked once; an
    /// older ring than the one at hand is ignored, a contradicting one refused.
    pub async fn refresh(&self) -> Result<Arc<RouteTable>, ClientError> {
        self.refresh_from(None).await
    }

    pub(super) fn refresh_in_background(&self, from: Option<Arc<str>>) {
        if self.shared.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let client = self.clone();
        tokio::spawn(async move {
            if let Err(error) = client.refresh_from(from).await {
                tracing::debug!(%error, "the ring could not be refreshed");
            }
            client.shared.refreshing.store(false, Ordering::Release);
        });
    }

    async fn refresh_from(&self, first: Option<Arc<str>>) -> Result<Arc<RouteTable>, ClientError> {
        let started = Instant::now();
        let options = &self.shared.options;
        let mut failure = None;
        for authority in self.shared.all_addresses(first) {
            let one_by_one = Instant::now() + options.read_attempt_timeout;
            let deadline = one_by_one.min(started + options.deadline);
            match self.fetch_ring(&authority, deadline).await {
                Ok(document) => match self.shared.install(document) {
                    Ok(routes) => return Ok(routes),
                    Err(error) => {
                        tracing::warn!(node = %authority, %error, "refused a ring");
                        let reason = format!("refused its ring: {error}");
                        let node = authority.as_ref().to_owned();
                        failure = Some(ClientError::Unexpected { node, reason });
                    }
                },
                // What a node says outweighs that another one could not be reached.
                Err(error @ ClientError::Unreachable { .. }) => {
                    failure = failure.or(Some(error));
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| ClientError::Unreachable {
            waited: started.elapsed(),
            last: "there is no node to ask".to_owned(),
        }))
    }

    async fn fetch_ring(
        &self,
        authority: &Arc<str>,
        deadline: Instant,
    ) -> Result<RingDocument, ClientError> {
        let started = Instant::now();
        let pool = self.shared.pool(authority)?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = Uri::from_static(RING_PATH);
        let connect_timeout = self.shared.options.connect_timeout;
        match exchange(&pool, &request, connect_timeout, deadline).await {
            Exchange::Answered(answer) if answer.status() == StatusCode::OK => parse(&answer),
            Exchange::Answered(answer) => Err(match problem_of(&answer) {
                Some(problem) => ClientError::Problem(Box::new(problem)),
                None => unexpected(&answer, &format!("status {}", answer.status())),
            }),
            Exchange::NotSent(last) | Exchange::Broken(last) => {
                Err(ClientError::Unreachable { waited: started.elapsed(), last })
            }
        }
    }

    async fn json<Answer: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        target: Target,
        body: Option<&impl Serialize>,
    ) -> Result<Answer, ClientError> {
        let mut headers = HeaderMap::new();
        let effect = if method == Method::GET { Effect::Read } else { Effect::Write };
        let body = match body {
            None => Bytes::new(),
            Some(body) => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let json = serde_json::to_vec(body);
                json.map_err(|error| ClientError::Argument { reason: error.to_string() })?.into()
            }
        };
        let uri = uri(path)?;
        let call = Call { method, uri, headers, body, effect, target, learns_leader: false };
        let answer = self.call(&call).await?;
        match problem_of(&answer) {
            Some(problem) => Err(ClientError::Problem(Box::new(problem))),
            None => parse(&answer),
        }
    }
}

impl Shared {
    pub(super) fn routes(&self) -> Option<Arc<RouteTable>> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn pool(&self, authority: &Arc<str>) -> Result<Arc<NodePool>, ClientError> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(authority) {
            return Ok(Arc::clone(pool));
        }
        let pool = NodePool::new(authority, self.options.connections_idle_max);
        let pool = Arc::new(pool.ok_or_else(|| ClientError::Argument {
            reason: format!("`{authority}` is not an address"),
        })?);
        pools.insert(Arc::clone(authority), Arc::clone(&pool));
        Ok(pool)
    }

    /// Takes a verified document into use, unless what is at hand is as new.
    fn install(&self, document: RingDocument) -> Result<Arc<RouteTable>, SnapshotError> {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = routes.as_ref() {
            match current.ring().snapshot().check_newer(&document.snapshot) {
                Err(SnapshotError::OlderEpoch { .. }) => return Ok(Arc::clone(current)),
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            let is_same_ring = document.snapshot.epoch() == current.epoch();
            if is_same_ring && document.directory.revision <= current.directory_revision() {
                return Ok(Arc::clone(current));
            }
        }
        let table = Arc::new(RouteTable::new(document));
        if let Some(older) = routes.as_ref() {
            table.inherit(older);
        }
        *routes = Some(Arc::clone(&table));
        Ok(table)
    }

    fn all_addresses(&self, first: Option<Arc<str>>) -> Vec<Arc<str>> {
        let endpoints = self.endpoints.iter().map(|endpoint| Arc::clone(endpoint.authority()));
        let mut all: Vec<Arc<str>> = first.into_iter().chain(endpoints).collect();
        if let Some(routes) = self.routes() {
            all.extend(routes.nodes().iter().map(|node| Arc::from(node.client_address.as_str())));
        }
        let mut unique: Vec<Arc<str>> = Vec::with_capacity(all.len());
        for address in all {
            if !unique.contains(&address) {
                unique.push(address);
            }
        }
        unique
    }
}

fn check_key(key: &[u8]) -> Result<(), KeyPathError> {
    match key.len() {
        0 => Err(KeyPathError::Empty),
        bytes if bytes > KEY_BYTES_MAX => Err(KeyPathError::TooLong { bytes }),
        _ => Ok(()),
    }
}

fn key_call(method: Method, key: &[u8], effect: Effect) -> Result<Call, ClientError> {
    check_key(key)?;
    Ok(Call {
        method,
        uri: uri(&kv_path(key))?,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        effect,
        target: Target::Key(key_hash(key)),
        learns_leader: true,
    })
}

fn uri(path: &str) -> Result<Uri, ClientError> {
    path.parse().map_err(|error| ClientError::Argument { reason: format!("`{path}`: {error}") })
}

fn parse<Answer: DeserializeOwned>(answer: &Response<Bytes>) -> Result<Answer, ClientError> {
    serde_json::from_slice(answer.body()).map_err(|error| unexpected(answer, &error.to_string()))
}

fn unexpected(answer: &Response<Bytes>, reason: &str) -> ClientError {
    let server = answer.headers().get(KV_SERVED_BY).and_then(|name| name.to_str().ok());
    let node = server.unwrap_or("a node").to_owned();
    ClientError::Unexpected { node, reason: reason.to_owned() }
}

fn value_of(answer: Response<Bytes>) -> Result<Value, ClientError> {
    let Some(version) = version_of(answer.headers()) else {
        return Err(unexpected(&answer, "a value came without an ETag"));
    };
    let content_type = text_of(answer.headers(), &header::CONTENT_TYPE);
    let content_type = content_type.unwrap_or(CONTENT_TYPE_DEFAULT).to_owned();
    let meta = meta_of(answer.headers());
    Ok(Value { bytes: answer.into_body(), version, content_type, meta })
}

fn version_of(headers: &HeaderMap) -> Option<u64> {
    parse_etag(text_of(headers, &header::ETAG)?)
}

fn meta_of(headers: &HeaderMap) -> AnswerMeta {
    let number = |name: header::HeaderName| {
        text_of(headers, &name).and_then(|text| text.parse::<u64>().ok())
    };
    let partition = number(KV_PARTITION).and_then(|number| u32::try_from(number).ok());
    AnswerMeta {
        epoch: epoch_of(headers).unwrap_or_default(),
        partition: partition.map(PartitionId::new),
        served_by: text_of(headers, &KV_SERVED_BY).map(str::to_owned),
        consistency: text_of(headers, &KV_CONSISTENCY)
            .and_then(Consistency::parse)
            .unwrap_or_default(),
        staleness: number(KV_STALENESS_MS).map(Duration::from_millis),
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
