//! Keys that do not exist: which they are, how large their values are, how often they are asked
//! for.
//!
//! Everything is a function of the seed and the number of a key or request. The work is cut into
//! chunks of a fixed length with a generator each, so it does not matter which thread does which.

use std::io::Write;

use placement::key_hash;
use placement::simulate::{Load, Sample};
use rand::{RngCore, SeedableRng};
use rand_distr::{Distribution, LogNormal, Zipf};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// Keys or requests of one chunk: long enough that starting a generator does not show, short enough
/// for the threads to end together.
const CHUNK: u64 = 1 << 16;
/// The step of SplitMix64: the n-th number of its sequence is that of the state seed + n x step.
const SPLIT_MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// What a key is asked for when all are alike: once.
const ONE_REQUEST: u64 = 1000;

/// What keys look like and how often each is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// 16 pseudo-random bytes, all keys alike.
    Uniform,
    /// `user/` and a number, all keys alike.
    Sequential,
    /// As sequential, asked for by Zipf's law with this exponent: the r-th key in proportion to
    /// r^-s.
    Zipf(f64),
}

/// How large values are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Constant(u64),
    /// With this median, and this standard deviation of the logarithm.
    LogNormal(f64, f64),
    /// Drawn from a list, each entry as often as any other.
    Listed(Vec<u64>),
}

/// A whole set of keys.
#[derive(Clone, Debug)]
pub struct Synthetic {
    seed: u64,
    count: u64,
    keys: Keys,
    sizes: Sizes,
    log_normal: Option<LogNormal<f64>>,
    zipf: Option<Zipf<f64>>,
}

impl Synthetic {
    /// Checks the parameters of the distributions.
    pub fn new(seed: u64, count: u64, keys: Keys, sizes: Sizes) -> Result<Self, String> {
        let log_normal = match sizes {
            Sizes::LogNormal(median, sigma) => {
                let law = (median > 0.0).then(|| LogNormal::new(median.ln(), sigma).ok()).flatten();
                Some(law.ok_or("a log-normal size needs a median above zero and a finite sigma")?)
            }
            Sizes::Constant(_) | Sizes::Listed(_) => None,
        };
        let zipf = match keys {
            Keys::Zipf(exponent) => {
                let law = Zipf::new(count as f64, exponent).ok();
                Some(law.ok_or("Zipf's law needs at least one key and an exponent from zero")?)
            }
            Keys::Uniform | Keys::Sequential => None,
        };
        if matches!(&sizes, Sizes::Listed(list) if list.is_empty()) {
            return Err("the list of sizes is empty".to_owned());
        }
        Ok(Self { seed, count, keys, sizes, log_normal, zipf })
    }

    /// The number of keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of samples: one for each key, and one for each request that is drawn.
    pub fn samples(&self) -> u64 {
        if self.zipf.is_some() { self.count * 2 } else { self.count }
    }

    /// The number of chunks.
    pub fn chunks(&self) -> u64 {
        let key_chunks = self.count.div_ceil(CHUNK);
        if self.zipf.is_some() { key_chunks * 2 } else { key_chunks }
    }

    /// Hands out every sample of a chunk; their number.
    pub fn visit(&self, chunk: u64, mut take: impl FnMut(&Sample)) -> u64 {
        let key_chunks = self.count.div_ceil(CHUNK);
        let start = chunk % key_chunks.max(1) * CHUNK;
        let length = CHUNK.min(self.count - start);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(split_mix(self.seed, chunk));
        match &self.zipf {
            Some(zipf) if chunk >= key_chunks => {
                for _ in 0..length {
                    let hash = self.hash(rank(zipf, &mut random));
                    let load = Load { millirequests: ONE_REQUEST, ..Load::default() };
                    take(&Sample { hash, load });
                }
            }
            Some(_) | None => {
                let millirequests = if self.zipf.is_some() { 0 } else { ONE_REQUEST };
                for number in start..start + length {
                    let bytes = self.size(&mut random);
                    let load = Load { keys: 1, bytes, millirequests };
                    take(&Sample { hash: self.hash(number), load });
                }
            }
        }
        length
    }

    /// The hash of the key with this number.
    pub fn hash(&self, number: u64) -> u64 {
        match self.keys {
            Keys::Uniform => {
                let mut key = [0; 16];
                SplitMix64::seed_from_u64(self.seed ^ number.wrapping_mul(SPLIT_MIX_STEP))
                    .fill_bytes(&mut key);
                key_hash(&key)
            }
            Keys::Sequential | Keys::Zipf(_) => {
                let mut key = [0; 32];
                let mut rest = key.as_mut_slice();
                // Twenty digits are the most that a number has, so they fit.
                let _ = write!(rest, "user/{number:012}");
                let length = 32 - rest.len();
                key_hash(&key[..length])
            }
        }
    }

