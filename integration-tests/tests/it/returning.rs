//! A node that was away for too long.

use anyhow::ensure;
use integration_tests::absence::{AbsenceOptions, run};

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_whose_log_is_gone_comes_back_by_snapshot() -> anyhow::Result<()> {
    // 16 MiB of state, and a log of twice that.
    let report = run(AbsenceOptions {
        values: 128,
        value_bytes: 128 << 10,
        rounds: 2,
        is_killed_midway: false,
    })
    .await?;
    println!("{report:#?}");
    for (before, peak) in report.memory_before.iter().zip(report.memory_peak) {
        // What a whole copy in memory would take is more than this.
        ensure!(peak < before.max(&(96 * MIB)) + 64 * MIB, "memory grew: {report:?}");
    }
    Ok(())
}
