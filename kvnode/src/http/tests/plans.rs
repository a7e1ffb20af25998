//! The calls of operators: each of them, and each of their refusals.

use std::collections::BTreeMap;

use kvcore::cluster::{ClusterCommand, ClusterOutcome, Health, Registration};
use migration::{Advance, BlockReason, MoveId, Progress, Step, Transition};
use placement::{NodeId, PartitionId, Weight, Zone};
use serde_json::{Value, json};

use super::TestServer;
use super::fake::{Fake, name};
use super::raw::RawAnswer;
use crate::http::{Backend, HttpLimits};
use crate::report::{NodeReport, Part, ReplicaReport};

/// A cluster of n1, n2 and n3 in three zones, with n4 as a spare in n1's zone.
struct Operator {
    server: TestServer,
}

impl Operator {
    async fn new() -> Self {
        let server = TestServer::founded().await;
        let operator = Self { server };
        operator.register(4, "z1").await;
        operator
    }

    async fn register(&self, number: u128, zone: &str) {
        self.order(ClusterCommand::Register(Registration {
            id: NodeId::from_u128(number),
            name: name(&format!("n{number}")),
            zone: Zone::parse(zone).unwrap(),
            weight: Weight::ONE,
            client_address: format!("127.0.0.1:{}", 7390 + 10 * number),
            peer_address: format!("127.0.0.1:{}", 7391 + 10 * number),
        }))
        .await;
    }

    fn fake(&self) -> &Fake {
        self.server.backend()
    }

    /// Has group 0 do something that no call of an operator does.
    async fn order(&self, command: ClusterCommand) -> ClusterOutcome {
        let outcome = self.fake().cluster(command, std::time::Instant::now()).await.unwrap();
        assert!(!matches!(outcome, ClusterOutcome::Refused(_)), "{outcome:?}");
        outcome
    }

    async fn send(&self, line: &str, body: Option<Value>) -> RawAnswer {
        let mut connection = self.server.connect().await;
        match body {
            None => connection.ask(line, "", b"").await,
            Some(body) => {
                let headers = "Content-Type: application/json\r\n";
                connection.ask(line, headers, body.to_string().as_bytes()).await
            }
        }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.send(&format!("GET {path}"), None).await;
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.send(&format!("POST {path}"), Some(body)).await;
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Posts, and is refused with this status, code and rule.
    async fn refused(&self, path: &str, body: Value, want: (u16, &str, Option<&str>)) -> Value {
        let answer = self.send(&format!("POST {path}"), Some(body.clone())).await;
        let problem: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.code(), want.1, "{body}: {problem}");
        assert_eq!((answer.status, problem["rule"].as_str()), (want.0, want.2), "{problem}");
        assert_eq!(problem["outcome"], "not_applied", "{problem}");
        problem
    }

    async fn stage(&self, changes: Value) -> Value {
        self.post("/v1/admin/plan/stage", json!({ "changes": changes })).await
    }

    async fn stage_refused(&self, change: Value, want: (u16, &str, Option<&str>)) -> Value {
        let before = self.fake().view().unwrap().state.draft.clone();
        let body = json!({ "changes": [change] });
        let problem = self.refused("/v1/admin/plan/stage", body, want).await;
        assert_eq!(self.fake().view().unwrap().state.draft, before, "nothing was staged");
        problem
    }

    async fn join_n4(&self) -> u64 {
        let draft = self.stage(json!([{ "change": "join", "node": "n4" }])).await;
        let answer = self.post("/v1/admin/plan/apply", applying(&draft)).await;
        answer["plan"].as_u64().unwrap()
    }

    /// Takes all moves that are in a step on.
    async fn advance(&self, from: Step, advance: Advance) {
        let view = self.fake().view().unwrap();
        let plan = view.state.last_plan().unwrap();
        let at = plan.numbered().filter(|(_, it)| it.stage.step() == Some(from));
        let moves: Vec<(MoveId, _, _)> =
            at.map(|(id, _)| (id, Some(from), advance.clone())).collect();
        let epoch = view.epoch();
        self.order(ClusterCommand::Advance { moves, epoch, at_ms: 1_700_000_002_000 }).await;
    }

