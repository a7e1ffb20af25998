//! The long linearizability run: `linearizability --seed N --operations 20000`.

use clap::Parser;
use integration_tests::linearizability::{RunOptions, run};
use integration_tests::nemesis::Fault;

/// Runs clients and faults against a cluster of real processes and checks what the clients saw.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where all choices come from.
    #[arg(long, env = "RINGKV_SEED")]
    seed: u64,
    /// Operations to reach; further ones follow until there were enough faults.
    #[arg(long, default_value_t = 20_000)]
    operations: usize,
    /// Lets nodes join and leave meanwhile.
    #[arg(long)]
    plans: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    println!("RINGKV_SEED={}", arguments.seed);
    let mut options = RunOptions::full(arguments.seed, arguments.operations);
    if arguments.plans {
        options.kinds.push(Fault::Plan);
    }
    let report = run(&options).await?;
    println!("seed {}: linearizable\n{report:#?}", arguments.seed);
    Ok(())
}
