//! Numbers for Prometheus: the process, the HTTP face, and whatever the node counts by the `metrics`
//! crate.
//!
//! Requests are counted in a fixed table of atomics. That costs a few nanoseconds for each, takes the
//! same memory for ever, and needs nobody to drain it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rustix::time::{ClockId, clock_gettime};

/// How often the recorder of the `metrics` crate must be tidied up, as its histograms grow until then.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Upper bounds of the latency buckets.
const BUCKETS: [(Duration, &str); 16] = [
    (Duration::from_micros(100), "0.0001"),
    (Duration::from_micros(250), "0.00025"),
    (Duration::from_micros(500), "0.0005"),
    (Duration::from_millis(1), "0.001"),
    (Duration::from_micros(2500), "0.0025"),
    (Duration::from_millis(5), "0.005"),
    (Duration::from_millis(10), "0.01"),
    (Duration::from_millis(25), "0.025"),
    (Duration::from_millis(50), "0.05"),
    (Duration::from_millis(100), "0.1"),
    (Duration::from_millis(250), "0.25"),
    (Duration::from_millis(500), "0.5"),
    (Duration::from_secs(1), "1"),
    (Duration::from_millis(2500), "2.5"),
    (Duration::from_secs(5), "5"),
    (Duration::from_secs(10), "10"),
];

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "DELETE", "POST", "other"];

/// The statuses that are counted one by one; the last place counts all others.
const STATUSES: [u16; 25] = [
    200, 204, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 414, 415, 421, 422, 429, 431, 500,
    501, 503, 504, 507, 410, 0,
];

/// Which part of the API a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteClass {
    /// One key.
    Key,
    /// Several keys.
    Keys,
    /// The ring and the places of keys.
    Ring,
    /// Operators' calls.
    Admin,
    /// Probes, metrics, documentation, and paths that no call has.
    Other,
}

impl RouteClass {
    const ALL: [Self; 5] = [Self::Key, Self::Keys, Self::Ring, Self::Admin, Self::Other];

    fn label(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Keys => "keys",
            Self::Ring => "ring",
            Self::Admin => "admin",
            Self::Other => "other",
        }
    }
}

/// Why the server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nothing, or only part of a request, came in time.
    SlowHead,
    /// Nothing was asked for long.
    Idle,
    /// The client took nothing of an answer for long.
    Stalled,
    /// There were too many connections.
    Refused,
}

impl Closed {
    const ALL: [Self; 4] = [Self::SlowHead, Self::Idle, Self::Stalled, Self::Refused];

    fn label(self) -> &'static str {
        match self {
            Self::SlowHead => "slow_head",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Refused => "refused",
        }
    }
}

/// All numbers of a node.
#[derive(Debug)]
pub struct Metrics {
    /// Those of the HTTP face.
    pub http: HttpMetrics,
    recorder: Option<PrometheusHandle>,
    started: SystemTime,
}

/// The numbers of the HTTP face.
#[derive(Debug)]
pub struct HttpMetrics {
    series: Box<[Series]>,
    connections_open: AtomicU64,
    connections_accepted: AtomicU64,
    closed: [AtomicU64; Closed::ALL.len()],
}

/// The latencies of the requests of one kind.
#[derive(Debug, Default)]
struct Series {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanos: AtomicU64,
}

impl Metrics {
    /// Numbers without those of the `metrics` crate.
    #[must_use]
    pub fn new() -> Self {
        Self { http: HttpMetrics::new(), recorder: None, started: SystemTime::now() }
    }

