//! Nodes are killed in every stage of a join and a drain: here a seeded eighth of the cells, all of
//! them in `make chaos`.

use anyhow::ensure;
use integration_tests::matrix::{cells, part_of, run};

const PARTS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_any_stage_a_plan_ends_by_itself_and_loses_nothing() -> anyhow::Result<()> {
    let seed = std::env::var("RINGKV_SEED").ok().and_then(|text| text.parse().ok());
    let today = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs() / 3600)
    };
    let seed: u64 = seed.unwrap_or_else(today);
    let part = usize::try_from(seed % PARTS as u64)?;
    println!("RINGKV_SEED={seed}: part {part} of {PARTS}");
    let all = cells();
    let chosen = part_of(&all, part, PARTS);
    ensure!(chosen.len() >= all.len() / PARTS - 1);
    let lines = run(&chosen).await?;
    ensure!(lines.len() == chosen.len());
    Ok(())
}
