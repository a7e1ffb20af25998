//! The calls of operators about plans and moves. A plan is computed here, from this node's view; that
//! nothing changed meanwhile is group 0's to say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use kvapi::plans::{
    ApplyRequest, ChangeRequest, Done, PlanAnswer, PlanOrderRequest, PlanVerb, SettingsRequest,
    StageRequest,
};
use kvapi::{Problem, ProblemCode};
use kvcore::cluster::{
    ClusterCommand, ClusterOutcome, ClusterState, Health, PlanOrder, SettingsChange, rollback_order,
};
use migration::{PlanId, PlanKind};
use placement::{Change, NodeId, NodeName, NodeSpec, NodeState, RingPlan, Weight};

use super::admin::read_json;
use super::app::{Answer, App, json};
use super::backend::Backend;
use super::body::RequestBody;
use super::preview::{Prepared, Refused, prepare};
use super::problem::{Refusal, not_initialised, of_cluster, of_plan, of_query, of_request, refuse};
use super::query::{Query, parse_number};
use super::route::Verb;
use super::{describe_plans, preview};
use crate::clock;
use crate::view::View;

/// Time for this node's view to show what group 0 has applied.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two looks at the view.
const VISIBLE_POLL: Duration = Duration::from_millis(10);

/// Time for other nodes to tell what they hold.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// `GET /v1/admin/plan`.
pub async fn draft<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    shown_draft(app).await
}

async fn shown_draft<B: Backend>(app: &App<B>) -> Result<Answer, Refusal> {
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    let prepared = match view.state.draft.is_empty() {
        true => None,
        false => Some(prepared(app, &view, view.state.draft.clone()).await?),
    };
    Ok(json(&preview::draft(&view, prepared)))
}

/// Makes the plan for a draft, off the async threads.
async fn prepared<B: Backend>(
    app: &App<B>,
    view: &Arc<View>,
    draft: Vec<Change>,
) -> Result<Result<Prepared, Refused>, Refusal> {
    let reports = app.backend().reports(true, Instant::now() + REPORT_TIMEOUT).await;
    let view = Arc::clone(view);
    let made = tokio::task::spawn_blocking(move || prepare(&view, &draft, reports)).await;
    made.map_err(|error| refuse(ProblemCode::Internal, error.to_string()))
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
    if request.changes.is_empty() {
        return Err(refuse(ProblemCode::MalformedRequest, "`changes` names no change"));
    }
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
    let expected = draft.len();
    if !changes.is_empty()
        && let Err(refused) = prepared(app, &view, draft).await?
    {
        return Err(of_plan(&refused, &view));
    }
    for node in given_up {
        order_group0(app, ClusterCommand::GiveUp(node)).await?;
        shown(app, |state| !state.nodes.contains_key(&node)).await;
    }
    for change in changes {
        order_group0(app, ClusterCommand::Stage(change)).await?;
    }
    shown(app, |state| state.draft.len() >= expected).await;
    shown_draft(app).await
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
    let mut seen = None;
    let mut refusal = stale("nothing is staged");
    loop {
        let view = app.backend().view().ok_or_else(not_initialised)?;
        // The epoch only goes up: an older one will not come back.
        if view.epoch() > request.base_epoch {
            let epoch = view.epoch();
            return Err(stale(&format!("epoch {epoch} is in force, not {}", request.base_epoch)));
        }
        if seen != Some(view.state.revision) && !view.state.draft.is_empty() {
            seen = Some(view.state.revision);
            match prepared(app, &view, view.state.draft.clone()).await? {
                Err(refused) => refusal = of_plan(&refused, &view),
                Ok(made) if made.plan.digest.to_string() == request.digest => return Ok(made.plan),
                Ok(_) => refusal = stale("the draft is another than the one that was looked at"),
            }
        } else if view.state.draft.is_empty() {
            refusal = stale("nothing is staged");
        }
        if Instant::now() >= give_up {
            return Err(refusal);
        }
        tokio::time::sleep(VISIBLE_POLL).await;
    }
}

/// `GET /v1/admin/migrations`, also without a leader of group 0: from what is known here then.
pub async fn migrations<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    Query::parse(head.uri.query(), &[]).map_err(of_query)?;
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    Ok(json(&describe_plans::migrations(&view)))
}

/// `GET /v1/admin/migrations/why?plan=N&partition=P`.
pub async fn why<B: Backend>(app: &App<B>, head: &Parts) -> Result<Answer, Refusal> {
    let query = Query::parse(head.uri.query(), &["plan", "partition"]).map_err(of_query)?;
    let parse = |text: &str| text.parse::<u32>().ok();
    let partition = query.parsed("partition", "a number", parse).map_err(of_query)?;
    let plan = query.parsed("plan", "a number", parse_number).map_err(of_query)?.map(PlanId);
    let view = app.backend().newest_view().await.ok_or_else(not_initialised)?;
    if let Some(id) = plan.filter(|id| view.state.plan(*id).is_none()) {
        return Err(no_such_plan(&format!("there is no plan {id}")));
    }
    let Some(partition) = partition else {
        let plan = plan.or_else(|| current_plan(&view.state)).and_then(|id| view.state.plan(id));
        let plan = plan.ok_or_else(|| no_such_plan("there is no plan"))?;
        return Ok(json(&describe_plans::why_plan(&view, plan)));
    };
    if partition >= view.state.ring.partition_bits().count() {
        let detail = format!("there is no partition {partition}");
        return Err(refuse(ProblemCode::NoSuchPartition, detail));
    }
    let partition = placement::PartitionId::new(partition);
    Ok(json(&describe_plans::why_partition(&view, partition, plan)))
}

/// The plan that orders without a plan are for: the last one.
fn current_plan(state: &ClusterState) -> Option<PlanId> {
    state.last_plan().map(|plan| plan.id)
}

fn no_such_plan(detail: &str) -> Refusal {
    Box::new(Problem::new(ProblemCode::NoSuchPlan, detail).with_hint("kvctl migrate ls"))
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
    let Some(plan) = request.plan.map(PlanId).or_else(|| current_plan(&view.state)) else {
        return Err(no_such_plan("there is no plan"));
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
                let problem = Problem::new(ProblemCode::PlanRefused, detail).with_rule("live-node");
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
