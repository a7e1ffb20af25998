//! The HTTP face over raw sockets: what is sent and what comes back, byte by byte.

mod bodies;
mod connections;
mod fake;
mod golden;
mod keys;
mod plans;
mod problems;
mod raw;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{App, HttpLimits, serve};
use crate::metrics::Metrics;
use fake::Fake;
use raw::Raw;

/// A server in this process.
struct TestServer {
    app: Arc<App<Fake>>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl TestServer {
    async fn start(fake: Fake, limits: HttpLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let metrics = Arc::new(Metrics::new());
        let app = Arc::new(App::new(fake, limits, metrics, stopping.clone()));
        let task = tokio::spawn(serve(listener, Arc::clone(&app), stopping));
        Self { app, address, stop, task }
    }

    async fn founded() -> Self {
        Self::start(Fake::founded(), HttpLimits::default()).await
    }

    async fn connect(&self) -> Raw {
        Raw::connect(self.address).await
    }

    fn backend(&self) -> &Fake {
        self.app.backend()
    }
}
