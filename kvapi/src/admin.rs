//! The bodies of `/v1/admin/...`: what one node says about itself, what group 0 says about the
//! cluster, and the operators' orders.

use placement::{Epoch, NodeId, NodeName, NodeState, PartitionId, TokenPolicy, Zone};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kv::Health;
use crate::plans::PlanSummary;

/// Path of [`NodeInfo`].
pub const NODE_PATH: &str = "/v1/admin/node";
/// Path of [`InitRequest`].
pub const INIT_PATH: &str = "/v1/admin/init";
/// Path of [`ClusterStatus`].
pub const STATUS_PATH: &str = "/v1/admin/status";
/// Path of [`TransferRequest`].
pub const TRANSFER_PATH: &str = "/v1/admin/transfer";
/// Path of [`RingHistory`].
pub const RING_HISTORY_PATH: &str = "/v1/admin/ring";
/// Path of [`PartitionStatsList`].
pub const PARTITIONS_PATH: &str = "/v1/admin/partitions";

/// How far a node has come towards serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStage {
    /// It knows no cluster.
    Uninitialised,
    /// It found a cluster and asks to be let in.
    Registering,
    /// Registered, without tokens and data.
    Spare,
    /// It owns partitions.
    Member,
}

/// Something an operator should know, with a stable code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// Stable name.
    pub code: String,
    /// What is wrong and where.
    pub detail: String,
}

/// The answer of `GET /v1/admin/node`: the answering node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// Cluster it belongs to, for ever; none before it was founded or registered.
    pub cluster_id: Option<String>,
    /// Identity, made with the data directory.
    #[schema(value_type = String, format = "uuid")]
    pub id: NodeId,
    /// Name, unique among members.
    #[schema(value_type = String)]
    pub name: NodeName,
    /// Failure domain.
    #[schema(value_type = String)]
    pub zone: Zone,
    /// Share of the data relative to other nodes.
    pub weight: u32,
    /// `host:port` of the HTTP API, as advertised.
    pub client_address: String,
    /// `host:port` where nodes talk to each other, as advertised.
    pub peer_address: String,
    /// How far it has come.
    pub stage: NodeStage,
    /// Epoch of its ring; 0 before the cluster was founded.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Revision of the cluster view it holds.
    pub view_revision: u64,
    /// Milliseconds since that view was last confirmed.
    pub view_age_ms: u64,
    /// Number of partition replicas held.
    pub partitions: u32,
    /// Number of partition groups led.
    pub leaders: u32,
    /// The replicas, where asked for or few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Vec<ReplicaInfo>>,
    /// Bytes of Raft logs on disk.
    pub log_bytes: u64,
    /// Bytes of data on disk.
    pub data_bytes: u64,
    /// Whether its last disk probe was in time.
    pub disk_ok: bool,
    /// Bytes that are free on its disk; 0 if that cannot be seen.
    #[serde(default)]
    pub disk_available: u64,
    /// Bytes of its whole disk.
    #[serde(default)]
    pub disk_total: u64,
    /// Version of the program.
    pub version: String,
    /// Its wall clock, in unix milliseconds.
    #[serde(default)]
    pub unix_ms: u64,
    /// What an operator should know.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
}

/// Part that a replica plays in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaRole {
    /// Holds Raft authority.
    Leader,
    /// A voter that follows.
    Follower,
    /// A voter that asks for votes.
    Candidate,
    /// Has no vote.
    Learner,
}

/// One replica on the answering node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaInfo {
    /// The partition.
    #[schema(value_type = u32)]
    pub partition: PartitionId,
    /// Its part in the group.
    pub role: ReplicaRole,
    /// The leader it knows.
    #[schema(value_type = Option<String>)]
    pub leader: Option<NodeName>,
    /// Raft term.
    pub term: u64,
    /// Last index committed.
    pub commit_index: u64,
    /// Last index applied.
    pub applied_index: u64,
    /// Installation of the data on this node.
    pub generation: u64,
}

/// The body of `POST /v1/admin/init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InitRequest {
    /// Peer addresses of the founding nodes, the addressed node's own included.
    pub founders: Vec<String>,
    /// Number of partitions, a power of two; fixed for ever.
    #[serde(default = "InitRequest::partitions_default")]
    pub partitions: u32,
    /// Copies of each partition.
    #[serde(default = "InitRequest::replication_factor_default")]
    pub replication_factor: u8,
    /// Tokens per node of weight 1 under the `random` policy.
    #[serde(default = "InitRequest::vnodes_per_node_default")]
    pub vnodes_per_node: u32,
    /// How tokens are given to nodes.
    #[serde(default)]
    #[schema(value_type = String)]
    pub policy: TokenPolicy,
}

impl InitRequest {
    /// A founding with default settings.
    pub fn new(founders: Vec<String>) -> Self {
        Self {
            founders,
            partitions: Self::partitions_default(),
            replication_factor: Self::replication_factor_default(),
            vnodes_per_node: Self::vnodes_per_node_default(),
            policy: TokenPolicy::default(),
        }
    }

    fn partitions_default() -> u32 {
        256
    }

    fn replication_factor_default() -> u8 {
        3
    }

    fn vnodes_per_node_default() -> u32 {
        128
    }
}

/// The answer of `POST /v1/admin/init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InitAnswer {
    /// Identity of the new cluster.
    pub cluster_id: String,
    /// Epoch of the first ring.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Names of the founders.
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    /// What redundancy they achieve.
    #[serde(default)]
    pub redundancy: RedundancyStatus,
}

