//! The state that all requests share, and the way of one request from its head to its answer.
//!
//! Dispatch is on the raw path, before anything could rewrite it. Every answer leaves through
//! [`handle`], which adds what all answers carry and counts them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use kvapi::headers::KV_RING_EPOCH;
use kvapi::{Problem, ProblemCode};
use placement::Epoch;
use serde::Serialize;
use tokio::sync::watch;

use super::backend::Backend;
use super::body::RequestBody;
use super::limits::{HttpLimits, Quota};
use super::problem::{RETRY_AFTER_SECONDS, not_implemented, refuse};
use super::ring::RenderedRing;
use super::route::{Route, Verb};
use super::values::decimal;
use super::{admin, kv, openapi, partitions, plans, probes, ring};
use crate::metrics::{Metrics, RouteClass};

/// The body of every answer.
pub type AnswerBody = Full<Bytes>;
/// An answer.
pub type Answer = Response<AnswerBody>;

/// What the requests of one server share.
#[derive(Debug)]
pub struct App<B> {
    backend: B,
    limits: HttpLimits,
    metrics: Arc<Metrics>,
    bodies: Arc<Quota>,
    answers: Arc<Quota>,
    waiters: Arc<Quota>,
    stopping: watch::Receiver<bool>,
    name_value: HeaderValue,
    pub(super) rendered_ring: RenderedRing,
}

impl<B: Backend> App<B> {
    /// The face of a node. Once `stopping` holds true, long polls end and `/readyz` says no.
    pub fn new(
        backend: B,
        limits: HttpLimits,
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let name = backend.node_name().as_str();
        let name_value = HeaderValue::from_str(name).expect("names are legal in headers");
        Self {
            bodies: Quota::new(limits.bodies_bytes_max),
            answers: Quota::new(limits.answers_bytes_max),
            waiters: Quota::new(limits.waiters_max),
            backend,
            limits,
            metrics,
            stopping,
            name_value,
            rendered_ring: RenderedRing::default(),
        }
    }

    /// The node behind.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The limits in force.
    pub fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    /// The counters.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Bytes of request bodies in memory.
    pub fn bodies(&self) -> &Arc<Quota> {
        &self.bodies
    }

    /// Bytes of large values that wait for their clients.
    pub fn answers(&self) -> &Arc<Quota> {
        &self.answers
    }

    /// Long polls under way.
    pub fn waiters(&self) -> &Arc<Quota> {
        &self.waiters
    }

    /// Whether the node is about to stop, and when it will be.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    /// Name of this node as a header value.
    pub fn name_value(&self) -> &HeaderValue {
        &self.name_value
    }

    /// A problem as an answer, with the epoch in force here unless it names another.
    pub fn refuse(&self, mut problem: Problem) -> Answer {
        if problem.epoch == Epoch::ZERO {
            problem.epoch = self.backend.epoch();
        }
        problem.to_response(RETRY_AFTER_SECONDS).map(Full::new)
    }
}

/// A document as an answer.
pub fn json<T: Serialize>(document: &T) -> Answer {
    let body = serde_json::to_vec(document).expect("documents have only strings and numbers");
    content("application/json", Bytes::from(body))
}

