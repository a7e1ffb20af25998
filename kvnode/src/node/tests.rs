//! Whole nodes in one process, over loopback sockets and real directories.

mod copies;
mod plans;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::store::{Command, Condition, WriteOutcome};
use kvcore::{Faults, GroupId, Settings};
use placement::{NodeName, PartitionBits, ReplicationFactor, TokenPolicy, Weight, Zone};
use tempfile::TempDir;

use super::{Node, NodeConfig};
use crate::clock;
use crate::founding::{FoundingOptions, FoundingStart, InitError};
use crate::registration::RegistrationState;
use crate::router::{Consistency, RequestError, RequestOptions};
use crate::storage::StorageSettings;
use crate::transport::{PeerAnswer, PeerRequest};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a condition, and says what it last saw when it does not come.
async fn wait_for<T, E: std::fmt::Debug>(
    what: &str,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match check().await {
            Ok(value) => return value,
            Err(last) if Instant::now() >= give_up => panic!("{what}: {last:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

fn config(name: &str, dir: &Path) -> NodeConfig {
    NodeConfig {
        name: NodeName::parse(name).unwrap(),
        zone: Zone::parse(&format!("zone-of-{name}")).unwrap(),
        weight: Weight::new(1).unwrap(),
        data_dir: dir.join(name),
        peer_listen: "127.0.0.1:0".parse().unwrap(),
        peer_advertised: None,
        client_advertised: format!("{name}.example:7400"),
        seeds: Vec::new(),
        value_bytes_max: 1 << 20,
        disk_reserve_bytes: 0,
        storage: StorageSettings {
            block_cache_bytes: 8 << 20,
            memtable_bytes: 8 << 20,
            ..StorageSettings::default()
        },
        settings: Settings::default(),
        faults: Faults::NONE,
        hold_file: None,
    }
}

fn options() -> FoundingOptions {
    FoundingOptions {
        partition_bits: PartitionBits::new(4).unwrap(),
        replication_factor: ReplicationFactor::new(3).unwrap(),
        vnodes_per_node: 16,
        policy: TokenPolicy::Balanced,
    }
}

fn address(node: &Node) -> String {
    node.peer_address().to_string()
}

async fn ready(nodes: &[&Node]) {
    for node in nodes {
        let name = node.info().registration.name;
        wait_for(&format!("{name} ready"), async || node.router().ready()).await;
    }
}

/// Three nodes that have founded a cluster.
struct Cluster {
    dir: TempDir,
    nodes: Vec<Node>,
}

async fn cluster_of_three(settings: &Settings) -> Cluster {
    cluster_with(settings, Faults::NONE).await
}

async fn cluster_with(settings: &Settings, faults: Faults) -> Cluster {
    let dir = TempDir::new().unwrap();
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        let config = NodeConfig { settings: settings.clone(), faults, ..config(name, dir.path()) };
        nodes.push(Node::start(config).await.unwrap());
    }
    let founders = nodes.iter().map(address).collect();
    let founded = nodes[0].init(founders, options()).await.unwrap();
    assert_eq!(founded.start, FoundingStart::Fresh);
    assert_eq!(founded.zones.len(), 3);
    ready(&nodes.iter().collect::<Vec<_>>()).await;
    Cluster { dir, nodes }
}

fn within(timeout: Duration) -> RequestOptions {
    RequestOptions { direct: false, deadline: Instant::now() + timeout }
}

fn put(key: &str, value: &[u8]) -> Command {
    Command::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value),
        content_type: None,
        condition: Condition::Always,
    }
}

async fn write(node: &Node, key: &str, value: &[u8]) -> WriteOutcome {
    node.router().write(put(key, value), within(PATIENCE)).await.unwrap().value
}

