//! The calls on one key: `PUT`, `GET`, `HEAD` and `DELETE` of `/v1/kv/{key}` and `/v1/kv64/{key}`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use kvapi::headers::{
    CONTENT_TYPE_DEFAULT, IDEMPOTENCY_KEY, KV_CONSISTENCY, KV_PARTITION, KV_RING_EPOCH, KV_ROUTE,
    KV_SERVED_BY, KV_STALENESS_MS,
};
use kvapi::{KeyPath, Precondition, Problem, ProblemCode, ReadCondition, RouteMode};
use kvcore::Version;
use kvcore::store::{Command, Condition, Limits, Record, WriteOutcome};

use super::app::{Answer, App};
use super::backend::Backend;
use super::body::RequestBody;
use super::limits::{LARGE_ANSWER_BYTES, Quota, Share};
use super::problem::{
    Refusal, not_implemented, of_body, of_condition, of_key, of_query, of_request, refuse,
};
use super::query::{Query, parse_number};
use super::route::Verb;
use super::values::{decimal, etag};
use crate::router::{Consistency, RequestError, RequestOptions, Served};

/// Headers of the longest data answer, so that the map is allocated once.
const ANSWER_HEADERS_MAX: usize = 9;

/// Answers a call on one key.
pub async fn answer<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
    path: KeyPath<'_>,
    verb: Verb,
) -> Answer {
    let key = match path.key() {
        Ok(key) => key,
        Err(error) => return refused(app, of_key(error), None),
    };
    let answer = match verb {
        Verb::Get => get(app, head, key.clone()).await,
        Verb::Put => put(app, head, body, key.clone()).await,
        Verb::Delete => delete(app, head, key.clone()).await,
        Verb::Post => unreachable!("the route has no such verb"),
    };
    answer.unwrap_or_else(|refusal| refused(app, refusal, Some(&key)))
}

async fn get<B: Backend>(app: &App<B>, head: &Parts, key: Bytes) -> Result<Answer, Refusal> {
    let consistency = consistency_of(head.uri.query())?;
    let condition = ReadCondition::for_get(&head.headers).map_err(of_condition)?;
    let options = options(app, head)?;
    let served = app.backend().read(key, consistency, options).await;
    let served = served.map_err(|error| failed(app, error))?;
    let (record, origin) = taken(served);
    let mut answer = match record {
        None => {
            let problem = Problem::new(ProblemCode::NotFound, "no value is stored under the key");
            app.refuse(problem.with_partition(origin.partition).with_epoch(origin.epoch))
        }
        Some(record) if condition.is_not_modified(record.version.get()) => {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            answer.headers_mut().insert(ETAG, etag(record.version.get()));
            answer
        }
        Some(record) => found(app, record)?,
    };
    let headers = answer.headers_mut();
    if consistency == Consistency::Stale {
        headers.insert(KV_CONSISTENCY, HeaderValue::from_static("stale"));
        headers.insert(KV_STALENESS_MS, decimal(origin.staleness_ms.unwrap_or(0)));
    }
    name_origin(app, headers, &origin);
    Ok(answer)
}

async fn put<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
    key: Bytes,
) -> Result<Answer, Refusal> {
    let query = Query::parse(head.uri.query(), &["ttl"]).map_err(of_query)?;
    if query.get("ttl").is_some() {
        return Err(not_implemented("the parameter `ttl`"));
    }
    refuse_idempotency_key(&head.headers)?;
    refuse_encoded_values(&head.headers)?;
    let condition = Precondition::for_put(&head.headers).map_err(of_condition)?;
    let content_type = content_type_of(&head.headers)?;
    let route = route_of(&head.headers)?;
    let limits = app.limits();
    let body = body.read(limits.value_bytes_max, app.bodies(), limits).await.map_err(of_body)?;
    let command =
        Command::Put { key, value: body.bytes, content_type, condition: condition_of(condition) };
    let served = app.backend().write(command, options_now(app, route)).await;
    // The bytes count against the limit for as long as the node works on them.
    drop(body.share);
    let (outcome, origin) = taken(served.map_err(|error| failed(app, error))?);
    let mut answer = match outcome {
        WriteOutcome::Put(version) => {
            let mut answer = empty(StatusCode::NO_CONTENT);
            answer.headers_mut().insert(ETAG, etag(version.get()));
            answer
        }
        WriteOutcome::ConditionFailed(current) => condition_failed(app, current, &origin),
        WriteOutcome::Deleted(_) | WriteOutcome::Truncate(_) | WriteOutcome::Verify => {
            return Err(nonsense(outcome));
        }
    };
    name_origin(app, answer.headers_mut(), &origin);
    Ok(answer)
}