/// An answer with a body of this type.
pub fn content(content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Answers one request.
pub async fn handle<B: Backend>(app: Arc<App<B>>, request: Request<Incoming>) -> Answer {
    let started = Instant::now();
    let (head, incoming) = request.into_parts();
    let mut body = RequestBody::new(&head, incoming);
    let route = Route::of(head.uri.path());
    let mut answer = dispatch(&app, &head, &mut body, route).await;
    body.dismiss();
    if !answer.headers().contains_key(KV_RING_EPOCH) {
        let epoch = decimal(app.backend.epoch().get());
        answer.headers_mut().insert(KV_RING_EPOCH, epoch);
    }
    if head.method == Method::HEAD {
        leave_out_body(&mut answer);
    }
    app.metrics.http.note(class_of(route), &head.method, answer.status(), started.elapsed());
    answer
}

async fn dispatch<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
    route: Option<Route<'_>>,
) -> Answer {
    let Some(route) = route else {
        let path = head.uri.path();
        let shown: String = path.chars().take(128).collect();
        let detail = format!("no call has the path `{shown}`");
        return app.refuse(*refuse(ProblemCode::NoSuchRoute, detail));
    };
    let allowed = route.verbs();
    let Some(verb) = Verb::of(&head.method).filter(|verb| allowed.verbs.contains(verb)) else {
        let detail = format!("only {} apply here", allowed.allow);
        let mut answer = app.refuse(*refuse(ProblemCode::MethodNotAllowed, detail));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed.allow));
        return answer;
    };
    let result = match route {
        Route::Key(path) => return kv::answer(app, head, body, path, verb).await,
        // The other calls are rare and their futures large; boxed, they leave this one small.
        Route::Ring => Box::pin(ring::ring(app, head)).await,
        Route::Locate(path) => ring::locate(app, head, path),
        Route::Live => probes::live(head),
        Route::Ready => probes::ready(app, head),
        Route::Version => probes::version(app, head),
        Route::Metrics => Box::pin(probes::metrics(app, head)).await,
        Route::OpenApi => openapi::document(head),
        Route::AdminNode => Box::pin(admin::node(app, head)).await,
        Route::AdminStatus => Box::pin(admin::status(app, head)).await,
        Route::AdminRing => Box::pin(admin::ring_history(app, head)).await,
        Route::AdminInit => Box::pin(admin::init(app, head, body)).await,
        Route::AdminTransfer => Box::pin(admin::transfer(app, head, body)).await,
        Route::AdminPartitions => Box::pin(partitions::partitions(app, head)).await,
        Route::Plan => Box::pin(plans::draft(app, head)).await,
        Route::PlanStage => Box::pin(plans::stage(app, head, body)).await,
        Route::PlanClear => Box::pin(plans::clear(app, head)).await,
        Route::PlanApply => Box::pin(plans::apply(app, head, body)).await,
        Route::Migrations => Box::pin(plans::migrations(app, head)).await,
        Route::Why => Box::pin(plans::why(app, head)).await,
        Route::PlanOrder => Box::pin(plans::order(app, head, body)).await,
        Route::Settings => Box::pin(plans::settings(app, head, body, verb)).await,
        Route::Scan => Err(not_implemented("listing keys")),
        Route::Batch => Err(not_implemented("batches")),
        Route::Watch => Err(not_implemented("watching for changes")),
    };
    result.unwrap_or_else(|refusal| app.refuse(*refusal))
}

/// What `GET` would answer, without its body but with its length.
fn leave_out_body(answer: &mut Answer) {
    let has_no_length =
        matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length) = answer.body().size_hint().exact()
        && !has_no_length
    {
        answer.headers_mut().insert(CONTENT_LENGTH, decimal(length));
    }
    *answer.body_mut() = Full::default();
}

fn class_of(route: Option<Route<'_>>) -> RouteClass {
    match route {
        Some(Route::Key(_)) => RouteClass::Key,
        Some(Route::Scan | Route::Batch | Route::Watch) => RouteClass::Keys,
        Some(Route::Ring | Route::Locate(_)) => RouteClass::Ring,
        Some(
            Route::AdminNode
            | Route::AdminInit
            | Route::AdminStatus
            | Route::AdminTransfer
            | Route::AdminRing
            | Route::AdminPartitions
            | Route::Plan
            | Route::PlanStage
            | Route::PlanClear
            | Route::PlanApply
            | Route::Migrations
            | Route::Why
            | Route::PlanOrder
            | Route::Settings,
        ) => RouteClass::Admin,
        Some(Route::Live | Route::Ready | Route::Version | Route::Metrics | Route::OpenApi)
        | None => RouteClass::Other,
    }
}
