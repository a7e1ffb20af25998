//! Executing requests on this node: what it leads is written and read, everything else refused.
//!
//! A linearizable read under the leader's lease needs no other thread: the lease is looked at when
//! the read arrives and again after the value was read. Where the lease does not hold, the core
//! confirms the read first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvcore::cluster::ClusterCommand;
use kvcore::group::{ReadGate, ReadTicket};
use kvcore::store::Command;
use kvcore::{Event, Generation, GroupId, Reply};
use metrics::{Counter, counter};
use placement::{NodeId, PartitionId};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::Consistency;
use super::limits::{check_command, check_key};
use crate::clock;
use crate::core_thread::{CoreHandle, ReplyTo, Reservation, peer_answer};
use crate::groups::{GroupTable, LocalReplica};
use crate::storage::{CacheAnswer, Database, DiskGuard, DiskState, StorageError};
use crate::transport::{Answerer, PeerAnswer, PeerRefusal};
use crate::view::ViewHandle;

/// A read whose data changed its place under it is begun again this often.
const READ_RETRIES_MAX: usize = 8;

/// Executes requests on this node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LocalStore {
    pub node: NodeId,
    pub view: ViewHandle,
    pub groups: GroupTable,
    pub core: CoreHandle,
    pub database: Database,
    pub disk: Arc<DiskGuard>,
    /// The longest value taken, in bytes.
    pub value_bytes_max: usize,
    /// A lease that ends within this time is renewed while it still holds.
    pub renew_within: Duration,
    pub counters: ReadCounters,
    /// The node is about to stop and executes nothing any more.
    pub closing: Arc<AtomicBool>,
}

/// How reads were served.
#[derive(Clone, Debug)]
pub(crate) struct ReadCounters {
    lease: Counter,
    round: Counter,
    stale: Counter,
    disk: Counter,
}

impl Default for ReadCounters {
    fn default() -> Self {
        let served = |path: &'static str| counter!("ringkv_reads_total", "path" => path);
        Self {
            lease: served("lease"),
            round: served("round"),
            stale: served("stale"),
            disk: counter!("ringkv_reads_from_disk_total"),
        }
    }
}

/// Result of a read that only looked at memory.
enum Quick {
    /// The answer.
    Value(Option<Bytes>),
    /// The lease holds, but only the disk knows the value.
    Disk(ReadTicket, Generation),
    /// The lease does not hold.
    NoLease,
}

impl LocalStore {
    /// Executes a client's command.
    pub async fn write(
        &self,
        partition: PartitionId,
        command: Command,
        deadline: Instant,
    ) -> PeerAnswer {
        let reservation = match self.admit(partition, &command) {
            Ok(reservation) => reservation,
            Err(refusal) => return PeerAnswer::Refused(refusal),
        };
        let (reply, answer) = ReplyTo::task(Some(reservation));
        self.core.write(partition, command, reply);
        self.outcome(answer, deadline).await
    }

    /// Executes another node's command; the core's thread answers it.
    pub fn write_for_peer(&self, partition: PartitionId, command: Command, answerer: Answerer) {
        match self.admit(partition, &command) {
            Ok(reservation) => {
                self.core.write(partition, command, ReplyTo::peer(answerer, reservation));
            }
            Err(refusal) => answerer.refuse(refusal),
        }
    }

    /// Executes a command for group 0.
    pub async fn cluster(&self, command: ClusterCommand, deadline: Instant) -> PeerAnswer {
        let (reply, answer) = ReplyTo::task(None);
        self.core.cluster(command, reply);
        self.outcome(answer, deadline).await
    }

    /// Reads a key's record.
    pub async fn read(
        &self,
        partition: PartitionId,
        key: &Bytes,
        consistency: Consistency,
        deadline: Instant,
    ) -> PeerAnswer {
        if let Some(answer) = self.read_quickly(partition, key, consistency) {
            return answer;
        }
        // A stale read comes here only on an owner.
        let read = match consistency {
            Consistency::Linearizable => self.read_confirmed(partition, key, deadline).await,
            Consistency::Stale => self.read_current(partition, key).await,
        };
        let staleness_ms = match consistency {
            Consistency::Linearizable => None,
            Consistency::Stale => self.staleness_ms(partition),
        };
        match read {
            Ok(record) => {
                if let Some(replica) = self.replica(partition) {
                    replica.note_read();
                }
                PeerAnswer::Value { record, staleness_ms }
            }
            Err(refusal) => PeerAnswer::Refused(refusal),
        }
    }

