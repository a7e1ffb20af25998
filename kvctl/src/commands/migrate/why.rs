//! `kvctl migrate why`: what a plan and its moves wait for, and the command that helps.

use kvapi::plans::{WHY_PATH, WhyAnswer};

use crate::cli::Globals;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Runs the command.
pub async fn run(
    globals: &Globals,
    partition: Option<u32>,
    plan: Option<u64>,
) -> Result<(), Failure> {
    let partition = partition.map(|partition| format!("partition={partition}"));
    let plan = plan.map(|plan| format!("plan={plan}"));
    let query: Vec<String> = partition.iter().cloned().chain(plan).collect();
    let path = format!("{WHY_PATH}?{}", query.join("&"));
    let told: WhyAnswer = globals.client().ask(&path).await?;
    if globals.output == Format::Json {
        return output::json(&told);
    }
    if partition.is_some() && told.moves.is_empty() {
        return output::text("no plan on record moves this partition\n");
    }
    output::text(&in_words(&told))
}

fn in_words(told: &WhyAnswer) -> String {
    let mut text = String::new();
    let tried = |command: &Option<String>| match command {
        Some(command) => format!("try          {command}\n"),
        None => String::new(),
    };
    if let Some(plan) = &told.plan {
        text.push_str(&format!("plan {:<8}{}: {}\n", plan.plan, plan.phase, plan.reason));
        text.push_str(&tried(&plan.command));
    }
    for cause in &told.causes {
        let named: Vec<String> = cause.partitions.iter().map(ToString::to_string).collect();
        let more = if cause.moves as usize > named.len() { ", ..." } else { "" };
        let named = named.join(", ");
        text.push_str(&format!(
            "{:<12} {} (partitions {named}{more}): {}\n",
            cause.stage, cause.moves, cause.reason
        ));
        text.push_str(&tried(&cause.command));
    }
    for it in &told.moves {
        text.push_str(&format!("plan {:<8}{}: {}\n", it.plan, it.record.stage, it.reason));
        text.push_str(&tried(&it.command));
    }
    text
}

#[cfg(test)]
mod tests {
    use kvapi::plans::{Cause, PlanWhy};
    use placement::PartitionId;

    use super::*;

    #[test]
    fn causes_are_told_with_their_partitions_and_the_command() {
        let told = WhyAnswer {
            plan: Some(PlanWhy {
                plan: 3,
                phase: "moving".to_owned(),
                reason: "moves are blocked".to_owned(),
                command: None,
            }),
            causes: vec![Cause {
                plan: 3,
                stage: "blocked".to_owned(),
                reason: "copying: the target n4 is down".to_owned(),
                command: Some("start n4, or: kvctl migrate cancel".to_owned()),
                moves: 9,
                partitions: (0..8).map(PartitionId::new).collect(),
            }],
            ..WhyAnswer::default()
        };
        let want = "plan 3       moving: moves are blocked\n\
                    blocked      9 (partitions 0, 1, 2, 3, 4, 5, 6, 7, ...): copying: the target n4 is down\n\
                    try          start n4, or: kvctl migrate cancel\n";
        assert_eq!(in_words(&told), want);
    }
}
