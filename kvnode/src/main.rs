//! The ringkv storage node. `kvnode --help` lists its settings and exit codes.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kvnode::program::run()
}
