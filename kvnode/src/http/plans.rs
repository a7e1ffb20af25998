//! The calls of operators about plans and moves. A plan is computed here, from this node's view; that
//! nothing changed meanwhile is group 0's to say.

use std::time::{Duration, Instant};

use http::request::Parts;
use kvapi::plans::{
    ApplyRequest, ChangeRequest, Done, PlanAnswer, PlanOrderRequest, PlanVerb, SettingsRequest,
    StageRequest,
};
use kvapi::{Problem, ProblemCode};
use kvcore::cluster::{
    ClusterCommand, ClusterOutcome, ClusterRefusal, ClusterState, Health, PlanOrder,
    SettingsChange, rollback_order,
};
use migration::{PlanId, PlanKind};
use placement::{Change, NodeId, NodeName, NodeSpec, NodeState, PlanRefusal, RingPlan, Weight};

use super::admin::read_json;
use super::app::{Answer, App, json};
use super::backend::Backend;
use super::body::RequestBody;
use super::describe_plans;
use super::problem::{Refusal, not_initialised, of_query, of_request, refuse};
use super::query::Query;
use super::route::Verb;
use crate::clock;
use crate::view::View;

/// Time for this node's view to show what group 0 has applied.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two looks at the view.
const VISIBLE_POLL: Duration = Duration::from_millis(10);

/// `GET /v1/admin/plan`.
pub async fn draft<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let info = app.backend().node_info(false).await;
    let bytes_per_copy = info.data_bytes / u64::from(info.partitions.max(1));
    let plan = planned(&view.state, &view.state.draft);
    Ok(json(&describe_plans::draft(&view, plan, bytes_per_copy)))
}

fn planned(state: &ClusterState, draft: &[Change]) -> Option<Result<RingPlan, PlanRefusal>> {
    let made = !draft.is_empty();
    made.then(|| placement::plan(&state.ring, draft, &state.settings.rules()))
}

/// `POST /v1/admin/plan/stage`.
pub async fn stage<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let request: StageRequest = read_json(app, head, body).await?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let mut changes = Vec::new();
    let mut given_up = Vec::new();
    for change in &request.changes {
        match change_of(&view, change)? {
            // Who owns nothing needs no plan to be given up.
            Change::Remove(node) if view.state.ring.topology().get(node).is_none() => {
                given_up.push(node);
            }
            change => changes.push(change),
        }
    }
    // What the changes lead to is refused before anything is staged.
    let mut draft = view.state.draft.clone();
    draft.extend(changes.iter().cloned());
    if let Some(Err(refusal)) = planned(&view.state, &draft) {
        return Err(of_plan(&refusal, &view));
    }
    for node in given_up {
        order_group0(app, ClusterCommand::GiveUp(node)).await?;
        shown(app, |state| !state.nodes.contains_key(&node)).await;
    }
    let expected = draft.len();
    for change in changes {
        order_group0(app, ClusterCommand::Stage(change)).await?;
    }
    shown(app, |state| state.draft.len() >= expected).await;
    draft_after(app).await
}

async fn draft_after<B: Backend>(app: &App<B>) -> Result<Answer, Refusal> {
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let info = app.backend().node_info(false).await;
    let bytes_per_copy = info.data_bytes / u64::from(info.partitions.max(1));
    let plan = planned(&view.state, &view.state.draft);
    Ok(json(&describe_plans::draft(&view, plan, bytes_per_copy)))
}

/// `POST /v1/admin/plan/clear`.
pub async fn clear<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    app.backend().view().ok_or_else(not_initialised)?;
    order_group0(app, ClusterCommand::ClearDraft).await?;
    shown(app, |state| state.draft.is_empty()).await;
    Ok(json(&Done {}))
}

/// `POST /v1/admin/plan/apply`: a compare-and-set on epoch and digest.
pub async fn apply<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let request: ApplyRequest = read_json(app, head, body).await?;
    app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let plan = plan_of(app, &request).await?;
    let parts = plan.parts(0);
    let order = PlanOrder {
        kind: PlanKind::Changes,
        base_epoch: plan.base_epoch,
        digest: plan.digest,
        changes: plan.changes,
        topology: parts.topology,
        tokens: parts.tokens,
        copies_min: plan.diff.copies_moved_min,
        at_ms: clock::wall_ms(),
    };
    applied(app, ClusterCommand::Apply(Box::new(order))).await
}

/// The plan that a request names. It may have been looked at on a node whose view was newer than this
/// one's, so that is waited for.
async fn plan_of<B: Backend>(app: &App<B>, request: &ApplyRequest) -> Result<RingPlan, Refusal> {
    let give_up = Instant::now() + VISIBLE_TIMEOUT;
    loop {
        let view = app.backend().view().ok_or_else(not_initialised)?;
        let refusal = match planned(&view.state, &view.state.draft) {
            None => stale("nothing is staged"),
            Some(Err(refusal)) => of_plan(&refusal, &view),
            Some(Ok(plan)) => {
                let is_same = plan.base_epoch == request.base_epoch
                    && plan.digest.to_string() == request.digest;
                if is_same {
                    return Ok(plan);
                }
                stale("epoch or draft are others than those that were looked at")
            }
        };
        // The epoch only goes up: an older one will not come back.
        if view.epoch() > request.base_epoch || Instant::now() >= give_up {
            return Err(refusal);
        }
        tokio::time::sleep(VISIBLE_POLL).await;
    }
}

