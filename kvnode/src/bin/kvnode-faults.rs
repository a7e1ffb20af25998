//! The node with deliberate faults, so that tests can show that they would notice them:
//! `kvnode-faults --fault no-lease-check ...`, then as `kvnode`. It is part of no release.

use std::ffi::OsString;
use std::process::ExitCode;

use kvcore::Faults;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut faults = Faults::NONE;
    let mut rest: Vec<OsString> = Vec::new();
    let mut arguments = std::env::args_os();
    while let Some(argument) = arguments.next() {
        if argument != "--fault" {
            rest.push(argument);
            continue;
        }
        let name = arguments.next().unwrap_or_default();
        match fault(&mut faults, &name.to_string_lossy()) {
            Some(fault) => *fault = true,
            None => {
                eprintln!("kvnode-faults: {} is no fault", name.display());
                return ExitCode::from(2);
            }
        }
    }
    kvnode::program::run_with(rest, faults)
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
        _ => return None,
    })
}
