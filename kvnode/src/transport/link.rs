//! What the two connections to a peer have in common: dialling, pausing, and telling of trouble
//! once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use placement::NodeId;

use super::frame::FrameError;
use super::hello::{Channel, ConnectError, Greeted, dial};
use super::socket::BackOff;
use crate::identity::LocalNode;

/// Why peers cannot be reached now, for people.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    by_node: Arc<Mutex<BTreeMap<NodeId, String>>>,
}

impl Troubles {
    /// The peers that cannot be reached now, and why.
    pub fn list(&self) -> BTreeMap<NodeId, String> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how an attempt went; returns whether that is news.
    fn note(&self, node: NodeId, trouble: Option<String>) -> bool {
        let mut by_node = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            None => by_node.remove(&node).is_some(),
            Some(trouble) if by_node.get(&node) == Some(&trouble) => false,
            Some(trouble) => {
                by_node.insert(node, trouble);
                true
            }
        }
    }
}

/// Dials one peer for one purpose, again and again.
#[derive(Debug)]
pub(super) struct Link {
    local: LocalNode,
    troubles: Troubles,
    back_off: BackOff,
}

impl Link {
    pub fn new(local: LocalNode, troubles: Troubles) -> Self {
        Self { local, troubles, back_off: BackOff::new() }
    }

    pub fn local(&self) -> &LocalNode {
        &self.local
    }

    /// Dials the address that the directory gives the peer now; else says how long to pause.
    pub async fn connect(&mut self, node: NodeId, channel: Channel) -> Result<Greeted, Duration> {
        let address = self.local.view().with(|view| {
            Some(view?.node(node)?.registration.peer_address.clone())
        });
        let dialled = match address {
            Some(address) => dial(&self.local, &address, Some(node), channel).await,
            None => Err(ConnectError::UnknownNode { node }),
        };
        match dialled {
            Ok(connection) => {
                self.back_off.reset();
                counter!("ringkv_peer_connects_total", "result" => "ok").increment(1);
                if self.troubles.note(node, None) {
                    tracing::info!(%node, "peer reached again");
                }
                Ok(connection)
            }
            Err(error) => {
                counter!("ringkv_peer_connects_total", "result" => error.label()).increment(1);
                if self.troubles.note(node, Some(error.to_string())) {
                    tracing::warn!(%node, reason = %error, "peer cannot be reached");
                }
                Err(self.back_off.next())
            }
        }
    }

    /// Tells of the end of a connection.
    pub fn lost(&self, channel: &'static str, error: Option<FrameError>) {
        counter!("ringkv_peer_connections_lost_total", "channel" => channel).increment(1);
        if let Some(error) = error {
            tracing::debug!(channel, %error, "connection to a peer ended");
        }
    }
}
