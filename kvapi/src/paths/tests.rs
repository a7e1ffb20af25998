use super::*;
use proptest::prelude::*;

#[test]
fn percent_decoding_is_strict_and_literal() {
    let table: &[(&str, Result<&[u8], KeyPathError>)] = &[
        ("a", Ok(b"a")),
        ("a/b", Ok(b"a/b")),
        ("a%2Fb", Ok(b"a/b")),
        ("a%2fb", Ok(b"a/b")),
        ("//", Ok(b"//")),
        ("a//b/", Ok(b"a//b/")),
        ("a/../b", Ok(b"a/../b")),
        ("..", Ok(b"..")),
        ("%2e%2E", Ok(b"..")),
        ("a+b", Ok(b"a+b")),
        ("a%20b", Ok(b"a b")),
        ("%00", Ok(b"\0")),
        ("%ff%FE", Ok(b"\xff\xfe")),
        ("%25zz", Ok(b"%zz")),
        ("\u{e9}", Ok("\u{e9}".as_bytes())),
        ("a\\b", Ok(b"a\\b")),
        ("", Err(KeyPathError::Empty)),
        ("%", Err(KeyPathError::BadEscape { at: 0 })),
        ("%2", Err(KeyPathError::BadEscape { at: 0 })),
        ("%zz", Err(KeyPathError::BadEscape { at: 0 })),
        ("ab%g0", Err(KeyPathError::BadEscape { at: 2 })),
        ("%+1", Err(KeyPathError::BadEscape { at: 0 })),
        ("a%%20", Err(KeyPathError::BadEscape { at: 1 })),
    ];
    for (encoded, want) in table {
        let got = decode_key(encoded);
        assert_eq!(got.as_deref().map_err(|error| *error), *want, "{encoded:?}");
    }
}

#[test]
fn base64_decoding_refuses_what_is_not_canonical() {
    let table: &[(&str, Result<&[u8], KeyPathError>)] = &[
        ("YQ", Ok(b"a")),
        ("Li4", Ok(b"..")),
        ("_-8", Ok(b"\xff\xef")),
        ("", Err(KeyPathError::Empty)),
        ("YQ==", Err(KeyPathError::BadBase64)),
        ("YR", Err(KeyPathError::BadBase64)),
        ("/+8", Err(KeyPathError::BadBase64)),
        ("a", Err(KeyPathError::BadBase64)),
        ("Y Q", Err(KeyPathError::BadBase64)),
    ];
    for (encoded, want) in table {
        let got = decode_key64(encoded);
        assert_eq!(got.as_deref().map_err(|error| *error), *want, "{encoded:?}");
    }
}

#[test]
fn a_key_of_the_largest_length_passes_and_one_byte_more_does_not() {
    for fill in [b'a', b'/', 0xff, 0] {
        let longest = vec![fill; KEY_BYTES_MAX];
        let path = kv_path(&longest);
        let parsed = KeyPath::split(&path).expect("a key path");
        assert_eq!(parsed.key().expect("at the limit"), longest);

        let too_long = vec![fill; KEY_BYTES_MAX + 1];
        let mut percent = String::new();
        percent_encode(&too_long, &mut percent);
        let want = KeyPathError::TooLong { bytes: KEY_BYTES_MAX + 1 };
        assert_eq!(decode_key(&percent), Err(want));
        assert_eq!(decode_key64(&encode_key64(&too_long)), Err(want));
    }
    assert!(matches!(decode_key64(&"A".repeat(1 << 20)), Err(KeyPathError::TooLong { .. })));
}

#[test]
fn keys_that_url_libraries_rewrite_travel_as_base64() {
    let table: &[(&[u8], &str)] = &[
        (b"plain", "/v1/kv/plain"),
        (b"a/b", "/v1/kv/a%2Fb"),
        (b"a b+c?d#e", "/v1/kv/a%20b%2Bc%3Fd%23e"),
        (b"...", "/v1/kv/..."),
        (b"a/.b", "/v1/kv/a%2F.b"),
        (b"a\\..\\b", "/v1/kv/a%5C..%5Cb"),
        (b"..", "/v1/kv64/Li4"),
        (b".", "/v1/kv64/Lg"),
        (b"a/../b", "/v1/kv64/YS8uLi9i"),
        (b"a/.", "/v1/kv64/YS8u"),
        (b"\0", "/v1/kv64/AA"),
    ];
    for (key, want) in table {
        assert_eq!(kv_path(key), *want);
    }
    assert_eq!(locate_path(b"a"), "/v1/locate/a");
    assert_eq!(locate_path(b".."), "/v1/locate64/Li4");
}

#[test]
fn only_key_paths_are_taken_apart() {
    for path in ["/v1/kv", "/v1/ring", "/v1/kv6/a", "/v1//kv/a", "/livez", "", "v1/kv/a"] {
        assert_eq!(KeyPath::split(path), None, "{path}");
    }
    let empty = KeyPath::split("/v1/kv/").expect("an empty key is still a key path");
    assert_eq!(empty.key(), Err(KeyPathError::Empty));
}

#[test]
fn every_single_byte_key_survives_the_round_trip() {
    for byte in 0..=u8::MAX {
        let path = kv_path(&[byte]);
        let uri: http::Uri = path.parse().expect("a path every HTTP library takes");
        let key = KeyPath::split(uri.path()).expect("a key path").key().expect("a key");
        assert_eq!(key.as_ref(), [byte]);
    }
}

proptest! {
    #[test]
    fn any_key_survives_the_round_trip(key in proptest::collection::vec(any::<u8>(), 1..200)) {
        for path in [kv_path(&key), locate_path(&key)] {
            let uri: http::Uri = path.parse().expect("a path every HTTP library takes");
            prop_assert_eq!(uri.path(), path.as_str());
            prop_assert!(uri.query().is_none());
            let decoded = KeyPath::split(uri.path()).expect("a key path").key();
            prop_assert_eq!(decoded.expect("a key"), key.clone());
        }
        let mut percent = String::new();
        percent_encode(&key, &mut percent);
        prop_assert_eq!(decode_key(&percent).expect("a key"), key.clone());
        prop_assert_eq!(decode_key64(&encode_key64(&key)).expect("a key"), key);
    }

    #[test]
    fn no_input_makes_the_decoders_panic(encoded in "\\PC{0,64}") {
        let _ = decode_key(&encoded);
        let _ = decode_key64(&encoded);
    }
}
