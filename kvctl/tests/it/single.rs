use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::support::{DevUp, kvctl, signal, stderr, stdout, wait_for};

#[test]
fn keys_are_written_read_and_deleted_with_their_exit_codes() {
    let up = DevUp::start(&["--nodes", "1"]);
    up.wait_ready();
    let endpoint = format!("http://127.0.0.1:{}", up.port);
    let run = |arguments: &[&OsStr]| {
        kvctl().env("KVCTL_ENDPOINTS", &endpoint).args(arguments).output().unwrap()
    };
    let text = |arguments: &[&str]| run(&arguments.iter().map(OsStr::new).collect::<Vec<_>>());

    let put = text(&["put", "a/../b", "v1"]);
    assert_eq!((put.status.code(), stdout(&put).as_str()), (Some(0), "1\n"), "{}", stderr(&put));
    let get = text(&["get", "a/../b"]);
    assert_eq!((get.status.code(), get.stdout.as_slice()), (Some(0), b"v1".as_slice()));
    let json = text(&["get", "a/../b", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["value"], &json["version"]), (&"v1".into(), &1.into()));

    let taken = text(&["put", "a/../b", "v2", "--if-none-match", "*"]);
    assert_eq!(taken.status.code(), Some(4));
    assert!(stderr(&taken).contains("version 1"), "{}", stderr(&taken));
    assert_eq!(text(&["put", "a/../b", "v2", "--if-match", "7"]).status.code(), Some(4));
    assert_eq!(text(&["put", "a/../b", "v2", "--if-match", "1"]).status.code(), Some(0));

    assert_eq!(text(&["del", "a/../b"]).status.code(), Some(0));
    let gone = text(&["get", "a/../b"]);
    assert_eq!((gone.status.code(), gone.stdout.len()), (Some(3), 0));

    let raw_key = OsStr::from_bytes(b"\xff\x01");
    assert_eq!(run(&[OsStr::new("put"), raw_key, OsStr::new("")]).status.code(), Some(0));
    assert_eq!(text(&["get", "--key-base64", "_wE"]).status.code(), Some(0));

    let mut piped = kvctl()
        .env("KVCTL_ENDPOINTS", &endpoint)
        .args(["put", "piped", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(b"\0\xff\n").unwrap();
    assert!(piped.wait().unwrap().success());
    assert_eq!(text(&["get", "piped"]).stdout, b"\0\xff\n");

    let bench = text(&[
        "bench",
        "--route",
        "any",
        "--duration",
        "300ms",
        "--connections",
        "4",
        "--keys",
        "50",
        "--preload",
        "-o",
        "json",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&bench.stdout).unwrap();
    assert_eq!(report["preload"]["operations"], 50);
    assert!(report["result"]["operations"].as_u64().unwrap() > 10, "{report}");
    assert_eq!(report["result"]["misses"], 0);
    assert_eq!(report["result"]["errors"], serde_json::json!({}));

    let paced = text(&[
        "bench",
        "--route",
        "any",
        "--duration",
        "500ms",
        "--rate",
        "400",
        "--connections",
        "4",
        "-o",
        "json",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&paced.stdout).unwrap();
    assert_eq!(report["result"]["operations"], 200, "{report}");
}

#[test]
fn ctrl_c_ends_a_bench_with_the_results_so_far() {
    let up = DevUp::start(&["--nodes", "1"]);
    up.wait_ready();
    let loops: [&[&str]; 2] = [&[], &["--rate", "200"]];
    for pace in loops {
        let bench = kvctl()
            .env("KVCTL_ENDPOINTS", format!("http://127.0.0.1:{}", up.port))
            .args(["bench", "--route", "any", "--duration", "1h", "-o", "json"])
            .args(pace)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Until it listens, an interrupt ends it at once.
        let listens = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", bench.id())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
            u64::from_str_radix(caught, 16).unwrap() & 2 != 0
        };
        wait_for(listens, |listens| *listens);
        signal(bench.id() as i32, "INT");
        let ended = bench.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        let seconds = report["result"]["elapsed_seconds"].as_f64().unwrap();
        assert!(seconds < 600.0, "{pace:?}: {report}");
        assert_eq!(report["result"]["errors"], serde_json::json!({}), "{pace:?}");
    }
}

#[test]
fn what_is_wrong_with_the_command_line_stands_on_one_line() {
    let wrong: &[&[&str]] = &[
        &["put", "k"],
        &["put", "k", "v", "--file", "f"],
        &["put", "k", "--file", "/nonexistent"],
        &["put", "k", "v", "--if-match", "W/\"1\""],
        &["get", ""],
        &["get", "k", "--key-base64"],
        &["bench", "--read-share", "2"],
        &["bench", "--duration", "0s"],
        &["bench", "--connections", "0"],
        &["dev", "up", "--partitions", "3"],
        &["dev", "up", "--kvnode", "/nonexistent"],
        &["init", "--policy", "best"],
        &["--endpoints", "ftp://x", "status"],
        &["nonsense"],
    ];
    for arguments in wrong {
        let output = kvctl().args(*arguments).output().unwrap();
        let said = stderr(&output);
        let is_usage = output.status.code() == Some(2);
        let is_clear = arguments == &["get", "k", "--key-base64"] || said.lines().count() == 1;
        assert!(is_usage && is_clear && !said.contains("panicked"), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn nobody_there_is_unreachable() {
    for arguments in [&["status"][..], &["get", "k"], &["put", "k", "v"], &["ring", "show"]] {
        let output = kvctl()
            .args(["--endpoints", "127.0.0.1:1", "--timeout", "300ms"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(7), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("refused"), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut child = kvctl()
        .args(["completion", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

#[test]
fn a_cluster_that_was_not_founded_names_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let port = crate::support::free_port();
    std::fs::create_dir_all(dir.path().join("n1/data")).unwrap();
    let (client, peer) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 1));
    let mut node = std::process::Command::new(crate::support::fake_node())
        .args(["--name", "n1", "--zone", "z1", "--client-addr", &client, "--peer-addr", &peer])
        .arg("--data-dir")
        .arg(dir.path().join("n1/data"))
        .spawn()
        .unwrap();
    let run = |arguments: &[&str]| {
        kvctl().args(["--endpoints", &client]).args(arguments).output().unwrap()
    };
    crate::support::wait_for(|| run(&["status"]), |output| output.status.success());
    let status = run(&["status"]);
    assert!(stdout(&status).contains("not initialised"), "{}", stdout(&status));
    assert!(stdout(&status).contains("kvctl init --endpoints"), "{}", stdout(&status));
    let get = run(&["get", "k"]);
    assert_eq!(get.status.code(), Some(7));
    assert!(stderr(&get).contains("kvctl init"), "{}", stderr(&get));
    let init = run(&["init", "--replication-factor", "1"]);
    assert!(init.status.success(), "{}", stderr(&init));
    assert_eq!(run(&["init"]).status.code(), Some(4));
    node.kill().unwrap();
    node.wait().unwrap();
}
