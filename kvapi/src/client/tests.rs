mod mock;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use placement::RingSnapshot;

use self::mock::{
    MockCluster, MockNode, Reply, acknowledged, not_leader, options, parts, problem, value,
    wait_for,
};
use super::*;
use crate::problem::{Outcome, Problem, ProblemCode};

const KEY: &[u8] = b"some/key";

async fn put(client: &Client) -> Result<WriteAnswer, ClientError> {
    client.put(KEY, Bytes::from_static(b"v"), &PutOptions::default()).await
}

#[tokio::test]
async fn a_write_goes_straight_to_the_primary_and_then_to_whoever_served_it() {
    let cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let client = cluster.client().await;
    let [primary, second, third] = cluster.by_ring(KEY);
    let leader = second.name;
    primary.reply(move |_, _| Reply::Answer(acknowledged(leader, 9)));

    let answer = put(&client).await.expect("acknowledged");
    assert_eq!(answer.version, Some(9));
    assert_eq!(answer.meta.served_by.as_deref(), Some(leader));
    put(&client).await.expect("acknowledged");

    let seen = (primary.seen(), second.seen(), third.seen());
    assert_eq!((seen.0.len(), seen.1.len(), seen.2.len()), (1, 1, 0));
    let call = &seen.0[0];
    assert!(call.is_direct());
    assert_eq!(call.method, Method::PUT);
    assert_eq!(call.path, "/v1/kv/some%2Fkey");
    assert_eq!(call.body, "v");
    assert_eq!(call.headers["host"], primary.address.as_str());
    assert_eq!(call.headers["kv-ring-epoch"], "1");
}

#[tokio::test]
async fn a_refusal_that_names_the_leader_is_followed_once_and_remembered() {
    let cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let client = cluster.client().await;
    let [primary, second, third] = cluster.by_ring(KEY);
    let leader = cluster.document.directory.by_name(third.name).cloned();
    primary.reply(move |_, _| Reply::Answer(not_leader(leader.as_ref())));

    for _ in 0..3 {
        put(&client).await.expect("acknowledged by the named leader");
    }
    assert_eq!(primary.seen().len(), 1);
    assert_eq!(second.seen().len(), 0);
    assert_eq!(third.seen().len(), 3);
    assert!(third.seen().iter().all(mock::Seen::is_direct));
}

#[tokio::test]
async fn two_nodes_that_name_each_other_are_not_stormed() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    let [primary, second, third] = cluster.by_ring(KEY);
    let (first_node, second_node) = (primary.name, second.name);
    let node = |name| cluster.document.directory.by_name(name).cloned();
    let (to_second, to_first) = (node(second_node), node(first_node));
    primary.reply(move |_, _| Reply::Answer(not_leader(to_second.as_ref())));
    second.reply(move |_, _| Reply::Answer(not_leader(to_first.as_ref())));
    third.reply(|_, _| Reply::Answer(not_leader(None)));

    let error = put(&client).await.expect_err("nobody leads");
    assert_eq!(error.problem().map(|problem| problem.code), Some(ProblemCode::NotLeader));
    assert_eq!(error.outcome(), Outcome::NotApplied);
    // 1.5 s with pauses that grow to 10..20 ms, at most three exchanges between two pauses.
    assert!(cluster.calls() < 600, "{} calls", cluster.calls());
}

#[tokio::test]
async fn a_write_refused_as_not_applied_is_sent_again() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    let [primary, _, _] = cluster.by_ring(KEY);
    let name = primary.name;
    primary.reply(move |_, before| match before {
        0..=2 => Reply::Answer(problem(ProblemCode::Overloaded)),
        _ => Reply::Answer(acknowledged(name, 4)),
    });
    let answer = put(&client).await.expect("acknowledged at the fourth attempt");
    assert_eq!(answer.version, Some(4));
    assert_eq!(cluster.calls(), 4);
}

