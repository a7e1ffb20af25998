//! Header names and the strict parsing of the few headers that carry meaning.
//!
//! A tag is `"V"` with V a decimal version without leading zeros. Weak tags, lists and everything
//! else are refused: guessing at a condition would make it advisory.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Epoch of the ring that the sender works with; 0 before the cluster was founded.
pub const KV_RING_EPOCH: HeaderName = HeaderName::from_static("kv-ring-epoch");
/// Partition of the key, decimal.
pub const KV_PARTITION: HeaderName = HeaderName::from_static("kv-partition");
/// Name of the node that executed the request.
pub const KV_SERVED_BY: HeaderName = HeaderName::from_static("kv-served-by");
/// `direct` in a request: answer 421 instead of forwarding.
pub const KV_ROUTE: HeaderName = HeaderName::from_static("kv-route");
/// Consistency of an answer, where it is weaker than linearizable.
pub const KV_CONSISTENCY: HeaderName = HeaderName::from_static("kv-consistency");
/// Upper bound of a stale answer's age in milliseconds.
pub const KV_STALENESS_MS: HeaderName = HeaderName::from_static("kv-staleness-ms");
/// Names a write, so that it can be sent again without being applied twice.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Content type of a value stored without one.
pub const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";
/// Content type of error answers.
pub const CONTENT_TYPE_PROBLEM: &str = "application/problem+json";

/// Condition of a write, decided where the write is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Write in any case.
    #[default]
    None,
    /// Only if the key is absent (`If-None-Match: *`).
    Absent,
    /// Only if the key exists (`If-Match: *`).
    Exists,
    /// Only if the key exists with this version (`If-Match: "V"`).
    Version(u64),
}

/// Condition of a read: whether the caller needs the value at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadCondition {
    /// Always send the value.
    #[default]
    None,
    /// Answer 304 if the key has this version (`If-None-Match: "V"`).
    NotVersion(u64),
    /// Answer 304 if the key exists (`If-None-Match: *`).
    NotExists,
}

/// Which of a key's states a read may return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// The latest acknowledged state.
    #[default]
    Linearizable,
    /// What any replica has applied.
    Stale,
}

/// What a node does with a request that another node leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteMode {
    /// Pass it on.
    #[default]
    Forward,
    /// Refuse it and name the leader (`KV-Route: direct`).
    Direct,
}

/// Why a condition header was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// A weak tag: versions are compared exactly.
    #[error("`{header}` has a weak tag; use a strong one: `\"V\"`")]
    WeakTag {
        /// The header's name.
        header: HeaderName,
    },
    /// More than one tag, in one header or in several.
    #[error("`{header}` has more than one tag; give exactly one")]
    List {
        /// The header's name.
        header: HeaderName,
    },
    /// Neither `*` nor a quoted decimal version.
    #[error("`{header}` is neither `*` nor a version in double quotes")]
    Malformed {
        /// The header's name.
        header: HeaderName,
    },
    /// Both `If-Match` and `If-None-Match`.
    #[error("`if-match` and `if-none-match` exclude each other")]
    Both,
    /// `If-None-Match: "V"` on a write; only `*` is meaningful there.
    #[error("a write takes `if-none-match: *` only; use `if-match` for a version")]
    NoneMatchVersion,
    /// A header that this call does not take.
    #[error("`{header}` does not apply to this call")]
    NotApplicable {
        /// The header's name.
        header: HeaderName,
    },
}

/// One parsed `If-Match` or `If-None-Match`.
enum Tag {
    Any,
    Version(u64),
}