async fn delete<B: Backend>(app: &App<B>, head: &Parts, key: Bytes) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    refuse_idempotency_key(&head.headers)?;
    let condition = Precondition::for_delete(&head.headers).map_err(of_condition)?;
    let command = Command::Delete { key, condition: condition_of(condition) };
    let served = app.backend().write(command, options(app, head)?).await;
    let (outcome, origin) = taken(served.map_err(|error| failed(app, error))?);
    let mut answer = match outcome {
        WriteOutcome::Deleted(_) => empty(StatusCode::NO_CONTENT),
        WriteOutcome::ConditionFailed(current) => condition_failed(app, current, &origin),
        WriteOutcome::Put(_) | WriteOutcome::Truncate(_) | WriteOutcome::Verify => {
            return Err(nonsense(outcome));
        }
    };
    name_origin(app, answer.headers_mut(), &origin);
    Ok(answer)
}

/// The answer to a read that found a value.
fn found<B: Backend>(app: &App<B>, record: Record) -> Result<Answer, Refusal> {
    let content_type = match record.content_type.map(HeaderValue::try_from) {
        Some(Ok(content_type)) => content_type,
        // A stored type was a header value once; this is for one that no longer is.
        None | Some(Err(_)) => HeaderValue::from_static(CONTENT_TYPE_DEFAULT),
    };
    let mut answer = Response::new(Full::new(counted(app.answers(), record.value)?));
    let headers = answer.headers_mut();
    headers.reserve(ANSWER_HEADERS_MAX);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(ETAG, etag(record.version.get()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(answer)
}

/// A value that counts against the memory for answers, if it is large, until its client took it.
fn counted(answers: &Arc<Quota>, value: Bytes) -> Result<Bytes, Refusal> {
    struct Counted {
        value: Bytes,
        _share: Share,
    }
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.value
        }
    }
    if value.len() < LARGE_ANSWER_BYTES {
        return Ok(value);
    }
    match answers.take(value.len()) {
        Some(share) => Ok(Bytes::from_owner(Counted { value, _share: share })),
        None => {
            let detail = "too many bytes of values wait for their clients to take them";
            Err(refuse(ProblemCode::Overloaded, detail))
        }
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer.headers_mut().reserve(ANSWER_HEADERS_MAX);
    answer
}

/// The answer to a write whose condition was false at its place in the log.
fn condition_failed<B: Backend>(
    app: &App<B>,
    current: Option<Version>,
    origin: &Served<()>,
) -> Answer {
    let code = ProblemCode::PreconditionFailed;
    let problem = match current {
        Some(version) => {
            Problem::new(code, format!("the key has version {version}")).with_version(version.get())
        }
        None => Problem::new(code, "the key is absent"),
    };
    app.refuse(problem.with_partition(origin.partition).with_epoch(origin.epoch))
}

fn nonsense(outcome: WriteOutcome) -> Refusal {
    tracing::error!(?outcome, "a write came back with the outcome of another kind of command");
    refuse(ProblemCode::Internal, "the write came back with an outcome that makes no sense")
}

fn failed<B: Backend>(app: &App<B>, error: RequestError) -> Refusal {
    of_request(error, app.backend().view().as_deref())
}

/// A refusal as an answer. What is known of the key's place is said here as well.
fn refused<B: Backend>(app: &App<B>, refusal: Refusal, key: Option<&Bytes>) -> Answer {
    let mut problem = *refusal;
    if problem.partition.is_none()
        && let Some(key) = key
        && let Some(view) = app.backend().view()
    {
        problem.partition = Some(view.ring.partition_of(key));
    }
    let partition = problem.partition;
    let mut answer = app.refuse(problem);
    let headers = answer.headers_mut();
    headers.insert(KV_SERVED_BY, app.name_value().clone());
    if let Some(partition) = partition {
        headers.insert(KV_PARTITION, decimal(u64::from(partition.get())));
    }
    answer
}

/// Takes a result apart into the value and where it came from.
fn taken<T>(served: Served<T>) -> (T, Served<()>) {
    let Served { value, partition, served_by, epoch, staleness_ms } = served;
    (value, Served { value: (), partition, served_by, epoch, staleness_ms })
}

fn name_origin<B: Backend>(app: &App<B>, headers: &mut HeaderMap, origin: &Served<()>) {
    let served_by = if origin.served_by == *app.backend().node_name() {
        app.name_value().clone()
    } else {
        HeaderValue::from_str(origin.served_by.as_str()).expect("names are legal in headers")
    };
    headers.insert(KV_RING_EPOCH, decimal(origin.epoch.get()));
    headers.insert(KV_PARTITION, decimal(u64::from(origin.partition.get())));
    headers.insert(KV_SERVED_BY, served_by);
}

fn consistency_of(query: Option<&str>) -> Result<Consistency, Refusal> {
    let query = Query::parse(query, &["consistency"]).map_err(of_query)?;
    let parse = |text: &str| {
        Some(match kvapi::Consistency::parse(text)? {
            kvapi::Consistency::Linearizable => Consistency::Linearizable,
            kvapi::Consistency::Stale => Consistency::Stale,
        })
    };
    let level = query.parsed("consistency", "`linearizable` or `stale`", parse);
    Ok(level.map_err(of_query)?.unwrap_or_default())
}

fn condition_of(precondition: Precondition) -> Condition {
    match precondition {
        Precondition::None => Condition::Always,
        Precondition::Absent => Condition::Absent,
        Precondition::Exists => Condition::Present,
        Precondition::Version(version) => Condition::Version(Version(version)),
    }
}

fn options<B: Backend>(app: &App<B>, head: &Parts) -> Result<RequestOptions, Refusal> {
    Ok(options_now(app, route_of(&head.headers)?))
}

/// The time for a request runs from here: for a write, from when its body is complete.
fn options_now<B: Backend>(app: &App<B>, route: RouteMode) -> RequestOptions {
    RequestOptions {
        direct: match route {
            RouteMode::Direct => true,
            RouteMode::Forward => false,
        },
        deadline: Instant::now() + app.limits().request_timeout,
    }
}

/// How the request wants to be routed. Its epoch is only a hint, but no reason to take nonsense.
fn route_of(headers: &HeaderMap) -> Result<RouteMode, Refusal> {
    if let Some(epoch) = headers.get(KV_RING_EPOCH) {
        epoch.to_str().ok().and_then(parse_number).ok_or_else(|| bad_header(&KV_RING_EPOCH))?;
    }
    RouteMode::from_headers(headers).map_err(|_| {
        let detail = format!("`{KV_ROUTE}` knows only the value `direct`");
        refuse(ProblemCode::MalformedRequest, detail)
    })
}

fn refuse_idempotency_key(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(not_implemented("the header `Idempotency-Key`"));
    }
    Ok(())
}

