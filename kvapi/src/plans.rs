//! Plans and moves: the bodies of `/v1/admin/plan` and `/v1/admin/migrations`.

use std::collections::BTreeMap;

use placement::{Epoch, NodeName, PartitionId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Path of [`DraftAnswer`].
pub const PLAN_PATH: &str = "/v1/admin/plan";
/// Path of [`StageRequest`].
pub const PLAN_STAGE_PATH: &str = "/v1/admin/plan/stage";
/// Path that forgets the draft.
pub const PLAN_CLEAR_PATH: &str = "/v1/admin/plan/clear";
/// Path of [`ApplyRequest`].
pub const PLAN_APPLY_PATH: &str = "/v1/admin/plan/apply";
/// Path of [`Migrations`].
pub const MIGRATIONS_PATH: &str = "/v1/admin/migrations";
/// Path of [`WhyAnswer`].
pub const WHY_PATH: &str = "/v1/admin/migrations/why";
/// Path of [`PlanOrderRequest`].
pub const ORDER_PATH: &str = "/v1/admin/migrations/order";
/// Path of [`ClusterSettings`] and [`SettingsRequest`].
pub const SETTINGS_PATH: &str = "/v1/admin/settings";

/// A change of membership, with nodes by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeRequest {
    /// A spare becomes a member.
    Join {
        /// The spare.
        #[schema(value_type = String)]
        node: NodeName,
    },
    /// A live member leaves.
    Drain {
        /// The member.
        #[schema(value_type = String)]
        node: NodeName,
    },
    /// A dead member is given up with its data.
    Remove {
        /// The member.
        #[schema(value_type = String)]
        node: NodeName,
    },
    /// A spare takes exactly what a member has.
    Replace {
        /// The member.
        #[schema(value_type = String)]
        old: NodeName,
        /// The spare.
        #[schema(value_type = String)]
        new: NodeName,
    },
    /// A member's share becomes another.
    Reweight {
        /// The member.
        #[schema(value_type = String)]
        node: NodeName,
        /// Its weight from now on.
        weight: u32,
    },
}

/// The body of `POST /v1/admin/plan/stage`: the changes are checked together, with what is staged
/// already, before any of them is staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageRequest {
    /// The changes.
    pub changes: Vec<ChangeRequest>,
}

/// The answer of `GET /v1/admin/plan`: what is staged, and what it leads to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DraftAnswer {
    /// The staged changes, in words.
    pub changes: Vec<String>,
    /// The plan that they make.
    pub preview: Option<PlanPreview>,
    /// Why they make none.
    pub refusal: Option<Remark>,
}

/// A rule or warning, with its stable name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remark {
    /// Stable name.
    pub code: String,
    /// What it means here.
    pub detail: String,
}

/// What a plan would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanPreview {
    /// The epoch that it starts from.
    #[schema(value_type = u64)]
    pub base_epoch: Epoch,
    /// Names base, changes and target together.
    pub digest: String,
    /// Copies that are made.
    pub copies_moved: u64,
    /// The fewest copies that any way to the new loads makes.
    pub copies_moved_min: u64,
    /// Partitions whose primary changes.
    pub primaries_moved: u64,
    /// The fewest such changes.
    pub primaries_moved_min: u64,
    /// Bytes of all copies that are made, estimated.
    pub bytes_moved: u64,
    /// Nodes that did not tell how much they hold, so that the bytes are too few, or whether it fits.
    pub silent: Vec<String>,
    /// Seconds that the copies take at the throttle in force; none if it is 0.
    pub seconds_at_throttle: Option<u64>,
    /// Copies by source and target.
    pub flows: Vec<Flow>,
    /// What each node gains and loses.
    pub nodes: Vec<NodeChange>,
    /// Before.
    pub before: Achieved,
    /// After.
    pub after: Achieved,
    /// What deserves attention.
    pub warnings: Vec<Remark>,
    /// What may fail while the plan runs, and what that does.
    pub risks: Vec<String>,
}

/// Copies from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flow {
    /// Who is expected to be read from.
    pub source: String,
    /// Who receives.
    pub target: String,
    /// How many copies.
    pub copies: u32,
    /// Their bytes, estimated.
    pub bytes: u64,
}

