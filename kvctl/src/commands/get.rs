//! `kvctl get`: a key's raw bytes on stdout.

use std::ffi::OsString;

use kvapi::{Consistency, GetAnswer, GetOptions, ReadCondition, Value, paths};
use serde::Serialize;

use crate::cli::Globals;
use crate::exit::{Exit, Failure};
use crate::input::{key_of, parse_version};
use crate::output::{self, Format};

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The key.
    key: OsString,
    /// KEY is base64url without padding.
    #[arg(long)]
    key_base64: bool,
    /// Which state may be returned.
    #[arg(long, default_value = "linearizable", value_parser = parse_consistency)]
    consistency: Consistency,
    /// Print nothing if the key still has this version.
    #[arg(long, value_name = "VERSION", value_parser = parse_known)]
    if_none_match: Option<ReadCondition>,
}

/// A value as JSON; the bytes as text where they are UTF-8, and always as base64url.
#[derive(Debug, Serialize)]
struct Document<'a> {
    key_b64: String,
    version: u64,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    value_b64: String,
    partition: Option<u32>,
    served_by: Option<&'a str>,
    consistency: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    staleness_ms: Option<u128>,
}

/// Runs the command.
pub async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    let key = key_of(args.key, args.key_base64)?;
    let condition = args.if_none_match.unwrap_or_default();
    let options = GetOptions { consistency: args.consistency, condition };
    let answer = globals.client().get(&key, options).await?;
    match answer {
        GetAnswer::Found(value) => match globals.output {
            Format::Table => output::raw(&value.bytes),
            Format::Json => output::json(&document(&key, &value)),
        },
        GetAnswer::Absent(_) => Err(Failure::new(Exit::NotFound, "the key is absent")),
        GetAnswer::NotModified(_) => {
            output::note("not modified");
            Ok(())
        }
    }
}

fn document<'a>(key: &[u8], value: &'a Value) -> Document<'a> {
    Document {
        key_b64: paths::encode_key64(key),
        version: value.version,
        content_type: &value.content_type,
        value: std::str::from_utf8(&value.bytes).ok(),
        value_b64: paths::encode_key64(&value.bytes),
        partition: value.meta.partition.map(placement::PartitionId::get),
        served_by: value.meta.served_by.as_deref(),
        consistency: value.meta.consistency.as_str(),
        staleness_ms: value.meta.staleness.map(|age| age.as_millis()),
    }
}

/// Parses a consistency level by name.
pub fn parse_consistency(text: &str) -> Result<Consistency, String> {
    Consistency::parse(text).ok_or_else(|| "linearizable or stale".to_owned())
}

fn parse_known(text: &str) -> Result<ReadCondition, String> {
    match (text, parse_version(text)) {
        ("*", _) => Ok(ReadCondition::NotExists),
        (_, Some(version)) => Ok(ReadCondition::NotVersion(version)),
        (_, None) => Err("give a version or *".to_owned()),
    }
}
