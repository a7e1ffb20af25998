//! `kvctl put`: writes a key and prints its new version.

use std::ffi::OsString;
use std::path::PathBuf;

use kvapi::{Precondition, PutOptions};
use serde_json::json;

use crate::cli::Globals;
use crate::exit::{Exit, Failure};
use crate::input::{key_of, parse_absent, parse_if_match, value_of};
use crate::output::{self, Format};

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key.
    key: OsString,
    /// The value; - reads it from stdin.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    value: Option<OsString>,
    /// Read the value from a file.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// KEY is base64url without padding.
    #[arg(long)]
    key_base64: bool,
    /// Write only if the key has this version (or, with *, exists).
    #[arg(long, value_name = "VERSION", value_parser = parse_if_match)]
    if_match: Option<Precondition>,
    /// With *: write only if the key is absent.
    #[arg(long, value_name = "*", value_parser = parse_absent, conflicts_with = "if_match")]
    if_none_match: Option<Precondition>,
    /// Content type to store with the value.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let key = key_of(args.key, args.key_base64)?;
    let value = value_of(args.value.as_deref(), args.file.as_deref())?;
    let precondition = args.if_match.or(args.if_none_match).unwrap_or_default();
    let options = PutOptions { precondition, content_type: args.content_type };
    let answer = globals.client().put(&key, value, &options).await.map_err(explain)?;
    let version = answer.version.unwrap_or_default();
    match globals.output {
        Format::Table => output::text(&format!("{version}\n")),
        Format::Json => output::json(&json!({
            "version": version,
            "partition": answer.meta.partition.map(placement::PartitionId::get),
            "served_by": answer.meta.served_by,
        })),
    }
}

/// A false condition is clearer with the version that the key has.
pub fn explain(error: kvapi::ClientError) -> Failure {
    let current = error.problem().and_then(|problem| problem.etag.clone());
    let failure = Failure::from(error);
    let said = current.map(|etag| format!("the key has version {}", etag.trim_matches('"')));
    match (failure.exit, said) {
        (Exit::Conflict, Some(said))
            if failure.hint.is_none() && !failure.message.contains(&said) =>
        {
            failure.with_hint(said)
        }
        _ => failure,
    }
}
