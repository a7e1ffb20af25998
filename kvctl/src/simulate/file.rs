//! Keys from a file of `key,bytes,qps`, in batches: the file may be larger than memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use csv::{ByteRecord, Reader, ReaderBuilder};
use placement::key_hash;
use placement::simulate::{Load, Sample};

use crate::exit::Failure;

/// Lines that a thread takes at a time.
const BATCH_LINES: usize = 4096;
/// Sizes that are kept of a file of sizes.
const SIZES_MAX: usize = 1 << 20;
/// The most requests per second of one key, and bytes of one value: sums of many stay far below
/// 2^64.
const NUMBER_MAX: f64 = 1e12;

/// A file that several threads read together.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    bytes: u64,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    reader: Reader<File>,
    /// Whether there was a key so far.
    found: bool,
}

impl KeyFile {
    /// Opens a file. A first line `key,bytes,qps` is a heading.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let failed = |error: std::io::Error| Failure::usage(format!("cannot read {name}: {error}"));
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
        let lines = Mutex::new(Lines { reader, found: false });
        Ok(Self { path: path.to_owned(), bytes, lines })
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands out the samples of the next batch; how far in the file it ended, or None at its end.
    pub fn visit_batch(&self, mut take: impl FnMut(&Sample)) -> Result<Option<u64>, Failure> {
        let mut records = Vec::with_capacity(BATCH_LINES);
        let position = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            while records.len() < BATCH_LINES {
                let mut record = ByteRecord::new();
                match lines.reader.read_byte_record(&mut record) {
                    Ok(true) if is_heading(&record) => {}
                    Ok(true) => records.push(record),
                    Ok(false) => break,
                    Err(error) => return Err(self.failure(&error.to_string())),
                }
            }
            lines.found |= !records.is_empty();
            if !lines.found {
                return Err(self.failure("there are no keys in it"));
            }
            lines.reader.position().byte()
        };
        for record in &records {
            let line = line_of(record);
            let sample =
                parse(record).map_err(|reason| self.failure(&format!("line {line}: {reason}")))?;
            take(&sample);
        }
        Ok((!records.is_empty()).then_some(position))
    }

    fn failure(&self, reason: &str) -> Failure {
        Failure::usage(format!("{}: {reason}", self.path.display()))
    }
}

fn line_of(record: &ByteRecord) -> u64 {
    record.position().map_or(0, csv::Position::line)
}

fn is_heading(record: &ByteRecord) -> bool {
    line_of(record) == 1 && record.iter().eq([&b"key"[..], b"bytes", b"qps"])
}

fn parse(record: &ByteRecord) -> Result<Sample, String> {
    if record.len() != 3 {
        return Err(format!("{} fields instead of key,bytes,qps", record.len()));
    }
    let number = |place: usize, name: &str| {
        let text = String::from_utf8_lossy(&record[place]);
        match text.trim().parse::<f64>() {
            Ok(number) if (0.0..=NUMBER_MAX).contains(&number) => Ok(number),
            _ => Err(format!("{name} is {text:?}, not a number from 0 to 10^12")),
        }
    };
    let load = Load {
        keys: 1,
        bytes: number(1, "bytes")? as u64,
        millirequests: (number(2, "qps")? * 1000.0).round() as u64,
    };
    Ok(Sample { hash: key_hash(&record[0]), load })
}

/// Value sizes from a file with one number of bytes per line.
pub fn read_sizes(path: &Path) -> Result<Vec<u64>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(SIZES_MAX);
    let sizes: Result<Vec<u64>, String> = lines
        .enumerate()
        .map(|(place, line)| match line.trim().parse::<u64>() {
            Ok(bytes) if bytes as f64 <= NUMBER_MAX => Ok(bytes),
            _ => Err(format!("{name}: line {}: {line:?} is no number of bytes", place + 1)),
        })
        .collect();
    match sizes {
        Ok(sizes) if sizes.is_empty() => Err(format!("{name} holds no sizes")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<Sample>, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let keys = KeyFile::open(file.path())?;
        let mut samples = Vec::new();
        while keys.visit_batch(|sample| samples.push(*sample))?.is_some() {}
        Ok(samples)
    }

    #[test]
    fn keys_are_bytes_and_the_heading_may_be_left_out() {
        let with = read(b"key,bytes,qps\na,10,0.5\n\"x,\ny\",3,2\n\xff\x01,0,0\n").expect("sound");
        let without = read(b"a,10,0.5\n\"x,\ny\",3,2\n\xff\x01,0,0\n").expect("sound");
        assert_eq!(with, without);
        let hashes: Vec<u64> = with.iter().map(|sample| sample.hash).collect();
        assert_eq!(hashes, [key_hash(b"a"), key_hash(b"x,\ny"), key_hash(b"\xff\x01")]);
        assert_eq!(with[0].load, Load { keys: 1, bytes: 10, millirequests: 500 });
        for empty in [&b""[..], b"\n\n", b"key,bytes,qps\n"] {
            let failure = read(empty).expect_err("nothing can be said of no keys");
            assert!(failure.message.ends_with("there are no keys in it"), "{failure}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, reason) in [
            (&b"a,1,1\nb,2\n"[..], "line 2: 2 fields"),
            (b"a,1,1\nb,-1,1\n", "line 2: bytes"),
            (b"a,1,nan\n", "line 1: qps"),
            (b"a,1,1e300\n", "line 1: qps"),
            (b"a,many,1\n", "line 1: bytes"),
        ] {
            let failure = read(text).expect_err("wrong");
            assert!(failure.message.contains(reason), "{}", failure.message);
        }
    }
}
