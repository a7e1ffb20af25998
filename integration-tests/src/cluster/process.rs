//! One node as a process: started, signalled, ended, and never lost sight of.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::ports::{self, Reservation};
use crate::wait::wait_for;

/// A node of a test cluster. Its process may be there or not; its name, ports and directory stay.
#[derive(Debug)]
pub struct Node {
    /// `n1`, `n2`, ...
    pub name: String,
    /// `z1`, `z2`, ...
    pub zone: String,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where its output goes.
    pub log_path: PathBuf,
    client: Reservation,
    peer: Reservation,
    program: PathBuf,
    arguments: Vec<String>,
    /// Those that the other nodes do not have.
    own_arguments: Vec<String>,
    environment: Vec<(String, String)>,
    child: Mutex<Option<Child>>,
}

impl Node {
    /// A node that does not run yet, with its own directory below `root`.
    pub(super) fn new(
        root: &Path,
        name: String,
        zone: String,
        program: PathBuf,
    ) -> anyhow::Result<Self> {
        let home = root.join(&name);
        fs::create_dir_all(&home).context("cannot make a node's directory")?;
        Ok(Self {
            data_dir: home.join("data"),
            log_path: home.join("log"),
            client: ports::reserve()?,
            peer: ports::reserve()?,
            program,
            arguments: Vec::new(),
            own_arguments: Vec::new(),
            environment: Vec::new(),
            child: Mutex::default(),
            name,
            zone,
        })
    }

    pub(super) fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    pub(super) fn set_own_arguments(&mut self, arguments: &[&str]) {
        self.own_arguments = arguments.iter().map(ToString::to_string).collect();
    }

    pub(super) fn set_environment(&mut self, environment: Vec<(String, String)>) {
        self.environment = environment;
    }

    /// `host:port` of the HTTP API.
    pub fn client_address(&self) -> String {
        self.client.address()
    }

    /// `host:port` where nodes talk to each other.
    pub fn peer_address(&self) -> String {
        self.peer.address()
    }

    /// Starts the process. Its output is appended to the log.
    pub fn start(&self) -> anyhow::Result<()> {
        let mut child = self.child();
        if child.is_some() {
            bail!("{} runs already", self.name);
        }
        fs::create_dir_all(&self.data_dir).context("cannot make the data directory")?;
        let log = File::options().create(true).append(true).open(&self.log_path);
        let log = log.with_context(|| format!("cannot open {}", self.log_path.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &self.name, "--zone", &self.zone])
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--client-addr", &self.client_address()])
            .args(["--peer-addr", &self.peer_address()])
            .args(&self.arguments)
            .args(&self.own_arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let started = command.spawn();
        *child = Some(started.with_context(|| format!("cannot start {}", self.program.display()))?);
        Ok(())
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Whether a process was started and not ended by the test since. It may have ended by itself.
    pub fn is_started(&self) -> bool {
        self.child().is_some()
    }

    /// Fails if the process ended although nobody ended it.
    pub fn check_running(&self) -> anyhow::Result<()> {
        match self.child().as_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => bail!("{} ended by itself with {}", self.name, describe(status)),
            None => Ok(()),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let child = self.child();
        let Some(child) = child.as_ref() else { bail!("{} does not run", self.name) };
        // The child was not reaped, so the number cannot belong to another process.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process id is positive")?, signal)
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Ends the process with SIGKILL, also if it is stopped, and waits until it is gone.
    pub fn kill(&self) -> anyhow::Result<()> {
        let Some(mut child) = self.child().take() else { bail!("{} does not run", self.name) };
        child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// Stops the process where it stands (SIGSTOP).
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a stopped process go on (SIGCONT).
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks the process to leave (SIGTERM) and says how long it took and how it ended.
    pub async fn terminate(&self, deadline: Duration) -> anyhow::Result<(Duration, ExitStatus)> {
        let started = Instant::now();
        self.signal(Signal::TERM)?;
        let status = self.ended(deadline).await?;
        Ok((started.elapsed(), status))
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(&self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        let status =
            wait_for(&what, deadline, async || match self.child().as_mut().map(Child::try_wait) {
                None => Err("no process".to_owned()),
                Some(Ok(Some(status))) => Ok(status),
                Some(Ok(None)) => Err("still running".to_owned()),
                Some(Err(error)) => Err(error.to_string()),
            })
            .await?;
        *self.child() = None;
        Ok(status)
    }

    /// Removes its data, as if its disk had been replaced. It must not run.
    pub fn wipe(&self) -> anyhow::Result<()> {
        if self.is_started() {
            bail!("{} runs", self.name);
        }
        fs::remove_dir_all(&self.data_dir).context("cannot remove the data directory")
    }

    /// Its resident memory in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        let kibibytes: u64 = kibibytes.context("no resident memory: it has ended")?.parse()?;
        Ok(kibibytes * 1024)
    }

    /// What it printed since it was first started.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log_path).unwrap_or_default()).into_owned()
    }

    /// Kills what still runs, without a word.
    pub(super) fn end(&self) {
        if let Some(mut child) = self.child().take() {
            // Both fail only for a process that is gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a process ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
