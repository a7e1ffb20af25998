//! The protocol that moves partitions between nodes: plans, moves with one total transition
//! function, gates and reconciliation. Pure: no I/O, no clock.
//!
//! Empty so far: a cluster keeps the nodes that it was founded with.
