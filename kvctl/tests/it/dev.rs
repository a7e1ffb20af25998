use std::fs;

use crate::support::{DevUp, is_alive, kvctl, signal, stderr, stdout, wait_for};

#[test]
fn a_cluster_comes_up_loses_a_node_gets_it_back_and_goes() {
    let mut up = DevUp::start(&[]);
    up.wait_ready();
    assert!(up.said().contains("founded cluster c1"), "{}", up.said());
    let pids: Vec<i32> = ["n1", "n2", "n3"].map(|name| up.pid(name).unwrap()).to_vec();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    for file in ["n1/data", "n1/log", "dev.json"] {
        assert!(up.dir.path().join(file).exists(), "{file}");
    }

    signal(pids[1], "KILL");
    wait_for(|| up.said(), |said| said.contains("ended with signal 9"));
    assert!(!is_alive(pids[1]), "a killed node stays dead");

    let started = up.dev(&["start", "n2"]);
    assert!(started.status.success(), "{}", stderr(&started));
    assert!(stdout(&started).starts_with("n2 z2 http://127.0.0.1:"), "{}", stdout(&started));
    let revived = up.pid("n2").unwrap();
    assert!(is_alive(revived), "it outlives the kvctl that started it");
    let again = up.dev(&["start", "n2"]);
    assert!(again.status.success() && stderr(&again).contains("runs already"));
    assert_eq!(up.pid("n2"), Some(revived));

    let added = up.dev(&["add", "--zone", "z9"]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(stdout(&added).starts_with("n4 z9 "), "{}", stdout(&added));
    let spare = up.pid("n4").unwrap();

    assert_eq!(up.end(), Some(0));
    for pid in [pids[0], pids[2], revived, spare] {
        assert!(!is_alive(pid), "{pid} was left behind: {}", up.said());
    }
}

#[test]
fn a_directory_is_restarted_and_not_founded_again() {
    let up = DevUp::start(&["--nodes", "2", "--zones", "2"]);
    up.wait_ready();
    let (dir, port) = up.into_dir();
    let mut up = DevUp::start_in(dir, port, &[]);
    up.wait_ready();
    assert!(!up.said().contains("founded"), "{}", up.said());
    assert!(up.pid("n2").is_some_and(is_alive));
    assert!(up.pid("n3").is_none());
    assert_eq!(up.end(), Some(0));
    let (dir, port) = up.into_dir_after_end();
    let mut other = DevUp::start_in(dir, port, &["--nodes", "3"]);
    assert_eq!(other.wait(), Some(2));
    assert!(other.said().contains("was made with --nodes 2, not 3"), "{}", other.said());
}

#[test]
fn a_second_watcher_is_refused() {
    let up = DevUp::start(&["--nodes", "1"]);
    up.wait_ready();
    let second = up.dev(&["up"]);
    assert_eq!(second.status.code(), Some(4));
    assert!(stderr(&second).contains("another `dev up` runs"), "{}", stderr(&second));
    assert!(up.pid("n1").is_some_and(is_alive), "the first goes on");
}

#[test]
fn a_node_that_fails_at_the_start_ends_the_rest_and_says_why() {
    let mut up = DevUp::start(&["--nodes", "2", "--", "--fail"]);
    assert_eq!(up.wait(), Some(1));
    assert!(up.said().contains("told to fail"), "{}", up.said());
    assert!(up.pid("n1").is_none_or(|pid| !is_alive(pid)));
}

#[test]
fn a_port_taken_by_another_cluster_is_no_success() {
    let first = DevUp::start(&["--nodes", "1"]);
    first.wait_ready();
    let dir = tempfile::tempdir().unwrap();
    let mut second = DevUp::start_in(dir, first.port, &["--nodes", "1"]);
    assert_eq!(second.wait(), Some(4));
    assert!(second.said().contains("cannot listen on"), "{}", second.said());
    assert!(first.pid("n1").is_some_and(is_alive), "the first goes on");
}

#[test]
fn a_foreign_process_behind_a_stale_pid_file_is_never_signalled() {
    let up = DevUp::start(&["--nodes", "2"]);
    up.wait_ready();
    let mut foreign = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    signal(up.pid("n2").unwrap(), "KILL");
    wait_for(|| up.said(), |said| said.contains("signal 9"));
    fs::write(up.dir.path().join("n2/pid"), foreign.id().to_string()).unwrap();
    let stopped = up.dev(&["stop", "n2"]);
    assert!(stopped.status.success() && stderr(&stopped).contains("does not run"));
    fs::write(up.dir.path().join("n2/pid"), foreign.id().to_string()).unwrap();
    drop(up);
    assert!(matches!(foreign.try_wait(), Ok(None)), "the foreign process was ended");
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}

#[test]
fn nodes_left_by_a_killed_watcher_are_taken_over() {
    let mut up = DevUp::start(&["--nodes", "2"]);
    up.wait_ready();
    let pid = up.pid("n1").unwrap();
    up.kill();
    assert!(is_alive(pid));
    let (dir, port) = up.into_dir_after_end();
    let mut up = DevUp::start_in(dir, port, &[]);
    up.wait_ready();
    assert!(up.said().contains("n1 runs already"), "{}", up.said());
    assert_eq!(up.pid("n1"), Some(pid));
    assert_eq!(up.end(), Some(0));
    assert!(!is_alive(pid));
}

#[test]
fn a_stubborn_node_is_killed_at_the_second_interrupt() {
    let mut up = DevUp::start(&["--nodes", "1", "--", "--stubborn"]);
    up.wait_ready();
    let pid = up.pid("n1").unwrap();
    up.interrupt();
    wait_for(|| up.said(), |said| said.contains("ending all nodes"));
    up.interrupt();
    assert_eq!(up.wait(), Some(0));
    assert!(!is_alive(pid));
    assert!(up.said().contains("does not leave: killed"), "{}", up.said());
}

#[test]
fn stop_ends_one_node_and_names_that_do_not_exist_are_not_found() {
    let up = DevUp::start(&["--nodes", "2"]);
    up.wait_ready();
    let pid = up.pid("n1").unwrap();
    let stopped = up.dev(&["stop", "n1"]);
    assert!(stopped.status.success(), "{}", stderr(&stopped));
    assert!(!is_alive(pid) && up.pid("n1").is_none());
    assert!(up.pid("n2").is_some_and(is_alive));
    assert_eq!(up.dev(&["stop", "n9"]).status.code(), Some(3));
    assert_eq!(up.dev(&["start", "n9"]).status.code(), Some(3));
    let elsewhere = kvctl().args(["dev", "stop", "n1", "--dir", "/nonexistent"]).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
}
