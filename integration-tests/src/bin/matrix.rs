//! Kills nodes in every stage of a join and a drain: `matrix`, or `matrix --part 3 --parts 8`.

use clap::Parser;
use integration_tests::matrix::{cells, part_of, run};

/// Runs the kill matrix on a local cluster and prints a line for each cell.
#[derive(Debug, Parser)]
struct Arguments {
    /// Runs one of this many parts only.
    #[arg(long, default_value_t = 1)]
    parts: usize,
    /// Which of them, from 0.
    #[arg(long, default_value_t = 0)]
    part: usize,
    /// Runs the cells whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { parts, part, only } = Arguments::parse();
    let mut chosen = part_of(&cells(), part, parts);
    chosen.retain(|cell| cell.to_string().contains(&only));
    println!("{} of {} cells", chosen.len(), cells().len());
    let lines = run(&chosen).await?;
    println!("{} cells passed", lines.len());
    Ok(())
}
