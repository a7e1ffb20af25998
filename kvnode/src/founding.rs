//! Founding a cluster out of started nodes.
//!
//! Every founder durably accepts one cluster id, for ever; nothing is decided before. A founding
//! that was interrupted is taken up by running it again with the same nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvcore::cluster::{
    ClusterState, FOUNDING_REVISION, Founding, FoundingError, Registration, found,
};
use kvcore::{ClusterId, Event, Revision};
use placement::{
    Epoch, NodeId, NodeName, PartitionBits, Redundancy, ReplicationFactor, Ring, TokenPolicy, Zone,
};
use thiserror::Error;
use tokio::time::timeout;

use crate::clock;
use crate::core_thread::CoreHandle;
use crate::fatal::store_failed;
use crate::identity::LocalNode;
use crate::storage::{AcceptError, Database};
use crate::transport::{Identity, PeerAnswer, PeerRefusal, PeerRequest, Peers};

/// Time for a founder to say who it is.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a founder to accept a cluster, durably, and to create its replicas.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the core to put an accepted view in force.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a cluster is founded with, beside its nodes.
#[derive(Clone, Debug)]
pub struct FoundingOptions {
    /// Number of partitions, as a power of two; fixed for the cluster's life.
    pub partition_bits: PartitionBits,
    /// Copies of each partition.
    pub replication_factor: ReplicationFactor,
    /// Tokens per unit of weight, under the `random` policy.
    pub vnodes_per_node: u32,
    /// How tokens are placed.
    pub policy: TokenPolicy,
}

/// A cluster that was founded.
#[derive(Clone, Debug)]
pub struct Founded {
    /// Its id.
    pub cluster: ClusterId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its founders, in order of their names.
    pub founders: Vec<Registration>,
    /// Founders per zone. Nodes of one zone may fail together.
    pub zones: BTreeMap<Zone, usize>,
    /// What the owners' zones protect from.
    pub redundancy: Redundancy,
    /// Number of partitions, as a power of two.
    pub partition_bits: PartitionBits,
    /// How the founding began.
    pub start: FoundingStart,
}

/// How a founding began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundingStart {
    /// No founder had accepted a cluster.
    Fresh,
    /// Some founders had accepted this founding before; it was completed.
    Resumed,
    /// All founders had accepted this founding before; nothing was left to do.
    Complete,
}

/// Why no cluster was founded.
#[derive(Debug, Error)]
pub enum InitError {
    /// A founder does not answer; nothing was changed.
    #[error("{address} does not answer: {reason}; nothing was changed")]
    Unreachable {
        /// Its peer address.
        address: String,
        /// What happened.
        reason: String,
    },
    /// Two addresses lead to the same node; nothing was changed.
    #[error("{first} and {second} are the same node; nothing was changed")]
    SameNode {
        /// One address.
        first: String,
        /// The other address.
        second: String,
    },
    /// Two founders have the same name; nothing was changed.
    #[error("{first} and {second} are both named {name}; nothing was changed")]
    NameTaken {
        /// The name.
        name: NodeName,
        /// Address of one.
        first: String,
        /// Address of the other.
        second: String,
    },
    /// A founder belongs to another cluster than another founder does, or than this founding makes.
    #[error("{address} belongs to cluster {theirs}, not to {ours}")]
    OtherCluster {
        /// Its peer address.
        address: String,
        /// Its cluster.
        theirs: ClusterId,
        /// The cluster that another founder belongs to.
        ours: ClusterId,
    },
    /// A founder is no founder of the cluster that others accepted: it has to join instead.
    #[error("cluster {cluster} was founded without {node} at {address}: let it join instead")]
    NotAFounder {
        /// Its peer address.
        address: String,
        /// The node.
        node: NodeId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// The cluster that some founders accepted has changed since: the rest have to join.
    #[error(
        "cluster {cluster} is at epoch {epoch} already, so {address} cannot be a founder of it any \
         more: let it join instead"
    )]
    TooLate {
        /// The cluster.
        cluster: ClusterId,
        /// Its epoch.
        epoch: Epoch,
        /// Peer address of the node that has not accepted it.
        address: String,
    },
    /// A founder refused what the others accepted.
    #[error("{address} does not accept cluster {cluster}: {reason}")]
    Refused {
        /// Its peer address.
        address: String,
        /// The cluster.
        cluster: ClusterId,
        /// Why.
        reason: String,
    },
    /// These nodes allow no ring; nothing was changed.
    #[error("no cluster can be made of these nodes; nothing was changed")]
    Impossible(#[from] FoundingError),
    /// A founder stopped answering half-way; run it again with the same nodes.
    #[error(
        "{accepted} of {founders} founders have accepted cluster {cluster}, but {address} does not \
         answer: {reason}; run it again with the same nodes"
    )]
    Interrupted {
        /// The cluster.
        cluster: ClusterId,
        /// How many have accepted.
        accepted: usize,
        /// How many there are.
        founders: usize,
        /// The one that does not answer.
        address: String,
        /// What happened.
        reason: String,
    },
}

