//! How long partitions pause at a cut-over: `cutover --partitions 64`.

use clap::Parser;
use integration_tests::cutover::run;

/// Joins three nodes to a local cluster of three and prints each partition's largest gap between two
/// acknowledgements, before, during the copies, and around the cut-over.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of partitions.
    #[arg(long, default_value_t = 64)]
    partitions: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { partitions } = Arguments::parse();
    let report = run(partitions).await?;
    println!("nothing happens:  {}", report.quiet);
    println!("copies are made:  {}", report.copying);
    println!("cut-over:         {}", report.cutting_over);
    Ok(())
}