    /// Reads a key's record if that needs neither the core nor the disk; never waits.
    pub fn read_quickly(
        &self,
        partition: PartitionId,
        key: &[u8],
        consistency: Consistency,
    ) -> Option<PeerAnswer> {
        if check_key(key).is_err() {
            return Some(PeerAnswer::Refused(PeerRefusal::OutOfLimits));
        }
        if self.closing.load(Ordering::Acquire) {
            return Some(PeerAnswer::Refused(PeerRefusal::ShuttingDown));
        }
        let Some(replica) = self.replica(partition) else {
            let epoch = self.view.epoch();
            return Some(PeerAnswer::Refused(PeerRefusal::NoReplica { epoch }));
        };
        if consistency == Consistency::Stale && !self.owns(partition) {
            let epoch = self.view.epoch();
            return Some(PeerAnswer::Refused(PeerRefusal::NoReplica { epoch }));
        }
        let quick = match consistency {
            Consistency::Linearizable => self.read_under_lease(&replica.gate, partition, key),
            Consistency::Stale => self.read_in_memory(partition, key).transpose()?,
        };
        match quick {
            Ok(Quick::Value(record)) => {
                let staleness_ms = match consistency {
                    Consistency::Linearizable => {
                        self.counters.lease.increment(1);
                        None
                    }
                    Consistency::Stale => {
                        self.counters.stale.increment(1);
                        self.staleness_ms(partition)
                    }
                };
                replica.note_read();
                Some(PeerAnswer::Value { record, staleness_ms })
            }
            Ok(Quick::Disk(..) | Quick::NoLease) => None,
            Err(error) => Some(PeerAnswer::Refused(storage(&error))),
        }
    }

    /// Whether a command may enter the core, with the memory that it takes there.
    fn admit(&self, partition: PartitionId, command: &Command) -> Result<Reservation, PeerRefusal> {
        let key = check_command(command, self.value_bytes_max)
            .map_err(|_exceeded| PeerRefusal::OutOfLimits)?
            .ok_or(PeerRefusal::Malformed)?;
        let misplaced = self.view.with(|view| match view {
            Some(view) => Ok(view.ring.partition_of(key) != partition),
            None => Err(PeerRefusal::NotInitialised),
        })?;
        if misplaced {
            return Err(PeerRefusal::Malformed);
        }
        if self.closing.load(Ordering::Acquire) {
            return Err(PeerRefusal::ShuttingDown);
        }
        if self.disk.state() == DiskState::Full {
            return Err(PeerRefusal::DiskFull);
        }
        let reserved = self.core.budget().reserve(command.size()).ok_or(PeerRefusal::Overloaded)?;
        let groups = self.groups.load();
        if let Some(group) = groups.of_partition(partition).filter(|group| group.leads_here)
            && let Some(replica) = &group.replica
        {
            replica.note_write();
        }
        Ok(reserved)
    }

    /// Gives the leadership of a group away.
    pub async fn transfer(&self, group: GroupId, to: NodeId, deadline: Instant) -> PeerAnswer {
        let (reply, answer) = ReplyTo::task(None);
        self.core.request(Event::TransferLeadership { group, to, reply });
        self.outcome(answer, deadline).await
    }

    /// Waits for the core's answer.
    async fn outcome(&self, answer: oneshot::Receiver<Reply>, deadline: Instant) -> PeerAnswer {
        match timeout_at(deadline.into(), answer).await {
            Ok(Ok(reply)) => peer_answer(reply, self.view.epoch()),
            // The core has stopped, or is too late.
            Ok(Err(_)) | Err(_) => PeerAnswer::Refused(PeerRefusal::OutcomeUnknown),
        }
    }

    /// The replica of a partition on this node, if it has data.
    fn replica(&self, partition: PartitionId) -> Option<LocalReplica> {
        let groups = self.groups.load();
        let replica = groups.of_partition(partition)?.replica.as_ref()?;
        // A replica that waits for its first snapshot has applied nothing and knows nothing.
        (replica.gate.applied().get() > 0).then(|| replica.clone())
    }

    /// Whether the node is an owner of a partition. What follows beside the owners, before its copy
    /// is complete or during the grace, hears from the leader more often than it gets entries, and
    /// cannot tell how old its state is.
    fn owns(&self, partition: PartitionId) -> bool {
        self.view.with(|view| {
            view.is_some_and(|view| view.owners(partition).any(|owner| owner == self.node))
        })
    }

