//! What people write on the command line, parsed into types once.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use kvapi::{KEY_BYTES_MAX, KeyPathError, Precondition, VALUE_BYTES_MAX_CAP, headers, paths};

use crate::exit::{Exit, Failure};

/// Parses `500ms`, `5s`, `2m` or plain seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits_end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(digits_end.unwrap_or(text.len()));
    let seconds_per_unit = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a duration is a number with ms, s, m or h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "not a duration, such as 5s".to_owned())?;
    match Duration::try_from_secs_f64(number * seconds_per_unit) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a duration is greater than zero, and not endless".to_owned()),
    }
}

/// Parses `24TiB`, `500GB` or plain bytes.
pub fn parse_amount(text: &str) -> Result<u64, String> {
    let digits_end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(digits_end.unwrap_or(text.len()));
    let bytes_per_unit = match unit {
        "" | "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0_f64.powi(2),
        "GiB" => 1024.0_f64.powi(3),
        "TiB" => 1024.0_f64.powi(4),
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return Err("an amount is a number with B, KiB, MiB, GiB, TiB or KB to TB".to_owned()),
    };
    match number.parse::<f64>() {
        Ok(number) if number * bytes_per_unit <= 1e18 => Ok((number * bytes_per_unit) as u64),
        _ => Err("not an amount, such as 24TiB".to_owned()),
    }
}

/// Parses the version of `--if-match`: `*`, `12` or `"12"`.
pub fn parse_if_match(text: &str) -> Result<Precondition, String> {
    match (text, parse_version(text)) {
        ("*", _) => Ok(Precondition::Exists),
        (_, Some(version)) => Ok(Precondition::Version(version)),
        (_, None) => Err("give a version or *".to_owned()),
    }
}

/// Parses `--if-none-match` of a write, which can only be `*`.
pub fn parse_absent(text: &str) -> Result<Precondition, String> {
    match text {
        "*" => Ok(Precondition::Absent),
        _ => Err("a write takes * only: the key must be absent".to_owned()),
    }
}

/// Parses a version with or without its quotes.
pub fn parse_version(text: &str) -> Option<u64> {
    headers::parse_etag(text).or_else(|| headers::parse_etag(&format!("\"{text}\"")))
}

/// The raw bytes of a key argument, or of its base64url form.
pub fn key_of(argument: OsString, is_base64: bool) -> Result<Bytes, Failure> {
    let usage = |error: KeyPathError| Failure::usage(error.to_string());
    if is_base64 {
        let Some(text) = argument.to_str() else {
            return Err(usage(KeyPathError::BadBase64));
        };
        return paths::decode_key64(text).map_err(usage);
    }
    let key = argument.into_vec();
    match key.len() {
        0 => Err(usage(KeyPathError::Empty)),
        bytes if bytes > KEY_BYTES_MAX => Err(usage(KeyPathError::TooLong { bytes })),
        _ => Ok(Bytes::from(key)),
    }
}

/// A value from an argument, from stdin (`-`), or from a file.
pub fn value_of(argument: Option<&OsStr>, file: Option<&Path>) -> Result<Bytes, Failure> {
    match (argument, file) {
        (Some(argument), None) if argument == "-" => read_bounded(std::io::stdin().lock(), "stdin"),
        (Some(argument), None) => Ok(Bytes::copy_from_slice(argument.as_bytes())),
        (None, Some(path)) => {
            let name = path.display().to_string();
            let file = std::fs::File::open(path)
                .map_err(|error| Failure::usage(format!("cannot open {name}: {error}")))?;
            read_bounded(file, &name)
        }
        (None, None) => Err(Failure::usage("give a value, - for stdin, or --file PATH")),
        (Some(_), Some(_)) => Err(Failure::usage("give a value or --file, not both")),
    }
}

fn read_bounded(source: impl Read, name: &str) -> Result<Bytes, Failure> {
    let mut value = Vec::new();
    let limit = VALUE_BYTES_MAX_CAP as u64 + 1;
    let read = source.take(limit).read_to_end(&mut value);
    read.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if value.len() > VALUE_BYTES_MAX_CAP {
        let message = format!("{name} is larger than any node takes ({VALUE_BYTES_MAX_CAP} bytes)");
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(Bytes::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_are_positive() {
        let table = [
            ("5s", Some(5000)),
            ("5", Some(5000)),
            ("1.5s", Some(1500)),
            ("250ms", Some(250)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("0s", None),
            ("-1s", None),
            ("s", None),
            ("", None),
            ("5 s", None),
            ("1e400", None),
            ("99999999999999999999h", None),
            ("1.2.3s", None),
        ];
        for (text, want) in table {
            let got = parse_duration(text).ok().map(|duration| duration.as_millis());
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn conditions_are_versions_or_a_star() {
        assert_eq!(parse_if_match("*"), Ok(Precondition::Exists));
        assert_eq!(parse_if_match("12"), Ok(Precondition::Version(12)));
        assert_eq!(parse_if_match("\"12\""), Ok(Precondition::Version(12)));
        for text in ["", "W/\"12\"", "abc", "-1", "1,2"] {
            assert!(parse_if_match(text).is_err(), "{text}");
        }
        assert_eq!(parse_absent("*"), Ok(Precondition::Absent));
        assert!(parse_absent("12").is_err());
    }

    #[test]
    fn keys_are_raw_bytes() {
        let raw = OsString::from_vec(vec![0xff, b'/', b'.']);
        assert_eq!(key_of(raw, false).expect("a key"), vec![0xff, b'/', b'.']);
        assert_eq!(key_of("AA".into(), true).expect("a key"), vec![0]);
        assert_eq!(key_of("A!".into(), true).expect_err("no key").exit, Exit::Usage);
        assert_eq!(key_of(OsString::new(), false).expect_err("no key").exit, Exit::Usage);
    }
}
