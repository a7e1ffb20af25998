//! Asks many nodes about themselves at once; a dead one costs its timeout and nothing more.

use std::time::Duration;

use futures_util::future::join_all;
use kvapi::admin::NODE_PATH;
use kvapi::{Client, ClientOptions, Endpoint, NodeInfo};

/// Time for one node's answer; all are asked at the same time.
const NODE_TIMEOUT: Duration = Duration::from_millis(1000);

/// What each node at these addresses says about itself, in their order.
pub async fn ask_all(addresses: &[String]) -> Vec<Result<NodeInfo, String>> {
    join_all(addresses.iter().map(|address| ask(address))).await
}

/// The same with each node's replicas one by one.
pub async fn ask_all_for_replicas(addresses: &[String]) -> Vec<Result<NodeInfo, String>> {
    let path = format!("{NODE_PATH}?replicas=true");
    let ask = async |address: &String| {
        let client = client(address)?;
        client.ask(&path).await.map_err(|error| error.to_string())
    };
    join_all(addresses.iter().map(ask)).await
}

async fn ask(address: &str) -> Result<NodeInfo, String> {
    client(address)?.node_info(address).await.map_err(|error| error.to_string())
}

/// A client of one node, which is asked once.
fn client(address: &str) -> Result<Client, String> {
    let endpoint: Endpoint = address.parse().map_err(|error| format!("{error}"))?;
    let options = ClientOptions {
        deadline: NODE_TIMEOUT,
        connect_timeout: NODE_TIMEOUT / 2,
        // A refused connection is an answer here: one repetition would only delay it.
        backoff_min: NODE_TIMEOUT * 2,
        ..ClientOptions::default()
    };
    Ok(Client::new(&[endpoint], options))
}
