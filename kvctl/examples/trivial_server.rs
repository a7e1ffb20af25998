//! A server that does nothing: it shows how many requests `kvctl bench` can make on a machine.
//!
//! ```text
//! cargo run --release -p kvctl --example trivial_server -- 127.0.0.1:7999
//! kvctl --endpoints 127.0.0.1:7999 bench --route any --connections 128
//! ```

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const VALUE: &[u8] = &[b'v'; 256];

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7999".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                let service = http1::Builder::new();
                // A client that goes away is no event.
                let _ = service.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    })
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_read = request.method() == Method::GET;
    // A body that breaks off is as good as none here.
    let _ = request.into_body().collect().await;
    let mut answer = Response::new(Full::new(match is_read {
        true => Bytes::from_static(VALUE),
        false => Bytes::new(),
    }));
    if !is_read {
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    let headers = answer.headers_mut();
    headers.insert(header::ETAG, HeaderValue::from_static("\"1\""));
    headers.insert("kv-ring-epoch", HeaderValue::from_static("1"));
    headers.insert("kv-served-by", HeaderValue::from_static("n1"));
    Ok(answer)
}
