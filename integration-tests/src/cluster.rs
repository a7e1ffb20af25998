//! A cluster of real processes on loopback, in a directory of its own.
//!
//! Invariants:
//! - ports are reserved for as long as the cluster is there, also while a node is down;
//! - no process outlives its cluster;
//! - a cluster that was not [finished](Cluster::finish) leaves its logs behind and says where.

pub mod ports;
pub mod process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kvapi::{Client, ClientOptions, Endpoint, InitRequest, LocateAnswer, NodeInfo};
use tempfile::TempDir;

pub use process::{Node, describe};

use crate::wait::wait_for;
use crate::wire::{Exchange, Request, Wire};

/// Time for started nodes to answer, and for a founded cluster to serve.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Time for one small question to a node.
const QUESTION: Duration = Duration::from_secs(2);
/// Lines of each log that are shown when a test fails.
const TAIL_LINES: usize = 12;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of zones, which the nodes are put in by turns.
    pub zones: usize,
    /// Number of partitions. Few keep the tests light.
    pub partitions: u32,
    /// The program; `kvnode` beside the test if not given.
    pub program: Option<PathBuf>,
    /// Further arguments of every node.
    pub arguments: Vec<String>,
    /// A library to load into every node, and the name of the variable with its control file.
    pub preload: Option<crate::shim::Shim>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 3,
            zones: 3,
            partitions: 16,
            program: None,
            arguments: Vec::new(),
            preload: None,
        }
    }
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    partitions: u32,
    client: Client,
    program: PathBuf,
    arguments: Vec<String>,
    preload: Option<crate::shim::Shim>,
    /// None once it was removed or is to be kept.
    directory: Option<TempDir>,
}

