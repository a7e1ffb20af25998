//! Asks many nodes about themselves at once; a dead one costs its timeout and nothing more.

use std::time::Duration;

use futures_util::future::join_all;
use kvapi::{Client, ClientOptions, Endpoint, NodeInfo};

/// Time for one node's answer; all are asked at the same time.
const NODE_TIMEOUT: Duration = Duration::from_millis(1000);

/// What each node at these addresses says about itself, in their order.
pub async fn ask_all(addresses: &[String]) -> Vec<Result<NodeInfo, String>> {
    join_all(addresses.iter().map(|address| ask(address))).await
}

async fn ask(address: &str) -> Result<NodeInfo, String> {
    let endpoint: Endpoint = address.parse().map_err(|error| format!("{error}"))?;
    let options = ClientOptions {
        deadline: NODE_TIMEOUT,
        connect_timeout: NODE_TIMEOUT / 2,
        // A refused connection is an answer here: one repetition would only delay it.
        backoff_min: NODE_TIMEOUT * 2,
        ..ClientOptions::default()
    };
    let client = Client::new(&[endpoint], options);
    client.node_info(address).await.map_err(|error| error.to_string())
}
