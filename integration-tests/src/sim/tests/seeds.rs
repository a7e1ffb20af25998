//! A few hundred seeds, or as many as `RINGKV_SIM_SEEDS` asks for, from `RINGKV_SIM_FIRST` on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sim::{Counters, Outcome, Setup, run};

/// What a run of all seeds must have met, each this often.
const MET_MIN: u64 = 100;

/// Seeds that are run unless the environment asks for another number.
const SEEDS: u64 = 400;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run_caught(setup: Setup) -> Result<Outcome, String> {
    let seed = setup.seed;
    let weather = setup.weather.name;
    let caught = catch_unwind(AssertUnwindSafe(|| run(setup)));
    let outcome =
        caught.map_err(|_| format!("seed {seed} ({weather}): a core stopped with a panic"))?;
    match &outcome.violation {
        Some(violation) => Err(format!("seed {seed} ({weather}): {violation}")),
        None => Ok(outcome),
    }
}

/// Runs some seeds on all cores: each world is one thread's own.
fn run_all(seeds: impl Iterator<Item = u64>) -> (Counters, Vec<String>) {
    let seeds: Vec<u64> = seeds.collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counters = Counters::default();
    let mut failures = Vec::new();
    std::thread::scope(|scope| {
        let shares: Vec<_> = (0..threads)
            .map(|thread| {
                let share = seeds.iter().skip(thread).step_by(threads);
                scope.spawn(move || share.map(|seed| run_caught(Setup::of_seed(*seed))).collect())
            })
            .collect();
        for share in shares {
            let outcomes: Vec<Result<Outcome, String>> =
                share.join().expect("panics of a core are caught");
            for outcome in outcomes {
                match outcome {
                    Ok(outcome) => counters += outcome.counters,
                    Err(failure) => failures.push(failure),
                }
            }
        }
    });
    (counters, failures)
}

#[test]
fn every_invariant_holds_in_every_weather() {
    let first = number("RINGKV_SIM_FIRST", 0);
    let count = number("RINGKV_SIM_SEEDS", SEEDS);
    let (counters, failures) = run_all(first..first + count);
    println!("{count} seeds met:\n{counters}");
    for failure in &failures {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} of {count} seeds failed:\n{}", failures.len(), failures[0]);
    if count < SEEDS {
        return;
    }
    for (what, met) in [
        ("leader changes", counters.leader_changes),
        ("transfers", counters.transfers),
        ("snapshots installed", counters.snapshots_installed),
        ("snapshot copies broken off", counters.snapshots_broken_off),
        ("truncations", counters.truncations),
        ("crashes with unsynced bytes lost", counters.crashes_with_loss),
        ("duplicated messages", counters.messages_duplicated),
        ("reordered messages", counters.messages_reordered),
        ("lease reads", counters.lease_reads),
        ("reads after a round", counters.round_reads),
        ("configuration changes", counters.configuration_changes),
        ("leaders killed in a joint configuration", counters.joint_leaders_killed),
        ("pauses", counters.pauses),
        ("cuts", counters.cuts),
        ("hanging syncs", counters.disk_stalls),
        ("entries fetched from disk", counters.fetches),
    ] {
        assert!(met >= MET_MIN, "the seeds met only {met} {what}");
    }
    // Rarer: a process has to end amid a copy whose source stays.
    let resumed = counters.snapshots_resumed;
    assert!(resumed >= MET_MIN / 5, "the seeds met only {resumed} copies that went on");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..10 {
        let once = run(Setup::of_seed(seed));
        let again = run(Setup::of_seed(seed));
        assert_eq!(once.trace, again.trace, "seed {seed} went two ways");
        assert_eq!(once.counters, again.counters, "seed {seed} met different things");
        let other = run(Setup::of_seed(seed + 10));
        assert_ne!(once.trace, other.trace, "another seed is another run");
    }
}