    /// The hashes of the keys that requests ask for, one after the other, without end.
    pub fn requests(&self) -> impl Iterator<Item = u64> + '_ {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(split_mix(self.seed, u64::MAX));
        std::iter::repeat_with(move || {
            let number = match &self.zipf {
                Some(zipf) => rank(zipf, &mut random),
                None => random.next_u64() % self.count.max(1),
            };
            self.hash(number)
        })
    }

    fn size(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match (&self.sizes, &self.log_normal) {
            (Sizes::Listed(list), _) => {
                list[((u128::from(random.next_u64()) * list.len() as u128) >> 64) as usize]
            }
            (Sizes::LogNormal(..), Some(law)) => law.sample(random) as u64,
            (Sizes::Constant(bytes), _) => *bytes,
            (Sizes::LogNormal(median, _), None) => *median as u64,
        }
    }
}

/// A key's number by its rank, from 0.
fn rank(zipf: &Zipf<f64>, random: &mut Xoshiro256PlusPlus) -> u64 {
    zipf.sample(random) as u64 - 1
}

/// The number at a place of the sequence of SplitMix64 that starts with the seed.
fn split_mix(seed: u64, place: u64) -> u64 {
    SplitMix64::seed_from_u64(seed.wrapping_add(place.wrapping_mul(SPLIT_MIX_STEP))).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(synthetic: &Synthetic) -> Load {
        let mut sum = Load::default();
        for chunk in 0..synthetic.chunks() {
            synthetic.visit(chunk, |sample| sum += sample.load);
        }
        sum
    }

    fn synthetic(keys: Keys, sizes: Sizes) -> Synthetic {
        Synthetic::new(7, 200_000, keys, sizes).expect("sound")
    }

    #[test]
    fn every_key_comes_once_and_every_request_too() {
        for keys in [Keys::Uniform, Keys::Sequential, Keys::Zipf(0.99)] {
            let sum = sum(&synthetic(keys, Sizes::Constant(100)));
            let want = Load { keys: 200_000, bytes: 20_000_000, millirequests: 200_000_000 };
            assert_eq!(sum, want, "{keys:?}");
        }
    }

    #[test]
    fn keys_are_distinct_and_another_seed_gives_others() {
        let one = synthetic(Keys::Uniform, Sizes::Constant(1));
        let hashes: std::collections::HashSet<u64> = (0..100_000).map(|n| one.hash(n)).collect();
        assert_eq!(hashes.len(), 100_000);
        let other = Synthetic::new(8, 1, Keys::Uniform, Sizes::Constant(1)).expect("sound");
        assert!((0..1000).all(|number| !hashes.contains(&other.hash(number))));
        let sequential = synthetic(Keys::Sequential, Sizes::Constant(1));
        assert_eq!(sequential.hash(42), key_hash(b"user/000000000042"));
    }

    #[test]
    fn log_normal_sizes_have_their_median_and_mean() {
        // The mean of a log-normal law is median x exp(sigma^2 / 2).
        let mean = sum(&synthetic(Keys::Uniform, Sizes::LogNormal(1000.0, 1.0))).bytes / 200_000;
        assert!((1600..1700).contains(&mean), "{mean}");
        let listed = sum(&synthetic(Keys::Uniform, Sizes::Listed(vec![10, 30]))).bytes;
        assert!((3_950_000..4_050_000).contains(&listed), "{listed}");
    }

    #[test]
    fn the_first_key_has_the_share_that_the_law_gives_it() {
        let zipf = synthetic(Keys::Zipf(1.0), Sizes::Constant(1));
        let first = zipf.hash(0);
        let asked = zipf.requests().take(100_000).filter(|hash| *hash == first).count();
        // 1 / H(200000) = 0.0782; three deviations of 100,000 draws are 0.0026.
        assert!((7_560..8_080).contains(&asked), "{asked}");
    }

    #[test]
    fn laws_without_sense_are_refused() {
        let refused = |keys, sizes, count| Synthetic::new(1, count, keys, sizes).is_err();
        assert!(refused(Keys::Zipf(-1.0), Sizes::Constant(1), 10));
        assert!(refused(Keys::Zipf(f64::NAN), Sizes::Constant(1), 10));
        assert!(refused(Keys::Zipf(1.0), Sizes::Constant(1), 0));
        assert!(refused(Keys::Uniform, Sizes::LogNormal(0.0, 1.0), 10));
        assert!(refused(Keys::Uniform, Sizes::LogNormal(1.0, f64::NAN), 10));
        assert!(refused(Keys::Uniform, Sizes::Listed(Vec::new()), 10));
    }
}
