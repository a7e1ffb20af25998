//! Clients that know one address and nothing of rings: every node takes every request.

use std::process::Command;

use anyhow::{Context, ensure};
use integration_tests::cluster::{Cluster, ClusterOptions};

/// A node that does not own a key, and the key.
async fn stranger(cluster: &Cluster) -> anyhow::Result<(usize, String)> {
    for number in 0..1000 {
        let key = format!("stranger-{number}");
        let located = cluster.locate(0, key.as_bytes()).await?;
        let is_owner = |name: &str| located.owners.iter().any(|owner| owner.name.as_str() == name);
        let index = cluster.nodes().iter().position(|node| !is_owner(&node.name));
        if let Some(index) = index {
            return Ok((index, key));
        }
    }
    anyhow::bail!("every node owns every key")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_and_python_write_through_a_node_that_does_not_own_the_key() -> anyhow::Result<()> {
    let options = ClusterOptions { nodes: 4, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await?;
    let (index, key) = stranger(&cluster).await?;
    let url = format!("http://{}/v1/kv/{key}", cluster.node(index).client_address());

    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10", "--noproxy", "*"])
        .args(["--request", "PUT", "--data-binary", "by curl", "--output", "-"])
        .args(["--write-out", "%{http_code} %{num_redirects} %{size_download}", &url])
        .output()
        .context("curl is needed")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said == "204 0 0", "curl said {said:?} {}", String::from_utf8_lossy(&output.stderr));
    let read = run("curl", &["--silent", "--fail", "--max-time", "10", "--noproxy", "*", &url])?;
    ensure!(read == "by curl", "curl read {read:?}");

    let script = r#"
import sys, urllib.request
class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): raise SystemExit("redirected")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
put = urllib.request.Request(sys.argv[1], data=b"by python", method="PUT")
with opener.open(put, timeout=10) as answer: print(answer.status, answer.headers["ETag"])
with opener.open(sys.argv[1], timeout=10) as answer: print(answer.status, answer.read().decode())
"#;
    let said = run("python3", &["-c", script, &url])?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(
        lines.len() == 2 && lines[0].starts_with("204 \"") && lines[1] == "200 by python",
        "python said {said:?}"
    );
    println!("{key} was written through {}, which does not own it", cluster.node(index).name);
    cluster.finish()
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{program} is needed"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {said}");
    Ok(String::from_utf8(output.stdout)?)
}
