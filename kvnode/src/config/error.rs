//! Why a configuration was refused.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Why a configuration was refused; one line each.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The command line is not understood.
    #[error("{reason}; see `kvnode --help`")]
    Usage {
        /// What is wrong with it.
        reason: String,
    },
    /// A value is none that the setting takes.
    #[error("{place}: {found:?} is not {expected}")]
    Value {
        /// Where the value stands.
        place: String,
        /// The value.
        found: String,
        /// What the setting takes.
        expected: String,
    },
    /// The file has a key that is no setting.
    #[error("{}: unknown key `{key}`", file.display())]
    UnknownKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// The file is not TOML.
    #[error("{}: {reason}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// Settings contradict each other.
    #[error("{rule}")]
    Rule {
        /// The rule that is broken.
        rule: String,
    },
    /// An address would be open to others, without protection.
    #[error(
        "{name} {address} is not loopback, and nothing protects it: say --insecure if that is meant"
    )]
    Insecure {
        /// The setting.
        name: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The setting is known and does nothing yet.
    #[error("{name} is not implemented in this version, and not ignored either")]
    NotImplemented {
        /// The setting.
        name: &'static str,
    },
}

impl ConfigError {
    /// The exit code of a start that fails for this reason.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. }
            | Self::Value { .. }
            | Self::UnknownKey { .. }
            | Self::Syntax { .. }
            | Self::Rule { .. } => 2,
            Self::File { .. } => 3,
            Self::Insecure { .. } => 4,
            Self::NotImplemented { .. } => 5,
        }
    }
}
