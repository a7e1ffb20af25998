//! The directory of a local cluster: `dev.json` says which nodes there are, and each node has
//! `DIR/<name>/pid`, `DIR/<name>/data` and `DIR/<name>/log`.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// Ports of neighbouring nodes are this far apart.
const PORT_STEP: u16 = 10;
/// Most nodes that a local cluster is for.
const NODES_MAX: usize = 64;
/// Version of `dev.json`.
const FORMAT: u32 = 1;

/// What `dev.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file.
    format: u32,
    /// Client port of the first node.
    pub port: u16,
    /// Zones that nodes are put in, in turn.
    pub zones: usize,
    /// Partitions of the cluster when it is founded.
    pub partitions: u32,
    /// Further arguments of each node.
    pub node_arguments: Vec<String>,
    /// The nodes.
    pub nodes: Vec<DevNode>,
}

/// One node of a local cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevNode {
    /// `n1`, `n2`, ...
    pub name: String,
    /// `z1`, `z2`, ...
    pub zone: String,
    /// Port of the HTTP API; the peer port is the next one.
    pub client_port: u16,
    /// Whether it takes part in the founding; later nodes join as spares.
    pub is_founder: bool,
}

/// What a new local cluster looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of zones.
    pub zones: usize,
    /// Client port of the first node.
    pub port: u16,
    /// Number of partitions.
    pub partitions: u32,
}

/// A local cluster's directory.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl DevNode {
    /// `host:port` of the HTTP API.
    pub fn client_address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// `host:port` where nodes talk to each other.
    pub fn peer_address(&self) -> String {
        format!("127.0.0.1:{}", u32::from(self.client_port) + 1)
    }
}

impl Manifest {
    /// The nodes of a new cluster.
    pub fn new(shape: &Shape, node_arguments: Vec<String>) -> Result<Self, Failure> {
        if shape.nodes == 0 || shape.zones == 0 {
            return Err(Failure::usage("a cluster has at least one node and one zone"));
        }
        let mut manifest = Self {
            format: FORMAT,
            port: shape.port,
            zones: shape.zones,
            partitions: shape.partitions,
            node_arguments,
            nodes: Vec::new(),
        };
        for _ in 0..shape.nodes {
            manifest.add(None, true)?;
        }
        Ok(manifest)
    }

    /// One more node, in the next zone unless one is named.
    pub fn add(&mut self, zone: Option<String>, is_founder: bool) -> Result<DevNode, Failure> {
        let index = self.nodes.len();
        if index >= NODES_MAX {
            let message = format!("a local cluster has at most {NODES_MAX} nodes");
            return Err(Failure::usage(message));
        }
        let zone = zone.unwrap_or_else(|| format!("z{}", index % self.zones + 1));
        placement::Zone::parse(&zone).map_err(|error| Failure::usage(error.to_string()))?;
        let offset = u16::try_from(index).unwrap_or(u16::MAX).checked_mul(PORT_STEP);
        let port = offset.and_then(|offset| self.port.checked_add(offset));
        let port = port.filter(|port| (1..u16::MAX).contains(port));
        let client_port = port.ok_or_else(|| {
            Failure::usage(format!("there are no ports for so many nodes above {}", self.port))
        })?;
        let node = DevNode { name: format!("n{}", index + 1), zone, client_port, is_founder };
        self.nodes.push(node.clone());
        Ok(node)
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Result<&DevNode, Failure> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            let message = format!("no node is named {name}; there are {}", names.join(", "));
            Failure::new(Exit::NotFound, message)
        })
    }

    /// Peer addresses of all nodes but this one.
    pub fn seeds_of(&self, node: &DevNode) -> Vec<String> {
        let others = self.nodes.iter().filter(|other| other.name != node.name);
        others.map(DevNode::peer_address).collect()
    }

    /// Peer addresses of the founders.
    pub fn founders(&self) -> Vec<String> {
        let founders = self.nodes.iter().filter(|node| node.is_founder);
        founders.map(DevNode::peer_address).collect()
    }
}

