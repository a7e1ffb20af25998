//! Frames, bodies and connections, over real sockets where there are any.

mod bodies;
mod connections;
mod frames;
mod queues;
pub(crate) mod support;
