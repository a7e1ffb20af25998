//! Verification: what becomes of digests that the shell has computed.

use super::core::Core;
use crate::group::Turn;
use crate::ids::{GroupId, LogIndex};
use crate::store::PartitionDigest;

impl<R> Core<R> {
    /// The digest of a replica's state at an applied index is there, or could not be computed.
    pub(super) fn digest_computed(
        &mut self,
        _group: GroupId,
        _index: LogIndex,
        _digest: Option<PartitionDigest>,
        _turn: &mut Turn<'_, R>,
    ) {
    }
}
