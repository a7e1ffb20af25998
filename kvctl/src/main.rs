//! The operator's command line for ringkv.
fn main() {}
