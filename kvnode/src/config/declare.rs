//! The settings, one by one, and the rules between them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kvcore::Settings;
use kvcore::store::Limits;
use placement::{NodeName, Weight, Zone};

use super::error::ConfigError;
use super::value::{ByteSize, HostPort, LogFormat, Setting, Shape};
use crate::http::HttpLimits;
use crate::storage::StorageSettings;

/// Most seeds: a few suffice to find any cluster.
const SEEDS_MAX: usize = 64;

/// Most threads for the network: far more than processors help.
const WORKER_THREADS_MAX: usize = 1024;

/// What is known of a setting beside its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Its name in the file.
    pub(super) name: &'static str,
    /// Its meaning.
    pub(super) help: &'static str,
    /// What it takes.
    pub(super) expected: &'static str,
    /// How often and with what it is given.
    pub(super) shape: Shape,
}

/// Where values come from; `None` leaves the default.
pub(super) trait Source {
    fn value<T: Setting>(&self, key: &Key) -> Result<Option<T>, ConfigError>;
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty = $default:expr;)+) => {
        /// The effective configuration.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $name: $kind,)+
        }

        /// The settings, in the order in which they are printed.
        pub(super) const KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            help: concat!($($doc),+),
            expected: <$kind as Setting>::EXPECTED,
            shape: <$kind as Setting>::SHAPE,
        }),+];

        impl Config {
            /// Takes each setting from where it is given, without looking at the others.
            pub(super) fn gather(source: &impl Source) -> Result<Self, ConfigError> {
                let mut keys = KEYS.iter();
                let mut next = || keys.next().expect("one key for each setting");
                Ok(Self { $($name: match source.value(next())? {
                    Some(value) => value,
                    None => $default,
                },)+ })
            }

            /// The settings as TOML values, in order; `None` for those without a value.
            pub(super) fn values(&self) -> Vec<(&'static Key, Option<toml::Value>)> {
                let values = [$(self.$name.to_toml()),+];
                KEYS.iter().zip(values).collect()
            }
        }
    };
}