    /// Up to the publication, the swap included.
    async fn serve(&self) {
        self.advance(Step::Pending, Advance::to(Transition::Admit)).await;
        self.advance(Step::Copying, Advance::to(Transition::Installed)).await;
        self.advance(Step::CatchingUp, Advance::to(Transition::Verified)).await;
        let view = self.fake().view().unwrap();
        let plan = view.state.last_plan().unwrap().id;
        let base_epoch = view.epoch();
        let at_ms = 1_700_000_003_000;
        self.order(ClusterCommand::Publish { plan, base_epoch, at_ms }).await;
        self.advance(Step::Swapping, Advance::to(Transition::Swapped)).await;
    }
}

fn applying(draft: &Value) -> Value {
    json!({
        "base_epoch": draft["preview"]["base_epoch"],
        "digest": draft["preview"]["digest"],
    })
}

fn replica(number: u32, part: Part, bytes: u64) -> ReplicaReport {
    ReplicaReport {
        partition: PartitionId::new(number),
        part,
        keys: bytes / 100,
        bytes,
        millireads: 2500,
        milliwrites: 0,
    }
}

fn report(available: u64, part: Part) -> NodeReport {
    NodeReport {
        disk_available: available,
        disk_total: 1 << 40,
        disk_reserve: 1 << 20,
        replicas: (0..16).map(|number| replica(number, part, 1 << 20)).collect(),
    }
}

#[tokio::test]
async fn what_is_staged_is_shown_with_its_price_and_forgotten_on_request() {
    let operator = Operator::new().await;
    let empty = operator.get("/v1/admin/plan").await;
    assert_eq!(empty, json!({ "changes": [], "preview": null, "refusal": null }));
    let mut reports = BTreeMap::new();
    for number in 1..=3 {
        reports.insert(NodeId::from_u128(number), report(1 << 30, Part::Follower));
    }
    *operator.fake().reports.lock().unwrap() = reports;

    let draft = operator.stage(json!([{ "change": "join", "node": "n4" }])).await;
    assert_eq!(draft["changes"], json!(["join n4 in zone z1"]));
    assert_eq!(operator.get("/v1/admin/plan").await, draft);
    let preview = &draft["preview"];
    assert_eq!((&preview["base_epoch"], &preview["copies_moved"]), (&json!(1), &json!(8)));
    assert_eq!(preview["copies_moved_min"], 8);
    assert_eq!(preview["bytes_moved"], 8 << 20);
    assert_eq!(preview["silent"], json!(["n4"]), "it told nothing of its disk");
    let flows = preview["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "{flows:?}");
    let flow = json!({ "source": "n1", "target": "n4", "copies": 8, "bytes": 8 << 20 });
    assert_eq!(flows[0], flow);
    let node = |name: &str| {
        let nodes = preview["nodes"].as_array().unwrap();
        nodes.iter().find(|it| it["node"] == name).unwrap().clone()
    };
    assert_eq!(
        (&node("n1")["copies_before"], &node("n1")["copies_after"]),
        (&json!(16), &json!(8))
    );
    assert_eq!(node("n1")["bytes_after"], 8 << 20);
    assert_eq!(node("n4")["disk"], Value::Null);
    assert_eq!(preview["after"]["survives_zone_loss"], true);
    assert!(preview["risks"][0].as_str().unwrap().contains("stops nothing"), "{preview}");
    let status = operator.get("/v1/admin/status").await;
    assert_eq!(status["staged"], draft["changes"]);
    assert!(status["hint"].as_str().unwrap().contains("kvctl plan show"), "{status}");

    assert_eq!(operator.post("/v1/admin/plan/clear", json!({})).await, json!({}));
    assert_eq!(operator.get("/v1/admin/plan").await, empty);
}

#[tokio::test]
async fn a_change_that_breaks_a_rule_is_refused_by_its_name_and_not_staged() {
    let operator = Operator::new().await;
    let drain = |node: &str| json!({ "change": "drain", "node": node });
    let join = |node: &str| json!({ "change": "join", "node": node });
    let refused = |rule| (409, "plan-refused", Some(rule));
    operator.stage_refused(join("n9"), (404, "no-such-node", None)).await;
    operator.stage_refused(join("n1"), refused("already-member")).await;
    operator.stage_refused(drain("n4"), refused("unknown-node")).await;
    let problem = operator.stage_refused(drain("n1"), refused("redundancy")).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("redundancy: ") && !detail.contains("0000-"), "{detail}");
    let remove = json!({ "change": "remove", "node": "n1" });
    let problem = operator.stage_refused(remove, refused("live-node")).await;
    assert_eq!(problem["hint"], "kvctl drain n1");
    let reweight = |weight: u32| json!({ "change": "reweight", "node": "n1", "weight": weight });
    operator.stage_refused(reweight(0), (400, "malformed-request", None)).await;
    operator.stage_refused(reweight(1), refused("nothing-to-do")).await;
    let replace = json!({ "change": "replace", "old": "n2", "new": "n4" });
    operator.stage_refused(replace, refused("zone-differs")).await;
    let unknown = json!({ "change": "explode", "node": "n1" });
    operator.stage_refused(unknown, (400, "malformed-request", None)).await;
    let more = json!({ "change": "drain", "node": "n1", "force": true });
    operator.stage_refused(more, (400, "malformed-request", None)).await;
    let none = json!({ "changes": [] });
    operator.refused("/v1/admin/plan/stage", none, (400, "malformed-request", None)).await;

    operator.stage(json!([join("n4")])).await;
    operator.stage_refused(join("n4"), refused("duplicate-change")).await;
    // With n4 in its zone, n1 may go: the draft counts as a whole.
    let draft = operator.stage(json!([drain("n1")])).await;
    assert_eq!(draft["changes"], json!(["join n4 in zone z1", "drain n1"]));

    let health = vec![(NodeId::from_u128(2), Health::Down)];
    operator.order(ClusterCommand::SetHealth(health)).await;
    operator.post("/v1/admin/plan/clear", json!({})).await;
    // Its copies are lost already, so that nothing is lowered by giving it up.
    let draft = operator.stage(json!([{ "change": "remove", "node": "n2" }])).await;
    let risk = draft["preview"]["risks"][0].as_str().unwrap();
    assert_eq!(risk, "the loss of n1 or n3 stops up to 16 partitions until the node is back");
}

