//! Installing a snapshot into a generation of its own.

use std::io;
use std::path::{Path, PathBuf};

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
use super::residue::{self, FileNote, Header, Residue};

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

/// Takes the chunks of one snapshot, in order. What it has taken stays on disk when it is dropped,
/// and an installer of the same manifest and generation goes on from there, in this process or a
/// later one. [`Database::sweep_generation`] discards it.
pub struct SnapshotInstaller {
    database: Database,
    manifest: SnapshotManifest,
    partition: PartitionId,
    generation: Generation,
    residue: Residue,
    writer: Option<SstFileWriter<'static>>,
    /// Of the chunks in the file that is being written.
    checksums: Vec<[u8; CHECKSUM_BYTES]>,
    chunk_bytes: u64,
    last_key: Option<Vec<u8>>,
    key: Vec<u8>,
    total: Total,
    failed: bool,
}

impl SnapshotInstaller {
    /// Begins an installation, or goes on with it. May wait for the disk, like everything here. What
    /// other installations of the partition left behind is deleted.
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
        let directory = residue::directory_of(database.path(), partition, generation);
        for (path, header) in residue::list(database.path())? {
            let of_this = header.is_none_or(|header| header.partition == partition);
            if path != directory && of_this {
                residue::discard(&path)?;
            }
        }
        let header = Header { partition, generation, manifest };
        let residue = match Residue::open(&directory, &header)? {
            Some(residue) => residue,
            None => Residue::create(&directory, &header)?,
        };
        let mut installer = Self {
            database: database.clone(),
            manifest: header.manifest,
            partition,
            generation,
            residue,
            writer: None,
            checksums: Vec::new(),
            chunk_bytes: 0,
            last_key: None,
            key: Vec::new(),
            total: Total::default(),
            failed: false,
        };
        installer.resume()?;
        Ok(installer)
    }

    /// Counts the files that are complete, and writes the chunks of the tail again.
    fn resume(&mut self) -> Result<(), InstallError> {
        for file in &self.residue.files {
            for checksum in &file.checksums {
                self.total.add(checksum, 0);
            }
            self.total.bytes += file.chunk_bytes;
            self.last_key = Some(file.last_key.clone());
        }
        let mut bad = None;
        while let Some(bytes) = self.residue.next_of_tail()? {
            match self.check(&bytes) {
                Ok((chunk, records)) => self.write(&records, &chunk.checksum, bytes.len())?,
                // The process ended when the file that it is in was complete and the tail not cut.
                Err(InstallError::OutOfOrder { expected, found }) if found < expected => {}
                Err(_) => {
                    bad = Some(bytes);
                    break;
                }
            }
        }
        self.residue.end_tail(bad.as_deref())?;
        Ok(())
    }

    /// The chunk that is due: where a copy that was interrupted goes on.
    #[must_use]
    pub fn resume_point(&self) -> u32 {
        self.total.chunks
    }

    /// Bytes of the chunks that are here.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.total.bytes
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
        let (chunk, records) = self.check(bytes)?;
        // From here on an error leaves half a chunk in a file, which cannot be taken back: another
        // installer goes on from what is whole.
        self.failed = true;
        self.residue.keep(bytes)?;
        self.write(&records, &chunk.checksum, bytes.len())?;
        self.failed = false;
        Ok(())
    }

    /// Whether a chunk is the one that is due, and its records.
    fn check<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<(VerifiedChunk<'a>, Vec<KeyAndRecord<'a>>), InstallError> {
        let number = self.total.chunks;
        let refused = |source| InstallError::Chunk { number, source };
        let chunk = VerifiedChunk::parse(bytes).map_err(refused)?;
        if chunk.id != self.manifest.id {
            return Err(refused(ChunkDamage::OtherSnapshot { found: chunk.id }));
        }
        if chunk.number != number {
            return Err(InstallError::OutOfOrder { expected: number, found: chunk.number });
        }
        if number >= self.manifest.chunks {
            return Err(InstallError::Mismatch);
        }
        let records = chunk.records(self.last_key.as_deref()).map_err(refused)?;
        Ok((chunk, records))
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
                    let path = self.residue.file(self.residue.files.len());
                    let writer = SstFileWriter::create(&options::INSTALL_FILE);
                    writer.open(&path).map_err(StorageError::engine("creating a table file"))?;
                    self.writer.insert(writer)
                }
            };
            writer.put(&self.key, record).map_err(StorageError::engine("writing a table file"))?;
        }
        if let Some((key, _)) = records.last() {
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        self.total.add(checksum, chunk_bytes);
        self.checksums.push(*checksum);
        self.chunk_bytes += chunk_bytes as u64;
        let bytes_max = self.database.settings().install_file_bytes;
        if self.writer.as_mut().is_some_and(|writer| writer.file_size() >= bytes_max) {
            self.finish_file()?;
        }
        Ok(())
    }

    /// Makes the file that is being written durable, and notes it.
    fn finish_file(&mut self) -> Result<(), InstallError> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        writer.finish().map_err(StorageError::engine("finishing a table file"))?;
        let path = self.residue.file(self.residue.files.len());
        self.residue.file_complete(FileNote {
            bytes: std::fs::metadata(path)?.len(),
            checksums: std::mem::take(&mut self.checksums),
            chunk_bytes: std::mem::take(&mut self.chunk_bytes),
            last_key: self.last_key.clone().unwrap_or_default(),
        })?;
        Ok(())
    }

    /// Checks that the snapshot is whole and makes its records part of the store, durably. They are
    /// in the generation given at the beginning, which is not current until the core says so.
    ///
    /// # Errors
    /// [`InstallError`]; the generation is then empty, and may be tried again.
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
            // Nothing of it can be used.
            residue::discard(self.residue.path())?;
            return Err(InstallError::Mismatch);
        }
        self.finish_file()?;
        let files = (0..self.residue.files.len()).map(|number| self.residue.file(number));
        let files: Vec<PathBuf> = files.collect();
        let directory = self.residue.path().to_owned();
        self.ingest(&directory, files)?;
        if let Err(error) = residue::discard(&directory) {
            tracing::warn!(directory = %directory.display(), %error, "incoming files are left");
        }
        Ok(())
    }

    fn ingest(&self, directory: &Path, files: Vec<PathBuf>) -> Result<(), InstallError> {
        // A sweep of the generation comes before this, and then its directory is gone, or after.
        let _held = self.database.incoming_lock();
        if !residue::is_there(directory) {
            return Err(InstallError::Failed);
        }
        if files.is_empty() {
            return Ok(());
        }
        // Also guards against a second installer of the same generation.
        refuse_used_generation(&self.database, self.partition, self.generation)?;
        let mut options = IngestExternalFileOptions::default();
        // The files were synced when they were finished; they are linked, not copied, and the
        // manifest that names them is synced before this returns.
        options.set_move_files(true);
        // Nobody reads the generation at an earlier point: it is used for the first time. Asking for
        // consistency with such readers would give the records a sequence number while any digest
        // is being computed, and RocksDB rewrites each file of the lowest level that has one.
        options.set_snapshot_consistency(false);
        options.set_allow_global_seqno(true);
        options.set_allow_blocking_flush(true);
        let data = self.database.family(Family::Data);
        self.database
            .inner
            .db
            .ingest_external_file_cf_opts(data, &options, files)
            .map_err(StorageError::engine("ingesting table files"))?;
        Ok(())
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