settings! {
    /// Name of the node, unique in its cluster; the host's name by default.
    name: NodeName = default_name();
    /// Zone whose loss the node would not survive.
    zone: Zone = Zone::parse("default").expect("a legal label");
    /// Share of the data relative to other nodes.
    weight: Weight = Weight::ONE;
    /// Directory of everything that the node stores, its identity included.
    data_dir: PathBuf = PathBuf::from("data");
    /// Address to listen on for clients.
    client_addr: SocketAddr = loopback(7400);
    /// Address to listen on for other nodes.
    peer_addr: SocketAddr = loopback(7401);
    /// Address at which clients reach the node, if another than it listens on.
    advertise_client_addr: Option<HostPort> = None;
    /// Address at which other nodes reach the node, if another than it listens on.
    advertise_peer_addr: Option<HostPort> = None;
    /// Peer addresses of nodes that may know the cluster.
    seeds: Vec<HostPort> = Vec::new();
    /// Listen on other addresses than loopback, although nothing is encrypted or authenticated.
    insecure: bool = false;

    /// Longest value that a client may store, 16MiB at most; equal on all nodes.
    value_bytes_max: ByteSize = ByteSize::of(HttpLimits::default().value_bytes_max);
    /// Memory for all request bodies together.
    bodies_bytes_max: ByteSize = ByteSize::of(HttpLimits::default().bodies_bytes_max);
    /// Memory for all large values together that wait for their clients to take them.
    answers_bytes_max: ByteSize = ByteSize::of(HttpLimits::default().answers_bytes_max);
    /// Client connections at a time.
    connections_max: usize = HttpLimits::default().connections_max;
    /// Long polls at a time.
    waiters_max: usize = HttpLimits::default().waiters_max;
    /// Time from a complete request to its answer.
    request_timeout: Duration = HttpLimits::default().request_timeout;
    /// Time for the head of a request, and for the first one on a new connection.
    head_timeout: Duration = HttpLimits::default().head_timeout;
    /// Time that a connection may be open between two requests.
    idle_timeout: Duration = HttpLimits::default().idle_timeout;
    /// Time for the body of a request.
    body_timeout: Duration = HttpLimits::default().body_timeout;
    /// Longest pause within a body that is sent or received.
    body_pause_max: Duration = HttpLimits::default().body_pause_max;
    /// Time that requests under way get when the node stops.
    drain_timeout: Duration = HttpLimits::default().drain_timeout;

    /// Length of a partition's log from which it is truncated up to what every voter has.
    log_truncate_bytes: ByteSize = ByteSize::of_u64(Settings::default().log_truncate_bytes);
    /// Length of a partition's log that is kept at most for voters that are behind.
    log_retain_bytes_max: ByteSize = ByteSize::of_u64(Settings::default().log_retain_bytes_max);
    /// Memory per partition for entries that followers may still ask for.
    log_cache_bytes: ByteSize = ByteSize::of(Settings::default().log_cache_bytes);
    /// Writes that may wait in one partition before the next is refused.
    proposals_per_group_max: usize = Settings::default().proposals_per_group_max;
    /// Reads that may wait in one partition before the next is refused.
    reads_per_group_max: usize = Settings::default().reads_per_group_max;

    /// Free space on disk below which clients' writes are refused.
    disk_reserve_bytes: ByteSize = ByteSize::of(512 << 20);
    /// Memory for blocks of the store that were read.
    block_cache_bytes: ByteSize = ByteSize::of(StorageSettings::default().block_cache_bytes);
    /// Memory for records that are not in the store's sorted files yet.
    memtable_bytes: ByteSize = ByteSize::of(StorageSettings::default().memtable_bytes);
    /// Length of the store's write-ahead log, which is read again at the next start.
    wal_bytes_max: ByteSize = ByteSize::of_u64(StorageSettings::default().wal_bytes_max);
    /// Files of the store that are kept open.
    open_files_max: u16 = u16::try_from(StorageSettings::default().open_files_max)
        .expect("a small number");
    /// Threads for the store's flushes and compactions.
    background_jobs: u16 = u16::try_from(StorageSettings::default().background_jobs)
        .expect("a small number");

    /// Threads that serve the network, 1024 at most; 0 for one per processor.
    worker_threads: usize = 0;
    /// Form of what the node reports on standard error.
    log_format: LogFormat = LogFormat::Text;
    /// What it reports: a level, or a level per module.
    log_level: String = "info".to_owned();

    /// File with the tokens that clients must show; not implemented yet.
    token_file: Option<PathBuf> = None;
    /// File with the node's certificate; not implemented yet.
    tls_certificate_file: Option<PathBuf> = None;
    /// File with the key of the node's certificate; not implemented yet.
    tls_key_file: Option<PathBuf> = None;
    /// File with the certificates that others are trusted by; not implemented yet.
    tls_authority_file: Option<PathBuf> = None;
}

impl Config {
    /// Checks what must hold between the settings.
    pub(super) fn check(self) -> Result<Self, ConfigError> {
        self.check_security()?;
        self.check_addresses()?;
        self.check_limits()?;
        Ok(self)
    }

    fn check_security(&self) -> Result<(), ConfigError> {
        let later = [
            ("token_file", &self.token_file),
            ("tls_certificate_file", &self.tls_certificate_file),
            ("tls_key_file", &self.tls_key_file),
            ("tls_authority_file", &self.tls_authority_file),
        ];
        if let Some((name, _)) = later.into_iter().find(|(_, file)| file.is_some()) {
            return Err(ConfigError::NotImplemented { name });
        }
        let addresses = [("client_addr", self.client_addr), ("peer_addr", self.peer_addr)];
        let open = addresses.into_iter().find(|(_, address)| !address.ip().is_loopback());
        match open {
            Some((name, address)) if !self.insecure => Err(ConfigError::Insecure { name, address }),
            Some(_) | None => Ok(()),
        }
    }