impl Layout {
    /// The directory at this path, made if it is missing.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| of_file("make", path, &error))?;
        Self::open(path)
    }

    /// The directory at this path, which must exist.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        // Processes are recognised by their absolute data directory.
        let root = fs::canonicalize(path).map_err(|error| {
            of_file("open", path, &error).with_hint("kvctl dev up makes a cluster there")
        })?;
        Ok(Self { root })
    }

    /// Its absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The nodes, if a cluster was made here before.
    pub fn manifest(&self) -> Result<Option<Manifest>, Failure> {
        let path = self.root.join("dev.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(of_file("read", &path, &error)),
        };
        let broken = |reason: String| Failure::usage(format!("{}: {reason}", path.display()));
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        if manifest.format != FORMAT || manifest.zones == 0 {
            return Err(broken("not written by this version of kvctl".to_owned()));
        }
        let is_safe = |node: &DevNode| placement::NodeName::parse(&node.name).is_ok();
        if !manifest.nodes.iter().all(|node| is_safe(node) && !node.name.starts_with('.')) {
            return Err(broken("a node's name is not legal".to_owned()));
        }
        Ok(Some(manifest))
    }

    /// The nodes of a cluster that must have been made before.
    pub fn existing_manifest(&self) -> Result<Manifest, Failure> {
        self.manifest()?.ok_or_else(|| {
            let message = format!("{} holds no local cluster", self.root.display());
            Failure::usage(message).with_hint("kvctl dev up makes one; --dir names another place")
        })
    }

    /// Replaces `dev.json` in one step.
    pub fn save(&self, manifest: &Manifest) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(manifest)
            .map_err(|error| Failure::new(Exit::CheckFailed, error.to_string()))?;
        replace(&self.root.join("dev.json"), &json)
    }

    /// A node's own directory.
    pub fn node_dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Where a node keeps its data.
    pub fn data_dir(&self, name: &str) -> PathBuf {
        self.node_dir(name).join("data")
    }

    /// Where a node's process id stands.
    pub fn pid_file(&self, name: &str) -> PathBuf {
        self.node_dir(name).join("pid")
    }

    /// Where a node's output goes.
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.node_dir(name).join("log")
    }

    /// The right to watch this directory, until the file is dropped.
    pub fn lock_for_up(&self) -> Result<File, Failure> {
        let path = self.root.join("up.lock");
        let file = lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another `dev up` runs in {}", self.root.display());
                Err(Failure::new(Exit::Conflict, message).with_hint("end it, or use another --dir"))
            }
            Err(TryLockError::Error(error)) => Err(of_file("lock", &path, &error)),
        }
    }

    /// The right to start and stop nodes, waited for; until the file is dropped.
    pub fn lock_for_change(&self) -> Result<File, Failure> {
        let path = self.root.join("change.lock");
        let file = lock_file(&path)?;
        file.lock().map_err(|error| of_file("lock", &path, &error))?;
        Ok(file)
    }
}

/// Writes a file beside its place and moves it there, so that no reader sees half of it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let beside = path.with_extension("new");
    let written = File::create(&beside).and_then(|mut file| file.write_all(bytes));
    let replaced = written.and_then(|()| fs::rename(&beside, path));
    replaced.map_err(|error| of_file("write", path, &error))
}

/// A failure that names the file.
pub fn of_file(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot {verb} {}: {error}", path.display()))
}

fn lock_file(path: &Path) -> Result<File, Failure> {
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    opened.map_err(|error| of_file("open", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(nodes: usize, zones: usize, port: u16) -> Shape {
        Shape { nodes, zones, port, partitions: 64 }
    }

    #[test]
    fn nodes_are_numbered_and_put_into_the_zones_in_turn() {
        let mut manifest = Manifest::new(&shape(4, 3, 7400), vec![]).expect("a legal shape");
        manifest.add(None, false).expect("room for one more");
        manifest.add(Some("z9".to_owned()), false).expect("room for one more");
        let got: Vec<_> = manifest
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.zone.as_str(), node.client_port))
            .collect();
        let want = [
            ("n1", "z1", 7400),
            ("n2", "z2", 7410),
            ("n3", "z3", 7420),
            ("n4", "z1", 7430),
            ("n5", "z2", 7440),
            ("n6", "z9", 7450),
        ];
        assert_eq!(got, want);
        assert_eq!(manifest.nodes[0].peer_address(), "127.0.0.1:7401");
        assert_eq!(manifest.founders().len(), 4);
        assert_eq!(manifest.seeds_of(&manifest.nodes[0]).len(), 5);
    }

    #[test]
    fn shapes_without_nodes_zones_or_ports_are_refused() {
        for shape in [shape(0, 3, 7400), shape(3, 0, 7400), shape(3, 3, 65_530), shape(1, 1, 0)] {
            assert_eq!(Manifest::new(&shape, vec![]).expect_err("refused").exit, Exit::Usage);
        }
        let mut manifest = Manifest::new(&shape(1, 1, 7400), vec![]).expect("a legal shape");
        assert!(manifest.add(Some("no zone".to_owned()), false).is_err());
    }

    #[test]
    fn what_was_saved_is_read_back_and_garbage_is_explained() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::create(dir.path()).expect("a layout");
        assert_eq!(layout.manifest().expect("readable"), None);
        assert_eq!(layout.existing_manifest().expect_err("none yet").exit, Exit::Usage);
        let manifest = Manifest::new(&shape(3, 3, 7400), vec![]).expect("a legal shape");
        layout.save(&manifest).expect("saved");
        assert_eq!(layout.manifest().expect("readable"), Some(manifest));
        fs::write(dir.path().join("dev.json"), "{").expect("written");
        assert_eq!(layout.manifest().expect_err("garbage").exit, Exit::Usage);
    }

    #[test]
    fn only_one_watcher_holds_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::create(dir.path()).expect("a layout");
        let held = layout.lock_for_up().expect("free");
        assert_eq!(layout.lock_for_up().expect_err("held").exit, Exit::Conflict);
        drop(held);
        layout.lock_for_up().expect("free again");
    }
}