impl Precondition {
    /// Parses the conditions of a `PUT`.
    pub fn for_put(headers: &HeaderMap) -> Result<Self, ConditionError> {
        let if_match = tag(headers, header::IF_MATCH)?;
        let if_none_match = tag(headers, header::IF_NONE_MATCH)?;
        match (if_match, if_none_match) {
            (None, None) => Ok(Self::None),
            (Some(Tag::Any), None) => Ok(Self::Exists),
            (Some(Tag::Version(version)), None) => Ok(Self::Version(version)),
            (None, Some(Tag::Any)) => Ok(Self::Absent),
            (None, Some(Tag::Version(_))) => Err(ConditionError::NoneMatchVersion),
            (Some(_), Some(_)) => Err(ConditionError::Both),
        }
    }

    /// Parses the conditions of a `DELETE`, which takes `If-Match` alone.
    pub fn for_delete(headers: &HeaderMap) -> Result<Self, ConditionError> {
        if headers.contains_key(header::IF_NONE_MATCH) {
            return Err(ConditionError::NotApplicable { header: header::IF_NONE_MATCH });
        }
        Self::for_put(headers)
    }

    /// The header that states this condition.
    pub fn to_header(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::None => None,
            Self::Absent => Some((header::IF_NONE_MATCH, HeaderValue::from_static("*"))),
            Self::Exists => Some((header::IF_MATCH, HeaderValue::from_static("*"))),
            Self::Version(version) => Some((header::IF_MATCH, etag_value(version))),
        }
    }
}

impl ReadCondition {
    /// Parses the condition of a `GET` or `HEAD`, which takes `If-None-Match` alone.
    pub fn for_get(headers: &HeaderMap) -> Result<Self, ConditionError> {
        if headers.contains_key(header::IF_MATCH) {
            return Err(ConditionError::NotApplicable { header: header::IF_MATCH });
        }
        Ok(match tag(headers, header::IF_NONE_MATCH)? {
            None => Self::None,
            Some(Tag::Any) => Self::NotExists,
            Some(Tag::Version(version)) => Self::NotVersion(version),
        })
    }

    /// Whether a key that exists with `version` is answered with 304.
    pub fn is_not_modified(self, version: u64) -> bool {
        match self {
            Self::None => false,
            Self::NotVersion(known) => known == version,
            Self::NotExists => true,
        }
    }
}

impl Consistency {
    /// Its name in `?consistency=` and `KV-Consistency`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Stale => "stale",
        }
    }

    /// Parses the name; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Linearizable, Self::Stale].into_iter().find(|level| level.as_str() == text)
    }
}

impl RouteMode {
    /// Parses `KV-Route`; `Err` holds a value this version does not know.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, HeaderValue> {
        match headers.get(KV_ROUTE) {
            None => Ok(Self::Forward),
            Some(value) if value == "direct" => Ok(Self::Direct),
            Some(value) => Err(value.clone()),
        }
    }
}

/// The tag of a version: `"V"`.
pub fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The tag of a version as a header value.
pub fn etag_value(version: u64) -> HeaderValue {
    HeaderValue::try_from(etag(version)).expect("digits and quotes are legal in headers")
}

/// Parses exactly `"V"`: a strong tag of decimal digits without leading zeros or sign.
pub fn parse_etag(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('"')?.strip_suffix('"')?;
    let canonical = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'));
    if canonical { digits.parse().ok() } else { None }
}

fn tag(headers: &HeaderMap, name: HeaderName) -> Result<Option<Tag>, ConditionError> {
    let mut values = headers.get_all(&name).into_iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(ConditionError::List { header: name });
    }
    let Ok(text) = value.to_str() else {
        return Err(ConditionError::Malformed { header: name });
    };
    let text = text.trim_matches([' ', '\t']);
    if text == "*" {
        return Ok(Some(Tag::Any));
    }
    if let Some(version) = parse_etag(text) {
        return Ok(Some(Tag::Version(version)));
    }
    Err(if text.contains(',') {
        ConditionError::List { header: name }
    } else if text.starts_with("W/") {
        ConditionError::WeakTag { header: name }
    } else {
        ConditionError::Malformed { header: name }
    })
}

#[cfg(test)]
mod tests;
