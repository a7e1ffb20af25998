//! The program `kvnode`: start, run until a signal, stop in order; and what it says when it cannot.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kvcore::{Event, Faults};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::config::{self, Config, ConfigError, HostPort, Invocation, LogFormat};
use crate::http::node::NodeBackend;
use crate::http::problem::chain;
use crate::http::{App, serve};
use crate::metrics::{Metrics, UPKEEP_INTERVAL};
use crate::node::{Node, NodeConfig, StartError};
use crate::storage::OpenError;

/// Time from the request to stop to the end of the process.
const STOP_TIMEOUT: Duration = Duration::from_millis(9500);

/// Why a node did not start, or did not end as it should.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{rule}")]
    Runtime { rule: &'static str, source: std::io::Error },
    #[error("log_level is not understood")]
    LogLevel(#[from] tracing_subscriber::filter::ParseError),
    #[error("cannot listen for clients on {address}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the node did not stop within {} s", STOP_TIMEOUT.as_secs_f32())]
    Overdue,
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(error) => error.exit_code(),
            Self::Runtime { .. } => 1,
            Self::LogLevel(_) => 2,
            Self::Listen { .. } => 10,
            Self::Start(error) => match error {
                StartError::Listen { .. } => 11,
                StartError::Storage(error) => match error {
                    OpenError::Locked { .. } => 12,
                    OpenError::Foreign { .. } | OpenError::Unfinished { .. } => 13,
                    OpenError::NewerFormat { .. } => 14,
                    OpenError::Damaged { .. } => 15,
                    OpenError::Unavailable { .. } | OpenError::Io { .. } => 16,
                },
                StartError::Interrupted(_) | StartError::Thread(_) => 17,
            },
            Self::Overdue => 18,
        }
    }
}

/// Runs the program with the process's arguments.
#[must_use]
pub fn run() -> ExitCode {
    run_with(std::env::args_os().collect(), TestHooks::default())
}

/// What only tests ask for; no setting does.
#[derive(Clone, Debug, Default)]
pub struct TestHooks {
    /// Deliberate faults.
    pub faults: Faults,
    /// A file that says where plans are to be held back.
    pub hold_file: Option<PathBuf>,
}

/// Runs the program with what tests ask for.
#[must_use]
pub fn run_with(arguments: Vec<OsString>, hooks: TestHooks) -> ExitCode {
    end_the_process_on_panic();
    match invoke(arguments, hooks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = chain(&failure).replace('\n', " ");
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(std::io::stderr(), "kvnode: {line}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn invoke(arguments: Vec<OsString>, hooks: TestHooks) -> Result<(), Failure> {
    let environment = |name: &str| std::env::var_os(name);
    let read_file = |path: &Path| std::fs::read_to_string(path);
    match config::load(arguments, environment, read_file)? {
        Invocation::Print(text) => {
            let printed = std::io::stdout().write_all(text.as_bytes());
            printed.map_err(|source| Failure::Runtime { rule: "cannot print", source })
        }
        Invocation::Run(config) => {
            report_to_stderr(&config)?;
            raise_descriptor_limit();
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.enable_all().thread_name("kvnode-io");
            if config.worker_threads > 0 {
                builder.worker_threads(config.worker_threads);
            }
            let runtime = builder
                .build()
                .map_err(|source| Failure::Runtime { rule: "cannot start the runtime", source })?;
            let ended = runtime.block_on(Box::pin(serve_until_stopped(&config, hooks)));
            // Blocking calls that are left over must not hold up the end.
            runtime.shutdown_background();
            ended
        }
    }
}

async fn serve_until_stopped(config: &Config, hooks: TestHooks) -> Result<(), Failure> {
    let no_signals = |source| Failure::Runtime { rule: "cannot wait for signals", source };
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let metrics = Arc::new(Metrics::install().unwrap_or_default());

    let address = config.client_addr;
    let cannot_listen = |source| Failure::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
    let listened = listener.local_addr().map_err(cannot_listen)?;
    let node = Arc::new(Node::start(node_config(config, listened, hooks)).await?);

    let (stop, stopping) = watch::channel(false);
    let backend = NodeBackend::new(Arc::clone(&node));
    let limits = config.http_limits();
    let app = App::new(backend, limits, Arc::clone(&metrics), stopping.clone());
    let server = tokio::spawn(serve(listener, Arc::new(app), stopping));
    let upkeep = tokio::spawn(keep_metrics(metrics));
    tracing::info!(client_address = %listened, "clients are served");

    tokio::select! {
        name = either(&mut terminate, &mut interrupt) => tracing::info!(signal = name, "stopping"),
        () = node.departed() => {
            tracing::info!("stopping: this node has left its cluster");
            tokio::select! {
                () = node.give_space_back() => {}
                name = either(&mut terminate, &mut interrupt) => {
                    tracing::info!(signal = name, "stopping before all space was given back");
                }
            }
        }
    }
    let orderly = async {
        // Leaderships leave while requests under way end; both take their time.
        stop.send_replace(true);
        node.core().deliver(Event::HandOver).await;
        // A panic there has ended the process.
        let _ = server.await;
        upkeep.abort();
        match Arc::into_inner(node) {
            Some(node) => node.stop().await,
            None => tracing::error!("a request outlived its connection; stopping without order"),
        }
    };
    tokio::select! {
        ended = tokio::time::timeout(STOP_TIMEOUT, orderly) => ended.map_err(|_| Failure::Overdue)?,
        name = either(&mut terminate, &mut interrupt) => {
            tracing::warn!(signal = name, "asked twice: stopping at once");
        }
    }
    tracing::info!("stopped");
    Ok(())
}

fn node_config(config: &Config, listened: std::net::SocketAddr, hooks: TestHooks) -> NodeConfig {
    let TestHooks { faults, hold_file } = hooks;
    let text = |address: &HostPort| address.as_str().to_owned();
    let advertised = config.advertise_client_addr.as_ref().map(text);
    NodeConfig {
        name: config.name.clone(),
        zone: config.zone.clone(),
        weight: config.weight,
        data_dir: config.data_dir.clone(),
        peer_listen: config.peer_addr,
        peer_advertised: config.advertise_peer_addr.as_ref().map(text),
        client_advertised: advertised.unwrap_or_else(|| listened.to_string()),
        seeds: config.seeds.iter().map(text).collect(),
        value_bytes_max: config.value_bytes_max.get(),
        disk_reserve_bytes: config.disk_reserve_bytes.get() as u64,
        storage: config.storage_settings(),
        settings: config.core_settings(),
        faults,
        hold_file,
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

async fn keep_metrics(metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        metrics.upkeep();
    }
}

/// A panic in any thread ends the process: a node without one of its parts would look alive. One
/// line says where and why.
fn end_the_process_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread");
        let line = panic.to_string().replace('\n', " ");
        // Nobody is left to tell if standard error is closed.
        let _ = writeln!(std::io::stderr(), "kvnode: defect in {name}: {line}");
        std::process::abort();
    }));
}

fn report_to_stderr(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log_level)?;
    let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_coloured);
    match config.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

/// Connections and the store's files need more descriptors than many systems give at first.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, current = limit.current, "cannot raise the limit of open files");
    }
}
