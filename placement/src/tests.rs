//! Tests of the crate as a whole, and what the tests of its modules share.

mod allocation;
mod alternatives;
mod closed_forms;
mod hash;
mod properties;
pub(crate) mod support;
