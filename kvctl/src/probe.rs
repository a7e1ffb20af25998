//! A single `GET` of a health path, for waiting on nodes that may not be there yet.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Answers of health paths are short.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What a node answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// The body's text, on one line.
    pub body: String,
}

/// Asks a node at `host:port`; the error says why there was no answer.
pub async fn get(address: &str, path: &str, timeout: Duration) -> Result<Answer, String> {
    match tokio::time::timeout(timeout, exchange(address, path)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} ms", timeout.as_millis())),
    }
}

async fn exchange(
    address: &str,
    path: &str,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get(path)
        .header(header::HOST, address)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect().await?.to_bytes();
    driver.abort();
    let text = String::from_utf8_lossy(&body);
    let body = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Answer { status, body })
}