    fn check_addresses(&self) -> Result<(), ConfigError> {
        if self.client_addr == self.peer_addr && self.client_addr.port() != 0 {
            return rule("client_addr and peer_addr must differ");
        }
        if self.client_addr.ip().is_unspecified() && self.advertise_client_addr.is_none() {
            return rule("advertise_client_addr is needed when all addresses are listened on");
        }
        if self.peer_addr.ip().is_unspecified() && self.advertise_peer_addr.is_none() {
            return rule("advertise_peer_addr is needed when all addresses are listened on");
        }
        if self.seeds.len() > SEEDS_MAX {
            return rule("seeds must be 64 addresses at most");
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        if !(1..=Limits::VALUE_BYTES_CEILING).contains(&self.value_bytes_max.get()) {
            return rule("value_bytes_max must be 1 to 16MiB");
        }
        if self.bodies_bytes_max < self.value_bytes_max {
            return rule("bodies_bytes_max must not be less than value_bytes_max");
        }
        if self.answers_bytes_max < self.value_bytes_max {
            return rule("answers_bytes_max must not be less than value_bytes_max");
        }
        if self.log_retain_bytes_max < self.log_truncate_bytes {
            return rule("log_retain_bytes_max must not be less than log_truncate_bytes");
        }
        if self.worker_threads > WORKER_THREADS_MAX {
            return rule("worker_threads must be 1024 at most");
        }
        for (key, value) in self.values() {
            let may_be_zero =
                matches!(key.name, "worker_threads" | "log_cache_bytes" | "disk_reserve_bytes");
            let is_zero = match &value {
                Some(toml::Value::Integer(number)) => *number == 0,
                Some(toml::Value::String(text)) => text == "0s",
                Some(_) | None => false,
            };
            if is_zero && !may_be_zero {
                return Err(ConfigError::Rule { rule: format!("{} must not be 0", key.name) });
            }
        }
        Ok(())
    }

    /// The limits of the HTTP face.
    #[must_use]
    pub fn http_limits(&self) -> HttpLimits {
        HttpLimits {
            value_bytes_max: self.value_bytes_max.get(),
            bodies_bytes_max: self.bodies_bytes_max.get(),
            answers_bytes_max: self.answers_bytes_max.get(),
            connections_max: self.connections_max,
            waiters_max: self.waiters_max,
            request_timeout: self.request_timeout,
            head_timeout: self.head_timeout,
            idle_timeout: self.idle_timeout,
            body_pause_max: self.body_pause_max,
            body_timeout: self.body_timeout,
            drain_timeout: self.drain_timeout,
        }
    }

    /// The settings of the core. Its times are no settings of a node: leases rest on their being
    /// equal everywhere.
    #[must_use]
    pub fn core_settings(&self) -> Settings {
        Settings {
            log_truncate_bytes: self.log_truncate_bytes.get() as u64,
            log_retain_bytes_max: self.log_retain_bytes_max.get() as u64,
            log_cache_bytes: self.log_cache_bytes.get(),
            proposals_per_group_max: self.proposals_per_group_max,
            reads_per_group_max: self.reads_per_group_max,
            ..Settings::default()
        }
    }

    /// The settings of the store.
    #[must_use]
    pub fn storage_settings(&self) -> StorageSettings {
        StorageSettings {
            block_cache_bytes: self.block_cache_bytes.get(),
            memtable_bytes: self.memtable_bytes.get(),
            wal_bytes_max: self.wal_bytes_max.get() as u64,
            open_files_max: i32::from(self.open_files_max),
            background_jobs: i32::from(self.background_jobs),
            ..StorageSettings::default()
        }
    }

    /// The configuration as a file that means the same, with what each setting is for.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let settings = self.values().into_iter().map(|(key, value)| {
            let name = key.name;
            let help = key.help.trim();
            match value {
                Some(value) => format!("# {help}\n{name} = {value}\n"),
                None => format!("# {help}\n# {name} is not set\n"),
            }
        });
        settings.collect::<Vec<_>>().join("\n")
    }
}

fn rule<T>(rule: &str) -> Result<T, ConfigError> {
    Err(ConfigError::Rule { rule: rule.to_owned() })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The first label of the host's name, without what a name cannot have.
fn default_name() -> NodeName {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let legal = |character: &char| character.is_ascii_alphanumeric() || "_-".contains(*character);
    let label: String = host.chars().take_while(|character| *character != '.').collect();
    let label: String = label.chars().filter(legal).take(63).collect();
    NodeName::parse(&label).unwrap_or_else(|_| NodeName::parse("node").expect("a legal label"))
}