    fn read_under_lease(
        &self,
        gate: &ReadGate,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Quick, StorageError> {
        for _ in 0..READ_RETRIES_MAX {
            let Some(ticket) = gate.arrive(clock::now(), self.renew_within) else {
                return Ok(Quick::NoLease);
            };
            if ticket.renew {
                self.core.hint(Event::RenewLease { partition });
            }
            let generation = gate.generation();
            let record = match self.database.get_cached(partition, generation, key)? {
                CacheAnswer::Hit(record) => record,
                CacheAnswer::NotInMemory => return Ok(Quick::Disk(ticket, generation)),
            };
            if gate.generation() != generation {
                continue;
            }
            return Ok(match gate.still_held(&ticket, clock::now()) {
                true => Quick::Value(record),
                false => Quick::NoLease,
            });
        }
        Ok(Quick::NoLease)
    }

    /// Reads after a look at the disk under the lease, or after the core has confirmed the read.
    async fn read_confirmed(
        &self,
        partition: PartitionId,
        key: &Bytes,
        deadline: Instant,
    ) -> Result<Option<Bytes>, PeerRefusal> {
        if let Some(replica) = self.replica(partition)
            && let Ok(Quick::Disk(ticket, generation)) =
                self.read_under_lease(&replica.gate, partition, key)
        {
            let record = self.read_disk(partition, generation, key).await?;
            let gate = &replica.gate;
            if gate.generation() == generation && gate.still_held(&ticket, clock::now()) {
                return Ok(record);
            }
        }
        let (reply, answer) = ReplyTo::task(None);
        self.core.read(partition, reply);
        match timeout_at(deadline.into(), answer).await {
            Ok(Ok(Reply::Readable)) => {
                self.counters.round.increment(1);
                self.read_current(partition, key).await
            }
            Ok(Ok(reply)) => Err(match peer_answer(reply, self.view.epoch()) {
                PeerAnswer::Refused(refusal) => refusal,
                // The core answers a read with nothing else.
                _ => PeerRefusal::Malformed,
            }),
            Ok(Err(_stopped)) => Err(PeerRefusal::ShuttingDown),
            Err(_elapsed) => Err(PeerRefusal::Expired),
        }
    }

    /// Reads what this replica has applied, wherever it is.
    async fn read_current(
        &self,
        partition: PartitionId,
        key: &Bytes,
    ) -> Result<Option<Bytes>, PeerRefusal> {
        for _ in 0..READ_RETRIES_MAX {
            let no_replica = || PeerRefusal::NoReplica { epoch: self.view.epoch() };
            let replica = self.replica(partition).ok_or_else(no_replica)?;
            let generation = replica.gate.generation();
            let cached = self.database.get_cached(partition, generation, key);
            let record = match cached.map_err(|error| storage(&error))? {
                CacheAnswer::Hit(record) => record,
                CacheAnswer::NotInMemory => self.read_disk(partition, generation, key).await?,
            };
            if self.is_current(partition, &replica, generation) {
                return Ok(record);
            }
        }
        Err(PeerRefusal::Overloaded)
    }

    /// As [`LocalStore::read_current`], from memory alone; none if that is not possible.
    fn read_in_memory(
        &self,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<Option<Quick>, StorageError> {
        let Some(replica) = self.replica(partition) else { return Ok(None) };
        let generation = replica.gate.generation();
        let CacheAnswer::Hit(record) = self.database.get_cached(partition, generation, key)? else {
            return Ok(None);
        };
        let current = self.is_current(partition, &replica, generation);
        Ok(current.then_some(Quick::Value(record)))
    }

    /// Whether data that was just read was still this replica's: data of a replica that ended, or
    /// of a generation that was replaced, may have been swept while it was read.
    fn is_current(
        &self,
        partition: PartitionId,
        replica: &LocalReplica,
        generation: Generation,
    ) -> bool {
        let same = |now: LocalReplica| Arc::ptr_eq(&now.gate, &replica.gate);
        self.replica(partition).is_some_and(same) && replica.gate.generation() == generation
    }

    async fn read_disk(
        &self,
        partition: PartitionId,
        generation: Generation,
        key: &Bytes,
    ) -> Result<Option<Bytes>, PeerRefusal> {
        self.counters.disk.increment(1);
        let (database, key) = (self.database.clone(), key.clone());
        let read = move || database.get(partition, generation, &key);
        match tokio::task::spawn_blocking(read).await {
            Ok(read) => read.map_err(|error| storage(&error)),
            Err(interrupted) => Err(PeerRefusal::Storage { reason: interrupted.to_string() }),
        }
    }

    /// Milliseconds since the replica last heard from a leader of its group; 0 on the leader.
    fn staleness_ms(&self, partition: PartitionId) -> Option<u64> {
        let groups = self.groups.load();
        let group = groups.of_partition(partition)?;
        let replica = group.replica.as_ref()?;
        if group.leads_here {
            return Some(0);
        }
        let silent = clock::now().since(replica.heard_at());
        Some(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX))
    }
}

fn storage(error: &StorageError) -> PeerRefusal {
    tracing::error!(%error, "a read failed");
    PeerRefusal::Storage { reason: error.to_string() }
}
