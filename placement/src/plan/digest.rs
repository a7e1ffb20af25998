//! The name of a plan.

use super::Change;
use crate::snapshot::{Checksum, RingSnapshot};

/// XXH3-128 over the checksum of the base, the checksum of the preview, which covers the members and
/// tokens of the next ring, and the changes in order. Integers are big-endian.
pub(super) fn digest(base: &RingSnapshot, changes: &[Change], target: &RingSnapshot) -> Checksum {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&base.checksum().as_u128().to_be_bytes());
    bytes.extend_from_slice(&target.checksum().as_u128().to_be_bytes());
    for change in changes {
        put_change(&mut bytes, change);
    }
    Checksum::of(&bytes)
}

/// What a change says beyond the members and tokens that it leads to: its kind and its nodes. The
/// kind fixes how many bytes follow.
fn put_change(bytes: &mut Vec<u8>, change: &Change) {
    let kind: u8 = match change {
        Change::Join(_) => 0,
        Change::Drain(_) => 1,
        Change::Remove(_) => 2,
        Change::Replace { .. } => 3,
        Change::Reweight { .. } => 4,
    };
    bytes.push(kind);
    for node in change.nodes() {
        bytes.extend_from_slice(&node.as_u128().to_be_bytes());
    }
}
