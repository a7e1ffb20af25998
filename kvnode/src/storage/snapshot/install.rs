//! Installing a snapshot into a generation of its own.

use std::fs;
use std::io;
use std::path::PathBuf;

use kvcore::message::SnapshotManifest;
use kvcore::{Generation, GroupId};
use placement::PartitionId;
use rocksdb::{IngestExternalFileOptions, SstFileWriter};
use thiserror::Error;

use super::super::database::Database;
use super::super::error::StorageError;
use super::super::keys::{self, Family};
use super::super::options;
use super::chunk::{CHECKSUM_BYTES, ChunkDamage, KeyAndRecord, Total, VerifiedChunk};

/// Directory, in the data directory, of the table files being written.
pub(in super::super) const INCOMING: &str = "incoming";

/// Why a snapshot, or a chunk of it, was not taken.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The generation is current or has data: an installation needs a fresh one.
    #[error("generation {generation} of partition {partition} is in use")]
    GenerationInUse {
        /// The partition.
        partition: PartitionId,
        /// The generation.
        generation: Generation,
    },
    /// Not the next chunk: nothing has changed, go on with the one expected.
    #[error("chunk {found} came where chunk {expected} was due")]
    OutOfOrder {
        /// The chunk that is due.
        expected: u32,
        /// The chunk that came.
        found: u32,
    },
    /// The chunk is damaged: nothing has changed, ask for it again.
    #[error("chunk {number} was refused")]
    Chunk {
        /// The chunk.
        number: u32,
        /// What is wrong with it.
        #[source]
        source: ChunkDamage,
    },
    /// Chunks are missing: go on with the one that is due.
    #[error("{found} of {expected} chunks are there")]
    Incomplete {
        /// How many chunks the manifest names.
        expected: u32,
        /// How many were taken.
        found: u32,
    },
    /// The chunks are whole, but not those of the manifest: start over.
    #[error("the chunks together are not what the manifest says")]
    Mismatch,
    /// An earlier error left the files incomplete: start over.
    #[error("the installation failed before and cannot go on")]
    Failed,
    /// The store failed: start over.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file could not be written: start over.
    #[error("writing the files of a snapshot")]
    Io(#[from] io::Error),
}

/// Takes the chunks of one snapshot, in order. Dropping it unfinished deletes its files; a crash
/// leaves them to be deleted when the node starts.
pub struct SnapshotInstaller {
    database: Database,
    manifest: SnapshotManifest,
    partition: PartitionId,
    generation: Generation,
    directory: PathBuf,
    files: Vec<PathBuf>,
    writer: Option<SstFileWriter<'static>>,
    last_key: Option<Vec<u8>>,
    key: Vec<u8>,
    total: Total,
    failed: bool,
}

