//! Limits on the parts of a request, checked where it enters a node from whichever side.

use kvcore::store::{Command, Limits};

use super::error::RequestError;

/// Checks a key.
pub(super) fn check_key(key: &[u8]) -> Result<(), RequestError> {
    match key.len() {
        1..=Limits::KEY_BYTES_MAX => Ok(()),
        bytes => Err(RequestError::KeyLength { bytes }),
    }
}

/// Checks a client's command and returns its key; none for a command that is not a client's.
pub(super) fn check_command(
    command: &Command,
    value_bytes_max: usize,
) -> Result<Option<&[u8]>, RequestError> {
    match command {
        Command::Put { key, value, content_type, condition: _ } => {
            check_key(key)?;
            let bytes = value.len();
            if bytes > value_bytes_max {
                return Err(RequestError::ValueTooLarge { bytes, bytes_max: value_bytes_max });
            }
            let bytes = content_type.as_ref().map_or(0, String::len);
            if bytes > Limits::CONTENT_TYPE_BYTES_MAX {
                return Err(RequestError::ContentTypeTooLong { bytes });
            }
            Ok(Some(key))
        }
        Command::Delete { key, condition: _ } => {
            check_key(key)?;
            Ok(Some(key))
        }
        Command::Truncate { .. } | Command::Verify => Ok(None),
    }
}
