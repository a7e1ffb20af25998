//! The calls of operators under `/v1/admin`: what a node and a cluster say of themselves, and orders.

use std::time::Instant;

use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use kvapi::admin::{InitRequest, TransferAnswer, TransferRequest};
use kvapi::{Problem, ProblemCode};
use placement::{PartitionBits, ReplicationFactor};
use serde::de::DeserializeOwned;

use super::app::{Answer, App, json};
use super::backend::Backend;
use super::body::RequestBody;
use super::describe;
use super::limits::JSON_BYTES_MAX;
use super::problem::{Refusal, not_initialised, of_body, of_init, of_query, of_transfer, refuse};
use super::query::Query;
use crate::founding::{FoundingOptions, FoundingStart};

/// Most nodes that found a cluster together; more join afterwards.
const FOUNDERS_MAX: usize = 1024;

/// `GET /v1/admin/node`; `?replicas=true` adds the replicas one by one.
pub async fn node<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    let query = Query::parse(head.uri.query(), &["replicas"]).map_err(of_query)?;
    let parse = |text: &str| text.parse::<bool>().ok();
    let replicas = query.parsed("replicas", "`true` or `false`", parse).map_err(of_query)?;
    Ok(json(&app.backend().node_info(replicas.unwrap_or(false)).await))
}

/// `GET /v1/admin/status`.
pub async fn status<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    Ok(json(&describe::status(&view, app.backend().knowledge())))
}

/// `GET /v1/admin/ring`.
pub async fn ring_history<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    Ok(json(&describe::ring_history(&view)))
}

/// `POST /v1/admin/init`.
pub async fn init<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let request: InitRequest = read_json(app, head, body).await?;
    let options = founding_options(&request)?;
    let founded = app.backend().init(request.founders, options).await.map_err(of_init)?;
    match founded.start {
        FoundingStart::Fresh | FoundingStart::Resumed => Ok(json(&describe::founded(&founded))),
        FoundingStart::Complete => {
            let detail = format!("cluster {} was founded before", founded.cluster);
            let problem = Problem::new(ProblemCode::AlreadyInitialised, detail);
            Err(Box::new(problem.with_hint("kvctl status")))
        }
    }
}

/// `POST /v1/admin/transfer`.
pub async fn transfer<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let TransferRequest { partition, to } = read_json(app, head, body).await?;
    let deadline = Instant::now() + app.limits().request_timeout;
    let moved = app.backend().transfer(partition, to.clone(), deadline).await;
    moved.map_err(|error| of_transfer(error, app.backend().view().as_deref()))?;
    Ok(json(&TransferAnswer { partition, leader: to }))
}

fn founding_options(request: &InitRequest) -> Result<FoundingOptions, Refusal> {
    let malformed = |detail: String| refuse(ProblemCode::MalformedRequest, detail);
    if request.founders.is_empty() || request.founders.len() > FOUNDERS_MAX {
        return Err(malformed(format!("`founders` names 1 to {FOUNDERS_MAX} peer addresses")));
    }
    let partition_bits = PartitionBits::from_count(request.partitions)
        .map_err(|error| malformed(format!("`partitions`: {error}")))?;
    let replication_factor = ReplicationFactor::new(request.replication_factor)
        .map_err(|error| malformed(format!("`replication_factor`: {error}")))?;
    Ok(FoundingOptions {
        partition_bits,
        replication_factor,
        vnodes_per_node: request.vnodes_per_node,
        policy: request.policy,
    })
}

/// Reads the body as JSON of one type.
pub(super) async fn read_json<T: DeserializeOwned, B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<T, Refusal> {
    if !is_json(&head.headers) {
        let detail = "the body must be JSON, with `Content-Type: application/json`";
        return Err(refuse(ProblemCode::UnsupportedMediaType, detail));
    }
    let body = body.read(JSON_BYTES_MAX, app.bodies(), app.limits()).await.map_err(of_body)?;
    serde_json::from_slice(&body.bytes).map_err(|error| {
        refuse(
            ProblemCode::MalformedRequest,
            format!("the body is not what this call takes: {error}"),
        )
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(text) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
