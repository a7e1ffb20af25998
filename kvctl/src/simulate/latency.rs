//! How long a lookup takes here and now.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A round lasts at least this long, so that the clock's own cost does not show.
const ROUND: Duration = Duration::from_millis(8);
/// The best of several rounds: what disturbs one from outside only ever makes it slower.
const ROUNDS: usize = 5;

/// Nanoseconds for one lookup, hashing excluded. Zero without hashes.
pub fn nanoseconds<T>(hashes: &[u64], lookup: impl Fn(u64) -> T) -> f64 {
    if hashes.is_empty() {
        return 0.0;
    }
    let round = || {
        let start = Instant::now();
        let mut lookups = 0_usize;
        while start.elapsed() < ROUND {
            for hash in hashes {
                black_box(lookup(black_box(*hash)));
            }
            lookups += hashes.len();
        }
        start.elapsed().as_secs_f64() * 1e9 / lookups as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Hashes to look up, spread over the whole space.
pub fn hashes(seed: u64) -> Vec<u64> {
    (0..1 << 12_u64).map(|number| placement::key_hash(&(seed ^ number).to_le_bytes())).collect()
}
