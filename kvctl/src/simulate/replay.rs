//! All samples of a source through a tally, on every core, with a bar on a terminal.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use placement::simulate::{PartitionLoads, Sample, Tally};

use super::file::KeyFile;
use super::workload::Synthetic;
use crate::exit::Failure;

/// Where samples come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Keys that do not exist.
    Synthetic(Synthetic),
    /// A file of keys; each pass reads it again.
    File(std::path::PathBuf),
}

/// A source, and how many threads work on it.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Where samples come from.
    pub source: Source,
    /// Number of threads, at least one.
    pub threads: usize,
}

impl Replay {
    /// The number of keys, as far as it can be told without counting: that of the made-up ones, or
    /// what a pass over the file found.
    pub fn keys_about(&self, found: &PartitionLoads) -> u64 {
        match &self.source {
            Source::Synthetic(synthetic) => synthetic.count(),
            Source::File(_) => found.total().keys,
        }
    }

    /// Folds every sample into tallies that start as `empty`, one for each thread, and merges them.
    pub fn run<T: Tally + Clone + Send>(&self, what: &str, empty: &T) -> Result<T, Failure> {
        match &self.source {
            Source::Synthetic(synthetic) => {
                let bar = progress(what, synthetic.samples(), "{human_pos} of {human_len} samples");
                let next = AtomicU64::new(0);
                let result = self.on_all_threads(empty, |tally| {
                    let chunk = next.fetch_add(1, Ordering::Relaxed);
                    if chunk >= synthetic.chunks() {
                        return Ok(false);
                    }
                    bar.inc(synthetic.visit(chunk, |sample| tally.add(sample)));
                    Ok(true)
                });
                bar.finish_and_clear();
                result
            }
            Source::File(path) => {
                let file = KeyFile::open(path)?;
                let bar = progress(what, file.bytes(), "{bytes} of {total_bytes}");
                let result = self.on_all_threads(empty, |tally| {
                    let position = file.visit_batch(|sample| tally.add(sample))?;
                    position.inspect(|position| bar.set_position(*position));
                    Ok(position.is_some())
                });
                bar.finish_and_clear();
                result
            }
        }
    }

    /// Each thread does steps until one says that there are no more.
    fn on_all_threads<T: Tally + Clone + Send>(
        &self,
        empty: &T,
        step: impl Fn(&mut T) -> Result<bool, Failure> + Sync,
    ) -> Result<T, Failure> {
        let work = |mut tally: T| {
            while step(&mut tally)? {}
            Ok::<T, Failure>(tally)
        };
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.max(1))
                .map(|_| {
                    let tally = empty.clone();
                    scope.spawn(move || work(tally))
                })
                .collect();
            let mut sum = empty.clone();
            for thread in threads {
                sum.merge(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(sum)
        })
    }
}

/// A bar on a terminal, nothing elsewhere. A bar on stderr leaves stdout to the data.
fn progress(what: &str, length: u64, counter: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{what} {{wide_bar}} {counter}, {{eta}} left");
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

/// Passes on a part of the keys, chosen by their hash, so that it is the same part in any order.
#[derive(Clone, Debug)]
pub struct Sampled<T> {
    /// What the part is folded into.
    pub tally: T,
    below: u64,
}

impl<T> Sampled<T> {
    /// Passes on about `wanted` of `keys`.
    pub fn new(tally: T, wanted: u64, keys: u64) -> Self {
        let part = wanted as f64 / keys.max(1) as f64;
        // Saturates: a part of one or more is all.
        Self { tally, below: (part * u64::MAX as f64) as u64 }
    }
}

impl<T: Tally> Tally for Sampled<T> {
    fn add(&mut self, sample: &Sample) {
        // The upper bits of the hash name the partition, so they are mixed with the others first.
        let drawn = (sample.hash ^ (sample.hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if sample.load.keys > 0 && drawn <= self.below {
            self.tally.add(sample);
        }
    }

    fn merge(&mut self, other: Self) {
        self.tally.merge(other.tally);
    }
}

#[cfg(test)]
mod tests {
    use placement::PartitionBits;

    use super::super::workload::{Keys, Sizes};
    use super::*;

    #[test]
    fn the_number_of_threads_does_not_show_in_the_result() {
        let sizes = Sizes::LogNormal(300.0, 1.5);
        let synthetic = Synthetic::new(3, 300_000, Keys::Zipf(0.99), sizes).expect("sound");
        let bits = PartitionBits::new(6).expect("few");
        let run = |threads| {
            let source = Source::Synthetic(synthetic.clone());
            Replay { source, threads }.run("", &PartitionLoads::new(bits)).expect("synthetic")
        };
        assert_eq!(run(1), run(5));
        assert_eq!(run(1).total().keys, 300_000);
    }
}
