//! Verification: what becomes of digests that the shell has computed.

use super::core::Core;
use crate::group::Turn;
use crate::ids::{GroupId, LogIndex};
use crate::store::PartitionDigest;

impl<R> Core<R> {
    /// The digest of a replica's state at an applied index is there, or could not be computed.
    pub(super) fn digest_computed(
        &mut self,
        group: GroupId,
        index: LogIndex,
        digest: Option<PartitionDigest>,
        turn: &mut Turn<'_, R>,
    ) {
        if let Some(replica) = self.touch(group) {
            replica.own_digest(index, digest, turn);
        }
    }
}
