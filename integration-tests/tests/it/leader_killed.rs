//! The leader of the partitions being written to is killed.

use anyhow::ensure;
use integration_tests::kills::{KillOptions, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_no_acknowledged_write_is_lost() -> anyhow::Result<()> {
    let report = run(KillOptions { kills: 3, partitions: 32 }).await?;
    println!("signal to first acknowledgement, per partition: {}", report.outages);
    println!("the slowest partition of each kill: {}", report.slowest);
    println!("writes: {:?}", report.totals);
    ensure!(report.totals.acknowledged > 100, "hardly anything was at stake");
    Ok(())
}