/// A node as it answered at an address.
struct Candidate {
    address: String,
    identity: Identity,
}

/// Founds a cluster of the nodes at these peer addresses.
pub(crate) async fn init(
    peers: &Peers,
    founders: Vec<String>,
    options: FoundingOptions,
) -> Result<Founded, InitError> {
    let mut candidates = Vec::new();
    for address in founders {
        let identity = identify(peers, &address).await?;
        candidates.push(Candidate { address, identity });
    }
    check_distinct(&candidates)?;
    // Everybody asks in the same order, so that of two foundings at once one stops at its first step.
    candidates.sort_by_key(|candidate| candidate.identity.registration.id);
    let accepted = candidates.iter().filter(|it| it.identity.cluster.is_some()).count();
    let (state, start) = match accepted {
        0 => (new_state(&candidates, &options)?, FoundingStart::Fresh),
        _ => {
            let state = accepted_founding(peers, &candidates).await?;
            let complete = accepted == candidates.len();
            (state, if complete { FoundingStart::Complete } else { FoundingStart::Resumed })
        }
    };
    let missing = candidates.iter().filter(|it| it.identity.cluster.is_none());
    for (so_far, candidate) in (accepted..).zip(missing) {
        accept_at(peers, candidate, &state, (so_far, candidates.len())).await?;
    }
    tracing::info!(cluster = %state.cluster, founders = candidates.len(), "founded a cluster");
    Ok(report(&state, candidates, start))
}

