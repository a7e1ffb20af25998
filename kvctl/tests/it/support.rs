//! Running `kvctl`, waiting, and cleaning up.

use std::fmt::Debug;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A `kvctl` command without settings from the environment.
pub fn kvctl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvctl"));
    command.env_remove("KVCTL_ENDPOINTS").stdin(Stdio::null());
    command
}

/// The fake node, which `cargo test` builds beside `kvctl`.
pub fn fake_node() -> PathBuf {
    let kvctl = Path::new(env!("CARGO_BIN_EXE_kvctl"));
    kvctl.parent().unwrap().join("examples/fake_node")
}

/// Waits for a condition, and says what was last seen if it does not come.
pub fn wait_for<T: Debug>(what: impl Fn() -> T, holds: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let last = what();
        if holds(&last) {
            return last;
        }
        assert!(Instant::now() < deadline, "last seen: {last:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client port such that it and the next 30 ports were free a moment ago.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = u16::try_from(std::process::id() % 200).unwrap() * 100;
    loop {
        let port = 20_000 + (spread + NEXT.fetch_add(50, Ordering::Relaxed)) % 10_000;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if [0, 1, 10, 11, 20, 21, 30, 31].into_iter().all(|step| is_free(port + step)) {
            return port;
        }
    }
}

pub fn is_alive(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running `dev up` in a directory of its own; everything ends with it.
pub struct DevUp {
    pub dir: tempfile::TempDir,
    pub port: u16,
    child: Child,
}

impl DevUp {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), free_port(), arguments)
    }

    pub fn start_in(dir: tempfile::TempDir, port: u16, arguments: &[&str]) -> Self {
        let errors = fs::File::create(dir.path().join("up.err")).unwrap();
        let output = fs::File::create(dir.path().join("up.out")).unwrap();
        let child = kvctl()
            .args(["dev", "up", "--dir"])
            .arg(dir.path())
            .args(["--port", &port.to_string(), "--kvnode"])
            .arg(fake_node())
            .args(arguments)
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap();
        Self { dir, port, child }
    }

    pub fn wait_ready(&self) {
        wait_for(|| self.said(), |said| said.contains("ctrl-c ends all nodes"));
        let printed = || fs::read_to_string(self.dir.path().join("up.out")).unwrap_or_default();
        wait_for(printed, |out| out.contains("CLIENT"));
    }

    /// What it wrote to stderr so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("up.err")).unwrap_or_default()
    }

    pub fn pid(&self, node: &str) -> Option<i32> {
        fs::read_to_string(self.dir.path().join(node).join("pid")).ok()?.trim().parse().ok()
    }

    pub fn dev(&self, arguments: &[&str]) -> Output {
        let mut command = kvctl();
        command.arg("dev").args(arguments).arg("--dir").arg(self.dir.path());
        if arguments[0] != "stop" {
            command.arg("--kvnode").arg(fake_node());
        }
        command.output().unwrap()
    }

    /// Ends it as ctrl-c does; its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.interrupt();
        self.wait()
    }

    /// Waits for its end; its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            if Instant::now() >= deadline {
                self.kill();
                panic!("it does not end; it said: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn interrupt(&self) {
        signal(self.child.id() as i32, "INT");
    }

    /// Kills it, and not its nodes.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it and keeps its directory.
    pub fn into_dir(mut self) -> (tempfile::TempDir, u16) {
        assert_eq!(self.end(), Some(0));
        self.into_dir_after_end()
    }

    pub fn into_dir_after_end(mut self) -> (tempfile::TempDir, u16) {
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (dir, self.port)
    }
}

impl Drop for DevUp {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

pub fn signal(pid: i32, name: &str) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let signal = match name {
        "INT" => rustix::process::Signal::INT,
        "TERM" => rustix::process::Signal::TERM,
        "KILL" => rustix::process::Signal::KILL,
        _ => panic!("no such signal here"),
    };
    rustix::process::kill_process(pid, signal).unwrap();
}
