//! Each error has its problem, and the problem the outcome that the error had.

use kvapi::problem::Outcome;
use kvapi::{ConditionError, KeyPathError, ProblemCode};
use kvcore::ClusterId;
use placement::{Epoch, NodeId, PartitionId};

use super::fake::{first_view, name};
use crate::founding::InitError;
use crate::http::TransferError;
use crate::http::body::BodyError;
use crate::http::problem::{
    Refusal, of_body, of_condition, of_init, of_key, of_query, of_request, of_transfer,
};
use crate::http::query::QueryError;
use crate::router::{self, RequestError};

fn check(refusal: &Refusal, status: u16, code: &str) {
    assert_eq!((refusal.status, refusal.code.as_str()), (status, code), "{refusal:?}");
    assert!(!refusal.detail.is_empty() && !refusal.detail.contains('\n'), "{refusal:?}");
    let answer = refusal.to_response(1);
    let document: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    for member in ["type", "title", "status", "detail", "code", "outcome", "retry", "epoch"] {
        assert!(!document[member].is_null(), "{member} is missing: {document}");
    }
    assert_eq!(answer.headers().contains_key("retry-after"), status == 503);
}

#[test]
fn data_requests_fail_with_the_outcome_that_the_router_states() {
    let partition = PartitionId::new(3);
    let owners = [1, 2, 3].map(NodeId::from_u128).to_vec();
    let table = [
        (RequestError::NotInitialised, 503, "cluster-not-initialised"),
        (
            RequestError::NotLeader {
                partition,
                leader: Some(NodeId::from_u128(2)),
                owners,
                epoch: Epoch::new(7),
            },
            421,
            "not-leader",
        ),
        (RequestError::NoLeader { partition }, 503, "no-leader"),
        (RequestError::Overloaded, 503, "overloaded"),
        (RequestError::OutcomeUnknown, 504, "outcome-unknown"),
        (RequestError::KeyLength { bytes: 0 }, 400, "empty-key"),
        (RequestError::KeyLength { bytes: 5000 }, 414, "key-too-long"),
        (RequestError::ValueTooLarge { bytes: 2, bytes_max: 1 }, 413, "value-too-large"),
        (RequestError::ContentTypeTooLong { bytes: 300 }, 400, "malformed-request"),
        (RequestError::DiskFull, 507, "disk-full"),
        (RequestError::Storage { reason: "bad block".to_owned() }, 500, "internal"),
        (RequestError::ShuttingDown, 503, "shutting-down"),
    ];
    let view = first_view();
    for (error, status, code) in table {
        let want = match error.outcome() {
            router::Outcome::NotApplied => Outcome::NotApplied,
            router::Outcome::Unknown => Outcome::Unknown,
        };
        for view in [None, Some(&view)] {
            let refusal = of_request(error.clone(), view);
            check(&refusal, status, code);
            assert_eq!(refusal.outcome, want, "{refusal:?}");
            if let RequestError::NotLeader { .. } = error {
                assert_eq!(refusal.partition, Some(partition));
                assert_eq!(refusal.epoch, Epoch::new(7));
                let leader = refusal.leader.as_ref().map(|leader| leader.name.as_str());
                assert_eq!(leader, view.map(|_| "n2"));
                assert_eq!(refusal.owners.len(), view.map_or(0, |_| 3));
            }
        }
    }
}

#[test]
fn foundings_and_transfers_say_what_stands_in_the_way() {
    let address = || "10.0.0.1:7401".to_owned();
    let other = || "10.0.0.2:7401".to_owned();
    let cluster = ClusterId(1);
    let reason = || "refused".to_owned();
    let unreachable = InitError::Unreachable { address: address(), reason: reason() };
    check(&of_init(unreachable), 503, "node-unreachable");
    let same = InitError::SameNode { first: address(), second: other() };
    check(&of_init(same), 400, "malformed-request");
    let taken = InitError::NameTaken { name: name("n1"), first: address(), second: other() };
    check(&of_init(taken), 409, "name-taken");
    let foreign =
        InitError::OtherCluster { address: address(), theirs: cluster, ours: ClusterId(2) };
    check(&of_init(foreign), 409, "conflict");
    let node = NodeId::from_u128(9);
    check(&of_init(InitError::NotAFounder { address: address(), node, cluster }), 409, "conflict");
    let impossible = InitError::Impossible(kvcore::cluster::FoundingError::NoFounders);
    check(&of_init(impossible), 400, "malformed-request");
    let late = InitError::TooLate { cluster, epoch: Epoch::new(2), address: address() };
    check(&of_init(late), 409, "conflict");
    let refused = InitError::Refused { address: address(), cluster, reason: reason() };
    check(&of_init(refused), 409, "conflict");
    let interrupted = of_init(InitError::Interrupted {
        cluster,
        accepted: 1,
        founders: 3,
        address: address(),
        reason: reason(),
    });
    check(&interrupted, 504, "outcome-unknown");
    assert_eq!(interrupted.outcome, Outcome::Unknown);

    let partition = PartitionId::new(3);
    let table = [
        (TransferError::NoSuchNode { name: name("n9") }, 404, "no-such-node"),
        (TransferError::NoSuchPartition { partition }, 404, "no-such-partition"),
        (TransferError::NotAnOwner { name: name("n9"), partition }, 409, "conflict"),
        (RequestError::NotInitialised.into(), 503, "cluster-not-initialised"),
        (RequestError::NoLeader { partition }.into(), 503, "no-leader"),
        (RequestError::OutcomeUnknown.into(), 504, "outcome-unknown"),
    ];
    for (error, status, code) in table {
        check(&of_transfer(error, None), status, code);
    }
}

#[test]
fn malformed_requests_are_told_apart() {
    let header = http::header::IF_MATCH;
    check(&of_key(KeyPathError::Empty), 400, "empty-key");
    check(&of_key(KeyPathError::TooLong { bytes: 4097 }), 414, "key-too-long");
    check(&of_key(KeyPathError::BadEscape { at: 0 }), 400, "malformed-key");
    check(&of_key(KeyPathError::BadBase64), 400, "malformed-key");
    check(&of_condition(ConditionError::WeakTag { header }), 400, "malformed-condition");
    check(&of_query(QueryError::Twice { name: "wait" }), 400, "malformed-request");
    check(&of_body(BodyError::TooLarge { bytes_max: 1 }), 413, "value-too-large");
    check(&of_body(BodyError::Overloaded), 503, "overloaded");
    check(&of_body(BodyError::TooSlow), 408, "request-timeout");
    check(&of_body(BodyError::Broken), 400, "malformed-request");
}

#[test]
fn every_problem_code_makes_an_answer() {
    for code in ProblemCode::ALL {
        let refusal = crate::http::problem::refuse(*code, "what happened");
        let answer = refusal.to_response(1);
        assert_eq!(answer.status(), code.facts().status);
        let document: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(document["code"], code.as_str());
    }
}
