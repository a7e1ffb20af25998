//! How nodes speak to each other: frames over TCP, one connection for messages and one for requests
//! from each node to each other one.
//!
//! Invariants
//! * Nothing passes before both ends have said who they are and found that they belong together.
//! * Every queue is bounded in number and in bytes. Messages are dropped when theirs is full,
//!   requests refused.
//! * A request reported as not sent was not: no byte of it was handed to the socket.

mod answers;
pub mod body;
mod calls;
pub mod frame;
mod hello;
mod link;
mod listener;
mod outbox;
mod peers;
pub mod request;
mod scan;
mod socket;

pub use answers::Answerer;
pub use calls::{CallError, NotSent};
pub use hello::{ConnectError, HelloRefusal};
pub use listener::{Listener, PeerService};
pub use peers::{AddressCallError, Peers};
pub use request::{Identity, PeerAnswer, PeerRefusal, PeerRequest};

#[cfg(test)]
pub(crate) mod tests;
