//! Kills nodes in every stage of a join and a drain: `matrix`, or `matrix --part 3 --parts 8`.

use clap::Parser;
use integration_tests::matrix::{cells, run};

/// Runs the kill matrix on a local cluster and prints a line for each cell.
#[derive(Debug, Parser)]
struct Arguments {
    /// Runs every `parts`-th cell only.
    #[arg(long, default_value_t = 1)]
    parts: usize,
    /// Which of them.
    #[arg(long, default_value_t = 0)]
    part: usize,
    /// Runs the cells whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { parts, part, only } = Arguments::parse();
    let parts = parts.max(1);
    let chosen: Vec<_> = cells()
        .into_iter()
        .enumerate()
        .filter(|(number, cell)| number % parts == part % parts && cell.to_string().contains(&only))
        .map(|(_, cell)| cell)
        .collect();
    println!("{} of {} cells", chosen.len(), cells().len());
    let lines = run(&chosen).await?;
    println!("{} cells passed", lines.len());
    Ok(())
}
