//! The ringkv storage node.
fn main() {}
