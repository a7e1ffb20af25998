//! Which call a path and a method name: one closed enum, taken from the raw path.
//!
//! Nothing is normalised. `//`, `..`, `%2F` and a trailing slash are what they are, so that a key is
//! the bytes that the client sent, and a path that is not exactly a call's is none.

use http::Method;
use kvapi::admin::{
    INIT_PATH, NODE_PATH, PARTITIONS_PATH, RING_HISTORY_PATH, STATUS_PATH, TRANSFER_PATH,
};
use kvapi::client::RING_PATH;
use kvapi::plans::{
    MIGRATIONS_PATH, ORDER_PATH, PLAN_APPLY_PATH, PLAN_CLEAR_PATH, PLAN_PATH, PLAN_STAGE_PATH,
    SETTINGS_PATH, WHY_PATH,
};
use kvapi::{KeyCall, KeyPath};

/// A path of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/v1/kv/{key}`, `/v1/kv64/{key}`: one key.
    Key(KeyPath<'a>),
    /// `/v1/locate/{key}`, `/v1/locate64/{key}`: where a key lives.
    Locate(KeyPath<'a>),
    /// `/v1/kv`: keys in order.
    Scan,
    /// `/v1/batch`: several operations in one request.
    Batch,
    /// `/v1/watch`: a stream of changes.
    Watch,
    /// `/v1/ring`: the published ring and the directory.
    Ring,
    /// `/livez`: the process runs.
    Live,
    /// `/readyz`: the node serves.
    Ready,
    /// `/version`: which program this is.
    Version,
    /// `/metrics`: numbers for Prometheus.
    Metrics,
    /// `/openapi.json`: this API, described.
    OpenApi,
    /// `/v1/admin/node`: the node about itself.
    AdminNode,
    /// `/v1/admin/init`: found the cluster.
    AdminInit,
    /// `/v1/admin/status`: the cluster as this node sees it.
    AdminStatus,
    /// `/v1/admin/transfer`: move a leadership.
    AdminTransfer,
    /// `/v1/admin/ring`: the rings that were.
    AdminRing,
    /// `/v1/admin/partitions`: how much partitions hold and are asked for.
    AdminPartitions,
    /// `/v1/admin/plan`: the draft and what it leads to.
    Plan,
    /// `/v1/admin/plan/stage`: add to the draft.
    PlanStage,
    /// `/v1/admin/plan/clear`: forget the draft.
    PlanClear,
    /// `/v1/admin/plan/apply`: make a plan of it.
    PlanApply,
    /// `/v1/admin/migrations`: the plans on record.
    Migrations,
    /// `/v1/admin/migrations/why`: what a move waits for.
    Why,
    /// `/v1/admin/migrations/order`: pause, resume, cancel, roll back or finish a plan.
    PlanOrder,
    /// `/v1/admin/settings`: what operators may set.
    Settings,
}

/// What is to be done at a route. `HEAD` is `Get` without the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Get,
    /// Store.
    Put,
    /// Remove.
    Delete,
    /// Carry out.
    Post,
}

impl Verb {
    /// The verb of a method; none if no call has the method.
    #[must_use]
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::PUT => Some(Self::Put),
            Method::DELETE => Some(Self::Delete),
            Method::POST => Some(Self::Post),
            _ => None,
        }
    }
}

/// The verbs of a route, and the same as the value of `Allow`.
#[derive(Clone, Copy, Debug)]
pub struct Verbs {
    /// The verbs.
    pub verbs: &'static [Verb],
    /// The methods.
    pub allow: &'static str,
}

const READ: Verbs = Verbs { verbs: &[Verb::Get], allow: "GET, HEAD" };
const ORDER: Verbs = Verbs { verbs: &[Verb::Post], allow: "POST" };
const CHANGE: Verbs = Verbs { verbs: &[Verb::Get, Verb::Post], allow: "GET, HEAD, POST" };
const RECORD: Verbs =
    Verbs { verbs: &[Verb::Get, Verb::Put, Verb::Delete], allow: "GET, HEAD, PUT, DELETE" };

impl<'a> Route<'a> {
    /// The route of a raw path, without its query.
    #[must_use]
    pub fn of(path: &'a str) -> Option<Self> {
        if let Some(key) = KeyPath::split(path) {
            return Some(match key.call {
                KeyCall::Kv => Self::Key(key),
                KeyCall::Locate => Self::Locate(key),
            });
        }
        Self::FIXED.iter().find(|(fixed, _)| *fixed == path).map(|(_, route)| *route)
    }

    /// The routes without a key, with their paths.
    pub const FIXED: [(&'static str, Self); 23] = [
        (RING_PATH, Self::Ring),
        ("/livez", Self::Live),
        ("/readyz", Self::Ready),
        ("/version", Self::Version),
        ("/metrics", Self::Metrics),
        ("/openapi.json", Self::OpenApi),
        (NODE_PATH, Self::AdminNode),
        (INIT_PATH, Self::AdminInit),
        (STATUS_PATH, Self::AdminStatus),
        (TRANSFER_PATH, Self::AdminTransfer),
        (RING_HISTORY_PATH, Self::AdminRing),
        (PARTITIONS_PATH, Self::AdminPartitions),
        (PLAN_PATH, Self::Plan),
        (PLAN_STAGE_PATH, Self::PlanStage),
        (PLAN_CLEAR_PATH, Self::PlanClear),
        (PLAN_APPLY_PATH, Self::PlanApply),
        (MIGRATIONS_PATH, Self::Migrations),
        (WHY_PATH, Self::Why),
        (ORDER_PATH, Self::PlanOrder),
        (SETTINGS_PATH, Self::Settings),
        ("/v1/kv", Self::Scan),
        ("/v1/batch", Self::Batch),
        ("/v1/watch", Self::Watch),
    ];

    /// What can be done here.
    #[must_use]
    pub fn verbs(&self) -> Verbs {
        match self {
            Self::Key(_) => RECORD,
            Self::Batch
            | Self::AdminInit
            | Self::AdminTransfer
            | Self::PlanStage
            | Self::PlanClear
            | Self::PlanApply
            | Self::PlanOrder => ORDER,
            Self::Settings => CHANGE,
            Self::Locate(_)
            | Self::Scan
            | Self::Watch
            | Self::Ring
            | Self::Live
            | Self::Ready
            | Self::Version
            | Self::Metrics
            | Self::OpenApi
            | Self::AdminNode
            | Self::AdminStatus
            | Self::AdminRing
            | Self::AdminPartitions
            | Self::Plan
            | Self::Migrations
            | Self::Why => READ,
        }
    }
}