#[tokio::test]
async fn a_lost_spare_is_given_up_at_once_and_needs_no_plan() {
    let operator = Operator::new().await;
    let remove = json!([{ "change": "remove", "node": "n4" }]);
    let body = json!({ "changes": remove });
    let live = (409, "plan-refused", Some("live-node"));
    operator.refused("/v1/admin/plan/stage", body, live).await;
    let health = vec![(NodeId::from_u128(4), Health::Down)];
    operator.order(ClusterCommand::SetHealth(health)).await;
    let draft = operator.stage(remove).await;
    assert_eq!(draft["changes"], json!([]));
    let status = operator.get("/v1/admin/status").await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3, "{status}");
}

#[tokio::test]
async fn what_does_not_fit_on_a_disk_is_refused_at_every_stage() {
    let operator = Operator::new().await;
    let set = |available| {
        let mut reports = operator.fake().reports.lock().unwrap();
        reports.insert(NodeId::from_u128(1), report(1 << 30, Part::Leader));
        let spare = NodeReport { replicas: Vec::new(), ..report(available, Part::Follower) };
        reports.insert(NodeId::from_u128(4), spare);
    };
    let join = json!({ "change": "join", "node": "n4" });
    // Eight copies of one MiB each, and one MiB that stays free.
    set((9 << 20) - 1);
    let refused = (409, "plan-refused", Some("disk-space"));
    let problem = operator.stage_refused(join.clone(), refused).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("node n4 would receive 8388608 bytes"), "{detail}");
    set(9 << 20);
    let draft = operator.stage(json!([join])).await;
    let node = draft["preview"]["nodes"].as_array().unwrap().iter().find(|it| it["node"] == "n4");
    let disk = &node.unwrap()["disk"];
    assert_eq!((&disk["available"], &disk["available_after"]), (&json!(9 << 20), &json!(1 << 20)));
    // The disk fills up between the look and the order.
    set(1 << 20);
    assert_eq!(operator.get("/v1/admin/plan").await["refusal"]["code"], "disk-space");
    operator.refused("/v1/admin/plan/apply", applying(&draft), refused).await;
}

