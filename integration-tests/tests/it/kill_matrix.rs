//! Nodes are killed in every stage of a join and a drain: here an eighth of the cells, another one with
//! each `RINGKV_SEED`, all of them in `make chaos`.

use anyhow::ensure;
use integration_tests::matrix::{cells, part_of, run};

const PARTS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_any_stage_a_plan_ends_by_itself_and_loses_nothing() -> anyhow::Result<()> {
    let seed = std::env::var("RINGKV_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seed = seed.unwrap_or(0);
    let part = usize::try_from(seed % PARTS as u64)?;
    println!("RINGKV_SEED={seed}: part {part} of {PARTS}");
    let all = cells();
    let chosen = part_of(&all, part, PARTS);
    ensure!(chosen.len() >= all.len() / PARTS - 1);
    let lines = run(&chosen).await?;
    ensure!(lines.len() == chosen.len());
    Ok(())
}
