//! Who this node is, as everything in the process that speaks to others needs it.

use std::sync::{Arc, OnceLock};

use kvcore::ClusterId;
use kvcore::cluster::Registration;
use placement::NodeId;

use crate::transport::frame::Sender;
use crate::view::ViewHandle;

/// This node: what it says of itself, the cluster it belongs to, and its view.
#[derive(Clone, Debug)]
pub struct LocalNode {
    shared: Arc<Shared>,
    view: ViewHandle,
}

#[derive(Debug)]
struct Shared {
    registration: Registration,
    cluster: OnceLock<ClusterId>,
}

impl LocalNode {
    /// A node as it starts: `cluster` is what its disk says.
    #[must_use]
    pub fn new(registration: Registration, cluster: Option<ClusterId>, view: ViewHandle) -> Self {
        let shared = Shared { registration, cluster: OnceLock::new() };
        let local = Self { shared: Arc::new(shared), view };
        if let Some(cluster) = cluster {
            local.belongs_to(cluster);
        }
        local
    }

    /// The node's identity.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.registration.id
    }

    /// What the node says of itself.
    #[must_use]
    pub fn registration(&self) -> &Registration {
        &self.shared.registration
    }

    /// The cluster the node belongs to, for ever; none before it accepted one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.shared.cluster.get().copied()
    }

    /// Notes the cluster that the node has accepted, durably.
    pub(crate) fn belongs_to(&self, cluster: ClusterId) {
        let noted = self.shared.cluster.get_or_init(|| cluster);
        assert_eq!(*noted, cluster, "the disk lets a node accept one cluster");
    }

    /// The view in force.
    #[must_use]
    pub fn view(&self) -> &ViewHandle {
        &self.view
    }

    /// How the node stands in the header of a frame sent now.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender { cluster: self.cluster(), node: self.id(), epoch: self.view.epoch() }
    }
}
