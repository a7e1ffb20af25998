//! The types of settings: how each is read from text and TOML, and written.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use placement::{NodeName, Weight, Zone};

use crate::http::query::parse_duration;

/// How often, and with what, a flag is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Without a value, which then is `true`, or with one.
    Switch,
    /// Once, with a value.
    One,
    /// With values that are separated by commas, or several times.
    Many,
}

/// The type of a setting.
pub trait Setting: Sized {
    /// How it is given.
    const SHAPE: Shape = Shape::One;
    /// What it takes, for people.
    const EXPECTED: &'static str;

    /// Reads it from a flag or the environment.
    fn from_text(text: &str) -> Option<Self>;

    /// Reads it from the file: text, unless the type has a form of its own in TOML.
    fn from_toml(value: &toml::Value) -> Option<Self> {
        Self::from_text(value.as_str()?)
    }

    /// Writes it for the file; none for an absent value.
    fn to_toml(&self) -> Option<toml::Value>;
}

/// A number of bytes, such as `4096`, `64KiB`, `1MiB` or `2GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(usize);

const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl ByteSize {
    /// This many bytes.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        Self(bytes)
    }

    /// This many bytes; on a smaller machine the most that it can address.
    #[must_use]
    pub fn of_u64(bytes: u64) -> Self {
        Self(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match unit {
            Some((unit, shift)) => write!(formatter, "{}{unit}", self.0 >> shift),
            None => write!(formatter, "{}", self.0),
        }
    }
}

impl Setting for ByteSize {
    const EXPECTED: &'static str = "a size such as `64KiB` or `1MiB`";

    fn from_text(text: &str) -> Option<Self> {
        let unit = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
        let (digits, shift) = unit.unwrap_or((text, &0));
        let number = usize::from_text(digits.trim_end())?;
        number.checked_mul(1 << shift).map(Self)
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Integer(number) => usize::try_from(*number).ok().map(Self),
            other => Self::from_text(other.as_str()?),
        }
    }

    fn to_toml(&self) -> Option<toml::Value> {
        let has_unit = self.0 != 0 && self.0.is_multiple_of(1 << 10);
        if has_unit {
            return Some(toml::Value::String(self.to_string()));
        }
        self.0.to_toml()
    }
}

/// An address of a host or IP address and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort(String);

impl HostPort {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for HostPort {
    const EXPECTED: &'static str = "an address such as `node1.example:7400`";

    fn from_text(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_legal =
            |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        let is_host = !host.is_empty() && host.chars().all(is_legal);
        let is_address = is_bracketed && text.parse::<SocketAddr>().is_ok();
        (port != 0 && (is_host || is_address)).then(|| Self(text.to_owned()))
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::String(self.0.clone()))
    }
}

/// Form of reports on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object per line.
    Json,
}

impl Setting for LogFormat {
    const EXPECTED: &'static str = "`text` or `json`";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    fn to_toml(&self) -> Option<toml::Value> {
        let name = match self {
            Self::Text => "text",
            Self::Json => "json",
        };
        Some(toml::Value::String(name.to_owned()))
    }
}

impl Setting for bool {
    const SHAPE: Shape = Shape::Switch;
    const EXPECTED: &'static str = "`true` or `false`";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_bool()
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Boolean(*self))
    }
}

impl Setting for usize {
    const EXPECTED: &'static str = "a whole number";

    fn from_text(text: &str) -> Option<Self> {
        let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_decimal { text.parse().ok() } else { None }
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_integer()?.try_into().ok()
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
    }
}

impl Setting for u16 {
    const EXPECTED: &'static str = "a whole number up to 65535";

    fn from_text(text: &str) -> Option<Self> {
        usize::from_text(text)?.try_into().ok()
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_integer()?.try_into().ok()
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Integer(i64::from(*self)))
    }
}

impl Setting for Weight {
    const EXPECTED: &'static str = "a whole number from 1";

    fn from_text(text: &str) -> Option<Self> {
        Self::new(usize::from_text(text)?.try_into().ok()?).ok()
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        Self::new(value.as_integer()?.try_into().ok()?).ok()
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Integer(i64::from(self.get())))
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a time such as `500ms`, `5s` or `10m`";

    fn from_text(text: &str) -> Option<Self> {
        parse_duration(text)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        let text = match self.subsec_millis() {
            0 => format!("{}s", self.as_secs()),
            _ => format!("{}ms", self.as_millis()),
        };
        Some(toml::Value::String(text))
    }
}

macro_rules! parsed_labels {
    ($($kind:ty, $expected:literal, $parse:expr, $text:expr;)+) => {$(
        impl Setting for $kind {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Option<Self> {
                $parse(text)
            }

            fn to_toml(&self) -> Option<toml::Value> {
                Some(toml::Value::String($text(self)))
            }
        }
    )+};
}

parsed_labels! {
    NodeName, "a name of 1 to 64 characters out of A-Z, a-z, 0-9, `.`, `_`, `-`",
        |text| Self::parse(text).ok(), ToString::to_string;
    Zone, "a name of 1 to 64 characters out of A-Z, a-z, 0-9, `.`, `_`, `-`",
        |text| Self::parse(text).ok(), ToString::to_string;
    SocketAddr, "an IP address and a port, such as `127.0.0.1:7400`",
        |text: &str| text.parse().ok(), ToString::to_string;
    PathBuf, "a path",
        |text: &str| (!text.is_empty()).then(|| Self::from(text)),
        |path: &Self| path.display().to_string();
    String, "text",
        |text: &str| (!text.is_empty()).then(|| text.to_owned()), Clone::clone;
}

impl<T: Setting> Setting for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_text(text: &str) -> Option<Self> {
        T::from_text(text).map(Some)
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        T::from_toml(value).map(Some)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        self.as_ref().and_then(T::to_toml)
    }
}

impl<T: Setting> Setting for Vec<T> {
    const SHAPE: Shape = Shape::Many;
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_text(text: &str) -> Option<Self> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(T::from_text).collect()
    }

    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_toml).collect()
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Array(self.iter().filter_map(T::to_toml).collect()))
    }
}