/// What these headers say of a body would be lost, and the value come back as something else.
fn refuse_encoded_values(headers: &HeaderMap) -> Result<(), Refusal> {
    for name in [CONTENT_ENCODING, CONTENT_RANGE] {
        if headers.contains_key(&name) {
            let detail = format!(
                "a value is stored as the bytes that are sent, without `{name}`: leave it out"
            );
            return Err(refuse(ProblemCode::MalformedRequest, detail));
        }
    }
    Ok(())
}

/// The type to store; none for the default, which needs no room on disk.
fn content_type_of(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(bad_header(&CONTENT_TYPE));
    }
    let text = value.to_str().map_err(|_| bad_header(&CONTENT_TYPE))?;
    if text.len() > Limits::CONTENT_TYPE_BYTES_MAX {
        let max = Limits::CONTENT_TYPE_BYTES_MAX;
        let detail = format!("`{CONTENT_TYPE}` has more than {max} bytes");
        return Err(refuse(ProblemCode::MalformedRequest, detail));
    }
    let is_default = text.is_empty() || text == CONTENT_TYPE_DEFAULT;
    Ok((!is_default).then(|| text.to_owned()))
}

fn bad_header(name: &HeaderName) -> Refusal {
    refuse(ProblemCode::MalformedRequest, format!("the header `{name}` cannot be understood"))
}
