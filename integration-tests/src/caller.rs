//! A client that asks the node it is told to, once, and reports exactly what it learnt.

use std::time::Duration;

use anyhow::{Context, bail};
use kvapi::paths::kv_path;

use crate::history::{Call, Outcome};
use crate::wire::{Exchange, Reply, Request, Wire};

/// A client with at most one connection to each node.
#[derive(Debug)]
pub struct Caller {
    wires: Vec<Wire>,
}

/// An outcome with what was said beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The outcome.
    pub outcome: Outcome,
    /// Why, where the request did not succeed.
    pub reason: String,
}

impl Caller {
    /// A client of the nodes at these addresses.
    pub fn new(addresses: &[String]) -> Self {
        Self { wires: addresses.iter().map(Wire::new).collect() }
    }

    /// Opens the connection to a node, so that the next request finds it.
    pub async fn connect(&mut self, node: usize, timeout: Duration) -> anyhow::Result<()> {
        self.wires[node].connect(timeout).await
    }

    /// Sends a call to a node.
    ///
    /// # Errors
    /// For an answer outside the contract: that is a defect, not an outcome.
    pub async fn call(
        &mut self,
        node: usize,
        key: &[u8],
        call: Call,
        timeout: Duration,
    ) -> anyhow::Result<Told> {
        let request = request_of(key, call);
        match self.wires[node].exchange(&request, timeout).await {
            Exchange::Answered(reply) => {
                let outcome = outcome_of(call, &reply).with_context(|| {
                    format!("{} {} was answered with {reply}", request.method, request.path)
                })?;
                let is_refusal = matches!(outcome, Outcome::NotApplied | Outcome::Unknown);
                let reason = if is_refusal { reply.to_string() } else { String::new() };
                Ok(Told { outcome, reason })
            }
            Exchange::NotSent(reason) => Ok(Told { outcome: Outcome::NotApplied, reason }),
            Exchange::Lost(reason) => Ok(Told { outcome: Outcome::Unknown, reason }),
        }
    }

    /// Writes a value until it is acknowledged, asking the nodes in turn; for preparing a story.
    pub async fn put_surely(&mut self, key: &[u8], value: u64) -> anyhow::Result<u64> {
        let mut last = String::new();
        for attempt in 0..60 {
            let node = attempt % self.wires.len();
            let told = self.call(node, key, Call::Put(value), Duration::from_secs(2)).await?;
            match told.outcome {
                Outcome::Written(version) => return Ok(version),
                _ => last = told.reason,
            }
        }
        bail!("a write is not acknowledged by any node; the last said: {last}")
    }
}

/// The request that makes a call.
pub fn request_of(key: &[u8], call: Call) -> Request {
    let path = kv_path(key);
    match call {
        Call::Get => Request::get(path),
        Call::Put(value) => Request::put(path, value.to_string()),
        Call::Create(value) => Request::put(path, value.to_string()).header("if-none-match", "*"),
        Call::Swap { version, value } => {
            Request::put(path, value.to_string()).header("if-match", format!("\"{version}\""))
        }
        Call::Delete => Request::new("DELETE", path),
        Call::DeleteIf(version) => {
            Request::new("DELETE", path).header("if-match", format!("\"{version}\""))
        }
    }
}

/// What an answer says about a call, or why it says nothing that the contract allows.
pub fn outcome_of(call: Call, reply: &Reply) -> anyhow::Result<Outcome> {
    let is_read = !call.is_write();
    Ok(match reply.status {
        200 if is_read => {
            let value = std::str::from_utf8(&reply.body)?.parse()?;
            Outcome::Found { value, version: reply.version().context("a value without version")? }
        }
        404 if is_read => Outcome::Absent,
        204 if call.value().is_some() => {
            Outcome::Written(reply.version().context("an acknowledgement without version")?)
        }
        204 if !is_read => Outcome::Deleted,
        412 if matches!(call, Call::Create(_) | Call::Swap { .. } | Call::DeleteIf(_)) => {
            Outcome::Refused(reply.version())
        }
        429 | 503 | 507 => match reply.problem().context("an error that is no problem")?.outcome {
            kvapi::Outcome::NotApplied => Outcome::NotApplied,
            kvapi::Outcome::Applied | kvapi::Outcome::Unknown => bail!("the wrong outcome"),
        },
        504 => match reply.problem().context("an error that is no problem")?.outcome {
            kvapi::Outcome::Unknown => Outcome::Unknown,
            kvapi::Outcome::NotApplied if is_read => Outcome::Unknown,
            kvapi::Outcome::Applied | kvapi::Outcome::NotApplied => bail!("the wrong outcome"),
        },
        other => bail!("status {other} is not for this call"),
    })
}
