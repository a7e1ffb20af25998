//! How long partitions cannot be written to after a kill: `kills --kills 21 --partitions 256`.

use clap::Parser;
use integration_tests::kills::{KillOptions, run};

/// Kills leaders of a local cluster under load and prints how long their partitions were silent.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of kills; the nodes are killed in turn.
    #[arg(long, default_value_t = 21)]
    kills: usize,
    /// Number of partitions.
    #[arg(long, default_value_t = 256)]
    partitions: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { kills, partitions } = Arguments::parse();
    let report = run(KillOptions { kills, partitions }).await?;
    println!("signal to first acknowledgement, per partition: {}", report.outages);
    println!("the slowest partition of each kill:             {}", report.slowest);
    println!("writes: {:?}; every acknowledged one is there", report.totals);
    Ok(())
}
