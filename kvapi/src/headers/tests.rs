use super::*;

fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(name.clone(), value.parse().expect("a header value"));
    }
    map
}

#[test]
fn tags_are_parsed_exactly() {
    let table = [
        ("\"0\"", Some(0)),
        ("\"123\"", Some(123)),
        ("\"18446744073709551615\"", Some(u64::MAX)),
        ("\"18446744073709551616\"", None),
        ("\"007\"", None),
        ("\"+1\"", None),
        ("\"-1\"", None),
        ("\"\"", None),
        ("\"", None),
        ("", None),
        ("123", None),
        ("W/\"123\"", None),
        ("\"1\",\"2\"", None),
        ("\"1 \"", None),
        ("\"abc\"", None),
    ];
    for (text, want) in table {
        assert_eq!(parse_etag(text), want, "{text}");
    }
    assert_eq!(parse_etag(&etag(42)), Some(42));
}

#[test]
fn the_conditions_of_a_put_are_taken_or_refused_but_never_guessed() {
    use header::{IF_MATCH, IF_NONE_MATCH};
    let weak = || Err(ConditionError::WeakTag { header: IF_MATCH });
    let list = || Err(ConditionError::List { header: IF_MATCH });
    let malformed = || Err(ConditionError::Malformed { header: IF_MATCH });
    let table = [
        (vec![], Ok(Precondition::None)),
        (vec![(IF_MATCH, "*")], Ok(Precondition::Exists)),
        (vec![(IF_MATCH, "\"7\"")], Ok(Precondition::Version(7))),
        (vec![(IF_MATCH, " \"7\" ")], Ok(Precondition::Version(7))),
        (vec![(IF_NONE_MATCH, "*")], Ok(Precondition::Absent)),
        (vec![(IF_NONE_MATCH, "\"7\"")], Err(ConditionError::NoneMatchVersion)),
        (vec![(IF_MATCH, "W/\"7\"")], weak()),
        (vec![(IF_MATCH, "\"7\", \"8\"")], list()),
        (vec![(IF_MATCH, "\"7\""), (IF_MATCH, "\"8\"")], list()),
        (vec![(IF_MATCH, "7")], malformed()),
        (vec![(IF_MATCH, "")], malformed()),
        (vec![(IF_MATCH, "\"abc\"")], malformed()),
        (vec![(IF_MATCH, "**")], malformed()),
        (vec![(IF_MATCH, "*"), (IF_NONE_MATCH, "*")], Err(ConditionError::Both)),
    ];
    for (pairs, want) in table {
        assert_eq!(Precondition::for_put(&headers(&pairs)), want, "{pairs:?}");
    }
}

#[test]
fn headers_that_do_not_apply_are_refused() {
    let none_match = headers(&[(header::IF_NONE_MATCH, "*")]);
    let want = ConditionError::NotApplicable { header: header::IF_NONE_MATCH };
    assert_eq!(Precondition::for_delete(&none_match), Err(want));
    let if_match = headers(&[(header::IF_MATCH, "\"1\"")]);
    assert_eq!(Precondition::for_delete(&if_match), Ok(Precondition::Version(1)));
    let want = ConditionError::NotApplicable { header: header::IF_MATCH };
    assert_eq!(ReadCondition::for_get(&if_match), Err(want));
}

#[test]
fn a_precondition_written_as_a_header_parses_back() {
    let all = [
        Precondition::None,
        Precondition::Absent,
        Precondition::Exists,
        Precondition::Version(0),
        Precondition::Version(u64::MAX),
    ];
    for precondition in all {
        let map: HeaderMap = precondition.to_header().into_iter().collect();
        assert_eq!(Precondition::for_put(&map), Ok(precondition));
    }
}

#[test]
fn a_read_is_not_modified_when_the_version_is_known() {
    let known = headers(&[(header::IF_NONE_MATCH, "\"5\"")]);
    let condition = ReadCondition::for_get(&known).expect("a condition");
    assert!(condition.is_not_modified(5));
    assert!(!condition.is_not_modified(6));
    let any = headers(&[(header::IF_NONE_MATCH, "*")]);
    assert!(ReadCondition::for_get(&any).expect("a condition").is_not_modified(9));
    assert!(!ReadCondition::None.is_not_modified(9));
}

#[test]
fn consistency_and_route_take_their_names_alone() {
    assert_eq!(Consistency::parse("linearizable"), Some(Consistency::Linearizable));
    assert_eq!(Consistency::parse("stale"), Some(Consistency::Stale));
    assert_eq!(Consistency::parse("Stale"), None);
    assert_eq!(Consistency::parse(""), None);
    assert_eq!(RouteMode::from_headers(&headers(&[])), Ok(RouteMode::Forward));
    assert_eq!(RouteMode::from_headers(&headers(&[(KV_ROUTE, "direct")])), Ok(RouteMode::Direct));
    assert!(RouteMode::from_headers(&headers(&[(KV_ROUTE, "any")])).is_err());
}