#[tokio::test]
async fn of_two_who_apply_one_plan_one_wins_and_no_other_epoch_or_digest_does() {
    let operator = Operator::new().await;
    let apply = "/v1/admin/plan/apply";
    let stale = (412, "stale-plan", None);
    let nothing = json!({ "base_epoch": 1, "digest": "00" });
    operator.refused(apply, nothing.clone(), stale).await;
    let draft = operator.stage(json!([{ "change": "join", "node": "n4" }])).await;
    operator.refused(apply, nothing, stale).await;
    let mut other_epoch = applying(&draft);
    other_epoch["base_epoch"] = json!(0);
    operator.refused(apply, other_epoch, stale).await;
    let bodies = [applying(&draft), applying(&draft)].map(Some);
    let line = format!("POST {apply}");
    let [one, two] = bodies.map(|body| operator.send(&line, body));
    let (one, two) = tokio::join!(one, two);
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
    assert_eq!(operator.fake().view().unwrap().state.plans.len(), 1);

    // The next plan has to wait until this one serves.
    operator.register(5, "z2").await;
    let next = operator.stage(json!([{ "change": "join", "node": "n5" }])).await;
    let under_way = (409, "plan-under-way", None);
    let problem = operator.refused(apply, applying(&next), under_way).await;
    assert_eq!(problem["hint"], "kvctl migrate watch");
}

#[tokio::test]
async fn a_plan_is_paused_resumed_cancelled_rolled_back_and_finished_when_its_phase_allows() {
    let operator = Operator::new().await;
    let path = "/v1/admin/migrations/order";
    let order = |verb: &str| json!({ "order": verb });
    let no_plan = (404, "no-such-plan", None);
    let wrong = (409, "wrong-phase", None);
    for verb in ["pause", "resume", "cancel", "rollback", "finish"] {
        operator.refused(path, order(verb), no_plan).await;
    }
    operator.refused(path, order("explode"), (400, "malformed-request", None)).await;

    let first = operator.join_n4().await;
    operator.refused(path, json!({ "order": "pause", "plan": 77 }), no_plan).await;
    operator.refused(path, order("rollback"), wrong).await;
    operator.refused(path, order("finish"), wrong).await;
    assert_eq!(operator.post(path, order("pause")).await, json!({ "plan": first }));
    assert_eq!(operator.get("/v1/admin/migrations").await["plans"][0]["paused"], true);
    let status = operator.get("/v1/admin/status").await;
    assert!(status["hint"].as_str().unwrap().contains("kvctl migrate resume"), "{status}");
    operator.post(path, order("resume")).await;
    operator.post(path, order("cancel")).await;
    operator.refused(path, order("cancel"), wrong).await;
    let told = operator.get("/v1/admin/migrations").await;
    assert_eq!(
        (&told["plans"][0]["phase"], &told["plans"][0]["reason"]),
        (&json!("aborted"), &json!("cancelled"))
    );

    let second = operator.join_n4().await;
    operator.serve().await;
    operator.refused(path, order("cancel"), wrong).await;
    let back = operator.post(path, order("rollback")).await["plan"].as_u64().unwrap();
    assert!(back > second);
    operator.post(path, json!({ "order": "finish", "plan": second })).await;
    let told = operator.get("/v1/admin/migrations").await;
    assert_eq!(told["plans"][0]["kind"], json!(format!("rollback of plan {second}")));
    let ids = told["plans"].as_array().unwrap().iter().map(|plan| plan["id"].as_u64().unwrap());
    assert_eq!(ids.collect::<Vec<_>>(), [back, second, first], "newest first");
}

