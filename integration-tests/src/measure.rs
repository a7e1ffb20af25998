//! Keys for chosen partitions, and distributions in one line.

use std::fmt;
use std::time::Duration;

use placement::{PartitionBits, PartitionId, key_hash};

/// A key of a partition: the first of `{stem}-0`, `{stem}-1`, ... that lies in it.
pub fn key_in(partition: PartitionId, partitions: u32, stem: &str) -> String {
    let bits = PartitionBits::from_count(partitions).expect("the cluster was founded with it");
    (0_u64..)
        .map(|number| format!("{stem}-{number}"))
        .find(|key| bits.partition_of(key_hash(key.as_bytes())) == partition)
        .expect("hashes reach every partition")
}

/// Times, for a line of percentiles.
#[derive(Clone, Debug, Default)]
pub struct Times {
    sorted: Vec<Duration>,
}

impl Times {
    /// Sorts the times.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { sorted: times }
    }

    /// The time that this share of all times does not exceed; zero without any.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let index = (share * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(index.saturating_sub(1).min(last)).copied().unwrap_or_default()
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.sorted.last().copied().unwrap_or_default()
    }

    /// All of them, the shortest first.
    pub fn all(&self) -> impl Iterator<Item = Duration> + '_ {
        self.sorted.iter().copied()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "n {} p50 {} ms p90 {} ms p99 {} ms max {} ms",
            self.count(),
            self.quantile(0.5).as_millis(),
            self.quantile(0.9).as_millis(),
            self.quantile(0.99).as_millis(),
            self.max().as_millis(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_for_every_partition() {
        for partition in 0..16 {
            let key = key_in(PartitionId::new(partition), 16, "k");
            assert_eq!(key_hash(key.as_bytes()) >> 60, u64::from(partition));
        }
    }

    #[test]
    fn quantiles_are_times_that_occurred() {
        let times = Times::of((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(times.quantile(0.5), Duration::from_millis(50));
        assert_eq!(times.quantile(0.99), Duration::from_millis(99));
        assert_eq!(times.max(), Duration::from_millis(100));
        assert_eq!(Times::of(Vec::new()).quantile(0.5), Duration::ZERO);
    }
}