    /// Numbers with those of the `metrics` crate, whose recorder it becomes for the whole process.
    ///
    /// # Errors
    /// When the process has a recorder already.
    pub fn install() -> Result<Self, metrics::SetRecorderError<impl Sized>> {
        let bounds: Vec<f64> = BUCKETS.iter().map(|(bound, _)| bound.as_secs_f64()).collect();
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &bounds);
        let recorder = builder.expect("there are bounds").build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)?;
        Ok(Self { recorder: Some(handle), ..Self::new() })
    }

    /// Keeps the recorder's memory bounded; to be called every [`UPKEEP_INTERVAL`].
    pub fn upkeep(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.run_upkeep();
        }
    }

    /// Everything in Prometheus' text format, with gauges (name, help, value) of the caller.
    #[must_use]
    pub fn render(&self, gauges: &[(&str, &str, u64)]) -> String {
        let mut text = self.recorder.as_ref().map(PrometheusHandle::render).unwrap_or_default();
        for (name, help, value) in gauges {
            head(&mut text, name, "gauge", help);
            line(&mut text, format_args!("{name} {value}"));
        }
        self.http.render(&mut text);
        self.render_process(&mut text);
        text
    }

    fn render_process(&self, text: &mut String) {
        let name = "ringkv_info";
        head(text, name, "gauge", "Version of the program.");
        line(text, format_args!("{name}{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));

        let name = "process_cpu_seconds_total";
        head(text, name, "counter", "CPU time of all threads.");
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        line(text, format_args!("{name} {}.{:09}", cpu.tv_sec, cpu.tv_nsec));

        let name = "process_start_time_seconds";
        head(text, name, "gauge", "Start of the process, in unix time.");
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        line(text, format_args!("{name} {}", started.as_secs_f64()));

        if let Some(bytes) = resident_bytes() {
            let name = "process_resident_memory_bytes";
            head(text, name, "gauge", "Memory in use.");
            line(text, format_args!("{name} {bytes}"));
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            let name = "process_open_fds";
            head(text, name, "gauge", "Open file descriptors.");
            line(text, format_args!("{name} {}", files.count()));
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl HttpMetrics {
    fn new() -> Self {
        let count = RouteClass::ALL.len() * METHODS.len() * STATUSES.len();
        Self {
            series: (0..count).map(|_| Series::default()).collect(),
            connections_open: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            closed: Default::default(),
        }
    }

    /// Counts an answered request.
    pub fn note(&self, class: RouteClass, method: &Method, status: StatusCode, took: Duration) {
        let series = &self.series[place(class, method, status)];
        let bucket = BUCKETS.iter().position(|(bound, _)| took <= *bound);
        series.buckets[bucket.unwrap_or(BUCKETS.len())].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        series.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts an accepted connection.
    pub fn note_opened(&self) {
        self.connections_accepted.fetch_add(1, Ordering::Relaxed);
        self.connections_open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of an accepted connection.
    pub fn note_ended(&self) {
        self.connections_open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection that the server closed.
    pub fn note_closed(&self, reason: Closed) {
        self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn render(&self, text: &mut String) {
        let used: Vec<_> = self.used().collect();
        let name = "ringkv_http_requests_total";
        head(text, name, "counter", "Requests answered.");
        for (labels, series) in &used {
            line(text, format_args!("{name}{{{labels}}} {}", series.count()));
        }
        let name = "ringkv_http_request_duration_seconds";
        head(text, name, "histogram", "Time from the head of a request to its answer.");
        for (labels, series) in &used {
            let mut below = 0;
            let bounds = BUCKETS.iter().map(|(_, text)| *text).chain(["+Inf"]);
            for (bucket, bound) in series.buckets.iter().zip(bounds) {
                below += bucket.load(Ordering::Relaxed);
                line(text, format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {below}"));
            }
            let sum = Duration::from_nanos(series.nanos.load(Ordering::Relaxed));
            line(text, format_args!("{name}_sum{{{labels}}} {}", sum.as_secs_f64()));
            line(text, format_args!("{name}_count{{{labels}}} {below}"));
        }
        let name = "ringkv_http_connections";
        head(text, name, "gauge", "Open client connections.");
        line(text, format_args!("{name} {}", self.connections_open.load(Ordering::Relaxed)));
        let name = "ringkv_http_connections_total";
        head(text, name, "counter", "Client connections accepted.");
        line(text, format_args!("{name} {}", self.connections_accepted.load(Ordering::Relaxed)));
        let name = "ringkv_http_connections_closed_total";
        head(text, name, "counter", "Client connections that the node closed, by reason.");
        for reason in Closed::ALL {
            let count = self.closed[reason as usize].load(Ordering::Relaxed);
            line(text, format_args!("{name}{{reason=\"{}\"}} {count}", reason.label()));
        }
    }

    /// The series that any request belongs to, with their labels.
    fn used(&self) -> impl Iterator<Item = (String, &Series)> {
        let kinds = RouteClass::ALL.into_iter().flat_map(|class| {
            METHODS.into_iter().flat_map(move |method| {
                STATUSES.into_iter().map(move |status| (class, method, status))
            })
        });
        kinds.zip(&self.series).filter(|(_, series)| series.count() > 0).map(
            |((class, method, status), series)| {
                let status = if status == 0 { "other".to_owned() } else { status.to_string() };
                let class = class.label();
                let labels = format!("route=\"{class}\",method=\"{method}\",status=\"{status}\"");
                (labels, series)
            },
        )
    }
}

impl Series {
    fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

fn place(class: RouteClass, method: &Method, status: StatusCode) -> usize {
    let named = METHODS.iter().position(|name| *name == method.as_str());
    let method = named.unwrap_or(METHODS.len() - 1);
    let code = status.as_u16();
    let named = STATUSES.iter().position(|other| *other == code);
    let status = named.unwrap_or(STATUSES.len() - 1);
    (class as usize * METHODS.len() + method) * STATUSES.len() + status
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}"));
    line(text, format_args!("# TYPE {name} {kind}"));
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a string cannot fail");
}

/// Resident memory of this process, where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_method_and_status() {
        let metrics = Metrics::new();
        let note = |status, micros| {
            let took = Duration::from_micros(micros);
            metrics.http.note(RouteClass::Key, &Method::GET, status, took);
        };
        note(StatusCode::OK, 100);
        note(StatusCode::OK, 101);
        note(StatusCode::NOT_FOUND, 20_000_000);
        metrics.http.note(
            RouteClass::Admin,
            &Method::PATCH,
            StatusCode::IM_A_TEAPOT,
            Duration::ZERO,
        );
        metrics.http.note_closed(Closed::Idle);
        let text = metrics.render(&[("ringkv_ring_epoch", "Epoch.", 7)]);
        for line in [
            "ringkv_ring_epoch 7",
            r#"ringkv_http_requests_total{route="key",method="GET",status="200"} 2"#,
            r#"ringkv_http_requests_total{route="key",method="GET",status="404"} 1"#,
            r#"ringkv_http_requests_total{route="admin",method="other",status="other"} 1"#,
            r#"ringkv_http_request_duration_seconds_bucket{route="key",method="GET",status="200",le="0.0001"} 1"#,
            r#"ringkv_http_request_duration_seconds_bucket{route="key",method="GET",status="200",le="+Inf"} 2"#,
            r#"ringkv_http_request_duration_seconds_bucket{route="key",method="GET",status="404",le="10"} 0"#,
            r#"ringkv_http_request_duration_seconds_sum{route="key",method="GET",status="404"} 20"#,
            r#"ringkv_http_connections_closed_total{reason="idle"} 1"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("process_cpu_seconds_total "), "{text}");
        let names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let unique: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len(), "a name stands twice");
    }
}
