//! Changes of membership as an operator makes them, against a node that answers what it is told to.

use std::fs;
use std::process::Output;

use kvapi::{Problem, ProblemCode};
use serde_json::{Value, json};

use crate::support::{DevUp, kvctl, stderr, stdout};

/// A cluster of one fake node.
struct Fake(DevUp);

impl Fake {
    fn new() -> Self {
        let up = DevUp::start(&["--nodes", "1"]);
        up.wait_ready();
        fs::create_dir_all(up.dir.path().join("answers")).unwrap();
        Self(up)
    }

    /// What is answered to a call from now on, such as `GET_v1_admin_plan`.
    fn answers(&self, call: &str, document: &Value) {
        let path = self.0.dir.path().join("answers").join(call);
        fs::write(path, document.to_string()).unwrap();
    }

    fn refuses(&self, call: &str, problem: &Problem) {
        self.answers(call, &serde_json::to_value(problem).unwrap());
    }

    /// What was posted last.
    fn asked(&self, call: &str) -> Value {
        let path = self.0.dir.path().join("answers").join(format!("asked-{call}"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let endpoint = format!("http://127.0.0.1:{}", self.0.port);
        kvctl().args(["--endpoints", &endpoint]).args(arguments).output().unwrap()
    }

    /// What a successful command prints.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }
}

const STAGE: &str = "POST_v1_admin_plan_stage";
const APPLY: &str = "POST_v1_admin_plan_apply";
const PLAN: &str = "GET_v1_admin_plan";
const MIGRATIONS: &str = "GET_v1_admin_migrations";
const ORDER: &str = "POST_v1_admin_migrations_order";

fn achieved(copies: f64) -> Value {
    json!({
        "copies_max_over_mean": copies, "primaries_max_over_mean": 1.0, "copies": 3,
        "zones_covered_min": 3, "survives_node_loss": true, "survives_zone_loss": true,
    })
}

fn draft() -> Value {
    json!({
        "changes": ["join n4 in zone z1"],
        "refusal": null,
        "preview": {
            "base_epoch": 1, "digest": "18a2ac9a0637f81fc4325fbf0fc53ca1",
            "copies_moved": 8, "copies_moved_min": 8,
            "primaries_moved": 4, "primaries_moved_min": 3,
            "bytes_moved": 8 << 20, "silent": ["n3"], "seconds_at_throttle": 2,
            "flows": [{ "source": "n1", "target": "n4", "copies": 8, "bytes": 8 << 20 }],
            "nodes": [
                {
                    "node": "n1", "zone": "z1", "copies_before": 16, "copies_after": 8,
                    "primaries_before": 6, "primaries_after": 2, "bytes_before": 16 << 20,
                    "bytes_after": 8 << 20, "bytes_gained": 0, "disk": null,
                },
                {
                    "node": "n4", "zone": "z1", "copies_before": 0, "copies_after": 8,
                    "primaries_before": 0, "primaries_after": 4, "bytes_before": 0,
                    "bytes_after": 8 << 20, "bytes_gained": 8 << 20,
                    "disk": {
                        "available": 64 << 20, "available_after": 56 << 20,
                        "reserve": 1 << 20, "total": 128 << 20,
                    },
                },
            ],
            "before": achieved(1.0), "after": achieved(1.5),
            "warnings": [{ "code": "uneven-zones", "detail": "zone z2 holds more" }],
            "risks": ["the loss of any one node stops nothing"],
        },
    })
}

const SHOWN: &str = "\
staged       join n4 in zone z1
base         epoch 1, digest 18a2ac9a0637f81fc4325fbf0fc53ca1
copies       8 moved, at least 8 must be; 8.00 MiB in all, about 2 s at the throttle in force
primaries    4 change, at least 3 must
balance      copies 1.000 -> 1.500, primaries 1.000 -> 1.000 (busiest over mean)
redundancy   3 -> 3 copies in at least 3 -> 3 zones; any zone may be lost -> any zone may be lost

NODE  ZONE  COPIES   PRIMARIES  DATA                   FREE DISK               OF
n1    z1    16 -> 8  6 -> 2     16.00 MiB -> 8.00 MiB  ?                       ?
n4    z1    0 -> 8   0 -> 4     0 B -> 8.00 MiB        64.00 MiB -> 56.00 MiB  128.00 MiB

FROM  TO  COPIES  BYTES
n1    n4  8       8.00 MiB

unknown      what n3 hold: not counted, no answer in time
warning      uneven-zones: zone z2 holds more
meanwhile    the loss of any one node stops nothing
";

fn a_move(partition: u32, stage: &str, step: Option<&str>) -> Value {
    json!({
        "number": partition, "partition": partition, "gain": "n4", "lose": "n1",
        "stage": stage, "step": step, "reason": null, "since": 1_700_000_000_000_u64,
        "bytes_done": 512, "bytes_total": 1024, "bytes_per_second": 256, "eta_ms": 2000,
        "failures": 1, "last_error": "reset", "retry_at": null, "watermark": 77,
        "gate": { "index": 77, "digest": "0123456789abcdef0123456789abcdef" },
        "after_swap": null, "residue": false,
    })
}

fn a_plan(phase: &str, moves: &[Value]) -> Value {
    json!({
        "id": 3, "kind": "changes", "phase": phase,
        "reason": (phase == "aborted").then_some("cancelled"),
        "changes": ["join n4 in zone z1"], "base_epoch": 1,
        "epoch": if phase == "published" { json!(2) } else { Value::Null },
        "applied_at": 1_700_000_000_000_u64, "published_at": null, "ended_at": null,
        "paused": false, "grace_ends_at": null, "copies_min": 8,
        "bytes_done": 1024, "bytes_total": 2048, "bytes_per_second": 512, "eta_ms": 2000,
        "signals": null, "moves": moves,
    })
}

#[test]
fn a_change_is_staged_and_the_next_command_named() {
    let fake = Fake::new();
    fake.answers(STAGE, &draft());
    let join = fake.run(&["join", "n4"]);
    assert_eq!(
        (join.status.code(), stdout(&join).as_str()),
        (Some(0), "staged  join n4 in zone z1\n")
    );
    assert!(stderr(&join).contains("`kvctl plan show`"), "{}", stderr(&join));
    assert_eq!(fake.asked(STAGE), json!({ "changes": [{ "change": "join", "node": "n4" }] }));
    let table: [(&[&str], Value); 5] = [
        (
            &["drain", "n5", "n6"],
            json!([{ "change": "drain", "node": "n5" }, { "change": "drain", "node": "n6" }]),
        ),
        (&["remove", "n2"], json!([{ "change": "remove", "node": "n2" }])),
        (&["replace", "n2", "n9"], json!([{ "change": "replace", "old": "n2", "new": "n9" }])),
        (&["reweight", "n2", "4"], json!([{ "change": "reweight", "node": "n2", "weight": 4 }])),
        (&["join", "n4", "-o", "json"], json!([{ "change": "join", "node": "n4" }])),
    ];
    for (arguments, want) in table {
        fake.prints(arguments);
        assert_eq!(fake.asked(STAGE), json!({ "changes": want }), "{arguments:?}");
    }
    for wrong in [&["reweight", "n2", "0"][..], &["join"], &["join", "n 4"], &["drain"]] {
        assert_eq!(fake.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn refusals_have_exit_codes_of_their_own_and_name_the_rule() {
    let fake = Fake::new();
    let refused = |rule: &str| {
        Problem::new(ProblemCode::PlanRefused, format!("{rule}: words")).with_rule(rule)
    };
    let table = [
        (refused("redundancy"), 5),
        (refused("zone-cover"), 5),
        (refused("disk-space"), 5),
        (refused("live-node"), 5),
        (refused("already-member"), 4),
        (refused("nothing-to-do"), 4),
        (refused("unknown-node"), 3),
        (Problem::new(ProblemCode::NoSuchNode, "no node is called n4"), 3),
        (Problem::new(ProblemCode::StalePlan, "look again"), 4),
        (Problem::new(ProblemCode::PlanUnderWay, "plan 3 is under way"), 4),
        (Problem::new(ProblemCode::WrongPhase, "plan 3 is moving"), 4),
        (Problem::new(ProblemCode::NoSuchPlan, "there is no plan"), 3),
        (Problem::new(ProblemCode::Barred, "it was given up"), 6),
        (Problem::new(ProblemCode::OutcomeUnknown, "too late"), 8),
    ];
    for (problem, code) in table {
        fake.refuses(STAGE, &problem);
        let output = fake.run(&["join", "n4"]);
        assert_eq!(output.status.code(), Some(code), "{problem:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(&problem.detail), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_plan_is_shown_applied_and_forgotten() {
    let fake = Fake::new();
    fake.answers(PLAN, &json!({ "changes": [], "preview": null, "refusal": null }));
    assert_eq!(fake.prints(&["plan", "show"]), "nothing is staged\n");
    assert_eq!(fake.run(&["plan", "apply"]).status.code(), Some(3));
    fake.answers(PLAN, &draft());
    assert_eq!(fake.prints(&["plan", "show"]), SHOWN);
    fake.answers(APPLY, &json!({ "plan": 3 }));
    assert_eq!(fake.prints(&["plan", "apply", "--yes"]), "plan 3 is under way\n");
    let digest = "18a2ac9a0637f81fc4325fbf0fc53ca1";
    assert_eq!(fake.asked(APPLY), json!({ "base_epoch": 1, "digest": digest }));
    fake.prints(&["plan", "apply", "--yes", "--digest", "77"]);
    assert_eq!(fake.asked(APPLY)["digest"], "77");
    fake.answers("POST_v1_admin_plan_clear", &json!({}));
    assert_eq!(fake.prints(&["plan", "clear"]), "nothing is staged\n");

    let mut refused = draft();
    refused["preview"] = Value::Null;
    refused["refusal"] = json!({ "code": "zone-cover", "detail": "2 zones would be left" });
    fake.answers(PLAN, &refused);
    assert!(fake.prints(&["plan", "show"]).contains("refused      zone-cover: 2 zones"));
    let apply = fake.run(&["plan", "apply", "--yes"]);
    assert_eq!(apply.status.code(), Some(5), "{}", stderr(&apply));
}

#[test]
fn now_stages_shows_applies_and_follows_until_it_serves() {
    let fake = Fake::new();
    fake.answers(STAGE, &draft());
    fake.answers(APPLY, &json!({ "plan": 3 }));
    let serving = [a_move(0, "serving", Some("serving")), a_move(1, "done", None)];
    fake.answers(MIGRATIONS, &json!({ "plans": [a_plan("published", &serving)] }));
    let printed = fake.prints(&["join", "n4", "--now", "--yes"]);
    assert_eq!(printed, format!("{SHOWN}plan 3 is under way\nplan 3 serves\n"));
    let json = fake.prints(&["join", "n4", "--now", "--yes", "-o", "json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["id"], 3, "one document: the plan as it is in the end");

    fake.answers(MIGRATIONS, &json!({ "plans": [a_plan("finished", &[])] }));
    let printed = fake.prints(&["join", "n4", "--now", "--yes", "--wait"]);
    assert!(printed.ends_with("plan 3 is finished\n"), "{printed}");
    fake.answers(MIGRATIONS, &json!({ "plans": [a_plan("aborted", &[])] }));
    let given_up = fake.run(&["migrate", "watch"]);
    assert_eq!(given_up.status.code(), Some(1));
    assert!(stderr(&given_up).contains("plan 3 was given up: cancelled"), "{}", stderr(&given_up));
    assert_eq!(fake.run(&["migrate", "watch", "9"]).status.code(), Some(3));
}

#[test]
fn plans_and_moves_are_listed_with_their_progress() {
    let fake = Fake::new();
    fake.answers(MIGRATIONS, &json!({ "plans": [] }));
    assert_eq!(fake.prints(&["migrate", "ls"]), "no plan is on record\n");
    assert_eq!(fake.run(&["migrate", "show"]).status.code(), Some(3));
    let moves = [a_move(5, "copying", Some("copying")), a_move(6, "pending", Some("pending"))];
    fake.answers(MIGRATIONS, &json!({ "plans": [a_plan("moving", &moves)] }));
    let want = "\
PLAN  PHASE   EPOCH  APPLIED               MOVES  COPIED    LEFT  STAGES                FOR
3     moving  -      2023-11-14T22:13:20Z  2      1.00 KiB  2 s   copying 1, pending 1  join n4 in zone z1
";
    assert_eq!(fake.prints(&["migrate", "ls"]), want);
    let shown = fake.prints(&["migrate", "show", "3"]);
    let lines = [
        "plan         3 (join n4 in zone z1), moving, not published\n",
        "copied       1.00 KiB of 2.00 KiB, 512 B/s, 2 s left\n",
        "5          n1    n4  copying  2023-11-14T22:13:20Z  512 B of 1.00 KiB  256 B/s  2 s   1         77         01234567@77  -      reset\n",
    ];
    for line in lines {
        assert!(shown.contains(line), "{line}\nis not in\n{shown}");
    }
}

#[test]
fn orders_and_limits_are_passed_on() {
    let fake = Fake::new();
    fake.answers(ORDER, &json!({ "plan": 3 }));
    for verb in ["pause", "resume", "cancel", "rollback", "finish"] {
        assert_eq!(fake.prints(&["migrate", verb, "--yes"]), "plan 3\n");
        assert_eq!(fake.asked(ORDER), json!({ "order": verb, "plan": null }));
    }
    fake.prints(&["migrate", "cancel", "2"]);
    assert_eq!(fake.asked(ORDER)["plan"], 2);

    let settings =
        json!({ "copy_bytes_per_second": 32 << 20, "moves_per_node": 4, "grace_ms": 3_600_000 });
    fake.answers("GET_v1_admin_settings", &settings);
    fake.answers("POST_v1_admin_settings", &settings);
    let shown = "copies       32.00 MiB/s in and out of each node, 4 moves at a time per node\n\
                 grace        3600 s\n";
    assert_eq!(fake.prints(&["migrate", "throttle"]), shown);
    let change = [
        "migrate",
        "throttle",
        "--bytes-per-second",
        "1MiB",
        "--moves-per-node",
        "2",
        "--grace",
        "0",
    ];
    assert_eq!(fake.prints(&change), shown);
    let want = json!({ "copy_bytes_per_second": 1 << 20, "moves_per_node": 2, "grace_ms": 0 });
    assert_eq!(fake.asked("POST_v1_admin_settings"), want);
    let none = fake.run(&["migrate", "throttle", "--moves-per-node", "0"]);
    assert_eq!(none.status.code(), Some(2));

    let why = json!({
        "moves": [],
        "causes": [{
            "plan": 3, "stage": "blocked", "reason": "copying: the target n4 is down",
            "command": "start n4, or: kvctl migrate cancel", "moves": 2, "partitions": [5, 6],
        }],
        "plan": { "plan": 3, "phase": "moving", "reason": "moves are blocked", "command": null },
    });
    fake.answers("GET_v1_admin_migrations_why", &why);
    let want = "plan 3       moving: moves are blocked\n\
                blocked      2 (partitions 5, 6): copying: the target n4 is down\n\
                try          start n4, or: kvctl migrate cancel\n";
    assert_eq!(fake.prints(&["migrate", "why"]), want);
    assert_eq!(fake.prints(&["migrate", "why", "7"]), "no plan on record moves this partition\n");
}

#[test]
fn the_history_of_the_ring_names_the_plans_behind_it() {
    let fake = Fake::new();
    let entry = |epoch: u64, plan: Option<u64>, kind: &str| {
        json!({
            "epoch": epoch, "checksum": "86a3b13742036fddec07b7a3ffdd800f",
            "activated_at": 1_700_000_000_000_u64, "plan": plan, "kind": kind,
            "changes": if plan.is_some() { vec!["drain n5"] } else { vec![] }, "kept": epoch == 2,
        })
    };
    let entries = [entry(1, None, "founding"), entry(2, Some(3), "changes")];
    fake.answers("GET_v1_admin_ring", &json!({ "entries": entries }));
    let want = "\
EPOCH  PUBLISHED             PLAN  KIND      KEPT  CHECKSUM                          CHANGES
2      2023-11-14T22:13:20Z  3     changes   yes   86a3b13742036fddec07b7a3ffdd800f  drain n5
1      2023-11-14T22:13:20Z  -     founding  no    86a3b13742036fddec07b7a3ffdd800f
";
    assert_eq!(fake.prints(&["ring", "history"]), want);
}

#[test]
fn rings_of_made_up_nodes_are_compared_without_a_cluster() {
    let run = |arguments: &[&str]| kvctl().args(["ring", "diff"]).args(arguments).output().unwrap();
    let output = run(&[
        "--nodes",
        "120",
        "--zones",
        "3",
        "--partitions",
        "4096",
        "--add",
        "1",
        "--bytes",
        "24TiB",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = stdout(&output);
    let heading = "\
rings        epoch 1 -> 2, 120 -> 121 nodes, 4096 partitions x 3 copies
copies       99 moved, at least 99 had to; 0.806 % of all, 0.826 % by the weights
";
    assert!(printed.starts_with(heading), "{printed}");
    assert!(printed.contains("by the weights 203.11 GiB"), "{printed}");
    assert_eq!(stdout(&run(&["--synthetic", "120..121", "--bytes", "24TiB"])), printed);
    let json: Value =
        serde_json::from_slice(&run(&["--synthetic", "4..5", "-o", "json"]).stdout).unwrap();
    assert_eq!((&json["nodes_before"], &json["nodes_after"]), (&json!(4), &json!(5)));
    for wrong in [
        &["--synthetic", "4"][..],
        &["--nodes", "2", "--zones", "3"],
        &["--nodes", "9", "1", "2"],
        &["--add", "2"],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
