//! A node that was away for too long, with much data: `absence --mebibytes 256`.

use clap::Parser;
use integration_tests::absence::{AbsenceOptions, run};

/// Takes a node of a local cluster away, writes, and lets it come back by snapshot, killed midway.
#[derive(Debug, Parser)]
struct Arguments {
    /// Data that the snapshot carries.
    #[arg(long, default_value_t = 256)]
    mebibytes: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { mebibytes } = Arguments::parse();
    let options = AbsenceOptions {
        values: mebibytes * 8,
        value_bytes: 128 << 10,
        rounds: 1,
        is_killed_midway: true,
    };
    println!("{:#?}", run(options).await?);
    Ok(())
}
