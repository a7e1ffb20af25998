//! A fleet of caches, each keeping what was asked for most recently, and what its hit ratio does
//! when a server goes or comes. The store itself is no cache; this is for people who run one.

use std::collections::{BTreeMap, HashMap};

use super::strategy::Placer;
use crate::ids::NodeId;

/// A cache that drops what was used least recently.
#[derive(Debug, Clone)]
pub struct Lru {
    capacity: usize,
    clock: u64,
    last_use: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Lru {
    /// An empty cache for this many keys. One for none never hits.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, clock: 0, last_use: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// Asks for a key, and keeps it. Whether it was there.
    pub fn ask(&mut self, key: u64) -> bool {
        if self.capacity == 0 {
            return false;
        }
        self.clock += 1;
        let used = self.last_use.insert(key, self.clock);
        if let Some(used) = used {
            self.by_use.remove(&used);
        } else if self.last_use.len() > self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.last_use.remove(&oldest);
        }
        self.by_use.insert(self.clock, key);
        used.is_some()
    }
}

/// Hits among the requests of a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// Requests.
    pub requests: u64,
    /// Those that a cache answered.
    pub hits: u64,
}

impl Hits {
    /// The part of the requests that a cache answered; none of none is 0.
    pub fn ratio(self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.hits as f64 / self.requests as f64 }
    }
}

/// Caches, one for each node, found by a placer. A node that goes takes its cache with it; one that
/// comes starts empty.
#[derive(Debug, Clone)]
pub struct CacheFleet<'a> {
    placer: &'a Placer,
    caches: BTreeMap<NodeId, Lru>,
    capacity: usize,
}

impl<'a> CacheFleet<'a> {
    /// Empty caches of this many keys each.
    pub fn new(placer: &'a Placer, capacity: usize) -> Self {
        let caches = placer.members().iter().map(|id| (*id, Lru::new(capacity))).collect();
        Self { placer, caches, capacity }
    }

    /// From now on another placer finds the caches.
    pub fn change(&mut self, placer: &'a Placer) {
        self.placer = placer;
        self.caches.retain(|id, _| placer.members().contains(id));
    }

    /// Asks for the key with this hash. Whether a cache had it.
    pub fn ask(&mut self, hash: u64) -> bool {
        let capacity = self.capacity;
        let cache =
            self.caches.entry(self.placer.owner(hash)).or_insert_with(|| Lru::new(capacity));
        cache.ask(hash)
    }

    /// Asks for each key, and adds up.
    pub fn ask_all(&mut self, hashes: impl Iterator<Item = u64>) -> Hits {
        hashes.fold(Hits::default(), |sum, hash| Hits {
            requests: sum.requests + 1,
            hits: sum.hits + u64::from(self.ask(hash)),
        })
    }
}