/// The answer of `GET /v1/admin/status`: the cluster as the answering node's view has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// Identity of the cluster.
    pub cluster_id: String,
    /// Epoch of the published ring.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Revision of the cluster state.
    pub revision: u64,
    /// Milliseconds since the view was last confirmed by group 0.
    pub view_age_ms: u64,
    /// Number of partitions.
    pub partitions: u32,
    /// Copies of each partition that are wanted.
    pub replication_factor: u8,
    /// The group that replicates the cluster state.
    pub group0: GroupZeroStatus,
    /// All nodes, ordered by name.
    pub nodes: Vec<NodeStatus>,
    /// Changes that are staged and not applied, in words.
    #[serde(default)]
    pub staged: Vec<String>,
    /// The newest plan that has not ended, if there is one.
    #[serde(default)]
    pub plan: Option<PlanSummary>,
    /// What redundancy is achieved.
    pub redundancy: RedundancyStatus,
    /// What an operator should know.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
    /// What to do next, where there is something.
    #[serde(default)]
    pub hint: Option<String>,
}

/// State of group 0 as the answering node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupZeroStatus {
    /// Its leader, if one is known.
    #[schema(value_type = Option<String>)]
    pub leader: Option<NodeName>,
    /// Raft term.
    pub term: u64,
    /// Its voters.
    #[schema(value_type = Vec<String>)]
    pub voters: Vec<NodeName>,
}

/// One node as the cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Identity, made with the data directory.
    #[schema(value_type = String, format = "uuid")]
    pub id: NodeId,
    /// Name, unique among members.
    #[schema(value_type = String)]
    pub name: NodeName,
    /// Failure domain.
    #[schema(value_type = String)]
    pub zone: Zone,
    /// Share of the data relative to other nodes.
    pub weight: u32,
    /// `host:port` of the HTTP API.
    pub client_address: String,
    /// `host:port` where nodes talk to each other.
    pub peer_address: String,
    /// Health as the leader of group 0 sees it.
    pub health: Health,
    /// How far it has come.
    pub stage: NodeStage,
    /// What it is in the cluster, by the ring and the moves.
    #[schema(value_type = String)]
    pub state: NodeState,
    /// Partitions whose primary it is by the ring.
    pub primaries: u32,
    /// Partitions it owns a copy of by the ring.
    pub replicas: u32,
}

/// What redundancy the published ring achieves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedundancyStatus {
    /// Fewest zones over which any partition is spread.
    pub zones_achieved_min: u32,
    /// Most zones over which a partition could be spread with these nodes.
    pub zones_possible: u32,
    /// Partitions with fewer owners than the replication factor.
    pub under_replicated_partitions: u32,
    /// The same in one sentence.
    pub detail: String,
}

/// The body of `POST /v1/admin/transfer`: move a partition's leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// The partition.
    #[schema(value_type = u32)]
    pub partition: PartitionId,
    /// Name of the node that should lead.
    #[schema(value_type = String)]
    pub to: NodeName,
}

/// The answer of `POST /v1/admin/transfer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransferAnswer {
    /// The partition.
    #[schema(value_type = u32)]
    pub partition: PartitionId,
    /// The node that leads now.
    #[schema(value_type = String)]
    pub leader: NodeName,
}

/// The answer of `GET /v1/admin/ring`: published epochs, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RingHistory {
    /// One entry per epoch.
    pub entries: Vec<RingHistoryEntry>,
}

/// One published ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RingHistoryEntry {
    /// The epoch.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Checksum of its snapshot, hexadecimal.
    pub checksum: String,
    /// Unix milliseconds of its publication.
    pub activated_at: u64,
    /// The plan that published it, if that is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<u64>,
    /// `founding`, `changes`, `rollback of plan N`, or `unknown` if the plan is not on record.
    #[serde(default)]
    pub kind: String,
    /// The plan's changes, in words.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Whether the ring is kept, so that `GET /v1/ring?epoch=E` has it.
    #[serde(default)]
    pub kept: bool,
}

/// The answer of `GET /v1/admin/partitions`, as far as clients need it that sum it up: the partitions
/// that the answering node leads. The lists of all nodes together name each partition once, but for
/// those whose leader is just changing. The whole of it is [`PartitionReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartitionStatsList {
    /// One entry per partition led, in order.
    pub partitions: Vec<PartitionStats>,
}

/// How much a partition holds and how much it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartitionStats {
    /// The partition.
    #[schema(value_type = u32)]
    pub partition: PartitionId,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Reads per second, lately.
    pub reads_per_second: f64,
    /// Writes per second, lately.
    pub writes_per_second: f64,
}

/// The answer of `GET /v1/admin/partitions`: the partitions that the answering node leads; with
/// `replicas=true` all replicas that it holds; with `cluster=true` those of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartitionReport {
    /// One entry per replica, by partition, the leader first.
    pub partitions: Vec<ReplicaStats>,
    /// Nodes that did not answer in time.
    #[schema(value_type = Vec<String>)]
    pub missing: Vec<NodeName>,
}

/// How much a replica holds and how much it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaStats {
    /// The figures. Keys and bytes are estimates; reads are those that this node served, writes those
    /// that it took as the leader.
    #[serde(flatten)]
    pub stats: PartitionStats,
    /// The node that holds the replica.
    #[schema(value_type = String)]
    pub node: NodeName,
    /// What the replica is.
    pub role: ReplicaRole,
}
