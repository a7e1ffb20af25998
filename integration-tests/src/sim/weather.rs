//! What a run is like: how the network, the disks and the operator behave. A seed picks one.

use std::ops::Range;
use std::time::Duration;

use kvcore::{Faults, Settings};

use super::dice::Dice;

/// Nanoseconds in a microsecond.
pub const MICROS: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLIS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECONDS: u64 = 1_000_000_000;

/// How often the nemesis chooses each of its deeds, relative to the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deeds {
    /// Kill a process; what it had written survives.
    pub kill: u64,
    /// Fail a node's power: a random suffix of what it had not synced is lost.
    pub power: u64,
    /// Fail the power of all nodes at once.
    pub power_all: u64,
    /// Stop a node for a while, as SIGSTOP does, and let it go on.
    pub pause: u64,
    /// Pause the followers of a group together, then cut their leader off as they go on.
    pub pause_followers: u64,
    /// Pause one follower; it wakes to a round just when the other, which hears no more, may vote.
    pub wake_sleeper: u64,
    /// Cut a node off from all others; clients still reach it.
    pub isolate: u64,
    /// Cut one link, in one direction.
    pub cut_one_way: u64,
    /// Let the syncs of a node hang for a while.
    pub stall: u64,
    /// Ask a leader to hand leadership to another node.
    pub transfer: u64,
    /// Transfer with an order to campaign that arrives when the transfer was given up, while the
    /// old leader hears of nothing.
    pub late_order: u64,
    /// Restart a follower at once, out of its leader's sight, while another wants to be elected.
    pub forgetful_follower: u64,
    /// Ask a node to hand all leaderships on, then kill it.
    pub hand_over: u64,
    /// Keep a node down for so long that its place in the logs is gone.
    pub long_absence: u64,
    /// Kill the source or the receiver of a snapshot that is under way.
    pub break_copy: u64,
    /// Kill a leader whose configuration is joint.
    pub kill_joint_leader: u64,
    /// Pause a leader that has just sent a round; it wakes to the answers one by one.
    pub pause_leader: u64,
    /// Kill a leader whose followers have synced what it has not.
    pub kill_leader_unsynced: u64,
    /// Lose a node for good, with its disk, if everything can bear it.
    pub lose: u64,
    /// Fail the power of those whom a move needs as it comes to a step.
    pub strike_move: u64,
}

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Its name.
    pub name: &'static str,
    /// Delay of a message.
    pub delay: Range<u64>,
    /// Messages per thousand that take longer than that.
    pub slow_per_mille: u64,
    /// How long those take.
    pub slow: Range<u64>,
    /// Messages per thousand that are lost.
    pub loss_per_mille: u64,
    /// Messages per thousand that arrive twice.
    pub duplicate_per_mille: u64,
    /// Messages per thousand of which a copy arrives seconds later.
    pub late_per_mille: u64,
    /// How long a sync takes.
    pub sync: Range<u64>,
    /// Clocks run fast or slow by up to this much.
    pub drift_per_mille: u64,
    /// Time between deeds of the nemesis.
    pub deed_every: Range<u64>,
    /// What the nemesis does.
    pub deeds: Deeds,
    /// How long a node that was killed stays down.
    pub downtime: Range<u64>,
    /// Time between orders of the operator who changes the membership; never if empty.
    pub order_every: Range<u64>,
    /// Number of clients.
    pub clients: usize,
    /// How long a client waits between two requests.
    pub think: Range<u64>,
    /// Time per chunk of a snapshot.
    pub chunk: Range<u64>,
    /// How long all this lasts before the weather clears.
    pub length: u64,
}

