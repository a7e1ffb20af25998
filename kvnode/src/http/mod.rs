//! The HTTP face of a node: parses requests once, asks the node, and says what came back.
//!
//! A connection ([`serve`]) hands each request to [`app::handle`], which finds the call by the raw
//! path ([`route`]); a call's module answers it, over any [`Backend`]. Errors become problems in
//! [`problem`] alone.
//!
//! Invariants:
//! - a key is the bytes that stand in the path, escapes decoded, and nothing else done to them;
//! - a refused or broken request has changed nothing, and its answer says so;
//! - what the contract has and this version does not is refused, never ignored;
//! - every queue, body, header, wait and connection has a limit ([`limits`]).

pub mod admin;
pub mod app;
pub mod backend;
pub mod body;
pub mod describe;
mod describe_plans;
pub mod kv;
pub mod limits;
pub mod node;
pub mod openapi;
mod partitions;
mod plans;
mod preview;
pub mod probes;
pub mod problem;
pub mod query;
pub mod ring;
pub mod route;
pub mod serve;
pub mod values;
pub mod watchdog;

pub use app::App;
pub use backend::{Backend, ClusterKnowledge, TransferError};
pub use limits::HttpLimits;
pub use serve::serve;

#[cfg(test)]
mod tests;
