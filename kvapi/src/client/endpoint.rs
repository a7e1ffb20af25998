//! Addresses of nodes as people write them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The HTTP address of one node: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    authority: Arc<str>,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// TLS is not offered by this version.
    #[error("`{text}`: https is not supported by this version")]
    Https {
        /// What was given.
        text: String,
    },
    /// Not `http://host:port`.
    #[error("`{text}` is not of the form http://host:port")]
    Malformed {
        /// What was given.
        text: String,
    },
}

impl Endpoint {
    /// `host:port`, as the `Host` header and the resolver take it.
    pub fn authority(&self) -> &Arc<str> {
        &self.authority
    }

    /// Parses a comma-separated list of at least one endpoint.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, EndpointError> {
        text.split(',').map(|part| part.trim().parse()).collect()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let malformed = || EndpointError::Malformed { text: text.to_owned() };
        if text.starts_with("https://") {
            return Err(EndpointError::Https { text: text.to_owned() });
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority: http::uri::Authority = rest.parse().map_err(|_| malformed())?;
        let has_port = authority.port_u16().is_some_and(|port| port > 0);
        if !has_port || authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(malformed());
        }
        Ok(Self { authority: Arc::from(authority.as_str()) })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}", self.authority)
    }
}
