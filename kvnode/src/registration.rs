//! Entering the directory: a new node asks its seeds, a member tells the cluster what changed.

use kvcore::cluster::ClusterRefusal;
use placement::Epoch;

/// How far a node's registration has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrationState {
    /// No cluster is known and no seeds are given: the node waits to be founded.
    #[default]
    Waiting,
    /// A cluster is looked for or asked.
    Asking,
    /// The directory says of this node what it says of itself.
    Registered {
        /// The epoch in which that was seen.
        epoch: Epoch,
    },
    /// The cluster refused this node; it is asked again, since a name may become free.
    Refused(ClusterRefusal),
}
