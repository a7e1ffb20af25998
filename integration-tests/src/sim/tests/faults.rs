//! Every deliberate fault must be noticed: a simulator that misses one proves nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvcore::Faults;

use crate::sim::{Setup, Weather, run};

/// Seeds within which a fault must show.
const SEEDS_MAX: usize = 100;

/// What a faulty core was caught at, if it was.
fn caught(seed: u64, faults: Faults) -> Option<String> {
    let setup = Setup { faults, ..Setup::of_seed(seed) };
    match catch_unwind(AssertUnwindSafe(|| run(setup))) {
        Ok(outcome) => outcome.violation.map(|violation| violation.to_string()),
        Err(_) => Some("a core stopped with a panic".into()),
    }
}

/// Runs seeds of a weather, or of any, until one of them notices the fault; says what was seen.
fn is_noticed(name: &str, weather: Option<&str>, faults: Faults) -> String {
    let fits = |seed: &u64| weather.is_none_or(|name| Weather::of_seed(*seed).name == name);
    for (place, seed) in (0..).filter(fits).take(SEEDS_MAX).enumerate() {
        if let Some(seen) = caught(seed, faults) {
            let line = seen.lines().next().unwrap_or_default();
            println!("{name}: noticed after {} seeds, by seed {seed}: {line}", place + 1);
            return line.to_owned();
        }
    }
    panic!("{name} went unnoticed in {SEEDS_MAX} seeds");
}

#[test]
fn speaking_before_persisting_is_noticed() {
    is_noticed("send_before_persist", None, Faults { send_before_persist: true, ..Faults::NONE });
}

#[test]
fn a_lease_counted_from_the_receipt_is_noticed() {
    is_noticed(
        "lease_from_receipt",
        Some("pauses"),
        Faults { lease_from_receipt: true, ..Faults::NONE },
    );
}

#[test]
fn a_lease_after_an_aborted_transfer_is_noticed() {
    let faults = Faults { lease_after_aborted_transfer: true, ..Faults::NONE };
    is_noticed("lease_after_aborted_transfer", Some("handovers"), faults);
}

#[test]
fn a_restarted_node_that_votes_at_once_is_noticed() {
    let faults = Faults { no_vote_refusal_after_restart: true, ..Faults::NONE };
    is_noticed("no_vote_refusal_after_restart", Some("restarts"), faults);
}

#[test]
fn a_burst_of_ticks_after_a_stall_is_noticed() {
    is_noticed("tick_bursts", Some("sleepers"), Faults { tick_bursts: true, ..Faults::NONE });
}

#[test]
fn an_applied_index_written_apart_is_noticed() {
    is_noticed("applied_index_apart", None, Faults { applied_index_apart: true, ..Faults::NONE });
}

#[test]
fn a_leader_that_serves_from_outside_is_noticed() {
    let faults = Faults { leader_outside_serves: true, ..Faults::NONE };
    is_noticed("leader_outside_serves", Some("moves"), faults);
}

#[test]
fn a_lease_that_is_not_checked_is_noticed() {
    is_noticed("no_lease_check", None, Faults { no_lease_check: true, ..Faults::NONE });
}

#[test]
fn an_epoch_published_on_unverified_copies_is_noticed() {
    let faults = Faults { publish_unverified: true, ..Faults::NONE };
    is_noticed("publish_unverified", Some("plans"), faults);
}

#[test]
fn an_old_copy_retired_without_a_look_at_the_owners_is_noticed() {
    let faults = Faults { retire_unchecked: true, ..Faults::NONE };
    is_noticed("retire_unchecked", Some("plans"), faults);
}

#[test]
fn a_learner_that_counts_is_noticed() {
    is_noticed("learner_counts", Some("plans"), Faults { learner_counts: true, ..Faults::NONE });
}

#[test]
fn half_a_copy_that_can_be_read_is_noticed() {
    let faults = Faults { half_copy_readable: true, ..Faults::NONE };
    is_noticed("half_copy_readable", Some("plans"), faults);
}

#[test]
fn a_removed_replica_that_goes_on_is_noticed() {
    let faults = Faults { removed_replica_votes: true, ..Faults::NONE };
    is_noticed("removed_replica_votes", Some("plans"), faults);
}

#[test]
fn replicas_that_differ_raise_an_alarm_that_names_the_place() {
    let faults = Faults { corrupt_digest: true, ..Faults::NONE };
    let seen = is_noticed("corrupt_digest", Some("moves"), faults);
    assert!(seen.contains("alarm") && seen.contains("differs in key hashes"), "{seen}");
}
