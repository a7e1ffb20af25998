//! What `join`, `drain`, `remove`, `replace` and `reweight` have in common: the change is staged, and
//! with `--now` what is staged is shown, applied after one question, and followed.

use kvapi::plans::{ChangeRequest, DraftAnswer, PLAN_STAGE_PATH, StageRequest};

use crate::cli::Globals;
use crate::commands::plan;
use crate::exit::Failure;
use crate::output::{self, Format, note};

/// Whether the change is applied at once.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct When {
    /// Show the plan, ask once, apply it and follow it until it serves.
    #[arg(long)]
    now: bool,
    /// With --now: wait until the plan is finished: the grace has ended and all signals pass.
    #[arg(long, requires = "now")]
    wait: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Stages changes, and applies them if that is wanted now.
pub async fn stage(
    globals: &Globals,
    changes: Vec<ChangeRequest>,
    when: When,
) -> Result<(), Failure> {
    let request = StageRequest { changes };
    let draft: DraftAnswer = globals.client().order(PLAN_STAGE_PATH, &request).await?;
    if !when.now {
        if globals.output == Format::Json {
            return output::json(&draft);
        }
        for change in &draft.changes {
            output::text(&format!("staged  {change}\n"))?;
        }
        note("`kvctl plan show` shows what it costs, `kvctl plan apply` does it");
        return Ok(());
    }
    if globals.output == Format::Table {
        plan::print(globals.output, &draft)?;
    }
    plan::apply_draft(globals, &draft, when.yes, true, when.wait).await
}
