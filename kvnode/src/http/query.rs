//! Query strings, taken strictly: a parameter that a call does not have is refused, never ignored.

use std::time::Duration;

use thiserror::Error;

/// Why a query string was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// The call has no such parameter.
    #[error("this call has no parameter `{name}`")]
    Unknown {
        /// The parameter's name.
        name: String,
    },
    /// The parameter stands there twice.
    #[error("the parameter `{name}` is given more than once")]
    Twice {
        /// The parameter's name.
        name: &'static str,
    },
    /// The value is none that the parameter takes.
    #[error("the parameter `{name}` takes {expected}")]
    Value {
        /// The parameter's name.
        name: &'static str,
        /// What it takes.
        expected: &'static str,
    },
}

/// The parameters of one request.
#[derive(Debug, Default)]
pub struct Query<'a> {
    pairs: Vec<(&'static str, &'a str)>,
}

impl<'a> Query<'a> {
    /// Takes a raw query string apart. Names and values are compared as they stand there: none that
    /// this API takes needs an escape.
    ///
    /// # Errors
    /// [`QueryError`] for a name that is not among `known`, or one given twice.
    pub fn parse(raw: Option<&'a str>, known: &[&'static str]) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().copied().find(|known| *known == name) else {
                let name = name.chars().take(64).collect();
                return Err(QueryError::Unknown { name });
            };
            if query.get(name).is_some() {
                return Err(QueryError::Twice { name });
            }
            query.pairs.push((name, value));
        }
        Ok(query)
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }

    /// The value of a parameter, parsed.
    ///
    /// # Errors
    /// [`QueryError::Value`] when `parse` takes it for none.
    pub fn parsed<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, QueryError> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => match parse(text) {
                Some(value) => Ok(Some(value)),
                None => Err(QueryError::Value { name, expected }),
            },
        }
    }
}

/// Reads a decimal number without sign.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal { text.parse().ok() } else { None }
}

/// Reads a time such as `500ms`, `30s`, `10m` or `1h`: a whole number and a unit.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number = parse_number(number)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_known_names_once() {
        let known = ["wait", "after_epoch"];
        type Case<'a> = (Option<&'a str>, Result<Option<&'a str>, QueryError>);
        let table: &[Case<'_>] = &[
            (None, Ok(None)),
            (Some(""), Ok(None)),
            (Some("&"), Ok(None)),
            (Some("wait=1s"), Ok(Some("1s"))),
            (Some("wait"), Ok(Some(""))),
            (Some("after_epoch=1&wait=a=b"), Ok(Some("a=b"))),
            (Some("wait=1&wait=1"), Err(QueryError::Twice { name: "wait" })),
            (Some("Wait=1"), Err(QueryError::Unknown { name: "Wait".to_owned() })),
            (Some("=1"), Err(QueryError::Unknown { name: String::new() })),
            (Some("w%61it=1"), Err(QueryError::Unknown { name: "w%61it".to_owned() })),
        ];
        for (raw, want) in table {
            let got = Query::parse(*raw, &known).map(|query| query.get("wait"));
            assert_eq!(got, *want, "{raw:?}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        let table = [
            ("30s", Some(Duration::from_secs(30))),
            ("500ms", Some(Duration::from_millis(500))),
            ("10m", Some(Duration::from_secs(600))),
            ("1h", Some(Duration::from_secs(3600))),
            ("0s", Some(Duration::ZERO)),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("1 s", None),
            ("1d", None),
            ("18446744073709551616s", None),
            ("18446744073709551615h", None),
        ];
        for (text, want) in table {
            assert_eq!(parse_duration(text), want, "{text}");
        }
    }
}
