//! The configuration of a node: flags, environment and file, which are one thing in three forms.
//!
//! A setting is declared once, in [`declare`]; its flag, its `KVNODE_*` variable and its key in the
//! file follow from its name. A flag outweighs the environment, that the file, that the default.
//! What is not known is refused by name. Secrets are never settings, only the files that hold them.

mod declare;
mod error;
mod load;
mod value;

pub use declare::Config;
pub use error::ConfigError;
pub use load::{Invocation, load};
pub use value::{ByteSize, HostPort, LogFormat};

#[cfg(test)]
mod tests;