/// What a plan does to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeChange {
    /// The node.
    pub node: String,
    /// Its zone.
    pub zone: String,
    /// Copies now.
    pub copies_before: u32,
    /// Copies afterwards.
    pub copies_after: u32,
    /// Primaries now.
    pub primaries_before: u32,
    /// Primaries afterwards.
    pub primaries_after: u32,
    /// Bytes now, estimated.
    pub bytes_before: u64,
    /// Bytes afterwards, estimated.
    pub bytes_after: u64,
    /// Bytes that it receives, estimated. Until the grace ends it holds them beside all that it has.
    pub bytes_gained: u64,
    /// Its disk, if it told.
    pub disk: Option<DiskRoom>,
}

/// Room on a node's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskRoom {
    /// Bytes that are free now.
    pub available: u64,
    /// Bytes that are free when the copies are made.
    pub available_after: u64,
    /// Bytes that the node keeps free.
    pub reserve: u64,
    /// Bytes of the whole disk.
    pub total: u64,
}

/// How even and how safe a ring is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Achieved {
    /// Copies per weight of the busiest node over the mean.
    pub copies_max_over_mean: f64,
    /// Primaries per weight of the busiest node over the mean.
    pub primaries_max_over_mean: f64,
    /// Copies per partition.
    pub copies: u32,
    /// Fewest zones that any partition lies in.
    pub zones_covered_min: u32,
    /// Whether every partition goes on when any one node is lost.
    pub survives_node_loss: bool,
    /// Whether every partition goes on when any one zone is lost.
    pub survives_zone_loss: bool,
}

/// The body of `POST /v1/admin/plan/apply`: compare and set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// The epoch that must be in force.
    #[schema(value_type = u64)]
    pub base_epoch: Epoch,
    /// The digest that the draft must have.
    pub digest: String,
}

/// The answer of an order that made a plan, or changed one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanAnswer {
    /// The plan.
    pub plan: u64,
}

/// The answer of an order that makes no plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {}

/// What can be done to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanVerb {
    /// Stop where it is.
    Pause,
    /// Go on.
    Resume,
    /// Give it up before its ring is published.
    Cancel,
    /// Go back to the ring before it, with every write made since.
    Rollback,
    /// End the grace: old copies go.
    Finish,
}

/// The body of `POST /v1/admin/migrations/order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanOrderRequest {
    /// What to do.
    pub order: PlanVerb,
    /// The plan; the last one unless given.
    #[serde(default)]
    pub plan: Option<u64>,
}

/// The answer of `GET /v1/admin/migrations`: the plans on record, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Migrations {
    /// The plans.
    pub plans: Vec<PlanRecord>,
}

/// A plan as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanRecord {
    /// Its id.
    pub id: u64,
    /// `changes`, or `rollback of plan N`.
    pub kind: String,
    /// `moving`, `published`, `finished` or `aborted`.
    pub phase: String,
    /// Why it was aborted.
    pub reason: Option<String>,
    /// Its changes, in words.
    pub changes: Vec<String>,
    /// The epoch that it started from.
    #[schema(value_type = u64)]
    pub base_epoch: Epoch,
    /// The epoch that it published.
    #[schema(value_type = Option<u64>)]
    pub epoch: Option<Epoch>,
    /// When it was applied, in unix milliseconds.
    pub applied_at: u64,
    /// When it was published, in unix milliseconds.
    pub published_at: Option<u64>,
    /// When it was finished or aborted, in unix milliseconds.
    pub ended_at: Option<u64>,
    /// Whether it is paused.
    pub paused: bool,
    /// When its grace ends, in unix milliseconds.
    pub grace_ends_at: Option<u64>,
    /// The fewest copies that any way to the new loads makes.
    pub copies_min: u64,
    /// Bytes copied so far.
    pub bytes_done: u64,
    /// Bytes of all copies; those that have not begun are taken for as large as the others.
    pub bytes_total: u64,
    /// Bytes per second that are being copied.
    pub bytes_per_second: u64,
    /// Milliseconds until all copies are made; none while nothing is copied.
    pub eta_ms: Option<u64>,
    /// What is missing until it counts as finished.
    pub signals: Option<SignalsRecord>,
    /// Its moves, by partition.
    pub moves: Vec<MoveRecord>,
}

/// What must be true of the cluster before a plan counts as finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignalsRecord {
    /// Whether all pass.
    pub pass: bool,
    /// Nodes that have not adopted the epoch.
    pub nodes_behind: u32,
    /// Partitions with fewer healthy voters than owners.
    pub under_replicated: u32,
    /// Log entries that followers lack.
    pub backlog: u64,
    /// Share of requests sent by an outdated route, per mille.
    pub misrouted_per_mille: u32,
    /// Moves whose owners have not been compared after the swap.
    pub unverified: u32,
    /// Old copies that are not destroyed.
    pub copies_left: u32,
}