impl SnapshotInstaller {
    /// Begins an installation. May wait for the disk, like everything here.
    ///
    /// # Errors
    /// [`InstallError::GenerationInUse`] and those of the store.
    pub fn begin(
        database: &Database,
        manifest: SnapshotManifest,
        partition: PartitionId,
        generation: Generation,
    ) -> Result<Self, InstallError> {
        refuse_used_generation(database, partition, generation)?;
        let directory = database.path().join(INCOMING).join(format!("{partition}-{generation}"));
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => fs::create_dir_all(&directory)?,
        }
        Ok(Self {
            database: database.clone(),
            manifest,
            partition,
            generation,
            directory,
            files: Vec::new(),
            writer: None,
            last_key: None,
            key: Vec::new(),
            total: Total::default(),
            failed: false,
        })
    }

    /// The chunk that is due: where a copy that was interrupted goes on.
    #[must_use]
    pub fn resume_point(&self) -> u32 {
        self.total.chunks
    }

    /// Verifies the next chunk and takes its records.
    ///
    /// # Errors
    /// [`InstallError`]; a chunk that is refused changes nothing.
    pub fn add_chunk(&mut self, number: u32, bytes: &[u8]) -> Result<(), InstallError> {
        if self.failed {
            return Err(InstallError::Failed);
        }
        let expected = self.total.chunks;
        if number != expected {
            return Err(InstallError::OutOfOrder { expected, found: number });
        }
        let refused = |source| InstallError::Chunk { number, source };
        let chunk = VerifiedChunk::parse(bytes).map_err(refused)?;
        if chunk.id != self.manifest.id {
            return Err(refused(ChunkDamage::OtherSnapshot { found: chunk.id }));
        }
        if chunk.number != expected {
            return Err(InstallError::OutOfOrder { expected, found: chunk.number });
        }
        if expected >= self.manifest.chunks {
            return Err(InstallError::Mismatch);
        }
        let records = chunk.records(self.last_key.as_deref()).map_err(refused)?;
        // From here on an error leaves half a chunk in a file, which cannot be taken back.
        self.failed = true;
        self.write(&records, &chunk.checksum, bytes.len())?;
        self.failed = false;
        Ok(())
    }

    fn write(
        &mut self,
        records: &[KeyAndRecord<'_>],
        checksum: &[u8; CHECKSUM_BYTES],
        chunk_bytes: usize,
    ) -> Result<(), InstallError> {
        for (key, record) in records {
            keys::data_into(&mut self.key, self.partition, self.generation, key);
            let writer = match &mut self.writer {
                Some(writer) => writer,
                None => {
                    let path = self.directory.join(format!("{:06}.sst", self.files.len()));
                    let writer = SstFileWriter::create(&options::INSTALL_FILE);
                    writer.open(&path).map_err(StorageError::engine("creating a table file"))?;
                    self.files.push(path);
                    self.writer.insert(writer)
                }
            };
            writer.put(&self.key, record).map_err(StorageError::engine("writing a table file"))?;
            if writer.file_size() >= self.database.settings().install_file_bytes {
                self.finish_file()?;
            }
        }
        if let Some((key, _)) = records.last() {
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        self.total.add(checksum, chunk_bytes);
        Ok(())
    }

    fn finish_file(&mut self) -> Result<(), InstallError> {
        if let Some(mut writer) = self.writer.take() {
            writer.finish().map_err(StorageError::engine("finishing a table file"))?;
        }
        Ok(())
    }

    /// Checks that the snapshot is whole and makes its records part of the store, durably. They are
    /// in the generation given at the beginning, which is not current until the core says so.
    ///
    /// # Errors
    /// [`InstallError`]; the generation is then empty, and may be tried again from the beginning.
    pub fn finish(mut self) -> Result<(), InstallError> {
        if self.failed {
            return Err(InstallError::Failed);
        }
        let (found, expected) = (self.total.chunks, self.manifest.chunks);
        if found != expected {
            return Err(InstallError::Incomplete { expected, found });
        }
        if self.total.bytes != self.manifest.bytes
            || self.total.checksum() != self.manifest.checksum
        {
            return Err(InstallError::Mismatch);
        }
        self.finish_file()?;
        if self.files.is_empty() {
            return Ok(());
        }
        // Also guards against a second installer of the same generation.
        refuse_used_generation(&self.database, self.partition, self.generation)?;
        let mut options = IngestExternalFileOptions::default();
        // The files were synced when they were finished; they are linked, not copied, and the
        // manifest that names them is synced before this returns.
        options.set_move_files(true);
        options.set_snapshot_consistency(true);
        options.set_allow_global_seqno(true);
        options.set_allow_blocking_flush(true);
        let data = self.database.family(Family::Data);
        self.database
            .inner
            .db
            .ingest_external_file_cf_opts(data, &options, self.files.clone())
            .map_err(StorageError::engine("ingesting table files"))?;
        Ok(())
    }
}

impl Drop for SnapshotInstaller {
    fn drop(&mut self) {
        self.writer = None;
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "incoming files are left");
        }
    }
}

fn refuse_used_generation(
    database: &Database,
    partition: PartitionId,
    generation: Generation,
) -> Result<(), InstallError> {
    let in_use = InstallError::GenerationInUse { partition, generation };
    let point = database.read_point();
    let replica = point.replica(GroupId::of_partition(partition))?;
    if replica.is_some_and(|(record, _)| record.generation == generation) {
        return Err(in_use);
    }
    let iterator = point.scan(Family::Data, keys::data_range(partition, generation));
    if iterator.valid() {
        return Err(in_use);
    }
    iterator.status().map_err(StorageError::engine("looking at a generation"))?;
    Ok(())
}