impl Cluster {
    /// Starts a cluster, founds it and waits until every node serves.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let cluster = Self::start_unfounded(options).await?;
        cluster.found().await?;
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// Starts the nodes and waits until each answers.
    pub async fn start_unfounded(options: ClusterOptions) -> anyhow::Result<Self> {
        let program = match &options.program {
            Some(program) => program.clone(),
            None => find_program("kvnode", "KVNODE")?,
        };
        let directory = tempfile::Builder::new().prefix("ringkv-it-").tempdir()?;
        let arguments_of_all = options.arguments.clone();
        let mut nodes = Vec::new();
        for index in 0..options.nodes {
            let name = format!("n{}", index + 1);
            let zone = format!("z{}", index % options.zones + 1);
            nodes.push(Node::new(directory.path(), name, zone, program.clone())?);
        }
        let peers: Vec<String> = nodes.iter().map(Node::peer_address).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            let others = peers.iter().enumerate().filter(|(other, _)| *other != index);
            let seeds: Vec<&str> = others.map(|(_, peer)| peer.as_str()).collect();
            let mut arguments = Vec::new();
            if !seeds.is_empty() {
                arguments.extend(["--seeds".to_owned(), seeds.join(",")]);
            }
            arguments.extend(options.arguments.iter().cloned());
            node.set_arguments(arguments);
            if let Some(shim) = &options.preload {
                node.set_environment(shim.environment(&node.name)?);
            }
        }
        let endpoints: Vec<Endpoint> =
            nodes.iter().map(|node| node.client_address().parse()).collect::<Result<_, _>>()?;
        let client_options = ClientOptions { deadline: READY_DEADLINE, ..Default::default() };
        let client = Client::new(&endpoints, client_options);
        let partitions = options.partitions;
        let cluster = Self {
            nodes,
            partitions,
            client,
            program,
            arguments: arguments_of_all,
            preload: options.preload,
            directory: Some(directory),
        };
        for node in &cluster.nodes {
            node.start()?;
        }
        for index in 0..cluster.nodes.len() {
            cluster.wait_status(index, "/livez", 200).await?;
        }
        Ok(cluster)
    }

    /// Founds the cluster out of all its nodes.
    pub async fn found(&self) -> anyhow::Result<()> {
        let mut request = InitRequest::new(self.nodes.iter().map(Node::peer_address).collect());
        request.partitions = self.partitions;
        self.client.init(&request).await.context("cannot found the cluster")?;
        Ok(())
    }

    /// Starts one more node, which registers as a spare; returns its position.
    pub async fn add_spare(&mut self, zone: &str) -> anyhow::Result<usize> {
        self.add_spare_with(zone, &[]).await
    }

    /// As [`Cluster::add_spare`], with arguments that no other node has.
    pub async fn add_spare_with(&mut self, zone: &str, own: &[&str]) -> anyhow::Result<usize> {
        let root = self.directory().to_owned();
        let index = self.nodes.len();
        let name = format!("n{}", index + 1);
        let mut node = Node::new(&root, name, zone.to_owned(), self.program.clone())?;
        let seeds: Vec<String> = self.nodes.iter().map(Node::peer_address).collect();
        let mut arguments = vec!["--seeds".to_owned(), seeds.join(",")];
        arguments.extend(self.arguments.iter().cloned());
        node.set_arguments(arguments);
        node.set_own_arguments(own);
        if let Some(shim) = &self.preload {
            node.set_environment(shim.environment(&node.name)?);
        }
        node.start()?;
        self.nodes.push(node);
        self.wait_registered(index).await?;
        Ok(index)
    }

    /// Gives a node other arguments of its own, from its next start on.
    pub fn set_own_arguments(&mut self, index: usize, own: &[&str]) {
        self.nodes[index].set_own_arguments(own);
    }

    /// Waits until a node is in the directory.
    pub async fn wait_registered(&self, index: usize) -> anyhow::Result<()> {
        let what = format!("{} to be registered", self.node(index).name);
        wait_for(&what, READY_DEADLINE, async || {
            let info = self.info(index).await.map_err(|error| format!("{error:#}"))?;
            match info.stage {
                kvapi::NodeStage::Uninitialised | kvapi::NodeStage::Registering => {
                    Err(format!("{:?}", info.stage))
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by its position, from 0.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The position of a node by its name.
    pub fn index_of(&self, name: &str) -> anyhow::Result<usize> {
        let index = self.nodes.iter().position(|node| node.name == name);
        index.with_context(|| format!("no node is called {name}"))
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// A client for questions about the cluster. It does not route by the ring.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A client that routes by the ring.
    pub async fn routing_client(&self, deadline: Duration) -> anyhow::Result<Client> {
        let options = ClientOptions { deadline, ..Default::default() };
        Ok(Client::connect(self.client.endpoints(), options).await?)
    }

    /// The HTTP addresses of all nodes.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(Node::client_address).collect()
    }

    /// Waits until every started node serves.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            if node.is_started() {
                self.wait_node_ready(index).await?;
            }
        }
        Ok(())
    }

    /// Waits until one node serves.
    pub async fn wait_node_ready(&self, index: usize) -> anyhow::Result<()> {
        self.wait_status(index, "/readyz", 200).await
    }

    /// Starts a node that is down and waits until it serves.
    pub async fn restart(&self, index: usize) -> anyhow::Result<()> {
        self.node(index).start()?;
        self.wait_node_ready(index).await
    }

    /// What a node says about itself and its replicas.
    pub async fn info(&self, index: usize) -> anyhow::Result<NodeInfo> {
        let path = format!("{}?replicas=true", kvapi::admin::NODE_PATH);
        let reply = self.ask(index, &path).await?;
        serde_json::from_slice(&reply).context("the answer about the node is not understood")
    }

    /// Where a node says that a key lives.
    pub async fn locate(&self, index: usize, key: &[u8]) -> anyhow::Result<LocateAnswer> {
        let reply = self.ask(index, &kvapi::paths::locate_path(key)).await?;
        serde_json::from_slice(&reply).context("the answer about the key is not understood")
    }

    /// The node that leads a key's partition, by what `index` says; waits until it knows one.
    pub async fn leader_of(&self, index: usize, key: &[u8]) -> anyhow::Result<usize> {
        let what = format!("a leader for {:?}", String::from_utf8_lossy(key));
        let name = wait_for(&what, READY_DEADLINE, async || {
            let located = self.locate(index, key).await.map_err(|error| format!("{error:#}"))?;
            let leader = located.leader.ok_or("no leader is known")?;
            Ok(leader.name.to_string())
        })
        .await?;
        self.index_of(&name)
    }

    /// The node that leads group 0, by what `index` says.
    pub async fn cluster_leader(&self, index: usize) -> anyhow::Result<usize> {
        let name = wait_for("a leader of group 0", READY_DEADLINE, async || {
            let reply = self.ask(index, kvapi::admin::STATUS_PATH).await;
            let reply = reply.map_err(|error| format!("{error:#}"))?;
            let status: kvapi::ClusterStatus =
                serde_json::from_slice(&reply).map_err(|error| error.to_string())?;
            Ok(status.group0.leader.ok_or("no leader is known")?.to_string())
        })
        .await?;
        self.index_of(&name)
    }

    /// Asks a node a question whose answer is 200.
    pub async fn ask(&self, index: usize, path: &str) -> anyhow::Result<Vec<u8>> {
        let node = self.node(index);
        let mut wire = Wire::new(node.client_address());
        match wire.exchange(&Request::get(path), QUESTION).await {
            Exchange::Answered(reply) if reply.status == 200 => Ok(reply.body),
            Exchange::Answered(reply) => bail!("{} {path}: {reply}", node.name),
            Exchange::NotSent(why) | Exchange::Lost(why) => bail!("{} {path}: {why}", node.name),
        }
    }

    /// Waits until a path of a node answers with a status.
    pub async fn wait_status(&self, index: usize, path: &str, status: u16) -> anyhow::Result<()> {
        let node = self.node(index);
        let what = format!("{status} from {} of {}", path, node.name);
        wait_for(&what, READY_DEADLINE, async || {
            node.check_running().map_err(|error| error.to_string())?;
            let mut wire = Wire::new(node.client_address());
            match wire.exchange(&Request::get(path), QUESTION).await {
                Exchange::Answered(reply) if reply.status == status => Ok(()),
                Exchange::Answered(reply) => Err(reply.to_string()),
                Exchange::NotSent(why) | Exchange::Lost(why) => Err(why),
            }
        })
        .await
    }

    /// Ends a cluster after a story that went well: every node that should run still runs, none
    /// panicked, and nothing is left behind.
    pub fn finish(mut self) -> anyhow::Result<()> {
        for node in &self.nodes {
            node.check_running()?;
            let log = node.log();
            let panic = log.lines().find(|line| line.contains("panicked at"));
            ensure!(panic.is_none(), "{} panicked: {}", node.name, panic.unwrap_or_default());
        }
        for node in &self.nodes {
            node.end();
        }
        if let Some(directory) = self.directory.take() {
            directory.close().context("cannot remove the cluster's directory")?;
        }
        Ok(())
    }

    /// Where the nodes' directories are.
    pub fn directory(&self) -> &Path {
        self.directory.as_ref().map_or(Path::new(""), TempDir::path)
    }

    fn show_logs(&self) {
        for node in &self.nodes {
            eprintln!("--- the end of {}'s log, {}", node.name, node.log_path.display());
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                eprintln!("{line}");
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.end();
        }
        let Some(directory) = self.directory.take() else { return };
        self.show_logs();
        let directory = directory.keep();
        if std::env::var_os("RINGKV_KEEP_DATA").is_none() {
            for node in &self.nodes {
                // Logs are what is looked at; data fills the disk.
                let _ = std::fs::remove_dir_all(&node.data_dir);
            }
        }
        eprintln!("--- logs are kept in {}", directory.display());
    }
}

/// A program of this workspace: named by a variable, or beside the one that runs.
pub fn find_program(name: &str, variable: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "{variable} names {}, which is no file", path.display());
        return Ok(path);
    }
    let own = std::env::current_exe().context("the path of this program is not known")?;
    // Tests run in `deps`, programs beside it.
    let places = own.ancestors().skip(1).take(2).map(|directory| directory.join(name));
    let found = places.into_iter().find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "{name} is not built: run `cargo build --release -p kvnode --bins`, or name it in {variable}"
        )
    })
}
