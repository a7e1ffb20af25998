//! Tests of the crate as a whole, and what the tests of its modules share.

mod hash;
