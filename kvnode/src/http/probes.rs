//! What machines ask of a node: whether it lives and serves, its version, its numbers.

use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use kvapi::{Problem, ProblemCode};
use placement::Epoch;
use serde::Serialize;

use super::app::{Answer, App, content, json};
use super::backend::Backend;
use super::partitions;
use super::problem::{Refusal, not_initialised, of_query};
use super::query::Query;

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The answer of `GET /version`.
#[derive(Debug, Serialize)]
struct VersionAnswer<'a> {
    program: &'static str,
    version: &'static str,
    node: &'a str,
}

/// `GET /livez`: that this is answered is the answer.
pub fn live(head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    Ok(content(TEXT, Bytes::from_static(b"alive\n")))
}

/// `GET /readyz`: whether requests should be sent here, else why not.
pub fn ready<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    if *app.stopping().borrow() {
        let problem = Problem::new(ProblemCode::ShuttingDown, "the node is shutting down");
        return Err(Box::new(problem));
    }
    match app.backend().ready() {
        Ok(()) => Ok(content(TEXT, Bytes::from_static(b"ready\n"))),
        Err(_) if app.backend().epoch() == Epoch::ZERO => Err(not_initialised()),
        Err(reasons) => Err(Box::new(Problem::new(ProblemCode::NoLeader, reasons.join("; ")))),
    }
}

/// `GET /version`.
pub fn version<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    Ok(json(&VersionAnswer {
        program: "kvnode",
        version: env!("CARGO_PKG_VERSION"),
        node: app.backend().node_name().as_str(),
    }))
}

/// `GET /metrics`, in Prometheus' text format.
pub async fn metrics<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let gauges = [
        ("ringkv_ring_epoch", "Epoch of the ring in force.", app.backend().epoch().get()),
        (
            "ringkv_http_bodies_bytes",
            "Bytes of request bodies in memory.",
            app.bodies().used() as u64,
        ),
        (
            "ringkv_http_answers_bytes",
            "Bytes of large values that wait for their clients.",
            app.answers().used() as u64,
        ),
        ("ringkv_http_waiters", "Long polls under way.", app.waiters().used() as u64),
    ];
    let mut text = app.metrics().render(&gauges);
    let reports = app.backend().reports(false, Instant::now()).await;
    reports.values().for_each(|report| text.push_str(&partitions::series(report)));
    Ok(content(PROMETHEUS, Bytes::from(text)))
}