/// `GET /v1/admin/migrations`.
pub fn migrations<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let view = app.backend().view().ok_or_else(not_initialised)?;
    Ok(json(&describe_plans::migrations(&view)))
}

/// `GET /v1/admin/migrations/why?partition=P`.
pub async fn why<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    let query = Query::parse(head.uri.query(), &["partition"]).map_err(of_query)?;
    let parse = |text: &str| text.parse::<u32>().ok();
    let partition = query.parsed("partition", "a number", parse).map_err(of_query)?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let Some(partition) = partition else {
        return Err(refuse(ProblemCode::MalformedRequest, "`partition` is missing"));
    };
    if partition >= view.state.ring.partition_bits().count() {
        let detail = format!("there is no partition {partition}");
        return Err(refuse(ProblemCode::NoSuchPartition, detail));
    }
    Ok(json(&describe_plans::why(&view, placement::PartitionId::new(partition))))
}

/// `POST /v1/admin/migrations/order`.
pub async fn order<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let request: PlanOrderRequest = read_json(app, head, body).await?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let last = view.state.last_plan().map(|plan| plan.id);
    let Some(plan) = request.plan.map(PlanId).or(last) else {
        return Err(refuse(ProblemCode::NotFound, "there is no plan"));
    };
    let at_ms = clock::wall_ms();
    let command = match request.order {
        PlanVerb::Pause => ClusterCommand::Pause { plan, paused: true },
        PlanVerb::Resume => ClusterCommand::Pause { plan, paused: false },
        PlanVerb::Cancel => ClusterCommand::Cancel { plan, at_ms },
        PlanVerb::Finish => ClusterCommand::EndGrace { plan },
        PlanVerb::Rollback => {
            let order = rollback_order(&view.state, plan, at_ms);
            let order = order.map_err(|refusal| of_cluster(&refusal, &view))?;
            return applied(app, ClusterCommand::Apply(Box::new(order))).await;
        }
    };
    order_group0(app, command).await?;
    Ok(json(&PlanAnswer { plan: plan.get() }))
}

/// `GET` and `POST /v1/admin/settings`.
pub async fn settings<B: Backend>(
    app: &App<B>,
    head: &Parts,
    body: &mut RequestBody,
    verb: Verb,
) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    app.backend().view().ok_or_else(not_initialised)?;
    if verb == Verb::Post {
        let request: SettingsRequest = read_json(app, head, body).await?;
        if request.moves_per_node == Some(0) {
            let detail = "`moves_per_node` is at least 1; `copy_bytes_per_second` 0 pauses copies";
            return Err(refuse(ProblemCode::MalformedRequest, detail));
        }
        let change = SettingsChange {
            copy_bytes_per_second: request.copy_bytes_per_second,
            moves_per_node: request.moves_per_node,
            grace_ms: request.grace_ms,
        };
        order_group0(app, ClusterCommand::Configure(change)).await?;
        shown(app, |state| {
            let mut expected = state.settings.clone();
            expected.change(change);
            expected == state.settings
        })
        .await;
    }
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    Ok(json(&describe_plans::settings(&view.state.settings)))
}

/// Has group 0 make a plan, and answers with its id once this node's view shows it.
async fn applied<B: Backend>(app: &App<B>, command: ClusterCommand) -> Result<Answer, Refusal> {
    match order_group0(app, command).await? {
        ClusterOutcome::Planned(id) => {
            shown(app, |state| state.plan(id).is_some()).await;
            Ok(json(&PlanAnswer { plan: id.get() }))
        }
        ClusterOutcome::Done | ClusterOutcome::Truncate(_) | ClusterOutcome::Refused(_) => {
            Err(refuse(ProblemCode::Internal, "group 0 answered something else"))
        }
    }
}

async fn order_group0<B: Backend>(
    app: &App<B>,
    command: ClusterCommand,
) -> Result<ClusterOutcome, Refusal> {
    let deadline = Instant::now() + app.limits().request_timeout;
    let view = app.backend().view();
    let outcome = app.backend().cluster(command, deadline).await;
    match outcome.map_err(|error| of_request(error, view.as_deref()))? {
        ClusterOutcome::Refused(refusal) => {
            let view = view.ok_or_else(not_initialised)?;
            Err(of_cluster(&refusal, &view))
        }
        outcome => Ok(outcome),
    }
}