async fn read(node: &Node, key: &str) -> Option<Bytes> {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let served = node.router().read(key, Consistency::Linearizable, within(PATIENCE)).await;
    served.unwrap().value.map(|record| record.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_three_nodes_serves_what_the_others_wrote() {
    let cluster = cluster_of_three(&Settings::default()).await;
    for (number, node) in cluster.nodes.iter().enumerate() {
        for key in 0..20 {
            let value = format!("{number}-{key}");
            write(node, &format!("key-{number}-{key}"), value.as_bytes()).await;
        }
    }
    for node in &cluster.nodes {
        for number in 0..3 {
            for key in 0..20 {
                let value = format!("{number}-{key}");
                let found = read(node, &format!("key-{number}-{key}")).await;
                assert_eq!(found.as_deref(), Some(value.as_bytes()));
            }
        }
        assert_eq!(read(node, "never-written").await, None);
    }
    for node in cluster.nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_restarts_has_what_it_missed() {
    let mut cluster = cluster_of_three(&Settings::default()).await;
    write(&cluster.nodes[0], "before", b"1").await;
    let stopped = cluster.nodes.pop().unwrap();
    let listen = stopped.peer_address();
    let began = Instant::now();
    stopped.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "stopped in {:?}", began.elapsed());

    for key in 0..50 {
        write(&cluster.nodes[key % 2], &format!("missed-{key}"), b"2").await;
    }
    let config = NodeConfig { peer_listen: listen, ..config("n3", cluster.dir.path()) };
    let restarted = Node::start(config).await.unwrap();
    ready(&[&restarted]).await;
    for key in 0..50 {
        assert_eq!(read(&restarted, &format!("missed-{key}")).await.as_deref(), Some(&b"2"[..]));
    }
    // Its own replicas catch up, so that it could serve alone.
    wait_for("stale reads find everything", async || {
        for key in 0..50 {
            let name = Bytes::from(format!("missed-{key}"));
            let options = within(PATIENCE);
            let served = restarted.router().read(name, Consistency::Stale, options).await.unwrap();
            assert!(served.staleness_ms.is_some());
            if served.value.is_none() {
                return Err(key);
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stopping_node_leaves_no_group_without_a_leader_for_long() {
    let mut cluster = cluster_of_three(&Settings::default()).await;
    for key in 0..40 {
        write(&cluster.nodes[0], &format!("k{key}"), b"1").await;
    }
    let leaving = cluster.nodes.remove(0);
    wait_for("it leads some groups", async || match leaving.groups().load().led_here() {
        0 => Err(0),
        _ => Ok(()),
    })
    .await;
    let stopping = tokio::spawn(async move {
        let began = Instant::now();
        leaving.stop().await;
        began.elapsed()
    });
    let mut slowest = Duration::ZERO;
    for key in 0..200 {
        let began = Instant::now();
        write(&cluster.nodes[key % 2], &format!("k{}", key % 40), b"2").await;
        slowest = slowest.max(began.elapsed());
    }
    // It stops before its patience ends only if others have taken every leadership.
    let took = stopping.await.unwrap();
    assert!(took < super::HAND_OVER_TIMEOUT, "stopping took {took:?}");
    assert!(slowest < super::HAND_OVER_TIMEOUT, "a write took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn before_the_founding_every_request_is_refused() {
    let dir = TempDir::new().unwrap();
    let node = Node::start(config("n1", dir.path())).await.unwrap();
    let written = node.router().write(put("k", b"v"), within(PATIENCE)).await;
    assert_eq!(written.unwrap_err(), RequestError::NotInitialised);
    assert!(node.router().ready().is_err());
    assert_eq!(node.info().registration_state, RegistrationState::Waiting);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_founding_is_resumed_and_never_made_twice() {
    let dir = TempDir::new().unwrap();
    let first = Node::start(config("n1", dir.path())).await.unwrap();
    let second = Node::start(config("n2", dir.path())).await.unwrap();
    let stranger = Node::start(config("n3", dir.path())).await.unwrap();
    let founders = vec![address(&first), address(&second)];

    // Nothing changes while one of them does not answer.
    let absent = vec![address(&first), "127.0.0.1:1".to_owned()];
    let refused = first.init(absent, options()).await.unwrap_err();
    assert!(matches!(refused, InitError::Unreachable { .. }), "{refused}");
    assert_eq!(first.info().cluster, None);
    let doubled = vec![address(&first), address(&first)];
    let refused = first.init(doubled, options()).await.unwrap_err();
    assert!(matches!(refused, InitError::SameNode { .. }), "{refused}");

    let founded = first.init(founders.clone(), options()).await.unwrap();
    let again = second.init(founders, options()).await.unwrap();
    assert_eq!(again.start, FoundingStart::Complete);
    assert_eq!(again.cluster, founded.cluster);

    let with_stranger = vec![address(&first), address(&stranger)];
    let refused = first.init(with_stranger, options()).await.unwrap_err();
    assert!(matches!(refused, InitError::NotAFounder { .. }), "{refused}");
    assert_eq!(stranger.info().cluster, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_with_seeds_registers_as_a_spare_and_serves_by_forwarding() {
    let cluster = cluster_of_three(&Settings::default()).await;
    write(&cluster.nodes[0], "k", b"v").await;
    let seeds = vec!["127.0.0.1:1".to_owned(), address(&cluster.nodes[1])];
    let spare_config = NodeConfig { seeds: seeds.clone(), ..config("n4", cluster.dir.path()) };
    let spare = Node::start(spare_config).await.unwrap();
    wait_for("the spare is registered", async || match spare.info().registration_state {
        RegistrationState::Registered { .. } => Ok(()),
        other => Err(other),
    })
    .await;
    assert_eq!(read(&spare, "k").await.as_deref(), Some(&b"v"[..]));
    write(&spare, "from-the-spare", b"w").await;
    wait_for("all nodes know the spare", async || {
        let known = |node: &Node| node.view().load().is_some_and(|v| v.node(spare.id()).is_some());
        if cluster.nodes.iter().all(known) { Ok(()) } else { Err("not all do") }
    })
    .await;

    // A second node of that name is refused, and says so.
    let mut twin_config = NodeConfig { seeds, ..config("n4", cluster.dir.path()) };
    twin_config.data_dir = cluster.dir.path().join("twin");
    let twin = Node::start(twin_config).await.unwrap();
    wait_for("the twin is refused", async || match twin.info().registration_state {
        RegistrationState::Refused(refusal) => Ok(refusal),
        other => Err(other),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_direct_request_names_the_leader_instead_of_forwarding() {
    let cluster = cluster_of_three(&Settings::default()).await;
    write(&cluster.nodes[0], "k", b"v").await;
    let direct = RequestOptions { direct: true, deadline: Instant::now() + PATIENCE };
    let mut served = 0;
    for node in &cluster.nodes {
        match node.router().write(put("k", b"w"), direct).await {
            Ok(_) => served += 1,
            Err(RequestError::NotLeader { leader: Some(leader), owners, .. }) => {
                assert!(owners.contains(&leader));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(served, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wiped_node_at_a_known_address_is_refused_and_named() {
    let mut cluster = cluster_of_three(&Settings::default()).await;
    let lost = cluster.nodes.pop().unwrap();
    let (lost_id, listen) = (lost.id(), lost.peer_address());
    lost.stop().await;
    let mut wiped_config = config("n3", cluster.dir.path());
    wiped_config.data_dir = cluster.dir.path().join("wiped");
    wiped_config.peer_listen = listen;
    wiped_config.seeds = vec![address(&cluster.nodes[0])];
    let wiped = Node::start(wiped_config).await.unwrap();
    assert_ne!(wiped.id(), lost_id);
    wait_for("the others see that it is another node", async || {
        let trouble = cluster.nodes[0].info().unreachable.get(&lost_id).cloned();
        match trouble {
            Some(trouble) if trouble.contains(&wiped.id().to_string()) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    wait_for("its name is taken", async || match wiped.info().registration_state {
        RegistrationState::Refused(_) => Ok(()),
        other => Err(other),
    })
    .await;
    write(&cluster.nodes[0], "still", b"works").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_whose_log_is_gone_elsewhere_comes_back_by_snapshot() {
    let settings = Settings {
        log_cache_bytes: 4 << 10,
        log_truncate_bytes: 16 << 10,
        log_retain_bytes_max: 64 << 10,
        ..Settings::default()
    };
    let mut cluster = cluster_of_three(&settings).await;
    let stopped = cluster.nodes.pop().unwrap();
    let listen = stopped.peer_address();
    stopped.stop().await;
    let value = vec![7; 32 << 10];
    for round in 0..3 {
        for key in 0..48 {
            write(&cluster.nodes[round % 2], &format!("large-{key}"), &value).await;
        }
    }
    wait_for("logs are truncated", async || {
        let summaries = cluster.nodes[0].fresh_summaries().await;
        let partitions = summaries.iter().filter(|summary| summary.group != GroupId::CLUSTER);
        let untouched = partitions.filter(|it| it.applied.get() > 4 && it.first.get() <= 2).count();
        if untouched == 0 { Ok(()) } else { Err(untouched) }
    })
    .await;
    let back = NodeConfig {
        peer_listen: listen,
        settings: settings.clone(),
        ..config("n3", cluster.dir.path())
    };
    let back = Node::start(back).await.unwrap();
    wait_for("the copies are complete", async || {
        for key in 0..48 {
            let name = Bytes::from(format!("large-{key}"));
            let options = within(PATIENCE);
            let served = back.router().read(name, Consistency::Stale, options).await.unwrap();
            if served.value.is_none_or(|record| record.value != value) {
                return Err(key);
            }
        }
        Ok(())
    })
    .await;
    assert!(
        back.fresh_summaries().await.iter().any(|summary| summary.generation.get() > 1),
        "no replica was installed from a snapshot"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_founder_that_was_missed_is_made_one_later() {
    let dir = TempDir::new().unwrap();
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(Node::start(config(name, dir.path())).await.unwrap());
    }
    // A founding that stopped before it came to the last node: the others go on without it.
    let founders: Vec<_> = nodes.iter().map(|node| node.info().registration).collect();
    let founding = kvcore::cluster::found(&kvcore::cluster::Founding {
        cluster: kvcore::ClusterId(77),
        founders,
        partition_bits: options().partition_bits,
        replication_factor: options().replication_factor,
        vnodes_per_node: 16,
        policy: TokenPolicy::Balanced,
        now_ms: 1,
    })
    .unwrap();
    for node in &nodes[..2] {
        let request = PeerRequest::AcceptFounding(Box::new(founding.clone()));
        let deadline = Instant::now() + PATIENCE;
        let accepted = nodes[2].peers.call_address(&address(node), request, deadline).await;
        assert_eq!(accepted.unwrap().1, PeerAnswer::FoundingAccepted);
    }
    write(&nodes[0], "early", b"1").await;
    wait_for("the cluster notes that the third is down", async || {
        let view = nodes[0].view().load().unwrap();
        let health = view.node(nodes[2].id()).unwrap().health;
        if health == kvcore::cluster::Health::Down { Ok(()) } else { Err(health) }
    })
    .await;

    let founded = nodes[2].init(nodes.iter().map(address).collect(), options()).await.unwrap();
    assert_eq!(founded.start, FoundingStart::Resumed);
    assert_eq!(founded.cluster, founding.cluster);
    ready(&nodes.iter().collect::<Vec<_>>()).await;
    assert_eq!(read(&nodes[2], "early").await.as_deref(), Some(&b"1"[..]));
    wait_for("the third has what it missed", async || {
        let options = within(PATIENCE);
        let key = Bytes::from_static(b"early");
        nodes[2].router().read(key, Consistency::Stale, options).await.unwrap().value.ok_or(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_founder_that_stopped_before_its_replicas_were_made_makes_them_at_the_next_start() {
    let dir = TempDir::new().unwrap();
    let own_config = config("n1", dir.path());
    let first = Node::start(own_config.clone()).await.unwrap();
    let registration = first.info().registration;
    let listen = first.peer_address();
    first.stop().await;
    let founding = kvcore::cluster::found(&kvcore::cluster::Founding {
        cluster: kvcore::ClusterId(78),
        founders: vec![registration],
        partition_bits: options().partition_bits,
        replication_factor: options().replication_factor,
        vnodes_per_node: 16,
        policy: TokenPolicy::Balanced,
        now_ms: 1,
    })
    .unwrap();
    // As if the node had stopped right after it accepted.
    let (database, _, _) =
        crate::storage::Database::open(&own_config.data_dir, own_config.storage.clone()).unwrap();
    database.accept_cluster(founding.cluster, &std::sync::Arc::new(founding)).unwrap();
    drop(database);

    let again = Node::start(NodeConfig { peer_listen: listen, ..own_config }).await.unwrap();
    ready(&[&again]).await;
    write(&again, "k", b"v").await;
    assert_eq!(read(&again, "k").await.as_deref(), Some(&b"v"[..]));
}
