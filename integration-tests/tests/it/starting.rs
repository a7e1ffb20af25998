//! Starts that fail: one line that says why, and a code of their own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{Cluster, ClusterOptions, find_program, ports};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<Output> {
    let output = Command::new(find_program("kvnode", "KVNODE")?)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output();
    output.context("cannot start a node")
}

fn check(output: &Output, code: i32, part: &str) -> anyhow::Result<()> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code), "{:?}, not {code}: {errors}", output.status);
    ensure!(output.stdout.is_empty(), "standard output is for data that was asked for");
    let mut reasons = errors.lines().filter(|line| line.starts_with("kvnode: "));
    let reason = reasons.next().with_context(|| format!("no reason in {errors:?}"))?;
    ensure!(reasons.next().is_none(), "more than one reason: {errors}");
    ensure!(reason.contains(part), "{reason:?} does not say {part:?}");
    Ok(())
}

#[test]
fn a_start_that_fails_says_why_in_one_line_with_a_code_of_its_own() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let text = |path: &Path| path.display().to_string();
    let data = text(&directory.path().join("data"));
    let (client, peer) = (ports::reserve()?, ports::reserve()?);
    let addresses = ["--client-addr", &client.address(), "--peer-addr", &peer.address()];
    let with = |more: &[&str]| {
        let mut arguments = addresses.map(str::to_owned).to_vec();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        arguments
    };
    let start = |more: &[&str], environment: &[(&str, &str)]| {
        let arguments = with(more);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), environment)
    };

    check(&start(&["--colour"], &[])?, 2, "--colour")?;
    check(&start(&[], &[("KVNODE_WEIGHT", "none")])?, 2, "KVNODE_WEIGHT")?;
    check(&start(&["--log-level", "a=b=c"], &[])?, 2, "log_level")?;
    check(&start(&["--config", "/none/such.toml"], &[])?, 3, "/none/such.toml")?;
    check(&run(&["--peer-addr", "192.0.2.1:7401"], &[])?, 4, "--insecure")?;
    check(&start(&["--token-file", "tokens"], &[])?, 5, "token_file")?;

    let taken = TcpListener::bind(client.address())?;
    check(&start(&["--data-dir", &data], &[])?, 10, &client.address())?;
    drop(taken);
    let taken = TcpListener::bind(peer.address())?;
    check(&start(&["--data-dir", &data], &[])?, 11, &peer.address())?;
    drop(taken);

    let foreign = directory.path().join("foreign");
    std::fs::create_dir(&foreign)?;
    std::fs::write(foreign.join("letter.txt"), "Dear reader")?;
    check(&start(&["--data-dir", &text(&foreign)], &[])?, 13, "letter.txt")?;
    let file = directory.path().join("file");
    std::fs::write(&file, "")?;
    check(&start(&["--data-dir", &text(&file)], &[])?, 16, &text(&file))?;
    Ok(())
}

#[test]
fn the_printed_configuration_is_one_that_a_node_reads() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let printed = run(&["--name=n7", "--seeds=a:1,b:2", "--print-config"], &[])?;
    ensure!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
    let file = directory.path().join("kvnode.toml");
    std::fs::write(&file, &printed.stdout)?;
    let path = file.display().to_string();
    let again = run(&["--print-config"], &[("KVNODE_CONFIG", &path)])?;
    ensure!(again.stdout == printed.stdout, "{}", String::from_utf8_lossy(&again.stdout));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_has_one_node_at_a_time() -> anyhow::Result<()> {
    let options = ClusterOptions { nodes: 1, zones: 1, ..Default::default() };
    let cluster = Cluster::start(options).await?;
    let (client, peer) = (ports::reserve()?, ports::reserve()?);
    let data = cluster.node(0).data_dir.display().to_string();
    let addresses = ["--client-addr", &client.address(), "--peer-addr", &peer.address()];
    let second = run(&[&addresses[..], &["--data-dir", &data]].concat(), &[])?;
    check(&second, 12, &data)?;

    let (took, status) = cluster.node(0).terminate(Duration::from_secs(10)).await?;
    ensure!(status.success(), "asked to stop, it ended with {status:?} after {took:?}");
    cluster.finish()
}
