//! `kvctl del`: deletes a key; fine when it is absent.

use std::ffi::OsString;

use kvapi::Precondition;
use serde_json::json;

use crate::cli::Globals;
use crate::commands::put::explain;
use crate::exit::Failure;
use crate::input::{key_of, parse_if_match};
use crate::output::{self, Format};

/// Arguments of `del`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key.
    key: OsString,
    /// KEY is base64url without padding.
    #[arg(long)]
    key_base64: bool,
    /// Delete only if the key has this version (or, with *, exists).
    #[arg(long, value_name = "VERSION", value_parser = parse_if_match)]
    if_match: Option<Precondition>,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let key = key_of(args.key, args.key_base64)?;
    let precondition = args.if_match.unwrap_or_default();
    let answer = globals.client().delete(&key, precondition).await.map_err(explain)?;
    match globals.output {
        Format::Table => Ok(()),
        Format::Json => output::json(&json!({
            "partition": answer.meta.partition.map(placement::PartitionId::get),
            "served_by": answer.meta.served_by,
        })),
    }
}
