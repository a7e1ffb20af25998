//! Building a snapshot.

use std::fs;
use std::io;
use std::ops::ControlFlow;

use kvcore::event::BuiltSnapshot;
use kvcore::message::SnapshotManifest;
use kvcore::storage::{Progress, ReplicaRecord};
use kvcore::{GroupId, SnapshotId};
use placement::{NodeId, PartitionId};
use thiserror::Error;

use super::super::error::StorageError;
use super::super::identity::sync_directory;
use super::super::keys::{self, DATA_PREFIX_BYTES, Family};
use super::super::read_point::ReadPoint;
use super::chunk::{ChunkWriter, Total};
use super::file::{Description, Output, Snapshots, UNFINISHED};

/// Why there is no snapshot. Nothing is left on disk.
#[derive(Debug, Error)]
pub enum BuildError {
    /// Group 0's state travels in its Raft snapshot; only partitions have files.
    #[error("group 0 has no snapshot files")]
    NotAPartition,
    /// No replica of the group is on this node.
    #[error("this node holds no replica of group {0}")]
    NoReplica(GroupId),
    /// The caller stopped it.
    #[error("the snapshot was abandoned")]
    Stopped,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file could not be written.
    #[error("writing a snapshot file")]
    Io(#[from] io::Error),
}

impl Snapshots {
    /// Writes a partition's current state to a snapshot file. `pace` is told the bytes of each
    /// chunk; it may wait, and may stop the build.
    ///
    /// Blocks for as long as reading the partition takes; writes to it go on and are not seen.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(
        &self,
        group: GroupId,
        source: NodeId,
        pace: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<BuiltSnapshot, BuildError> {
        let partition = group.partition().ok_or(BuildError::NotAPartition)?;
        let point = self.database.read_point();
        let (record, progress) = point.replica(group)?.ok_or(BuildError::NoReplica(group))?;
        let id = self.next_id()?;
        let path = self.directory().path_of(id);
        let unfinished = path.with_extension(UNFINISHED);
        let mut building = Building {
            point: &point,
            partition,
            chunk_bytes: self.database.settings().snapshot_chunk_bytes,
            id,
            output: Output::create(&unfinished)?,
        };
        let built = building.run(group, source, &record, &progress, pace);
        let result = built.and_then(|built| {
            fs::rename(&unfinished, &path)?;
            sync_directory(self.directory().path())?;
            Ok(built)
        });
        if result.is_err() {
            // What cannot be removed now is removed when the node starts.
            let _ = fs::remove_file(&unfinished);
        }
        result
    }
}

struct Building<'a> {
    point: &'a ReadPoint,
    partition: PartitionId,
    chunk_bytes: usize,
    id: SnapshotId,
    output: Output,
}

impl Building<'_> {
    fn run(
        &mut self,
        group: GroupId,
        source: NodeId,
        record: &ReplicaRecord,
        progress: &Progress,
        pace: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<BuiltSnapshot, BuildError> {
        let total = self.write_chunks(record, pace)?;
        let manifest = SnapshotManifest {
            id: self.id,
            source,
            configuration: record.configuration.clone(),
            state: progress.state,
            chunks: total.chunks,
            bytes: total.bytes,
            checksum: total.checksum(),
        };
        let position = progress.applied;
        self.output.finish(&Description { group, position, manifest: manifest.clone() })?;
        Ok(BuiltSnapshot { position, manifest })
    }

    fn write_chunks(
        &mut self,
        record: &ReplicaRecord,
        pace: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Total, BuildError> {
        let mut total = Total::default();
        let mut chunk = ChunkWriter::new(self.id);
        let range = keys::data_range(self.partition, record.generation);
        let mut iterator = self.point.scan(Family::Data, range);
        loop {
            let item = iterator.item();
            if let Some((key, record)) = item {
                chunk.add(&key[DATA_PREFIX_BYTES..], record);
            }
            let ended = item.is_none();
            if chunk.len() >= self.chunk_bytes || ended && chunk.len() > 0 {
                let finished = chunk.finish();
                self.output.add(finished.bytes, finished.checksum)?;
                total.add(&finished.checksum, finished.bytes.len());
                if pace(finished.bytes.len()).is_break() {
                    return Err(BuildError::Stopped);
                }
                chunk.next();
            }
            if ended {
                iterator.status().map_err(StorageError::engine("reading a partition"))?;
                return Ok(total);
            }
            iterator.next();
        }
    }
}
