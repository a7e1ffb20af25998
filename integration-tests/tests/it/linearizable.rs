//! What clients see under faults could have come from one copy of the data.

use anyhow::ensure;
use integration_tests::cluster::find_program;
use integration_tests::linearizability::{RunOptions, run, seed_from_environment};
use integration_tests::nemesis::Fault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_keys_stay_linearizable_while_processes_die_and_hang() -> anyhow::Result<()> {
    let report = run(&RunOptions::small(seed_from_environment()?)).await?;
    println!("{report:#?}");
    ensure!(report.late_reads > 0, "no read was waiting for a node that was resumed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_keys_stay_linearizable_while_three_nodes_join_and_two_leave() -> anyhow::Result<()> {
    let report = run(&RunOptions::growing(seed_from_environment()?)).await?;
    println!("{report:#?}");
    ensure!(report.plans.len() >= 2, "only {} plans ended", report.plans.len());
    Ok(())
}

/// The checker is worth something only if it objects to a store that is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lease_check_stale_reads_are_noticed() -> anyhow::Result<()> {
    let options = RunOptions {
        program: Some(find_program("kvnode-faults", "KVNODE_FAULTS")?),
        arguments: vec!["--fault".to_owned(), "no-lease-check".to_owned()],
        is_violation_expected: true,
        kinds: vec![Fault::PauseLeader],
        faults_min: 5,
        operations_min: 1000,
        unknown_min: 0,
        ..RunOptions::small(seed_from_environment()?)
    };
    match run(&options).await {
        Ok(report) => anyhow::bail!("nobody noticed that leases are not checked: {report:#?}"),
        Err(error) => {
            let said = format!("{error:#}");
            println!("noticed: {said}");
            let is_violation = said.contains("no order") || said.contains("was known");
            ensure!(is_violation, "it failed for another reason: {said}");
            Ok(())
        }
    }
}
