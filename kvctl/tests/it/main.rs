//! Stories of `kvctl` as a process, with fake nodes in place of real ones.

#![allow(clippy::unwrap_used)]

mod dev;
mod plans;
mod simulate;
mod single;
mod support;
