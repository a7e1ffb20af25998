//! The whole transition relation, and every explanation, as text to be read.

use std::fmt::Write as _;

use super::bench::{member, node, plan_of};
use super::scenarios::{check, testdata};
use crate::ids::PlanId;
use crate::moves::Move;
use crate::stage::{AbortReason, BlockReason, Stage, Step, Transition};
use crate::why::why;

fn transitions() -> Vec<(&'static str, Transition)> {
    vec![
        ("admit", Transition::Admit),
        ("skip", Transition::Skip),
        ("installed", Transition::Installed),
        ("lost", Transition::Lost),
        ("fell behind", Transition::FellBehind),
        ("verified", Transition::Verified),
        ("published", Transition::Published),
        ("swapped", Transition::Swapped),
        ("retire", Transition::Retire),
        ("retired", Transition::Retired),
        ("ended", Transition::Ended),
        ("block", Transition::Block(BlockReason::TargetDown(node(4)))),
        ("unblock", Transition::Unblock),
        ("cancel", Transition::Abort(AbortReason::Cancelled)),
        ("supersede", Transition::Abort(AbortReason::Superseded(PlanId(2)))),
    ]
}

#[test]
fn the_whole_relation_is_as_written() {
    let mut stages: Vec<Stage> = Step::ALL.into_iter().map(Stage::Running).collect();
    stages.extend([Stage::Done, Stage::Aborted(AbortReason::Cancelled)]);
    let mut text = String::new();
    for stage in &stages {
        for (name, transition) in transitions() {
            let next = match stage.after(&transition) {
                Ok(next) => next.name(),
                Err(_) => "-",
            };
            writeln!(text, "{:<12} {name:<12} {next}", stage.name()).unwrap();
        }
    }
    check(&testdata().join("relation.txt"), &text);
}

#[test]
fn a_blocked_move_goes_on_from_its_step_alone() {
    for step in Step::ALL {
        let reason = BlockReason::VoterDown(node(2));
        let blocked = Stage::Blocked { at: step, reason };
        for (_, transition) in transitions() {
            let free = Stage::Running(step).after(&transition);
            assert_eq!(blocked.after(&transition).ok(), free.ok());
        }
    }
}

#[test]
fn every_cause_is_explained_with_the_command_that_helps() {
    let range = "key hashes 00 to 3f".to_owned();
    let reasons = [
        BlockReason::TargetDown(node(4)),
        BlockReason::VoterDown(node(2)),
        BlockReason::OldOwnerDown(node(3)),
        BlockReason::TargetDiskFull(node(4)),
        BlockReason::CopyTooSlow(node(4), 3),
        BlockReason::CopyFails(node(4), "the source is gone".to_owned()),
        BlockReason::Mismatch { node: node(4), range },
    ];
    let differs = AbortReason::Mismatch { node: node(4), range: "key hashes 00 to 3f".to_owned() };
    let blocked = reasons.map(|reason| Stage::Blocked { at: Step::Copying, reason });
    let running = Step::ALL.map(Stage::Running);
    let ended = [Stage::Done, Stage::Aborted(AbortReason::Cancelled), Stage::Aborted(differs)];
    let mut text = String::new();
    for stage in blocked.into_iter().chain(running).chain(ended) {
        let partition = placement::PartitionId::new(0);
        let mut subject = Move::new(partition, Some(member(4)), Some(member(3)), 0);
        subject.stage = stage;
        let name = |id: placement::NodeId| format!("n{}", id.as_u128());
        let plan = plan_of(vec![subject]);
        let told = why(&plan, &plan.moves[0], 1 << 20, name);
        let command = told.command.as_deref().unwrap_or("-");
        writeln!(text, "{}\n  {}\n  {command}", plan.moves[0].stage.name(), told.reason).unwrap();
    }
    check(&testdata().join("why.txt"), &text);
}