#[tokio::test]
async fn moves_are_told_with_their_progress_and_what_they_wait_for() {
    let operator = Operator::new().await;
    let plan = operator.join_n4().await;
    let why = "/v1/admin/migrations/why";
    let waiting = operator.get(why).await;
    assert_eq!(waiting["causes"][0]["moves"], 8, "{waiting}");
    assert_eq!(waiting["plan"]["plan"], plan);

    operator.advance(Step::Pending, Advance::to(Transition::Admit)).await;
    let progress = Progress {
        bytes_done: 1000,
        bytes_total: 4000,
        bytes_per_second: 500,
        failures: 1,
        last_error: Some("the connection was reset".to_owned()),
        retry_at_ms: Some(1_700_000_009_000),
        at_ms: 1_700_000_002_000,
    };
    let advance = Advance { progress: Some(progress), ..Advance::default() };
    operator.advance(Step::Copying, advance).await;
    let told = operator.get("/v1/admin/migrations").await;
    let record = &told["plans"][0];
    assert_eq!((&record["bytes_done"], &record["bytes_total"]), (&json!(8000), &json!(32000)));
    assert_eq!((&record["bytes_per_second"], &record["eta_ms"]), (&json!(4000), &json!(6000)));
    let first = &record["moves"][0];
    assert_eq!((&first["gain"], &first["lose"]), (&json!("n4"), &json!("n1")));
    assert_eq!((&first["stage"], &first["eta_ms"]), (&json!("copying"), &json!(6000)));
    assert_eq!(
        (&first["failures"], &first["retry_at"]),
        (&json!(1), &json!(1_700_000_009_000_u64))
    );
    assert_eq!(first["last_error"], "the connection was reset");

    let down = BlockReason::TargetDown(NodeId::from_u128(4));
    operator.advance(Step::Copying, Advance::to(Transition::Block(down))).await;
    let blocked = operator.get(why).await;
    let cause = &blocked["causes"][0];
    assert_eq!((&cause["stage"], &cause["moves"]), (&json!("blocked"), &json!(8)));
    assert!(cause["reason"].as_str().unwrap().contains("n4 is down"), "{cause}");
    assert!(cause["command"].as_str().unwrap().contains("kvctl migrate cancel"), "{cause}");
    let partition = told["plans"][0]["moves"][0]["partition"].as_u64().unwrap();
    let one = operator.get(&format!("{why}?plan={plan}&partition={partition}")).await;
    assert_eq!(one["moves"][0]["record"]["partition"], partition);
    let status = operator.get("/v1/admin/status").await;
    assert_eq!(status["plan"]["stages"], json!({ "blocked": 8 }));
    assert!(status["hint"].as_str().unwrap().contains("kvctl migrate why"), "{status}");

    let code = async |query: &str| operator.send(&format!("GET {why}?{query}"), None).await.code();
    assert_eq!(code("plan=77").await, "no-such-plan");
    assert_eq!(code("partition=16").await, "no-such-partition");
    assert_eq!(code("partition=x").await, "malformed-request");
    let idle = Operator::new().await;
    assert_eq!(idle.send(&format!("GET {why}"), None).await.code(), "no-such-plan");
    assert!(idle.get("/v1/admin/migrations").await["plans"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn status_shows_each_node_s_state_and_the_ring_s_history_its_plans() {
    let operator = Operator::new().await;
    let state = async |name: &str| {
        let status = operator.get("/v1/admin/status").await;
        let nodes = status["nodes"].as_array().unwrap().clone();
        nodes.iter().find(|node| node["name"] == name).unwrap()["state"].clone()
    };
    assert_eq!((state("n1").await, state("n4").await), (json!("active"), json!("spare")));
    let plan = operator.join_n4().await;
    assert_eq!(state("n4").await, "joining");
    operator.advance(Step::Pending, Advance::to(Transition::Admit)).await;
    assert_eq!(state("n4").await, "copying");
    operator.serve().await;
    assert_eq!(state("n4").await, "active");
    let status = operator.get("/v1/admin/status").await;
    assert_eq!(status["plan"]["phase"], "published");
    assert!(status["hint"].as_str().unwrap().contains("kvctl migrate finish"), "{status}");

    let history = operator.get("/v1/admin/ring").await;
    let [founding, joined] = history["entries"].as_array().unwrap().as_slice() else {
        panic!("{history}");
    };
    assert_eq!((&founding["kind"], &founding["kept"]), (&json!("founding"), &json!(true)));
    assert_eq!((&joined["plan"], &joined["kind"]), (&json!(plan), &json!("changes")));
    assert_eq!(joined["changes"], json!(["join n4 in zone z1"]));
    let old = operator.get("/v1/ring?epoch=1").await;
    assert_eq!(old["snapshot"]["epoch"], 1);
    assert_eq!(operator.get("/v1/ring?epoch=2").await["snapshot"]["epoch"], 2);
    let code =
        async |query: &str| operator.send(&format!("GET /v1/ring?{query}"), None).await.code();
    assert_eq!(code("epoch=3").await, "no-such-epoch");
    assert_eq!(code("epoch=one").await, "malformed-request");
    assert_eq!(code("epoch=1&wait=1s").await, "malformed-request");
}

#[tokio::test]
async fn settings_change_one_by_one() {
    let operator = Operator::new().await;
    let path = "/v1/admin/settings";
    let before = operator.get(path).await;
    let after = operator.post(path, json!({ "copy_bytes_per_second": 0 })).await;
    assert_eq!(after["copy_bytes_per_second"], 0);
    assert_eq!(after["grace_ms"], before["grace_ms"]);
    assert_eq!(operator.post(path, json!({ "grace_ms": 5 })).await["grace_ms"], 5);
    assert_eq!(operator.get(path).await["copy_bytes_per_second"], 0);
    let malformed = (400, "malformed-request", None);
    operator.refused(path, json!({ "moves_per_node": 0 }), malformed).await;
    operator.refused(path, json!({ "moves_per_nod": 1 }), malformed).await;
    operator.refused(path, json!({ "grace_ms": -1 }), malformed).await;
    // With nothing to copy at, a plan never ends, and says so.
    let draft = operator.stage(json!([{ "change": "join", "node": "n4" }])).await;
    assert_eq!(draft["preview"]["seconds_at_throttle"], Value::Null);
}

#[tokio::test]
async fn partitions_are_told_by_leader_by_replica_and_for_the_whole_cluster() {
    let operator = Operator::new().await;
    let path = "/v1/admin/partitions";
    {
        let mut reports = operator.fake().reports.lock().unwrap();
        let replicas = vec![replica(3, Part::Leader, 500), replica(4, Part::Learner, 700)];
        reports.insert(NodeId::from_u128(1), NodeReport { replicas, ..NodeReport::default() });
        let replicas = vec![replica(3, Part::Follower, 500)];
        reports.insert(NodeId::from_u128(2), NodeReport { replicas, ..NodeReport::default() });
    }
    let led = operator.get(path).await;
    let entry = json!({
        "partition": 3, "keys": 5, "bytes": 500, "reads_per_second": 2.5,
        "writes_per_second": 0.0, "node": "n1", "role": "leader",
    });
    assert_eq!(led, json!({ "partitions": [entry], "missing": [] }));
    let list: kvapi::PartitionStatsList = serde_json::from_value(led).unwrap();
    assert_eq!(list.partitions[0].bytes, 500);
    let here = operator.get(&format!("{path}?replicas=true")).await;
    assert_eq!(here["partitions"][1]["role"], "learner");
    let all = operator.get(&format!("{path}?cluster=true&replicas=true")).await;
    let order: Vec<_> = all["partitions"].as_array().unwrap().iter().collect();
    let order: Vec<_> = order.iter().map(|it| (&it["partition"], &it["node"])).collect();
    let want = [(3, "n1"), (3, "n2"), (4, "n1")].map(|(number, node)| (json!(number), json!(node)));
    assert_eq!(order, want.iter().map(|(number, node)| (number, node)).collect::<Vec<_>>());
    assert_eq!(all["missing"], json!(["n3", "n4"]));
    assert_eq!(operator.send(&format!("GET {path}?cluster=yes"), None).await.status, 400);
    let metrics = operator.send("GET /metrics", None).await;
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(text.contains("ringkv_partition_bytes{partition=\"4\"} 700\n"), "{text}");
}

#[tokio::test]
async fn without_a_cluster_every_call_names_the_command_that_founds_one() {
    let server = TestServer::start(Fake::uninitialised(), HttpLimits::default()).await;
    let operator = Operator { server };
    let calls = [
        ("GET /v1/admin/plan", None),
        (
            "POST /v1/admin/plan/stage",
            Some(json!({ "changes": [{ "change": "drain", "node": "a" }] })),
        ),
        ("POST /v1/admin/plan/clear", Some(json!({}))),
        ("POST /v1/admin/plan/apply", Some(json!({ "base_epoch": 1, "digest": "00" }))),
        ("GET /v1/admin/migrations", None),
        ("GET /v1/admin/migrations/why", None),
        ("POST /v1/admin/migrations/order", Some(json!({ "order": "pause" }))),
        ("GET /v1/admin/settings", None),
        ("POST /v1/admin/settings", Some(json!({ "grace_ms": 1 }))),
        ("GET /v1/admin/partitions", None),
        ("GET /v1/ring?epoch=1", None),
    ];
    for (line, body) in calls {
        let answer = operator.send(line, body).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (503, "cluster-not-initialised"),
            "{line}"
        );
    }
    let pushed = operator.send("DELETE /v1/admin/plan", None).await;
    assert_eq!((pushed.status, pushed.header("allow")), (405, Some("GET, HEAD")));
    let both = operator.send("DELETE /v1/admin/settings", None).await;
    assert_eq!(both.header("allow"), Some("GET, HEAD, POST"));
}