#[tokio::test]
async fn a_write_whose_connection_broke_is_unknown_and_never_sent_again() {
    let cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let client = cluster.client().await;
    let [primary, _, _] = cluster.by_ring(KEY);
    primary.reply(|_, _| Reply::Reset);
    let error = put(&client).await.expect_err("nobody knows");
    assert!(matches!(error, ClientError::Unknown { .. }), "{error}");
    let error = client.delete(KEY, Precondition::None).await.expect_err("nobody knows");
    assert!(matches!(error, ClientError::Unknown { .. }), "{error}");
    assert_eq!(cluster.calls(), 2);
}

#[tokio::test]
async fn a_write_without_an_answer_is_unknown_at_the_deadline() {
    let cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let short = ClientOptions { deadline: Duration::from_millis(100), ..options() };
    let client = Client::connect(&cluster.endpoints(), short).await.expect("up");
    let [primary, _, _] = cluster.by_ring(KEY);
    primary.reply(|_, _| Reply::Hang);
    let started = Instant::now();
    let error = put(&client).await.expect_err("nobody knows");
    assert!(matches!(error, ClientError::Unknown { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!(cluster.calls(), 1);
}

#[tokio::test]
async fn a_write_answered_with_an_unknown_outcome_is_never_sent_again() {
    for code in [ProblemCode::OutcomeUnknown, ProblemCode::Internal] {
        let cluster = MockCluster::start().await;
        cluster.all_acknowledge();
        let client = cluster.client().await;
        cluster.by_ring(KEY)[0].reply(move |_, _| Reply::Answer(problem(code)));
        let error = put(&client).await.expect_err("nobody knows");
        assert!(matches!(error, ClientError::Unknown { .. }), "{error}");
        assert_eq!(cluster.calls(), 1);
    }
}

#[tokio::test]
async fn a_failed_write_without_a_problem_document_is_unknown() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    cluster.by_ring(KEY)[0].reply(|_, _| {
        let mut answer = http::Response::new(Bytes::from_static(b"<html>"));
        *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
        Reply::Answer(answer)
    });
    let error = put(&client).await.expect_err("a proxy answered");
    assert!(matches!(error, ClientError::Unknown { .. }), "{error}");
    assert_eq!(cluster.calls(), 1);
}

#[tokio::test]
async fn a_read_is_sent_again_whatever_broke() {
    let cluster = MockCluster::start().await;
    for node in &cluster.nodes {
        let name = node.name;
        node.reply(move |_, _| Reply::Answer(value(name, b"found")));
    }
    let client = cluster.client().await;
    let [primary, second, _] = cluster.by_ring(KEY);
    primary.reply(|_, _| Reply::Reset);
    second.reply(|_, _| Reply::Answer(problem(ProblemCode::OutcomeUnknown)));
    let answer = client.get(KEY, GetOptions::default()).await.expect("the third node answers");
    let found = answer.into_value().expect("a value");
    assert_eq!(found.bytes, "found");
    assert_eq!((found.version, found.content_type.as_str()), (5, "text/plain"));
    assert_eq!(cluster.calls(), 3);
}

#[tokio::test]
async fn a_read_does_not_wait_for_a_node_that_hangs() {
    let cluster = MockCluster::start().await;
    let short = Duration::from_millis(50);
    let options = ClientOptions { read_attempt_timeout: short, ..options() };
    let client = Client::connect(&cluster.endpoints(), options).await.expect("up");
    let [primary, second, _] = cluster.by_ring(KEY);
    primary.reply(|_, _| Reply::Hang);
    let name = second.name;
    second.reply(move |_, _| Reply::Answer(value(name, b"found")));
    let answer = client.get(KEY, GetOptions::default()).await.expect("another node answers");
    assert!(matches!(answer, GetAnswer::Found(_)));
    assert_eq!(primary.seen().len(), 1);
}

#[tokio::test]
async fn a_node_that_refuses_connections_is_passed_over() {
    let mut cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let client = cluster.client().await;
    let dead = cluster.by_ring(KEY)[0].name;
    let dead = cluster.nodes.iter_mut().find(|node| node.name == dead).expect("a mock");
    // Only a connection that was never opened proves that nothing was sent.
    client.shared.pools.lock().unwrap().clear();
    dead.stop().await;
    put(&client).await.expect("another owner answers");
    put(&client).await.expect("and is remembered");
    let [primary, second, _] = cluster.by_ring(KEY);
    assert_eq!(primary.seen().len(), 0);
    assert_eq!(second.seen().len(), 2);
}

#[tokio::test]
async fn a_connection_that_the_node_closed_while_idle_costs_nothing() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    for node in &cluster.nodes {
        let name = node.name;
        node.reply(move |_, _| Reply::AnswerAndClose(acknowledged(name, 1)));
    }
    for _ in 0..20 {
        put(&client).await.expect("acknowledged over a new connection");
    }
    assert_eq!(cluster.calls(), 20);
}

#[tokio::test]
async fn connections_are_kept_alive() {
    let cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let client = cluster.client().await;
    for _ in 0..20 {
        put(&client).await.expect("acknowledged");
    }
    assert!(cluster.by_ring(KEY)[0].connections() <= 2);
}

#[tokio::test]
async fn a_newer_epoch_in_an_answer_brings_the_newer_ring() {
    let cluster = MockCluster::start().await;
    cluster.all_acknowledge();
    let client = cluster.client().await;
    let next = RingSnapshot::publish(parts(8), Some(&cluster.document.snapshot));
    let mut document = cluster.document.clone();
    document.snapshot = next.expect("a legal successor");
    for node in &cluster.nodes {
        node.publish(&document);
        let name = node.name;
        node.reply(move |_, _| {
            let mut answer = acknowledged(name, 1);
            answer.headers_mut().insert("kv-ring-epoch", "2".parse().unwrap());
            Reply::Answer(answer)
        });
    }
    put(&client).await.expect("acknowledged");
    let epoch = || client.routes().map(|routes| routes.epoch().get());
    wait_for(epoch, |epoch| *epoch == Some(2)).await;
}

#[tokio::test]
async fn a_ring_that_contradicts_the_one_at_hand_is_refused() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    let mut other = cluster.document.clone();
    other.snapshot = RingSnapshot::publish(parts(99), None).expect("another first ring");
    for node in &cluster.nodes {
        node.publish(&other);
    }
    let error = client.refresh().await.expect_err("two rings of one epoch");
    assert!(matches!(error, ClientError::Unexpected { .. }), "{error}");
    let kept = client.routes().expect("a ring").ring().snapshot().checksum();
    assert_eq!(kept, cluster.document.snapshot.checksum());
}

