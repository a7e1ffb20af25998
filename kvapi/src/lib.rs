//! The HTTP face of ringkv as types: what the server and its clients agree on, and a typed client
//! that routes by the ring on its own.
//!
//! Invariants:
//! - nothing here decides who may write; the ring only says where to send a request first;
//! - what comes from the wire is parsed into these types once, and refused with a typed reason;
//! - the client re-sends a write only after an explicit `not_applied`, or when no byte was sent.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
pub mod client;
pub mod headers;
pub mod kv;
pub mod paths;
pub mod plans;
pub mod problem;

pub use admin::{
    Alarm, ClusterStatus, GroupZeroStatus, InitAnswer, InitRequest, NodeInfo, NodeStage,
    NodeStatus, PartitionReport, PartitionStats, PartitionStatsList, RedundancyStatus, ReplicaInfo,
    ReplicaRole, ReplicaStats, RingHistory, RingHistoryEntry, TransferAnswer, TransferRequest,
};
pub use client::{
    AnswerMeta, Client, ClientError, ClientOptions, Endpoint, EndpointError, GetAnswer, GetOptions,
    PutOptions, RouteTable, Routing, Value, WriteAnswer,
};
pub use headers::{ConditionError, Consistency, Precondition, ReadCondition, RouteMode};
pub use kv::{Directory, DirectoryNode, Health, LeaderHint, LocateAnswer, OwnerHint, RingDocument};
pub use paths::{
    KEY_BYTES_MAX, KeyCall, KeyEncoding, KeyPath, KeyPathError, VALUE_BYTES_MAX_CAP,
    VALUE_BYTES_MAX_DEFAULT,
};
pub use problem::{Outcome, Problem, ProblemCode, ProblemFacts, Retry};
