//! Times and limits of the core. Every limit is a named field with its reason.

use std::time::Duration;

/// Settings of a node's core; equal on all nodes of a cluster, since leases rest on the timing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Length of a Raft tick.
    pub tick: Duration,
    /// Ticks between heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// Ticks without a leader after which a follower may vote and the first in rank campaigns.
    pub election_ticks: usize,
    /// Ticks that each further rank waits longer, so that the owners' election ranges are disjoint.
    pub election_rank_ticks: usize,
    /// What a lease is shorter than the refusal to vote: covers drift between two clocks and the
    /// rounding of ticks.
    pub lease_margin: Duration,
    /// Commands that may wait in one group before the next is refused as overloaded.
    pub proposals_per_group_max: usize,
    /// Reads that may wait in one group before the next is refused as overloaded.
    pub reads_per_group_max: usize,
    /// Bytes of commands that share one entry.
    pub entry_bytes_max: usize,
    /// Bytes of entries in one append message.
    pub append_bytes_max: u64,
    /// Append messages under way to one follower.
    pub append_inflight_max: usize,
    /// Bytes of proposed entries of one group that are not committed yet.
    pub uncommitted_bytes_max: u64,
    /// Bytes of applied entries that a group keeps in memory for followers that lag a little.
    pub log_cache_bytes: usize,
    /// A log longer than this is truncated up to what every voter has. Small, so that most entries
    /// die in the memtables and never reach a table file.
    pub log_truncate_bytes: u64,
    /// A log longer than this is truncated without waiting for voters that are behind; they come
    /// back by snapshot.
    pub log_retain_bytes_max: u64,
    /// Twice [`Settings::log_retain_bytes_max`] is kept for a follower that takes a snapshot. A copy
    /// that is slower than the writes falls off all the same and begins again with twice as much,
    /// up to this; beyond it waits for [`Settings::copy_retry_blocked`].
    pub log_copy_bytes_max: u64,
    /// A follower of which nothing was heard for this long while it takes a snapshot has stalled.
    /// It gives a sign of life four times as often, also while it waits for its budget.
    pub snapshot_stall: Duration,
    /// A comparison of digests that is not complete after this long is given up and made again: an
    /// answer was lost, or the partition is large. Doubled with each time in a row.
    pub verify_patience: Duration,
    /// Pause after the first failure of a copy; doubled by each further one.
    pub copy_retry_min: Duration,
    /// The longest pause after a failure of a copy.
    pub copy_retry_max: Duration,
    /// Pause after a copy that fell off the log although the most was kept for it: time for an
    /// operator to act on throttle, disk or load.
    pub copy_retry_blocked: Duration,
    /// How long both sides keep the files of a copy that failed and was not taken up again: longer
    /// than a restart, no longer than a node that is gone counts as absent.
    pub copy_keep: Duration,
    /// A transfer of leadership that has not succeeded after this long is given up and tried again.
    pub transfer_patience: Duration,
    /// A sync that takes longer than this makes the node hand its leaderships on.
    pub disk_stall: Duration,
    /// Interval of a node's heartbeats to group 0.
    pub node_heartbeat: Duration,
    /// Missed heartbeats after which a node is suspect.
    pub suspect_misses: u32,
    /// Missed heartbeats after which a node is down.
    pub down_misses: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(100),
            heartbeat_ticks: 2,
            election_ticks: 8,
            election_rank_ticks: 2,
            lease_margin: Duration::from_millis(150),
            proposals_per_group_max: 1024,
            reads_per_group_max: 4096,
            entry_bytes_max: 1 << 20,
            append_bytes_max: 1 << 20,
            append_inflight_max: 64,
            uncommitted_bytes_max: 32 << 20,
            log_cache_bytes: 64 << 10,
            log_truncate_bytes: 64 << 10,
            log_retain_bytes_max: 16 << 20,
            log_copy_bytes_max: 512 << 20,
            snapshot_stall: Duration::from_secs(5),
            verify_patience: Duration::from_secs(5),
            copy_retry_min: Duration::from_secs(1),
            copy_retry_max: Duration::from_secs(30),
            copy_retry_blocked: Duration::from_secs(600),
            copy_keep: Duration::from_secs(600),
            transfer_patience: Duration::from_millis(40),
            disk_stall: Duration::from_millis(400),
            node_heartbeat: Duration::from_millis(500),
            suspect_misses: 3,
            down_misses: 10,
        }
    }
}

impl Settings {
    /// How long a follower that heard from its leader refuses to vote for another: the first of
    /// the `election_ticks` may come at once.
    #[must_use]
    pub fn vote_refusal(&self) -> Duration {
        let ticks = u32::try_from(self.election_ticks - 1).expect("a handful of ticks");
        self.tick * ticks
    }

    /// The first number of ticks that a replica of this rank and all lower ones never wait for.
    #[must_use]
    pub fn election_ticks_end(&self, rank: u8) -> usize {
        self.election_ticks + (usize::from(rank) + 1) * self.election_rank_ticks.max(1)
    }

    /// Length of a leader's lease, from the sending of the round that confirms it.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.vote_refusal().saturating_sub(self.lease_margin)
    }
}