#[tokio::test]
async fn an_older_ring_is_ignored() {
    let cluster = MockCluster::start().await;
    let next = RingSnapshot::publish(parts(8), Some(&cluster.document.snapshot));
    let mut document = cluster.document.clone();
    document.snapshot = next.expect("a legal successor");
    cluster.nodes.iter().for_each(|node| node.publish(&document));
    let client = cluster.client().await;
    cluster.nodes.iter().for_each(|node| node.publish(&cluster.document));
    client.refresh().await.expect("an old answer is no error");
    assert_eq!(client.routes().expect("a ring").epoch().get(), 2);
}

#[tokio::test]
async fn a_pause_beyond_the_deadline_is_not_waited_for() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    cluster.by_ring(KEY)[0].reply(|_, _| {
        let busy = Problem::new(ProblemCode::RateLimited, "as scripted").to_response(60);
        Reply::Answer(busy)
    });
    let started = Instant::now();
    let error = put(&client).await.expect_err("rate limited");
    assert_eq!(error.problem().map(|problem| problem.code), Some(ProblemCode::RateLimited));
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!(cluster.calls(), 1);
}

#[tokio::test]
async fn a_cluster_that_was_not_founded_says_so_at_once() {
    let node = MockNode::start("n1").await;
    node.reply(|_, _| Reply::Answer(problem(ProblemCode::ClusterNotInitialised)));
    let endpoints: Vec<Endpoint> = vec![node.address.parse().expect("an endpoint")];
    let client = Client::connect(&endpoints, options()).await.expect("no error");
    assert!(client.routes().is_none());
    let error = put(&client).await.expect_err("not founded");
    assert!(error.is_not_initialised());
    assert_eq!(node.seen().len(), 1);
}

