//! Reading request bodies: bounded in bytes, in time, and in memory over all requests.
//!
//! A body that is not wanted is still read for a while after the answer went out. A client that
//! sends all before it listens would otherwise meet a reset connection and never see why.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use thiserror::Error;
use tokio::time::timeout;

use super::limits::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX, HttpLimits, Quota, Share};
use std::sync::Arc;

/// Memory that a body of unknown length is given at first.
const CHUNKED_BYTES_AT_FIRST: usize = 16 << 10;

/// Why a body was not taken. The request has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// It is longer than allowed; found out by its declared length or while reading.
    #[error("the body is longer than {bytes_max} bytes")]
    TooLarge {
        /// The most allowed.
        bytes_max: usize,
    },
    /// The bodies of all requests together take too much memory.
    #[error("too many bytes of request bodies are in memory")]
    Overloaded,
    /// It did not arrive in time.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The connection ended before the body did, or its framing is wrong.
    #[error("the body ended early or is wrongly framed")]
    Broken,
}

/// A whole body, and its share of the memory for bodies.
#[derive(Debug)]
pub struct WholeBody {
    /// The bytes, in memory of exactly their size.
    pub bytes: Bytes,
    /// Held for as long as the bytes are.
    pub share: Share,
}

/// The body of one request, read at most once.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    /// The client sends nothing before it is asked to, and nobody asked.
    is_held_back: bool,
    /// Leaving a body unread closes the connection, but for HTTP/2, where it ends only the stream.
    is_draining_useful: bool,
}

impl RequestBody {
    /// The body that belongs to a request's head.
    #[must_use]
    pub fn new(head: &Parts, incoming: Incoming) -> Self {
        let is_empty = incoming.is_end_stream();
        Self {
            is_held_back: !is_empty && head.headers.contains_key(header::EXPECT),
            is_draining_useful: head.version != Version::HTTP_2,
            incoming,
        }
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// [`BodyError`]; the rest of the body is then still to be [dismissed](Self::dismiss).
    pub async fn read(
        &mut self,
        bytes_max: usize,
        quota: &Arc<Quota>,
        limits: &HttpLimits,
    ) -> Result<WholeBody, BodyError> {
        let too_large = BodyError::TooLarge { bytes_max };
        let declared = match self.incoming.size_hint().exact() {
            None => None,
            Some(length) => match usize::try_from(length) {
                Ok(length) if length <= bytes_max => Some(length),
                Ok(_) | Err(_) => return Err(too_large),
            },
        };
        let reserved = declared.unwrap_or(CHUNKED_BYTES_AT_FIRST.min(bytes_max));
        let mut share = quota.take(reserved).ok_or(BodyError::Overloaded)?;
        let mut bytes = Vec::with_capacity(reserved);
        let mut pieces = Pieces::new(limits);
        self.is_held_back = false;
        while !self.incoming.is_end_stream() {
            let Some(piece) = pieces.next(&mut self.incoming).await? else { break };
            let length = bytes.len() + piece.len();
            if length > bytes_max {
                return Err(too_large);
            }
            if length > bytes.capacity() {
                let capacity = length.max(bytes.capacity() * 2).min(bytes_max);
                if !share.grow(capacity - bytes.capacity()) {
                    return Err(BodyError::Overloaded);
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(WholeBody { bytes: Bytes::from(bytes.into_boxed_slice()), share })
    }

    /// Lets go of the body, read or not: what the client may still be sending is read and dropped
    /// beside the answer, for a while.
    pub fn dismiss(self) {
        let is_done = self.incoming.is_end_stream() || self.is_held_back;
        if !is_done && self.is_draining_useful {
            tokio::spawn(timeout(DRAIN_TIME_MAX, drain(self.incoming)));
        }
    }
}

/// Reads a body piece by piece, within the time limits.
struct Pieces {
    pause_max: Duration,
    deadline: Instant,
}

impl Pieces {
    fn new(limits: &HttpLimits) -> Self {
        Self { pause_max: limits.body_pause_max, deadline: Instant::now() + limits.body_timeout }
    }

    async fn next(&mut self, incoming: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match timeout(self.pause_max.min(left), incoming.frame()).await {
                Err(_) => return Err(BodyError::TooSlow),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(BodyError::Broken),
                // Trailers carry nothing that this API knows.
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

async fn drain(mut incoming: Incoming) {
    let mut drained = 0;
    while drained < DRAIN_BYTES_MAX
        && let Some(Ok(frame)) = incoming.frame().await
    {
        drained += frame.data_ref().map_or(0, |piece| piece.len() as u64);
    }
}
