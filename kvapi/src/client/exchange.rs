//! One request sent once, and what is known afterwards.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::{Instant, timeout_at};

use super::pool::{Connection, NodePool};

/// Largest answer that is read: above the largest value and any ring document.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How often a request goes to another connection because the node had closed the one it was on.
const STALE_CONNECTIONS_MAX: usize = 8;

/// How one exchange ended.
#[derive(Debug)]
pub(super) enum Exchange {
    /// The node answered.
    Answered(Response<Bytes>),
    /// No byte of the request was sent.
    NotSent(String),
    /// The request may have been sent, in part or whole, and no answer came.
    Broken(String),
}

/// Sends a request over an idle connection or a new one, and reads the answer to the end.
pub(super) async fn exchange(
    pool: &NodePool,
    request: &Request<Bytes>,
    connect_timeout: Duration,
    deadline: Instant,
) -> Exchange {
    for _ in 0..STALE_CONNECTIONS_MAX {
        let connection = match pool.take_idle() {
            Some(connection) => connection,
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                match pool.dial(connect_timeout.min(left)).await {
                    Ok(connection) => connection,
                    Err(reason) => return Exchange::NotSent(reason),
                }
            }
        };
        match send(pool, connection, request, deadline).await {
            Some(ended) => return ended,
            None => continue,
        }
    }
    Exchange::NotSent(format!("{}: connections are closed at once", pool.authority()))
}

/// `None` if the connection turned out to be closed before a byte was sent.
async fn send(
    pool: &NodePool,
    mut connection: Connection,
    request: &Request<Bytes>,
    deadline: Instant,
) -> Option<Exchange> {
    let ready = connection.ready();
    if !matches!(timeout_at(deadline, ready).await, Ok(Ok(()))) {
        return None;
    }
    let answer =
        match timeout_at(deadline, connection.try_send_request(outgoing(pool, request))).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(mut error)) => {
                // Only a request that never left the queue comes back.
                if error.take_message().is_some() {
                    return None;
                }
                return Some(broken(pool, &root_cause(error.error())));
            }
            Err(_) => return Some(broken(pool, "no answer before the deadline")),
        };
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect();
    let body = match timeout_at(deadline, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return Some(broken(pool, &format!("the answer broke off: {error}"))),
        Err(_) => {
            return Some(broken(pool, "the answer was not complete before the deadline"));
        }
    };
    pool.give_back(connection);
    Some(Exchange::Answered(Response::from_parts(head, body)))
}

fn outgoing(pool: &NodePool, request: &Request<Bytes>) -> Request<Full<Bytes>> {
    let mut copy = Request::new(Full::new(request.body().clone()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy.headers_mut().insert(header::HOST, pool.host().clone());
    copy
}

fn broken(pool: &NodePool, reason: &str) -> Exchange {
    Exchange::Broken(format!("{}: {reason}", pool.authority()))
}

fn root_cause(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