#[tokio::test]
async fn a_newcomer_that_knows_of_no_cluster_is_passed_over() {
    let cluster = MockCluster::start().await;
    for node in &cluster.nodes {
        node.reply(|_, _| Reply::Answer(problem(ProblemCode::ClusterNotInitialised)));
    }
    let name = cluster.nodes[1].name;
    cluster.nodes[1].reply(move |_, _| Reply::Answer(acknowledged(name, 4)));
    let client =
        Client::new(&cluster.endpoints(), ClientOptions { routing: Routing::Any, ..options() });
    for _ in 0..20 {
        let answer = put(&client).await.expect("one of the nodes knows the cluster");
        assert_eq!(answer.version, Some(4));
    }
}

#[tokio::test]
async fn a_false_condition_is_an_answer_with_the_current_version() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    for node in &cluster.nodes {
        node.reply(|_, _| {
            let problem = Problem::new(ProblemCode::PreconditionFailed, "as scripted");
            Reply::Answer(problem.with_version(8).to_response(0))
        });
    }
    let options = PutOptions { precondition: Precondition::Version(7), ..PutOptions::default() };
    let error = client.put(KEY, Bytes::new(), &options).await.expect_err("the condition is false");
    assert_eq!(error.problem().and_then(|problem| problem.etag.as_deref()), Some("\"8\""));
    assert_eq!(cluster.by_ring(KEY)[0].seen()[0].headers["if-match"], "\"7\"");
    assert_eq!(cluster.calls(), 1);
}

#[tokio::test]
async fn an_absent_key_is_an_answer_and_its_server_is_remembered() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    let [primary, second, _] = cluster.by_ring(KEY);
    let leader = second.name;
    primary.reply(move |_, _| {
        let mut answer = problem(ProblemCode::NotFound);
        answer.headers_mut().insert("kv-served-by", leader.parse().unwrap());
        Reply::Answer(answer)
    });
    second.reply(|_, _| Reply::Answer(problem(ProblemCode::NotFound)));
    for _ in 0..2 {
        let answer = client.get(KEY, GetOptions::default()).await.expect("an answer");
        assert!(matches!(answer, GetAnswer::Absent(_)));
    }
    assert_eq!((primary.seen().len(), second.seen().len()), (1, 1));
}

#[tokio::test]
async fn nobody_at_the_endpoints_is_unreachable() {
    let mut node = MockNode::start("n1").await;
    let endpoints: Vec<Endpoint> = vec![node.address.parse().expect("an endpoint")];
    node.stop().await;
    let error = Client::connect(&endpoints, options()).await.expect_err("nobody there");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let client = Client::new(&endpoints, options());
    let error = put(&client).await.expect_err("nobody there");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn keys_that_no_node_takes_are_refused_before_sending() {
    let cluster = MockCluster::start().await;
    let client = cluster.client().await;
    for key in [vec![], vec![b'k'; crate::KEY_BYTES_MAX + 1]] {
        let error = client.get(&key, GetOptions::default()).await.expect_err("no key");
        assert!(matches!(error, ClientError::Key(_)), "{error}");
    }
    assert_eq!(cluster.calls(), 0);
}

#[test]
fn endpoints_are_host_and_port() {
    let table = [
        ("http://127.0.0.1:7400", Some("127.0.0.1:7400")),
        ("http://127.0.0.1:7400/", Some("127.0.0.1:7400")),
        ("localhost:1", Some("localhost:1")),
        ("http://[::1]:7400", Some("[::1]:7400")),
        ("https://a:1", None),
        ("http://a", None),
        ("http://a:0", None),
        ("http://a:99999", None),
        ("http://u@a:1", None),
        ("http://a:1/path", None),
        ("http://:1", None),
        ("", None),
    ];
    for (text, want) in table {
        let got = text.parse::<Endpoint>().ok();
        assert_eq!(got.as_ref().map(|endpoint| endpoint.authority().as_ref()), want, "{text}");
    }
    assert_eq!(Endpoint::parse_list("a:1, http://b:2").map(|list| list.len()), Ok(2));
    assert!(Endpoint::parse_list("a:1,").is_err());
}
