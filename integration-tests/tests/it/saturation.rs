//! A join while writers give the cluster no rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use integration_tests::cluster::{Cluster, ClusterOptions};
use integration_tests::ledger::Ledger;
use integration_tests::load::{Load, LoadOptions};
use integration_tests::plans::{PLAN_DEADLINE, finish, kvctl_ok, serve, wait_check};
use integration_tests::wait::hold;

/// Time that a writer gives a request, and the longest that it may go without an acknowledgement.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// Time under load before the join, so that there is something to copy.
const BEFORE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_under_write_saturation_converges_and_no_writer_falls_silent() -> anyhow::Result<()>
{
    let mut cluster = Cluster::start(ClusterOptions::default()).await?;
    let ledger = Arc::new(Ledger::default());
    let options = LoadOptions {
        prefix: "saturating",
        writers: 24,
        pace: LoadOptions::NO_PAUSE,
        timeout: REQUEST_DEADLINE,
    };
    cluster.add_spare("z1").await?;
    let writes = Load::start(&cluster.addresses()[..3], &options, &ledger);
    hold(BEFORE).await;
    // One move at a time: the longer it takes, the more the writes are in its way.
    kvctl_ok(&cluster, &["migrate", "throttle", "--moves-per-node", "1"]).await?;
    let before = ledger.totals();
    let began = Instant::now();
    kvctl_ok(&cluster, &["join", "n4"]).await?;
    let plan = serve(&cluster, 0).await?;
    let served = began.elapsed();
    let during = ledger.totals().acknowledged - before.acknowledged;
    let longest = writes.stop().await?;
    let totals = ledger.totals();
    println!(
        "{} moves under {:.0} writes/s (before: {:.0}) serve after {:.1} s; longest silence of a \
         writer {:.2} s; {totals:?}",
        plan.moves.len(),
        during as f64 / served.as_secs_f64(),
        before.acknowledged as f64 / BEFORE.as_secs_f64(),
        served.as_secs_f64(),
        longest.as_secs_f64(),
    );
    ensure!(longest < REQUEST_DEADLINE, "a writer was silent for {longest:?}");
    ensure!(totals.unknown == 0, "nothing died, and yet the outcome of writes is unknown");
    finish(&cluster, 0).await?;
    wait_check(&cluster, PLAN_DEADLINE).await?;
    for node in [0, 3] {
        ledger.check_through(&cluster.addresses(), node).await?;
    }
    cluster.finish()
}