impl Weather {
    /// Nothing goes wrong.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            name: "calm",
            delay: 100 * MICROS..2 * MILLIS,
            slow_per_mille: 0,
            slow: 0..1,
            loss_per_mille: 0,
            duplicate_per_mille: 0,
            late_per_mille: 0,
            sync: 100 * MICROS..2 * MILLIS,
            drift_per_mille: 0,
            deed_every: 0..0,
            deeds: Deeds::default(),
            downtime: 50 * MILLIS..2 * SECONDS,
            order_every: 0..0,
            clients: 6,
            think: 2 * MILLIS..20 * MILLIS,
            chunk: MILLIS..5 * MILLIS,
            length: 6 * SECONDS,
        }
    }

    fn rough() -> Self {
        Self {
            slow_per_mille: 20,
            slow: 5 * MILLIS..300 * MILLIS,
            loss_per_mille: 20,
            duplicate_per_mille: 20,
            late_per_mille: 2,
            drift_per_mille: 60,
            deed_every: 50 * MILLIS..900 * MILLIS,
            length: 12 * SECONDS,
            ..Self::calm()
        }
    }

    /// Everything at once.
    #[must_use]
    pub fn storm() -> Self {
        Self {
            name: "storm",
            loss_per_mille: 50,
            order_every: 100 * MILLIS..600 * MILLIS,
            deeds: Deeds {
                kill: 3,
                power: 5,
                power_all: 1,
                pause: 4,
                pause_followers: 1,
                wake_sleeper: 1,
                isolate: 3,
                cut_one_way: 4,
                stall: 3,
                transfer: 4,
                late_order: 1,
                forgetful_follower: 1,
                hand_over: 1,
                long_absence: 1,
                break_copy: 3,
                kill_joint_leader: 2,
                pause_leader: 2,
                kill_leader_unsynced: 1,
                lose: 1,
                strike_move: 3,
            },
            ..Self::rough()
        }
    }

    fn power() -> Self {
        Self {
            name: "power",
            sync: MILLIS..30 * MILLIS,
            downtime: 5 * MILLIS..600 * MILLIS,
            deeds: Deeds {
                power: 8,
                power_all: 1,
                kill: 1,
                kill_leader_unsynced: 4,
                stall: 2,
                ..Deeds::default()
            },
            ..Self::rough()
        }
    }

    fn pauses() -> Self {
        Self {
            name: "pauses",
            // Apart from each other, so that the others can elect while the leader sleeps.
            deed_every: 2500 * MILLIS..4 * SECONDS,
            deeds: Deeds { pause: 1, pause_leader: 6, pause_followers: 1, ..Deeds::default() },
            slow_per_mille: 0,
            think: MILLIS..10 * MILLIS,
            ..Self::rough()
        }
    }

    fn sleepers() -> Self {
        Self {
            name: "sleepers",
            deed_every: 1500 * MILLIS..3 * SECONDS,
            deeds: Deeds { wake_sleeper: 1, ..Deeds::default() },
            think: MILLIS..10 * MILLIS,
            ..Self::rough()
        }
    }

    fn cuts() -> Self {
        Self {
            name: "cuts",
            deeds: Deeds { isolate: 4, cut_one_way: 6, power: 1, transfer: 1, ..Deeds::default() },
            ..Self::rough()
        }
    }

    fn disks() -> Self {
        Self {
            name: "disks",
            sync: MILLIS..60 * MILLIS,
            deeds: Deeds { stall: 6, power: 3, isolate: 1, ..Deeds::default() },
            ..Self::rough()
        }
    }

    fn moves() -> Self {
        Self {
            name: "moves",
            order_every: 20 * MILLIS..300 * MILLIS,
            deeds: Deeds {
                strike_move: 4,
                kill_joint_leader: 20,
                power: 2,
                break_copy: 8,
                cut_one_way: 2,
                transfer: 2,
                ..Deeds::default()
            },
            downtime: 20 * MILLIS..900 * MILLIS,
            ..Self::rough()
        }
    }

    fn copies() -> Self {
        Self {
            name: "copies",
            order_every: 100 * MILLIS..700 * MILLIS,
            chunk: 10 * MILLIS..100 * MILLIS,
            deed_every: 50 * MILLIS..400 * MILLIS,
            downtime: 10 * MILLIS..500 * MILLIS,
            deeds: Deeds {
                long_absence: 2,
                break_copy: 12,
                isolate: 1,
                power: 1,
                ..Deeds::default()
            },
            think: MILLIS..8 * MILLIS,
            ..Self::rough()
        }
    }

    /// Changes of membership, with failures far enough apart for plans to get somewhere.
    #[must_use]
    pub fn plans() -> Self {
        Self {
            name: "plans",
            order_every: 100 * MILLIS..900 * MILLIS,
            deed_every: 300 * MILLIS..3 * SECONDS,
            downtime: 20 * MILLIS..4 * SECONDS,
            deeds: Deeds {
                kill: 2,
                power: 4,
                power_all: 1,
                pause: 3,
                isolate: 2,
                cut_one_way: 3,
                stall: 2,
                break_copy: 6,
                kill_joint_leader: 10,
                strike_move: 12,
                ..Deeds::default()
            },
            length: 20 * SECONDS,
            ..Self::rough()
        }
    }

    /// Nodes are lost for good, one after the other.
    fn losses() -> Self {
        Self {
            name: "losses",
            deeds: Deeds {
                lose: 4,
                strike_move: 3,
                kill: 1,
                power: 2,
                cut_one_way: 2,
                ..Deeds::default()
            },
            ..Self::plans()
        }
    }

    fn handovers() -> Self {
        Self {
            name: "handovers",
            deeds: Deeds {
                transfer: 4,
                late_order: 8,
                hand_over: 1,
                cut_one_way: 1,
                ..Deeds::default()
            },
            think: MILLIS..10 * MILLIS,
            ..Self::rough()
        }
    }

    fn restarts() -> Self {
        Self {
            name: "restarts",
            downtime: MILLIS..100 * MILLIS,
            deeds: Deeds { forgetful_follower: 8, kill: 2, power: 1, ..Deeds::default() },
            think: MILLIS..10 * MILLIS,
            ..Self::rough()
        }
    }

    /// The weather of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let all = [
            Self::storm,
            Self::power,
            Self::pauses,
            Self::sleepers,
            Self::cuts,
            Self::disks,
            Self::moves,
            Self::copies,
            Self::handovers,
            Self::restarts,
            Self::plans,
            Self::losses,
        ];
        let place = usize::try_from(seed % all.len() as u64).expect("a small number");
        all[place]()
    }
}

