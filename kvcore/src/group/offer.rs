//! Snapshots on their way out: built when a follower needs one, kept while somebody may take them.
//!
//! A file serves every follower that its configuration names, and outlives its builder's
//! leadership and process; it is dropped when nobody has use for it any more.

use bytes::Bytes;
use raft::eraftpb::{Snapshot, SnapshotMetadata};

use super::copies::retry_pause;
use super::replica::{Machine, Replica};
use super::snapshot::ClusterSnapshot;
use super::turn::Turn;
use crate::cluster::ClusterState;
use crate::codec;
use crate::event::{BuiltSnapshot, Effect};
use crate::ids::{GroupId, LogIndex, LogPosition};
use crate::message::SnapshotManifest;
use crate::storage::Configuration;
use crate::time::Time;

/// An offered snapshot that nobody takes is dropped after this many stall times.
const OFFER_STALLS_MAX: u32 = 6;

/// Ticks for which a new leader builds no snapshot.
const LISTEN_TICKS: u32 = 3;

/// Snapshots of one group on offer: a follower that was added later needs one of its own, and each
/// takes the disk space of the partition.
const OFFERS_MAX: usize = 3;

/// The snapshots that a replica offers, the newest last.
#[derive(Debug, Default)]
pub(super) struct Offers {
    building: bool,
    /// Builds that failed since the last one that did not, and when the next one may begin.
    build_failures: u32,
    build_not_before: Time,
    /// Since when this replica leads, as of the last tick.
    pub leads_since: Option<Time>,
    files: Vec<Offer>,
    /// When group 0's snapshot was last made; it lives in memory.
    cluster_made: Time,
}

#[derive(Debug)]
struct Offer {
    manifest: SnapshotManifest,
    snapshot: Snapshot,
    used: Time,
}

impl Offers {
    /// Whether followers have had time to say that they take a snapshot already: they do when they
    /// find a new leader, and a build for nothing costs as much as one that is needed.
    fn has_listened<R>(&self, turn: &Turn<'_, R>) -> bool {
        self.leads_since
            .is_some_and(|since| turn.now.since(since) >= turn.settings.tick * LISTEN_TICKS)
    }
}

impl Offer {
    fn index(&self) -> LogIndex {
        LogIndex(self.snapshot.get_metadata().index)
    }
}

impl<R> Replica<R> {
    /// A file of this group from before the node stopped.
    pub fn offer_found(&mut self, built: BuiltSnapshot, now: Time) {
        // raft-rs takes a snapshot only while the log goes on from it.
        if built.position.index >= self.log().record.truncated.index {
            self.add_offer(built, now);
        }
    }

    /// Starts to build a snapshot if raft-rs wants one to offer.
    pub fn build_wanted(&mut self, turn: &mut Turn<'_, R>) {
        let offers = &self.snapshots.offers;
        if !self.log().take_wanted_snapshot()
            || offers.building
            || turn.now < offers.build_not_before
            || !offers.has_listened(turn)
        {
            return;
        }
        match &self.machine {
            Machine::Cluster(Some(state)) => {
                let data = codec::encode(&ClusterSnapshot {
                    state: ClusterState::clone(state),
                    configuration: self.configuration().clone(),
                });
                let position = self.log().progress.applied;
                let snapshot = to_raft(position, self.configuration(), data.into());
                self.snapshots.offers.cluster_made = turn.now;
                self.raw.mut_store().offer_snapshots(vec![snapshot]);
            }
            Machine::Cluster(None) => {}
            Machine::Partition { .. } => {
                self.snapshots.offers.building = true;
                turn.effects.push(Effect::BuildSnapshot { group: self.group });
            }
        }
    }

    /// A snapshot is built: raft-rs will ask again and find it.
    pub fn snapshot_built(&mut self, built: Option<BuiltSnapshot>, turn: &mut Turn<'_, R>) {
        self.snapshots.offers.building = false;
        let offers = &mut self.snapshots.offers;
        let Some(built) = built else {
            let pause = retry_pause(offers.build_failures, turn.settings);
            offers.build_failures = offers.build_failures.saturating_add(1);
            offers.build_not_before = turn.now + pause;
            return;
        };
        offers.build_failures = 0;
        self.add_offer(built, turn.now);
        self.tend_offers(turn);
    }

