//! One Raft group's replica: raft-rs, its log, its proposals and its reads.

mod gate;

pub use gate::{ReadGate, ReadTicket};