/// A move as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveRecord {
    /// Its number in the plan.
    pub number: u32,
    /// The partition.
    #[schema(value_type = u32)]
    pub partition: PartitionId,
    /// Name of the node that gains a copy.
    pub gain: Option<String>,
    /// Name of the node that loses one.
    pub lose: Option<String>,
    /// Its stage.
    pub stage: String,
    /// The step that it is in or held up at; none when it has ended.
    pub step: Option<String>,
    /// Why it is blocked or was aborted.
    pub reason: Option<String>,
    /// When it came to its stage, in unix milliseconds.
    pub since: u64,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes in all; 0 while unknown.
    pub bytes_total: u64,
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Milliseconds until its copy is made; none while nothing is copied.
    pub eta_ms: Option<u64>,
    /// Attempts that failed.
    pub failures: u32,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it is tried again, in unix milliseconds.
    pub retry_at: Option<u64>,
    /// The log index that the copy must have applied before it may count.
    pub watermark: Option<u64>,
    /// The gate passed before publication.
    pub gate: Option<GateRecord>,
    /// Agreement of all owners after the cut-over.
    pub after_swap: Option<GateRecord>,
    /// Whether a replica of a move that was given up waits to be destroyed.
    pub residue: bool,
}

/// Agreement of digests at one index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GateRecord {
    /// The log index.
    pub index: u64,
    /// The digest, hexadecimal.
    pub digest: String,
}

/// The answer of `GET /v1/admin/migrations/why`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyAnswer {
    /// With `partition`: its moves, the newest plan first.
    pub moves: Vec<Why>,
    /// Without: what the moves of the plan that have not ended wait for, the most frequent first.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// Without: what the plan as a whole waits for, where no move does.
    #[serde(default)]
    pub plan: Option<PlanWhy>,
}

/// Why a plan is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanWhy {
    /// The plan.
    pub plan: u64,
    /// Its phase.
    pub phase: String,
    /// What it waits for.
    pub reason: String,
    /// The command that takes it on.
    pub command: Option<String>,
}

/// Something that moves of a plan wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// The plan.
    pub plan: u64,
    /// The stage of these moves.
    pub stage: String,
    /// What they wait for.
    pub reason: String,
    /// The command that takes them on.
    pub command: Option<String>,
    /// How many wait.
    pub moves: u32,
    /// The partitions of the first of them.
    #[schema(value_type = Vec<u32>)]
    pub partitions: Vec<PartitionId>,
}

/// A plan at a glance, for status pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanSummary {
    /// Its id.
    pub id: u64,
    /// `changes`, or `rollback of plan N`.
    pub kind: String,
    /// Its changes, in words.
    pub changes: Vec<String>,
    /// `moving`, `published`, `finished` or `aborted`.
    pub phase: String,
    /// Whether it is paused.
    pub paused: bool,
    /// How many moves there are in each stage.
    #[schema(value_type = Object)]
    pub stages: BTreeMap<String, u32>,
    /// Bytes copied so far.
    pub bytes_done: u64,
    /// Bytes of all copies, as far as known.
    pub bytes_total: u64,
    /// Milliseconds until all copies are made; none while nothing is copied.
    pub eta_ms: Option<u64>,
    /// When its grace ends, in unix milliseconds.
    pub grace_ends_at: Option<u64>,
    /// What is missing until it counts as finished.
    pub signals: Option<SignalsRecord>,
}

/// Why a move is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Its plan.
    pub plan: u64,
    /// The move.
    pub record: MoveRecord,
    /// What it waits for.
    pub reason: String,
    /// The command that takes it on.
    pub command: Option<String>,
}

/// The answer of `GET /v1/admin/settings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSettings {
    /// Bytes per second of copies, in and out of each node; 0 pauses them.
    pub copy_bytes_per_second: u64,
    /// Moves that may copy at a time, to a node and from a node.
    pub moves_per_node: u32,
    /// Milliseconds for which old owners follow after a cut-over.
    pub grace_ms: u64,
}

/// The body of `POST /v1/admin/settings`; what is left out stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsRequest {
    /// Bytes per second of copies.
    #[serde(default)]
    pub copy_bytes_per_second: Option<u64>,
    /// Moves at a time per node.
    #[serde(default)]
    pub moves_per_node: Option<u32>,
    /// The grace, in milliseconds.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}