    fn add_offer(&mut self, built: BuiltSnapshot, now: Time) {
        let BuiltSnapshot { position, manifest } = built;
        let data = codec::encode(&manifest);
        let snapshot = to_raft(position, &manifest.configuration, data.into());
        self.snapshots.offers.files.push(Offer { manifest, snapshot, used: now });
        self.publish_offers();
    }

    fn publish_offers(&mut self) {
        let snapshots = self.snapshots.offers.files.iter().map(|offer| offer.snapshot.clone());
        let snapshots = snapshots.collect();
        self.raw.mut_store().offer_snapshots(snapshots);
    }

    /// Drops every file on offer.
    pub(super) fn drop_offers(&mut self, turn: &mut Turn<'_, R>) {
        self.drop_offers_unless(|_| false, turn);
    }

    /// Drops the file that a replica was taking from here: it is damaged or gone.
    pub(super) fn drop_offer_at(&mut self, index: LogIndex, turn: &mut Turn<'_, R>) {
        self.drop_offers_unless(|offer| offer.index() != index, turn);
    }

    fn drop_offers_unless(&mut self, keep: impl Fn(&Offer) -> bool, turn: &mut Turn<'_, R>) {
        let files = &mut self.snapshots.offers.files;
        let before = files.len();
        for offer in files.extract_if(.., |offer| !keep(offer)) {
            let manifest = offer.manifest;
            turn.effects.push(Effect::DropSnapshot { group: self.group, manifest });
        }
        if self.snapshots.offers.files.len() != before {
            self.publish_offers();
        }
    }

    /// Notes that the snapshot with this index is of use to somebody.
    pub(super) fn offer_used(&mut self, index: LogIndex, now: Time) {
        for offer in &mut self.snapshots.offers.files {
            if offer.index() == index {
                offer.used = now;
            }
        }
    }

    /// Bytes of the file on offer with this index.
    pub(super) fn offered_bytes(&self, index: LogIndex) -> Option<u64> {
        let files = &self.snapshots.offers.files;
        files.iter().find(|offer| offer.index() == index).map(|offer| offer.manifest.bytes)
    }

    /// Drops what nobody has use for any more, or what the log does not go on from.
    pub(super) fn tend_offers(&mut self, turn: &mut Turn<'_, R>) {
        let now = turn.now;
        let unused = turn.settings.snapshot_stall * OFFER_STALLS_MAX;
        for index in self.snapshots.copies.files_wanted(now, turn.settings.copy_keep) {
            self.offer_used(index, now);
        }
        let truncated = self.log().record.truncated.index;
        let files = &self.snapshots.offers.files;
        let beyond = files.len().saturating_sub(OFFERS_MAX);
        let oldest_kept = files.get(beyond).map_or(LogIndex(0), Offer::index);
        self.drop_offers_unless(
            |offer| {
                now.since(offer.used) < unused
                    && offer.index() >= truncated
                    && offer.index() >= oldest_kept
            },
            turn,
        );
        // It was built for the next answer of a follower, which is more than a tick away.
        let made = self.snapshots.offers.cluster_made;
        if self.group == GroupId::CLUSTER && now.since(made) >= turn.settings.snapshot_stall {
            self.raw.mut_store().offer_snapshots(Vec::new());
        }
    }

    /// The log must be kept from after here for replicas that take a snapshot, as long as it has no
    /// more than this many bytes.
    pub fn snapshot_floor(&self, bytes: u64) -> Option<LogIndex> {
        self.snapshots.copies.log_floor(bytes)
    }

    /// Tells the log what the book of copies says about offers.
    pub(super) fn publish_wishes(&mut self, now: Time) {
        let wishes = self.snapshots.copies.wishes(now);
        self.raw.mut_store().wish_snapshots(wishes);
    }
}

fn to_raft(position: LogPosition, configuration: &Configuration, data: Bytes) -> Snapshot {
    let mut metadata = SnapshotMetadata {
        index: position.index.get(),
        term: position.term.get(),
        ..SnapshotMetadata::default()
    };
    metadata.set_conf_state(configuration.to_conf_state());
    let mut snapshot = Snapshot { data, ..Snapshot::default() };
    snapshot.set_metadata(metadata);
    snapshot
}
