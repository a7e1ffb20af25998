//! The ring and where a key lives on it: `GET /v1/ring` and `GET /v1/locate/{key}`.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, VARY};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use kvapi::headers::{CONTENT_TYPE_DEFAULT, KV_PARTITION, KV_RING_EPOCH};
use kvapi::{KeyPath, ProblemCode, ReadCondition};
use kvcore::Revision;
use placement::Epoch;

use super::app::{Answer, App, json};
use super::backend::Backend;
use super::describe;
use super::limits::POLL_WAIT_MAX;
use super::problem::{Refusal, not_initialised, of_condition, of_key, of_query, refuse};
use super::query::{Query, parse_duration, parse_number};
use super::values::{decimal, etag};
use crate::view::View;

/// The last view that was asked for, as bytes: a large ring is not written out for each client.
#[derive(Debug, Default)]
pub struct RenderedRing {
    current: ArcSwapOption<Rendered>,
}

#[derive(Debug)]
struct Rendered {
    revision: Revision,
    epoch: Epoch,
    json: Bytes,
    canonical: Bytes,
}

impl RenderedRing {
    fn of(&self, view: &View) -> Arc<Rendered> {
        let revision = view.state.revision;
        if let Some(current) = self.current.load_full()
            && current.revision == revision
            && current.epoch == view.epoch()
        {
            return current;
        }
        let document = describe::ring_document(&view.state, &view.state.ring);
        let json = serde_json::to_vec(&document).expect("a ring has only strings and numbers");
        let rendered = Arc::new(Rendered {
            revision,
            epoch: view.epoch(),
            json: Bytes::from(json),
            canonical: Bytes::from(view.state.ring.canonical_bytes()),
        });
        self.current.store(Some(Arc::clone(&rendered)));
        rendered
    }
}

/// `GET /v1/ring`.
pub async fn ring<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    let known = ["after_epoch", "wait", "epoch"];
    let query = Query::parse(head.uri.query(), &known).map_err(of_query)?;
    if let Some(epoch) =
        query.parsed("epoch", "a decimal number", parse_number).map_err(of_query)?
    {
        return older(app, head, &query, Epoch::new(epoch));
    }
    let after = query.parsed("after_epoch", "a decimal number", parse_number).map_err(of_query)?;
    let wait = query.parsed("wait", "a time such as `30s`", parse_duration).map_err(of_query)?;
    let condition = ReadCondition::for_get(&head.headers).map_err(of_condition)?;
    let view = match (after, wait) {
        (None, Some(_)) => {
            let detail = "`wait` needs `after_epoch`: the epoch that is known already";
            return Err(refuse(ProblemCode::MalformedRequest, detail));
        }
        (None, None) => app.backend().view().ok_or_else(not_initialised)?,
        (Some(after), wait) => {
            let after = Epoch::new(after);
            let wait = wait.unwrap_or(Duration::ZERO).min(POLL_WAIT_MAX);
            match newer_than(app, after, wait).await? {
                Some(view) => view,
                None => return Ok(not_modified(app.backend().epoch())),
            }
        }
    };
    if condition.is_not_modified(view.epoch().get()) {
        return Ok(not_modified(view.epoch()));
    }
    let rendered = app.rendered_ring.of(&view);
    let (content_type, body) = if wants_canonical_bytes(&head.headers) {
        (CONTENT_TYPE_DEFAULT, &rendered.canonical)
    } else {
        ("application/json", &rendered.json)
    };
    let mut answer = Response::new(Full::new(body.clone()));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(ETAG, etag(rendered.epoch.get()));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(KV_RING_EPOCH, decimal(rendered.epoch.get()));
    Ok(answer)
}

/// `GET /v1/ring?epoch=E`: the ring in force, or one that a plan still keeps for a way back. The
/// directory is the one of now.
fn older<B: Backend>(
    app: &App<B>,
    head: &Parts,
    query: &Query<'_>,
    epoch: Epoch,
) -> Result<Answer, Refusal> {
    if query.get("after_epoch").or(query.get("wait")).is_some() {
        let detail = "`epoch` names a ring; there is nothing to wait for";
        return Err(refuse(ProblemCode::MalformedRequest, detail));
    }
    let view = app.backend().view().ok_or_else(not_initialised)?;
    let Some(ring) = describe::kept_ring(&view.state, epoch) else {
        let detail = format!("no ring of epoch {epoch} is kept");
        return Err(refuse(ProblemCode::NoSuchEpoch, detail));
    };
    let (content_type, body) = match wants_canonical_bytes(&head.headers) {
        true => (CONTENT_TYPE_DEFAULT, ring.canonical_bytes()),
        false => {
            let document = describe::ring_document(&view.state, ring);
            let json = serde_json::to_vec(&document);
            ("application/json", json.expect("a ring has only strings and numbers"))
        }
    };
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(ETAG, etag(epoch.get()));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    Ok(answer)
}

/// `GET /v1/locate/{key}`.
pub fn locate<B: Backend>(
    app: &App<B>,
    head: &Parts,
    path: KeyPath<'_>,
) -> Result<Answer, Refusal> {
    let key = path.key().map_err(of_key)?;
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let located = app.backend().locate(&key).ok_or_else(not_initialised)?;
    let view = app.backend().view().ok_or_else(not_initialised)?;
    let mut answer = json(&describe::located(&view, &located));
    let headers = answer.headers_mut();
    headers.insert(KV_PARTITION, decimal(u64::from(located.placement.partition.get())));
    headers.insert(KV_RING_EPOCH, decimal(located.placement.epoch.get()));
    Ok(answer)
}

/// A view of a later epoch, now or within the time; a stopping node waits for nothing.
async fn newer_than<B: Backend>(
    app: &App<B>,
    after: Epoch,
    wait: Duration,
) -> Result<Option<Arc<View>>, Refusal> {
    let view = app.backend().view();
    if let Some(view) = view.filter(|view| view.epoch() > after) {
        return Ok(Some(view));
    }
    if wait.is_zero() {
        return Ok(None);
    }
    let waiters = app.waiters();
    let Some(_place) = waiters.take(1) else {
        return Err(refuse(ProblemCode::Overloaded, "too many long polls are under way"));
    };
    let mut stopping = app.stopping();
    Ok(tokio::select! {
        view = app.backend().wait_for_epoch(after, wait) => view,
        _ = stopping.wait_for(|stopping| *stopping) => None,
    })
}

fn not_modified(epoch: Epoch) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NOT_MODIFIED;
    let headers = answer.headers_mut();
    headers.insert(KV_RING_EPOCH, decimal(epoch.get()));
    if epoch != Epoch::ZERO {
        headers.insert(ETAG, etag(epoch.get()));
    }
    answer
}

/// Whether the client asks for the canonical bytes and not for JSON.
fn wants_canonical_bytes(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
    let mut types = lists
        .flat_map(|list| list.split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .filter(|media_type| {
            media_type == CONTENT_TYPE_DEFAULT || media_type == "application/json"
        });
    types.next().is_some_and(|media_type| media_type == CONTENT_TYPE_DEFAULT)
}
