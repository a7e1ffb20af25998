//! What was measured: latencies per kind of operation, and everything that was not a success.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::Cell;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::plan::Kind;
use crate::output;

/// Latencies are kept from a microsecond to a minute, with three significant digits.
const LATENCY_MIN_NANOS: u64 = 1_000;
const LATENCY_MAX_NANOS: u64 = 60_000_000_000;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// As asked.
    Done,
    /// A read that found nothing.
    Miss,
    /// Refused as not applied; may be sent again (503, 429).
    Retryable(u16),
    /// No connection.
    Connect,
    /// The connection broke with the request under way.
    Broken,
    /// No answer in time.
    Timeout,
    /// The outcome is unknown (504).
    Unknown,
    /// Nodes named one another as the leader too often.
    Redirects,
    /// Another status.
    Status(u16),
}

/// The results of one thread, or of all.
#[derive(Debug)]
pub struct Tally {
    gets: Histogram<u64>,
    puts: Histogram<u64>,
    misses: u64,
    redirects: u64,
    retryable: u64,
    errors: BTreeMap<String, u64>,
}

/// Percentiles in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Results of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Successful operations.
    pub count: u64,
    /// Successful operations per second.
    pub per_second: f64,
    latency_us: Latency,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// From the first start to the last answer.
    pub elapsed_seconds: f64,
    /// Successful operations.
    pub operations: u64,
    /// Successful operations per second.
    pub per_second: f64,
    /// Reads; none if there were none.
    pub gets: Option<Series>,
    /// Writes; none if there were none.
    pub puts: Option<Series>,
    /// Reads that found nothing.
    pub misses: u64,
    /// Requests that were sent on to the leader that a refusal named.
    pub redirects: u64,
    /// Operations refused as not applied.
    pub retryable: u64,
    /// All other failures by kind.
    pub errors: BTreeMap<String, u64>,
}

impl Tally {
    /// An empty tally.
    pub fn new() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(LATENCY_MIN_NANOS, LATENCY_MAX_NANOS, 3)
                .expect("the bounds are legal")
        };
        Self {
            gets: histogram(),
            puts: histogram(),
            misses: 0,
            redirects: 0,
            retryable: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Counts an operation.
    pub fn record(&mut self, kind: Kind, end: End, latency: Duration, redirects: u64) {
        self.redirects += redirects;
        match end {
            End::Done | End::Miss => {
                self.misses += u64::from(end == End::Miss);
                let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                match kind {
                    Kind::Get => self.gets.saturating_record(nanos),
                    Kind::Put => self.puts.saturating_record(nanos),
                }
            }
            End::Retryable(status) => {
                self.retryable += 1;
                self.count_error(format!("retryable-{status}"));
            }
            End::Connect => self.count_error("connect".to_owned()),
            End::Broken => self.count_error("connection-broken".to_owned()),
            End::Timeout => self.count_error("timeout".to_owned()),
            End::Unknown => self.count_error("outcome-unknown".to_owned()),
            End::Redirects => self.count_error("too-many-redirects".to_owned()),
            End::Status(status) => self.count_error(format!("status-{status}")),
        }
    }

    /// Adds another thread's results.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.gets, &other.gets), (&mut self.puts, &other.puts)] {
            mine.add(theirs).expect("all histograms have the same bounds");
        }
        self.misses += other.misses;
        self.redirects += other.redirects;
        self.retryable += other.retryable;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
    }

    /// The results as numbers.
    pub fn report(&self, elapsed: Duration) -> Report {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let operations = self.gets.len() + self.puts.len();
        Report {
            elapsed_seconds: seconds,
            operations,
            per_second: operations as f64 / seconds,
            gets: series(&self.gets, seconds),
            puts: series(&self.puts, seconds),
            misses: self.misses,
            redirects: self.redirects,
            retryable: self.retryable,
            errors: self.errors.clone(),
        }
    }

    fn count_error(&mut self, kind: String) {
        *self.errors.entry(kind).or_default() += 1;
    }
}

impl Report {
    /// The results for people.
    pub fn in_words(&self) -> String {
        let columns = ["op", "count", "per s", "mean", "p50", "p90", "p99", "p99.9", "max (us)"];
        let mut table = output::table(&columns);
        for (name, series) in [("get", &self.gets), ("put", &self.puts)] {
            let Some(series) = series else { continue };
            let latency = &series.latency_us;
            let mut row = vec![Cell::new(name), Cell::new(series.count)];
            row.push(Cell::new(format!("{:.0}", series.per_second)));
            let values =
                [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
            row.extend(values.map(|micros| Cell::new(format!("{micros:.0}"))));
            table.add_row(row);
        }
        let mut text = output::render(&table);
        text.push_str(&format!(
            "\n{:.0} operations/s, {} in {:.2} s; {} misses, {} redirects, {} retryable refusals\n",
            self.per_second,
            self.operations,
            self.elapsed_seconds,
            self.misses,
            self.redirects,
            self.retryable,
        ));
        for (kind, count) in &self.errors {
            text.push_str(&format!("error {kind}: {count}\n"));
        }
        text
    }
}

fn series(histogram: &Histogram<u64>, seconds: f64) -> Option<Series> {
    if histogram.is_empty() {
        return None;
    }
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let at = |quantile: f64| micros(histogram.value_at_quantile(quantile));
    let latency_us = Latency {
        mean: histogram.mean() / 1e3,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: micros(histogram.max()),
    };
    let count = histogram.len();
    Some(Series { count, per_second: count as f64 / seconds, latency_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_have_latencies_and_failures_have_kinds() {
        let (mut one, mut two) = (Tally::new(), Tally::new());
        for millis in 1..=100 {
            one.record(Kind::Get, End::Done, Duration::from_millis(millis), 0);
        }
        two.record(Kind::Put, End::Done, Duration::from_millis(5), 1);
        two.record(Kind::Get, End::Miss, Duration::from_millis(5), 0);
        two.record(Kind::Put, End::Retryable(503), Duration::ZERO, 0);
        two.record(Kind::Put, End::Timeout, Duration::ZERO, 0);
        one.merge(&two);
        let report = one.report(Duration::from_secs(2));
        assert_eq!((report.operations, report.misses, report.redirects), (102, 1, 1));
        assert_eq!(report.retryable, 1);
        assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["retryable-503", "timeout"]);
        let gets = report.gets.clone().expect("there were reads");
        assert_eq!(gets.count, 101);
        assert!((49_000.0..51_000.0).contains(&gets.latency_us.p50), "{gets:?}");
        assert!((99_000.0..101_000.0).contains(&gets.latency_us.max), "{gets:?}");
        assert!(report.in_words().contains("error timeout: 1"));
    }
}
