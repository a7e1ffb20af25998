//! A few hundred seeds, or as many as `RINGKV_SIM_SEEDS` asks for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sim::{Counters, Outcome, Setup, run};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run_caught(setup: Setup) -> Result<Outcome, String> {
    let seed = setup.seed;
    let caught = catch_unwind(AssertUnwindSafe(|| run(setup)));
    let outcome = caught.map_err(|_| format!("seed {seed}: a core stopped with a panic"))?;
    match &outcome.violation {
        Some(violation) => Err(format!("seed {seed}: {violation}")),
        None => Ok(outcome),
    }
}

#[test]
fn every_invariant_holds_in_every_weather() {
    let first = number("RINGKV_SIM_FIRST", 0);
    let count = number("RINGKV_SIM_SEEDS", 200);
    let mut counters = Counters::default();
    let mut failures = Vec::new();
    for seed in first..first + count {
        match run_caught(Setup::of_seed(seed)) {
            Ok(outcome) => counters += outcome.counters,
            Err(failure) => {
                println!("{failure}");
                failures.push(failure);
            }
        }
    }
    println!("{counters}");
    assert!(failures.is_empty(), "{} of {count} seeds failed:\n{}", failures.len(), failures[0]);
}
