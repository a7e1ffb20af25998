//! Which operation comes when: kinds, keys and values as functions of seed and index.

use bytes::Bytes;
use kvapi::paths;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// Skew of the Zipf distribution, as YCSB has it.
const ZIPF_EXPONENT: f64 = 0.99;
/// Values are windows into one random buffer; this many different ones.
const VALUES: usize = 4096;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Get,
    /// Writes.
    Put,
}

/// How often each key is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// All keys alike.
    Uniform,
    /// The first keys most often.
    Zipf,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: Kind,
    /// Number of the key.
    pub key: u64,
}

/// What a load consists of.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Start of the pseudo-random sequence.
    pub seed: u64,
    /// Number of keys.
    pub keys: u64,
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// How often each key is chosen.
    pub distribution: Distribution,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// First bytes of every key.
    pub key_prefix: String,
}

/// The whole sequence of operations.
#[derive(Debug)]
pub struct Plan {
    seed: u64,
    keys: u64,
    /// Reads are those whose draw is below this.
    read_below: u64,
    zipf: Option<Zipf>,
    value_bytes: usize,
    values: Bytes,
    key_prefix: String,
    path_prefix: String,
}

impl Plan {
    /// A sequence; the number of keys is at least one.
    pub fn new(options: PlanOptions) -> Self {
        let mut values = vec![0; options.value_bytes + VALUES];
        SmallRng::seed_from_u64(options.seed).fill_bytes(&mut values);
        let mut path_prefix = paths::KV_PREFIX.to_owned();
        paths::percent_encode(options.key_prefix.as_bytes(), &mut path_prefix);
        let zipf = match options.distribution {
            Distribution::Uniform => None,
            Distribution::Zipf => Some(Zipf::new(options.keys)),
        };
        Self {
            seed: options.seed,
            keys: options.keys,
            read_below: (options.read_share * u64::MAX as f64) as u64,
            zipf,
            value_bytes: options.value_bytes,
            values: Bytes::from(values),
            key_prefix: options.key_prefix,
            path_prefix,
        }
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The operation at an index.
    pub fn operation(&self, index: u64) -> Operation {
        let first = mix(self.seed ^ mix(index));
        let second = mix(first);
        let key = match &self.zipf {
            None => scale(second, self.keys),
            Some(zipf) => zipf.rank(second),
        };
        // The upper bound counts as a read, so that a share of 1 means all.
        let is_read = first < self.read_below || self.read_below == u64::MAX;
        Operation { kind: if is_read { Kind::Get } else { Kind::Put }, key }
    }

    /// Writes the raw bytes of a key into a buffer that is used again and again.
    pub fn write_key(&self, key: u64, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(self.key_prefix.as_bytes());
        write_digits(key, buffer);
    }

    /// The path of a key.
    pub fn path(&self, key: u64) -> Bytes {
        let mut path = Vec::with_capacity(self.path_prefix.len() + 20);
        path.extend_from_slice(self.path_prefix.as_bytes());
        write_digits(key, &mut path);
        Bytes::from(path)
    }

    /// The value that the operation at an index writes.
    pub fn value(&self, index: u64) -> Bytes {
        let start = scale(mix(index), VALUES as u64) as usize;
        self.values.slice(start..start + self.value_bytes)
    }
}

/// Sampling as in "Quickly Generating Billion-Record Synthetic Databases" (Gray et al., SIGMOD
/// 1994), section 3.2: constant time per draw after one pass over the ranks.
#[derive(Debug)]
struct Zipf {
    keys: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        let term = |rank: u64| (rank as f64).powf(-ZIPF_EXPONENT);
        let zeta: f64 = (1..=keys).map(term).sum();
        let zeta_of_two = 1.0 + term(2);
        let eta =
            (1.0 - (2.0 / keys as f64).powf(1.0 - ZIPF_EXPONENT)) / (1.0 - zeta_of_two / zeta);
        Self { keys, zeta, alpha: 1.0 / (1.0 - ZIPF_EXPONENT), eta }
    }

    fn rank(&self, random: u64) -> u64 {
        // 53 bits are what a double holds.
        let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 || self.keys < 2 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(ZIPF_EXPONENT) || self.keys == 2 {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A random number brought into `0..below`.
fn scale(random: u64, below: u64) -> u64 {
    ((u128::from(random) * u128::from(below)) >> 64) as u64
}

/// Ten digits at least, so that keys are equally long and sort by number.
fn write_digits(mut number: u64, buffer: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || at > 10 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    buffer.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(distribution: Distribution, keys: u64, read_share: f64) -> Plan {
        Plan::new(PlanOptions {
            seed: 7,
            keys,
            read_share,
            distribution,
            value_bytes: 16,
            key_prefix: "b/".to_owned(),
        })
    }

    #[test]
    fn the_same_seed_gives_the_same_operations() {
        let (one, two) = (plan(Distribution::Zipf, 1000, 0.5), plan(Distribution::Zipf, 1000, 0.5));
        for index in 0..1000 {
            assert_eq!(one.operation(index), two.operation(index));
            assert_eq!(one.value(index), two.value(index));
        }
    }

    #[test]
    fn keys_and_paths_name_the_same_key() {
        let plan = plan(Distribution::Uniform, 1000, 0.5);
        let mut key = Vec::new();
        for number in [0, 9, 10, 9_999_999_999, 10_000_000_000, u64::MAX] {
            plan.write_key(number, &mut key);
            let path = plan.path(number);
            let path = std::str::from_utf8(&path).expect("ASCII");
            let parsed = kvapi::KeyPath::split(path).expect("a key path").key().expect("a key");
            assert_eq!(parsed, key);
            assert_eq!(String::from_utf8_lossy(&key), format!("b/{number:010}"));
        }
    }

    #[test]
    fn reads_have_their_share_and_zero_and_one_are_exact() {
        let reads = |share| {
            let plan = plan(Distribution::Uniform, 10, share);
            (0..10_000).filter(|index| plan.operation(*index).kind == Kind::Get).count()
        };
        assert_eq!((reads(0.0), reads(1.0)), (0, 10_000));
        assert!((4700..5300).contains(&reads(0.5)), "{}", reads(0.5));
    }

    #[test]
    fn uniform_keys_are_even_and_zipf_keys_follow_the_law() {
        let count = |plan: &Plan| {
            let mut counts = vec![0u32; 100];
            (0..100_000).for_each(|index| counts[plan.operation(index).key as usize] += 1);
            counts
        };
        let even = count(&plan(Distribution::Uniform, 100, 0.5));
        assert!(even.iter().all(|count| (800..1200).contains(count)), "{even:?}");
        let skewed = count(&plan(Distribution::Zipf, 100, 0.5));
        // The first rank's share is 1 / zeta(100, 0.99) = 0.189.
        assert!((18_000..20_000).contains(&skewed[0]), "{skewed:?}");
        assert!(skewed[0] > skewed[1] && skewed[1] > skewed[10] && skewed[10] > skewed[90]);
        for keys in [1, 2, 3] {
            let plan = plan(Distribution::Zipf, keys, 0.5);
            assert!((0..1000).all(|index| plan.operation(index).key < keys));
        }
    }
}