/// Waits until this node's view shows what was ordered, so that the next call sees it. If it takes too
/// long the answer goes out all the same: the order was applied.
async fn shown<B: Backend>(app: &App<B>, is_shown: impl Fn(&ClusterState) -> bool) {
    let give_up = Instant::now() + VISIBLE_TIMEOUT;
    while Instant::now() < give_up {
        if app.backend().view().is_some_and(|view| is_shown(&view.state)) {
            return;
        }
        tokio::time::sleep(VISIBLE_POLL).await;
    }
}

/// A change with nodes by their identities.
fn change_of(view: &View, change: &ChangeRequest) -> Result<Change, Refusal> {
    Ok(match change {
        ChangeRequest::Join { node } => Change::Join(spare(view, node)?),
        ChangeRequest::Drain { node } => Change::Drain(known(view, node)?),
        ChangeRequest::Remove { node } => {
            let id = known(view, node)?;
            if view.node(id).is_some_and(|record| record.health == Health::Up) {
                let detail = format!("live-node: {node} is up; drain it, or stop it first");
                let problem = Problem::new(ProblemCode::Unsafe, detail);
                return Err(Box::new(problem.with_hint(format!("kvctl drain {node}"))));
            }
            Change::Remove(id)
        }
        ChangeRequest::Replace { old, new } => {
            Change::Replace { old: known(view, old)?, new: spare(view, new)? }
        }
        ChangeRequest::Reweight { node, weight } => {
            let weight = Weight::new(*weight)
                .map_err(|error| refuse(ProblemCode::MalformedRequest, error.to_string()))?;
            Change::Reweight { node: known(view, node)?, weight }
        }
    })
}

fn known(view: &View, name: &NodeName) -> Result<NodeId, Refusal> {
    let record = view.state.nodes.values().find(|record| record.registration.name == *name);
    record.map(|record| record.registration.id).ok_or_else(|| {
        let problem = Problem::new(ProblemCode::NoSuchNode, format!("no node is called {name}"));
        Box::new(problem.with_hint("kvctl node ls"))
    })
}

fn spare(view: &View, name: &NodeName) -> Result<NodeSpec, Refusal> {
    let id = known(view, name)?;
    let record = view.node(id).ok_or_else(not_initialised)?;
    let said = &record.registration;
    Ok(NodeSpec {
        id,
        name: said.name.clone(),
        zone: said.zone.clone(),
        weight: said.weight,
        state: NodeState::Active,
    })
}

fn stale(detail: &str) -> Refusal {
    let detail = format!("{detail}: look at the plan again");
    Box::new(Problem::new(ProblemCode::StalePlan, detail).with_hint("kvctl plan show"))
}

/// Maps the rules that a plan violates.
fn of_plan(refusal: &PlanRefusal, view: &View) -> Refusal {
    let code = match refusal {
        PlanRefusal::UnknownNode { .. } => ProblemCode::NoSuchNode,
        PlanRefusal::NothingToDo
        | PlanRefusal::TooManyChanges { .. }
        | PlanRefusal::DuplicateChange { .. }
        | PlanRefusal::AlreadyMember { .. }
        | PlanRefusal::NameTaken { .. } => ProblemCode::Conflict,
        PlanRefusal::ZoneDiffers { .. }
        | PlanRefusal::NoNodesLeft
        | PlanRefusal::NoQuorum { .. }
        | PlanRefusal::Redundancy { .. }
        | PlanRefusal::ZoneCover { .. }
        | PlanRefusal::ZoneLoss { .. }
        | PlanRefusal::Placement(_)
        | PlanRefusal::Snapshot(_) => ProblemCode::Unsafe,
    };
    let detail = format!("{}: {}", refusal.rule(), describe_plans::with_names(refusal, view));
    refuse(code, detail)
}

/// Maps the refusals of group 0.
fn of_cluster(refusal: &ClusterRefusal, view: &View) -> Refusal {
    let code = match refusal {
        ClusterRefusal::NameTaken { .. } => ProblemCode::NameTaken,
        ClusterRefusal::StaleEpoch { .. } | ClusterRefusal::StaleDraft => ProblemCode::StalePlan,
        ClusterRefusal::NoSuchPlan { .. } => ProblemCode::NotFound,
        ClusterRefusal::NoSuchNode { .. } => ProblemCode::NoSuchNode,
        ClusterRefusal::Barred { .. } => ProblemCode::Forbidden,
        ClusterRefusal::IllegalRing { .. } => ProblemCode::Unsafe,
        ClusterRefusal::ZoneInUse { .. }
        | ClusterRefusal::StagedAlready { .. }
        | ClusterRefusal::DraftFull
        | ClusterRefusal::PlanUnderWay { .. }
        | ClusterRefusal::WrongPhase { .. }
        | ClusterRefusal::InRing { .. }
        | ClusterRefusal::NotReady { .. } => ProblemCode::Conflict,
    };
    refuse(code, describe_plans::with_names(refusal, view))
}
