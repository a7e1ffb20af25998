//! Nodes come and go under writes.

use kvcore::cluster::{ClusterCommand, ClusterOutcome, PlanOrder, rollback_order};
use migration::{Phase, Plan, PlanId, PlanKind};
use placement::{Change, NodeSpec, NodeState};

use super::*;

/// Starts a node that registers with the cluster, in this zone.
async fn spare(cluster: &Cluster, name: &str, zone: &str) -> Node {
    let config = NodeConfig {
        seeds: vec![address(&cluster.nodes[0])],
        zone: Zone::parse(zone).unwrap(),
        ..config(name, cluster.dir.path())
    };
    let node = Node::start(config).await.unwrap();
    wait_for("the spare is registered", async || match node.info().registration_state {
        RegistrationState::Registered { .. } => Ok(()),
        other => Err(other),
    })
    .await;
    node
}

fn join(node: &Node) -> Change {
    let said = node.info().registration;
    Change::Join(NodeSpec {
        id: said.id,
        name: said.name,
        zone: said.zone,
        weight: said.weight,
        state: NodeState::Active,
    })
}

async fn order(node: &Node, command: ClusterCommand) -> ClusterOutcome {
    node.router().cluster(command, Instant::now() + PATIENCE).await.unwrap()
}

/// Stages changes and applies them.
async fn apply(node: &Node, changes: Vec<Change>) -> PlanId {
    let count = changes.len();
    for change in changes {
        let staged = order(node, ClusterCommand::Stage(change)).await;
        assert_eq!(staged, ClusterOutcome::Done);
    }
    wait_for("the draft shows", async || match node.view().load() {
        Some(view) if view.state.draft.len() == count => Ok(()),
        _ => Err("no draft"),
    })
    .await;
    let state = node.view().load().unwrap().state.clone();
    let ring = placement::plan(&state.ring, &state.draft, &state.settings.rules()).unwrap();
    let parts = ring.parts(0);
    let order_of = PlanOrder {
        kind: PlanKind::Changes,
        base_epoch: ring.base_epoch,
        digest: ring.digest,
        changes: ring.changes.clone(),
        topology: parts.topology,
        tokens: parts.tokens,
        copies_min: ring.diff.copies_moved_min,
        at_ms: clock::wall_ms(),
    };
    match order(node, ClusterCommand::Apply(Box::new(order_of))).await {
        ClusterOutcome::Planned(id) => id,
        other => panic!("{other:?}"),
    }
}

/// Waits for a phase of a plan and returns the plan.
async fn phase(node: &Node, id: PlanId, wanted: &str) -> Plan {
    wait_for(&format!("plan {id} is {wanted}"), async || {
        let view = node.view().load().ok_or_else(|| "no view".to_owned())?;
        let plan = view.state.plan(id).ok_or_else(|| "no plan".to_owned())?;
        let done = plan.phase.name() == wanted || (wanted == "serving" && plan.is_serving());
        let stages: Vec<_> = plan.moves.iter().map(|it| &it.stage).collect();
        if done {
            Ok(plan.clone())
        } else {
            Err(format!("{:?} {:?} {stages:?}", plan.phase, plan.signals))
        }
    })
    .await
}

async fn fill(node: &Node, round: &str) {
    for key in 0..60 {
        write(node, &format!("key-{key}"), format!("{round}-{key}").as_bytes()).await;
    }
}

async fn check(node: &Node, round: &str) {
    for key in 0..60 {
        let value = read(node, &format!("key-{key}")).await;
        assert_eq!(value.as_deref(), Some(format!("{round}-{key}").as_bytes()), "key-{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_join_and_two_leave_without_losing_a_write() {
    let mut cluster = cluster_of_three(&Settings::default()).await;
    fill(&cluster.nodes[0], "first").await;
    for (name, zone) in [("n4", "zone-of-n1"), ("n5", "zone-of-n2"), ("n6", "zone-of-n3")] {
        let node = spare(&cluster, name, zone).await;
        cluster.nodes.push(node);
    }
    let joins = cluster.nodes[3..].iter().map(join).collect();
    let id = apply(&cluster.nodes[0], joins).await;
    let plan = phase(&cluster.nodes[0], id, "serving").await;
    assert_eq!(plan.moves.len() as u64, plan.copies_min);
    check(&cluster.nodes[5], "first").await;
    fill(&cluster.nodes[4], "second").await;
    order(&cluster.nodes[1], ClusterCommand::EndGrace { plan: id }).await;
    phase(&cluster.nodes[0], id, "finished").await;
    check(&cluster.nodes[3], "second").await;

    let leaving: Vec<_> = cluster.nodes[4..].iter().map(|node| Change::Drain(node.id())).collect();
    let id = apply(&cluster.nodes[2], leaving).await;
    phase(&cluster.nodes[0], id, "serving").await;
    order(&cluster.nodes[1], ClusterCommand::EndGrace { plan: id }).await;
    phase(&cluster.nodes[0], id, "finished").await;
    for node in &cluster.nodes[4..] {
        tokio::time::timeout(PATIENCE, node.departed()).await.expect("it has left");
        assert_eq!(node.fresh_summaries().await.len(), 0);
    }
    check(&cluster.nodes[0], "second").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rollback_after_the_cut_over_keeps_every_write_made_since() {
    let cluster = cluster_of_three(&Settings::default()).await;
    fill(&cluster.nodes[0], "first").await;
    let before = cluster.nodes[0].view().load().unwrap().state.clone();
    let newcomer = spare(&cluster, "n4", "zone-of-n1").await;
    let id = apply(&cluster.nodes[0], vec![join(&newcomer)]).await;
    phase(&cluster.nodes[0], id, "serving").await;
    fill(&newcomer, "second").await;
    let state = cluster.nodes[0].view().load().unwrap().state.clone();
    let back = rollback_order(&state, id, clock::wall_ms()).unwrap();
    let back = match order(&cluster.nodes[0], ClusterCommand::Apply(Box::new(back))).await {
        ClusterOutcome::Planned(id) => id,
        other => panic!("{other:?}"),
    };
    let plan = phase(&cluster.nodes[0], back, "serving").await;
    assert!(matches!(plan.phase, Phase::Published { .. }));
    check(&cluster.nodes[1], "second").await;
    let after = cluster.nodes[0].view().load().unwrap().state.clone();
    assert_eq!(after.epoch().get(), before.epoch().get() + 2);
    assert!(before.ring.tokens().eq(after.ring.tokens()));
    order(&cluster.nodes[1], ClusterCommand::EndGrace { plan: back }).await;
    phase(&cluster.nodes[0], back, "finished").await;
    wait_for("the newcomer is empty", async || match newcomer.fresh_summaries().await.len() {
        0 => Ok(()),
        left => Err(left),
    })
    .await;
    check(&newcomer, "second").await;
}
