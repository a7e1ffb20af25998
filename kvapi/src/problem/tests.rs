use std::collections::HashSet;

use super::*;

#[test]
fn every_code_has_one_name_that_survives_the_wire() {
    let mut names = HashSet::new();
    for code in ProblemCode::ALL {
        let json = serde_json::to_string(code).expect("a code serialises");
        assert_eq!(json, format!("\"{}\"", code.as_str()));
        assert_eq!(serde_json::from_str::<ProblemCode>(&json).expect("a code parses"), *code);
        assert!(names.insert(code.as_str()), "{} stands twice", code.as_str());
        let kebab = code.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(kebab, "{}", code.as_str());
    }
}

#[test]
fn a_503_is_never_ambiguous_and_a_504_always_is() {
    for code in ProblemCode::ALL {
        let facts = code.facts();
        match facts.status.as_u16() {
            503 | 507 | 421 | 429 => {
                assert_eq!(facts.outcome, Outcome::NotApplied, "{code:?}");
                assert_eq!(facts.retry, Retry::Safe, "{code:?}");
            }
            504 | 500 => assert_eq!(facts.outcome, Outcome::Unknown, "{code:?}"),
            status => assert!((400..=501).contains(&status), "{code:?} has status {status}"),
        }
    }
}

#[test]
fn a_problem_of_a_newer_server_is_read_as_far_as_it_is_known() {
    let json = r#"{"type":"urn:ringkv:problem:moon-phase","title":"T","status":499,
        "detail":"d","code":"moon-phase","outcome":"half","retry":"maybe","epoch":3,"extra":[1]}"#;
    let problem: Problem = serde_json::from_str(json).expect("unknown names are tolerated");
    assert_eq!(problem.code, ProblemCode::Unrecognised);
    assert_eq!(problem.outcome, Outcome::Unknown);
    assert_eq!(problem.retry, Retry::No);
    assert_eq!(problem.type_uri, "urn:ringkv:problem:moon-phase");
    let bare: Problem = serde_json::from_str("{}").expect("missing fields are tolerated");
    assert_eq!(bare.outcome, Outcome::Unknown);
}

#[test]
fn a_problem_stands_on_the_wire_as_the_contract_says() {
    let problem = Problem::new(ProblemCode::PreconditionFailed, "the key has version 7")
        .with_version(7)
        .with_epoch(Epoch::new(4));
    let response = problem.to_response(1);
    assert_eq!(response.status(), 412);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["etag"], "\"7\"");
    assert_eq!(response.headers()["kv-ring-epoch"], "4");
    assert!(!response.headers().contains_key("retry-after"));
    let json: serde_json::Value = serde_json::from_slice(response.body()).expect("JSON");
    let want = serde_json::json!({
        "type": "urn:ringkv:problem:precondition-failed",
        "title": "The condition is false",
        "status": 412,
        "detail": "the key has version 7",
        "code": "precondition-failed",
        "outcome": "not_applied",
        "retry": "read_first",
        "epoch": 4,
        "etag": "\"7\"",
    });
    assert_eq!(json, want);
    let back: Problem = serde_json::from_slice(response.body()).expect("a problem");
    assert_eq!(back, problem);
}

#[test]
fn an_overloaded_node_says_when_to_come_back() {
    let response = Problem::new(ProblemCode::Overloaded, "the queue is full").to_response(2);
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "2");
}
