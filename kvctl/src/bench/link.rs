//! A connection that its worker drives itself: no task, no wake-up from one task to another.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kvapi::headers::{KV_RING_EPOCH, KV_ROUTE};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// Most bytes kept of the body of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// An open connection to a node.
pub struct Link {
    sender: SendRequest<Full<Bytes>>,
    driver: Option<Pin<Box<Driver>>>,
    headers: HeaderMap,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Epoch of the ring at the node.
    pub epoch: Option<u64>,
    /// The body of a refusal; empty for values.
    pub refusal: Bytes,
}

/// Why nothing came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The connection was closed before a byte was sent.
    NotSent,
    /// It broke afterwards.
    Broken,
    /// No answer in time.
    Timeout,
}

/// A timer for the current request. Arming the runtime's timer for each request would cost more
/// than the rest of the bookkeeping, so it is moved only when it fires too early.
pub struct Watchdog {
    sleep: Pin<Box<Sleep>>,
    timeout: Duration,
}

impl Watchdog {
    /// A timer for requests that may take this long.
    pub fn new(timeout: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(timeout)), timeout }
    }

    fn is_over(&mut self, started: Instant, context: &mut std::task::Context<'_>) -> bool {
        while self.sleep.as_mut().poll(context).is_ready() {
            let deadline = started + self.timeout;
            if Instant::now() >= deadline {
                return true;
            }
            self.sleep.as_mut().reset(deadline);
        }
        false
    }
}

impl Link {
    /// Connects to a node.
    pub async fn open(address: &str, is_direct: bool) -> Result<Self, LinkError> {
        let host = HeaderValue::from_str(address).map_err(|_| LinkError::NotSent)?;
        let stream = TcpStream::connect(address).await.map_err(|_| LinkError::NotSent)?;
        stream.set_nodelay(true).map_err(|_| LinkError::NotSent)?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) = shaken.map_err(|_| LinkError::NotSent)?;
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::HOST, host);
        if is_direct {
            headers.insert(KV_ROUTE, HeaderValue::from_static("direct"));
        }
        Ok(Self { sender, driver: Some(Box::pin(driver)), headers })
    }

    /// Sends a request and reads the answer to the end. After an error the link is of no more use.
    pub async fn exchange(
        &mut self,
        method: Method,
        uri: Uri,
        body: Bytes,
        started: Instant,
        watchdog: &mut Watchdog,
    ) -> Result<Reply, LinkError> {
        let Self { sender, driver, headers } = self;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers.clone();
        let exchange = async move {
            sender.ready().await.map_err(|_| LinkError::NotSent)?;
            let sent = sender.try_send_request(request).await;
            let answer = sent.map_err(|mut error| match error.take_message() {
                Some(_) => LinkError::NotSent,
                None => LinkError::Broken,
            })?;
            let status = answer.status().as_u16();
            let epoch = answer.headers().get(KV_RING_EPOCH).and_then(parse_number);
            let mut body = answer.into_body();
            let mut refusal = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| LinkError::Broken)?;
                if let (400.., Ok(data)) = (status, frame.into_data())
                    && refusal.len() + data.len() <= REFUSAL_BYTES_MAX
                {
                    refusal.extend_from_slice(&data);
                }
            }
            Ok::<Reply, LinkError>(Reply { status, epoch, refusal: refusal.freeze() })
        };
        let mut exchange = pin!(exchange);
        poll_fn(|context| {
            if let Some(connection) = driver
                && connection.as_mut().poll(context).is_ready()
            {
                // Dropping it ends the exchange with an error, if it has not ended well.
                *driver = None;
            }
            if let Poll::Ready(ended) = exchange.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            match watchdog.is_over(started, context) {
                true => Poll::Ready(Err(LinkError::Timeout)),
                false => Poll::Pending,
            }
        })
        .await
    }
}

fn parse_number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}
