//! Part of ringkv; filled in by the commits that follow.

pub mod sim;