/// What a run starts from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everything that is left to chance follows from this.
    pub seed: u64,
    /// Nodes that found the cluster.
    pub founders: usize,
    /// Nodes that join as spares.
    pub spares: usize,
    /// Zones that the nodes are in, in turn.
    pub zones: usize,
    /// Number of partitions, as a power of two.
    pub partition_bits: u8,
    /// Number of keys that clients use.
    pub keys: usize,
    /// What the run is like.
    pub weather: Weather,
    /// Times and limits of the cores.
    pub settings: Settings,
    /// Deliberate faults of the cores.
    pub faults: Faults,
}

impl Setup {
    /// The setup of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x0005_e70f_5eed);
        let weather = Weather::of_seed(seed);
        let moving = !weather.order_every.is_empty();
        let founders = 3 + dice.index(if moving { 2 } else { 3 });
        let spares = if moving { 2 + dice.index(2) } else { 0 };
        let zones = if moving { 2 + dice.index(3) } else { founders };
        Self {
            seed,
            founders,
            spares,
            zones,
            partition_bits: if dice.chance(500) { 1 } else { 2 },
            keys: 3 + dice.index(4),
            weather,
            settings: small_limits(),
            faults: Faults::NONE,
        }
    }

    /// Three nodes, two partitions, and nothing goes wrong unless the test makes it.
    #[must_use]
    pub fn scripted(seed: u64) -> Self {
        Self {
            founders: 3,
            spares: 0,
            zones: 1,
            partition_bits: 1,
            keys: 4,
            weather: Weather { clients: 0, ..Weather::calm() },
            ..Self::of_seed(seed)
        }
    }
}

/// Settings with logs so short that truncation and snapshots are frequent.
#[must_use]
pub fn small_limits() -> Settings {
    Settings {
        log_cache_bytes: 2 << 10,
        log_truncate_bytes: 6 << 10,
        log_retain_bytes_max: 20 << 10,
        append_bytes_max: 4 << 10,
        entry_bytes_max: 1 << 10,
        append_inflight_max: 8,
        snapshot_stall: Duration::from_secs(1),
        copy_retry_min: Duration::from_millis(200),
        copy_retry_max: Duration::from_secs(2),
        copy_retry_blocked: Duration::from_secs(3),
        log_copy_bytes_max: 80 << 10,
        copy_keep: Duration::from_secs(10),
        ..Settings::default()
    }
}