async fn identify(peers: &Peers, address: &str) -> Result<Identity, InitError> {
    let deadline = Instant::now() + IDENTIFY_TIMEOUT;
    let reason = match peers.call_address(address, PeerRequest::Identify, deadline).await {
        Ok((_, PeerAnswer::Identity(identity))) => return Ok(*identity),
        Ok((_, PeerAnswer::Refused(refusal))) => refusal.to_string(),
        Ok(_) => "it answers something else".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(InitError::Unreachable { address: address.to_owned(), reason })
}

fn check_distinct(candidates: &[Candidate]) -> Result<(), InitError> {
    for (place, one) in candidates.iter().enumerate() {
        for other in &candidates[..place] {
            let (first, second) = (other.address.clone(), one.address.clone());
            let (a, b) = (&other.identity.registration, &one.identity.registration);
            if a.id == b.id {
                return Err(InitError::SameNode { first, second });
            }
            if a.name == b.name {
                return Err(InitError::NameTaken { name: a.name.clone(), first, second });
            }
        }
    }
    Ok(())
}

fn new_state(
    candidates: &[Candidate],
    options: &FoundingOptions,
) -> Result<ClusterState, InitError> {
    // Zero stands for "no cluster" in frames.
    let cluster = ClusterId(rand::random::<u128>().max(1));
    let founders = candidates.iter().map(|it| it.identity.registration.clone()).collect();
    let state = found(&Founding {
        cluster,
        founders,
        partition_bits: options.partition_bits,
        replication_factor: options.replication_factor,
        vnodes_per_node: options.vnodes_per_node,
        policy: options.policy,
        now_ms: clock::wall_ms(),
    })?;
    Ok(state)
}

/// The founding that some of the nodes accepted, if it is one that all of them can share.
async fn accepted_founding(
    peers: &Peers,
    candidates: &[Candidate],
) -> Result<ClusterState, InitError> {
    let members = candidates.iter().filter(|it| it.identity.cluster.is_some());
    let mut founding: Option<ClusterState> = None;
    let mut newest = Epoch::ZERO;
    for member in members {
        let address = &member.address;
        let (theirs, ours) = (member.identity.cluster, founding.as_ref().map(|it| it.cluster));
        if let (Some(theirs), Some(ours)) = (theirs, ours)
            && theirs != ours
        {
            return Err(InitError::OtherCluster { address: address.clone(), theirs, ours });
        }
        newest = newest.max(epoch_at(peers, address).await?);
        if let Some(accepted) = founding_at(peers, address).await? {
            founding.get_or_insert(accepted);
        }
    }
    let joined = || {
        // Every one of them came to its cluster later: none can tell how it was founded.
        let it = candidates.iter().find(|it| it.identity.cluster.is_none())?;
        let cluster = candidates.iter().find_map(|it| it.identity.cluster)?;
        let (address, node) = (it.address.clone(), it.identity.registration.id);
        Some(InitError::NotAFounder { address, node, cluster })
    };
    let Some(founding) = founding else {
        return Err(joined().unwrap_or_else(|| InitError::Unreachable {
            address: candidates[0].address.clone(),
            reason: "none of these nodes was a founder of its cluster".to_owned(),
        }));
    };
    let cluster = founding.cluster;
    for candidate in candidates {
        let node = candidate.identity.registration.id;
        let address = candidate.address.clone();
        if !founding.nodes.contains_key(&node) {
            return Err(InitError::NotAFounder { address, node, cluster });
        }
        // Who is a founder follows from the first ring only.
        if candidate.identity.cluster.is_none() && newest > founding.epoch() {
            return Err(InitError::TooLate { cluster, epoch: newest, address });
        }
    }
    Ok(founding)
}

/// The founding that the node at an address accepted.
async fn founding_at(peers: &Peers, address: &str) -> Result<Option<ClusterState>, InitError> {
    let deadline = Instant::now() + IDENTIFY_TIMEOUT;
    let answer = peers.call_address(address, PeerRequest::FetchFounding, deadline).await;
    let reason = match answer {
        Ok((_, PeerAnswer::Founding(founding))) => return Ok(founding.map(|state| *state)),
        Ok((_, PeerAnswer::Refused(refusal))) => refusal.to_string(),
        Ok(_) => "it has accepted a cluster and does not say which".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(InitError::Unreachable { address: address.to_owned(), reason })
}

/// The epoch in force at an address.
async fn epoch_at(peers: &Peers, address: &str) -> Result<Epoch, InitError> {
    let deadline = Instant::now() + IDENTIFY_TIMEOUT;
    let request = PeerRequest::FetchView { newer_than: Revision(0) };
    let reason = match peers.call_address(address, request, deadline).await {
        Ok((_, PeerAnswer::View { newer, confirmed: _ })) => {
            return Ok(newer.map_or(Epoch::ZERO, |state| state.epoch()));
        }
        // It accepted a cluster and has not come to use it.
        Ok((_, PeerAnswer::Refused(PeerRefusal::NotInitialised))) => return Ok(Epoch::ZERO),
        Ok((_, PeerAnswer::Refused(refusal))) => refusal.to_string(),
        Ok(_) => "it answers something else".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(InitError::Unreachable { address: address.to_owned(), reason })
}

/// Has one founder accept the state; `progress` is how many of how many have.
async fn accept_at(
    peers: &Peers,
    candidate: &Candidate,
    state: &ClusterState,
    progress: (usize, usize),
) -> Result<(), InitError> {
    let address = candidate.address.clone();
    let cluster = state.cluster;
    let deadline = Instant::now() + ACCEPT_TIMEOUT;
    let request = PeerRequest::AcceptFounding(Box::new(state.clone()));
    let reason = match peers.call_address(&address, request, deadline).await {
        Ok((_, PeerAnswer::FoundingAccepted)) => return Ok(()),
        Ok((_, PeerAnswer::Refused(PeerRefusal::OtherCluster { cluster: theirs }))) => {
            return Err(InitError::OtherCluster { address, theirs, ours: cluster });
        }
        Ok((_, PeerAnswer::Refused(refusal))) => {
            return Err(InitError::Refused { address, cluster, reason: refusal.to_string() });
        }
        Ok(_) => "it answers something else".to_owned(),
        Err(error) => error.to_string(),
    };
    let (accepted, founders) = progress;
    Err(InitError::Interrupted { cluster, accepted, founders, address, reason })
}

fn report(state: &ClusterState, candidates: Vec<Candidate>, start: FoundingStart) -> Founded {
    let mut founders: Vec<_> = candidates.into_iter().map(|it| it.identity.registration).collect();
    founders.sort_by(|one, other| one.name.cmp(&other.name));
    let mut zones = BTreeMap::new();
    for founder in &founders {
        *zones.entry(founder.zone.clone()).or_insert(0) += 1;
    }
    let redundancy = Ring::new(Arc::new(state.ring.clone())).redundancy();
    let (cluster, epoch) = (state.cluster, state.epoch());
    let partition_bits = state.ring.partition_bits();
    Founded { cluster, epoch, founders, zones, redundancy, partition_bits, start }
}

/// Lets this node accept a cluster, once for ever.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    local: LocalNode,
    database: Database,
    core: CoreHandle,
}

impl Acceptor {
    pub fn new(local: LocalNode, database: Database, core: CoreHandle) -> Self {
        Self { local, database, core }
    }

    /// Accepts a founding that names this node; durable on return.
    pub async fn accept_founding(&self, state: ClusterState) -> Result<(), PeerRefusal> {
        let bad = |reason: &str| PeerRefusal::BadFounding { reason: reason.to_owned() };
        if let Some(cluster) = self.local.cluster()
            && cluster != state.cluster
        {
            return Err(PeerRefusal::OtherCluster { cluster });
        }
        if !state.nodes.contains_key(&self.local.id()) {
            return Err(bad("this node is not among the founders"));
        }
        if state.revision != FOUNDING_REVISION {
            return Err(bad("this is not how a cluster begins"));
        }
        self.accept(state).await
    }

    /// The founding that this node accepted, as an answer.
    pub async fn founding(&self) -> PeerAnswer {
        let database = self.database.clone();
        match tokio::task::spawn_blocking(move || database.accepted_view()).await {
            Ok(Ok(accepted)) => {
                let founding = accepted.filter(|view| view.revision == FOUNDING_REVISION);
                PeerAnswer::Founding(founding.map(|view| Box::new((*view).clone())))
            }
            Ok(Err(error)) => {
                PeerAnswer::Refused(PeerRefusal::Storage { reason: error.to_string() })
            }
            Err(interrupted) => {
                PeerAnswer::Refused(PeerRefusal::Storage { reason: interrupted.to_string() })
            }
        }
    }

    /// Accepts the cluster that let this node in; durable on return.
    pub async fn accept(&self, state: ClusterState) -> Result<(), PeerRefusal> {
        state.check().map_err(|error| PeerRefusal::BadFounding { reason: error.to_string() })?;
        let state = Arc::new(state);
        let (database, accepted) = (self.database.clone(), Arc::clone(&state));
        let accept = move || database.accept_cluster(accepted.cluster, &accepted);
        match tokio::task::spawn_blocking(accept).await {
            Ok(Ok(_identity)) => {}
            Ok(Err(AcceptError::OtherCluster { ours, offered: _ })) => {
                return Err(PeerRefusal::OtherCluster { cluster: ours });
            }
            Ok(Err(error @ AcceptError::ForeignView { .. })) => {
                return Err(PeerRefusal::BadFounding { reason: error.to_string() });
            }
            Ok(Err(AcceptError::Storage(error))) => store_failed(&error),
            Err(interrupted) => {
                return Err(PeerRefusal::Storage { reason: interrupted.to_string() });
            }
        }
        // In this order: a founder is born from the view that it accepted, and messages of others,
        // which pass once this node belongs to the cluster, may bring a later one.
        let cluster = state.cluster;
        self.core.deliver(Event::AdoptView(state)).await;
        self.local.belongs_to(cluster);
        // Accepted it is; that the view is in force soon is for the convenience of whoever asked.
        let in_force = self.local.view().wait_until(|_any| true);
        if timeout(ADOPT_TIMEOUT, in_force).await.is_err() {
            tracing::warn!("the core has not taken the accepted view yet");
        }
        Ok(())
    }
}
