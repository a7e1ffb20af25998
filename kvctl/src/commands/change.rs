//! `kvctl join`, `drain`, `remove`, `replace` and `reweight`: changes of membership. Each is staged;
//! `--now` applies what is staged and follows it.

use kvapi::plans::{ChangeRequest, DraftAnswer, PLAN_STAGE_PATH, StageRequest};
use kvapi::{Client, NodeStage};
use placement::NodeName;

use crate::cli::Globals;
use crate::commands::plan;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, note};

/// Whether the change is applied at once.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct When {
    /// Show the plan, ask once, apply it and follow it until it serves.
    #[arg(long)]
    now: bool,
    /// With --now: wait until nothing of the plan is left to do, the grace included.
    #[arg(long, requires = "now")]
    wait: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Arguments of `join`.
#[derive(Debug, clap::Args)]
pub struct Join {
    /// Names of spares.
    #[arg(required_unless_present = "all_spares")]
    nodes: Vec<NodeName>,
    /// All spares.
    #[arg(long, conflicts_with = "nodes")]
    all_spares: bool,
    #[command(flatten)]
    when: When,
}

/// Arguments of `drain`.
#[derive(Debug, clap::Args)]
pub struct Drain {
    /// Names of members.
    #[arg(required = true)]
    nodes: Vec<NodeName>,
    #[command(flatten)]
    when: When,
}

/// Arguments of `remove`.
#[derive(Debug, clap::Args)]
pub struct Remove {
    /// Name of a dead member.
    node: NodeName,
    #[command(flatten)]
    when: When,
}

/// Arguments of `replace`.
#[derive(Debug, clap::Args)]
pub struct Replace {
    /// The member that goes.
    old: NodeName,
    /// The spare that takes its place.
    new: NodeName,
    #[command(flatten)]
    when: When,
}

/// Arguments of `reweight`.
#[derive(Debug, clap::Args)]
pub struct Reweight {
    /// The member.
    node: NodeName,
    /// Its share relative to the others'.
    weight: u32,
    #[command(flatten)]
    when: When,
}

/// Runs `join`.
pub async fn join(globals: &Globals, args: Join) -> Result<(), Failure> {
    let nodes = match args.all_spares {
        true => spares(&globals.client()).await?,
        false => args.nodes,
    };
    let changes = nodes.into_iter().map(|node| ChangeRequest::Join { node }).collect();
    stage(globals, changes, args.when).await
}

/// Runs `drain`.
pub async fn drain(globals: &Globals, args: Drain) -> Result<(), Failure> {
    let changes = args.nodes.into_iter().map(|node| ChangeRequest::Drain { node }).collect();
    stage(globals, changes, args.when).await
}

/// Runs `remove`.
pub async fn remove(globals: &Globals, args: Remove) -> Result<(), Failure> {
    stage(globals, vec![ChangeRequest::Remove { node: args.node }], args.when).await
}

/// Runs `replace`.
pub async fn replace(globals: &Globals, args: Replace) -> Result<(), Failure> {
    let change = ChangeRequest::Replace { old: args.old, new: args.new };
    stage(globals, vec![change], args.when).await
}

/// Runs `reweight`.
pub async fn reweight(globals: &Globals, args: Reweight) -> Result<(), Failure> {
    let change = ChangeRequest::Reweight { node: args.node, weight: args.weight };
    stage(globals, vec![change], args.when).await
}

async fn spares(client: &Client) -> Result<Vec<NodeName>, Failure> {
    let nodes = client.status().await?.nodes;
    let spares = nodes.into_iter().filter(|node| node.stage == NodeStage::Spare);
    let spares: Vec<NodeName> = spares.map(|node| node.name).collect();
    match spares.is_empty() {
        true => Err(Failure::new(Exit::NotFound, "there are no spares")),
        false => Ok(spares),
    }
}

async fn stage(globals: &Globals, changes: Vec<ChangeRequest>, when: When) -> Result<(), Failure> {
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
    plan::print(globals.output, &draft)?;
    plan::apply_draft(globals, &draft, when.yes, true, when.wait).await
}
