//! Listening, connections and their limits, and the orderly end.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge share a port. What hyper does not bound is bounded here:
//! the number of connections, silence, slow heads, and clients that do not take their answers.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use kvapi::ProblemCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::app::{App, handle};
use super::backend::Backend;
use super::limits::{
    FAREWELL, HEAD_BYTES_MAX, Quota, REFUSALS_AT_ONCE_MAX, STREAMS_PER_CONNECTION_MAX,
};
use super::problem::refuse;
use super::watchdog::{Activity, Verdict, Watchdog, Watched};
use crate::metrics::Closed;

/// Pings on a silent HTTP/2 connection, and how long their answers may take.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// Pause after the system refused to give a connection, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time to tell a client that there are too many connections.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves connections until `stop` holds true, then lets requests under way end, within a bound.
///
/// Returns when no connection is left.
pub async fn serve<B: Backend>(
    listener: TcpListener,
    app: Arc<App<B>>,
    stop: watch::Receiver<bool>,
) {
    let builder = Arc::new(builder());
    let connections = Quota::new(app.limits().connections_max);
    let refusals = Quota::new(REFUSALS_AT_ONCE_MAX);
    let mut tasks = JoinSet::new();
    let mut farewell = pin!(farewell(stop.clone()));
    loop {
        let accepted = tokio::select! {
            () = &mut farewell => break,
            accepted = listener.accept() => accepted,
            // Finished connections are let go of as they end.
            Some(_) = tasks.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let builder = Arc::clone(&builder);
        let app = Arc::clone(&app);
        if let Some(place) = connections.take(1) {
            let stop = stop.clone();
            tasks.spawn(async move {
                app.metrics().http.note_opened();
                connection(stream, &app, &builder, stop).await;
                app.metrics().http.note_ended();
                drop(place);
            });
        } else {
            app.metrics().http.note_closed(Closed::Refused);
            if let Some(place) = refusals.take(1) {
                tasks.spawn(async move {
                    // The time is up for both, whatever comes of it.
                    let _ = timeout(REFUSAL_TIME_MAX, turn_away(stream, app, &builder)).await;
                    drop(place);
                });
            }
        }
    }
    drop(listener);
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(app.limits().drain_timeout, all_ended).await.is_err() {
        tracing::warn!(connections = tasks.len(), "cut off connections that did not end in time");
        tasks.shutdown().await;
    }
}

/// Ends when connections are to be closed: a while after `stop` came to hold true.
async fn farewell(mut stop: watch::Receiver<bool>) {
    // A sender that is gone cannot say stop any more; nobody needs the server then.
    let _ = stop.wait_for(|stop| *stop).await;
    sleep(FAREWELL).await;
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        // A client may close its side after it sent a request and still wait for the answer.
        .half_close(true)
        // Gathering the answers to pipelined requests would lose the last one before bad input.
        .pipeline_flush(false)
        .max_buf_size(HEAD_BYTES_MAX)
        // The watchdog bounds the time for heads; a timer per request would cost more.
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).expect("a small constant"))
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING);
    builder
}

/// Serves one connection to its end.
async fn connection<B: Backend>(
    stream: TcpStream,
    app: &Arc<App<B>>,
    builder: &Builder<TokioExecutor>,
    stop: watch::Receiver<bool>,
) {
    // Fails only for a connection that is gone already.
    let _ = stream.set_nodelay(true);
    let activity = Arc::new(Activity::default());
    let mut watchdog = Watchdog::new(Arc::clone(&activity), app.limits(), Instant::now());
    let mut ticks = interval(watchdog.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
    let stopping = stop.clone();
    let service = service_fn(|request: Request<Incoming>| {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let open = activity.begin(is_multiplexed);
        let app = Arc::clone(app);
        let is_last = *stopping.borrow() && !is_multiplexed;
        async move {
            let mut answer = handle(app, request).await;
            if is_last {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            drop(open);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut farewell = pin!(farewell(stop));
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            _ = ticks.tick() => match watchdog.judge(Instant::now()) {
                Verdict::Keep => {}
                Verdict::Close(Closed::Idle) if !is_ending => {
                    app.metrics().http.note_closed(Closed::Idle);
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                Verdict::Close(reason) => {
                    app.metrics().http.note_closed(reason);
                    tracing::debug!(?reason, "closed a connection");
                    return;
                }
            },
            () = &mut farewell, if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Tells a client that there are too many connections, whatever it asks.
async fn turn_away<B: Backend>(
    stream: TcpStream,
    app: Arc<App<B>>,
    builder: &Builder<TokioExecutor>,
) {
    let service = service_fn(|_: Request<Incoming>| {
        let refusal = refuse(ProblemCode::Overloaded, "too many connections are open");
        let mut answer = app.refuse(*refusal);
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        async move { Ok::<_, Infallible>(answer) }
    });
    // The client is told or not; there is nobody else to tell.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn pause_after(error: &io::Error) {
    let concerns_one_connection = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    );
    if !concerns_one_connection {
        tracing::warn!(%error, "no connection can be accepted");
        sleep(ACCEPT_PAUSE).await;
    }
}
