//! The node with deliberate faults, so that tests can show that they would notice them:
//! `kvnode-faults --fault no-lease-check ...`, then as `kvnode`. It is part of no release.
//!
//! `--hold FILE` holds plans back in the step that the file names, for as long as it does.
//! `--fault corrupt-chunk=N` damages the first N chunks that it serves, without `=N` each one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use kvcore::Faults;
use kvnode::program::TestHooks;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut faults = Faults::NONE;
    let mut hold_file = None;
    let mut rest: Vec<OsString> = Vec::new();
    let mut arguments = std::env::args_os();
    while let Some(argument) = arguments.next() {
        if argument == "--hold" {
            hold_file = arguments.next().map(PathBuf::from);
            continue;
        }
        if argument != "--fault" {
            rest.push(argument);
            continue;
        }
        let name = arguments.next().unwrap_or_default();
        if !set(&mut faults, &name.to_string_lossy()) {
            eprintln!("kvnode-faults: {} is no fault", name.display());
            return ExitCode::from(2);
        }
    }
    kvnode::program::run_with(rest, TestHooks { faults, hold_file })
}

/// Sets a fault by its name; `false` if there is none of that name.
fn set(faults: &mut Faults, name: &str) -> bool {
    let chunks = match name.strip_prefix("corrupt-chunk") {
        Some("") => Some(u32::MAX),
        Some(count) => count.strip_prefix('=').and_then(|count| count.parse().ok()),
        None => None,
    };
    if let Some(chunks) = chunks {
        faults.corrupt_chunks = chunks;
        return true;
    }
    fault(faults, name).map(|fault| *fault = true).is_some()
}

fn fault<'a>(faults: &'a mut Faults, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "send-before-persist" => &mut faults.send_before_persist,
        "lease-from-receipt" => &mut faults.lease_from_receipt,
        "lease-after-aborted-transfer" => &mut faults.lease_after_aborted_transfer,
        "no-vote-refusal-after-restart" => &mut faults.no_vote_refusal_after_restart,
        "tick-bursts" => &mut faults.tick_bursts,
        "applied-index-apart" => &mut faults.applied_index_apart,
        "leader-outside-serves" => &mut faults.leader_outside_serves,
        "no-lease-check" => &mut faults.no_lease_check,
        "publish-unverified" => &mut faults.publish_unverified,
        "retire-unchecked" => &mut faults.retire_unchecked,
        "learner-counts" => &mut faults.learner_counts,
        "half-copy-readable" => &mut faults.half_copy_readable,
        "removed-replica-votes" => &mut faults.removed_replica_votes,
        "corrupt-digest" => &mut faults.corrupt_digest,
        _ => return None,
    })
}
