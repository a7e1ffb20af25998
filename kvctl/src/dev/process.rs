//! The processes of nodes: started detached, found again by pid file, and never confused with a
//! foreign process that was given the same pid.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use super::layout::{DevNode, Layout, Manifest, of_file, replace};
use crate::exit::{Exit, Failure};

/// A node's process that was found to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its process id.
    pub pid: Pid,
}

/// The program of a node: as named, else beside `kvctl`, else in `PATH`.
pub fn find_program(named: Option<&Path>) -> Result<PathBuf, Failure> {
    const NAME: &str = "kvnode";
    if let Some(path) = named {
        if is_program(path) {
            return fs::canonicalize(path).map_err(|error| of_file("open", path, &error));
        }
        return Err(Failure::usage(format!("{} is not a program", path.display())));
    }
    let beside = std::env::current_exe().ok().and_then(|path| {
        let beside = path.parent()?.join(NAME);
        is_program(&beside).then_some(beside)
    });
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(NAME)).find(|path| is_program(path))
    };
    beside.or_else(in_path).ok_or_else(|| {
        Failure::usage("kvnode is neither beside kvctl nor in PATH")
            .with_hint("name it with --kvnode PATH")
    })
}

/// Starts a node in a process group of its own, so that it outlives this program and its terminal,
/// and writes its pid file. The caller holds the change lock and knows that it does not run.
pub fn start(
    layout: &Layout,
    manifest: &Manifest,
    node: &DevNode,
    program: &Path,
) -> Result<Child, Failure> {
    check_ports(node)?;
    let data_dir = layout.data_dir(&node.name);
    fs::create_dir_all(&data_dir).map_err(|error| of_file("make", &data_dir, &error))?;
    let log_path = layout.log_file(&node.name);
    let log = File::options().create(true).append(true).open(&log_path);
    let log = log.map_err(|error| of_file("open", &log_path, &error))?;
    let log_again = log.try_clone().map_err(|error| of_file("open", &log_path, &error))?;
    let mut command = Command::new(program);
    command
        .args(["--name", &node.name, "--zone", &node.zone])
        .arg("--data-dir")
        .arg(&data_dir)
        .args(["--client-addr", &node.client_address(), "--peer-addr", &node.peer_address()]);
    let seeds = manifest.seeds_of(node).join(",");
    if !seeds.is_empty() {
        command.args(["--seeds", &seeds]);
    }
    command
        .args(&manifest.node_arguments)
        .current_dir(layout.node_dir(&node.name))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_again)
        .process_group(0);
    let mut child = command.spawn().map_err(|error| of_file("start", program, &error))?;
    let written = replace(&layout.pid_file(&node.name), format!("{}\n", child.id()).as_bytes());
    if let Err(failure) = written {
        // A node that nobody finds again must not stay.
        let _ = child.kill();
        let _ = child.wait();
        return Err(failure);
    }
    Ok(child)
}

/// A foreign program on a node's port would answer in its place until the node gives up.
fn check_ports(node: &DevNode) -> Result<(), Failure> {
    for address in [node.client_address(), node.peer_address()] {
        if let Err(error) = TcpListener::bind(&address) {
            let message = format!("{} cannot listen on {address}: {error}", node.name);
            return Err(Failure::new(Exit::Conflict, message)
                .with_hint("end the program that listens there, or use another --port"));
        }
    }
    Ok(())
}

/// The process of a node, if it runs. A pid file left behind is removed.
pub fn find(layout: &Layout, name: &str) -> Option<Running> {
    let pid_file = layout.pid_file(name);
    let text = fs::read_to_string(&pid_file).ok()?;
    let pid = text.trim().parse().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    match pid {
        Some(pid) if runs_node(pid, &layout.data_dir(name)) => Some(Running { pid }),
        Some(_) | None => {
            // Whether it goes now or later does not matter.
            let _ = fs::remove_file(&pid_file);
            None
        }
    }
}

/// Sends a signal, if the process still runs this node; whether it did.
pub fn signal(layout: &Layout, name: &str, running: Running, signal: Signal) -> bool {
    let data_dir = layout.data_dir(name);
    send(running.pid, signal, || runs_node(running.pid, &data_dir))
}

/// The end of a node's log, for telling why it did not come up.
pub fn log_tail(layout: &Layout, name: &str, lines_max: usize) -> String {
    const TAIL_BYTES: u64 = 4096;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(layout.log_file(name))?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

/// Whether the arguments of a process are those of the node with this data directory.
fn is_node(arguments: &[&[u8]], data_dir: &Path) -> bool {
    arguments
        .windows(2)
        .any(|pair| pair[0] == b"--data-dir" && OsStr::from_bytes(pair[1]) == data_dir)
}

#[cfg(target_os = "linux")]
fn runs_node(pid: Pid, data_dir: &Path) -> bool {
    // The command line of a process that has ended but was not reaped is empty.
    let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    let Ok(command_line) = fs::read(path) else {
        return false;
    };
    let arguments: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    is_node(&arguments, data_dir)
}

#[cfg(not(target_os = "linux"))]
fn runs_node(pid: Pid, data_dir: &Path) -> bool {
    let id = pid.as_raw_nonzero().to_string();
    let Ok(output) = Command::new("ps").args(["-ww", "-o", "command=", "-p", &id]).output() else {
        return false;
    };
    let needle = format!("--data-dir {}", data_dir.display());
    String::from_utf8_lossy(&output.stdout).contains(&needle)
}

/// With a descriptor of the process the pid cannot be given away between check and signal.
#[cfg(target_os = "linux")]
fn send(pid: Pid, signal: Signal, is_ours: impl Fn() -> bool) -> bool {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => is_ours() && pidfd_send_signal(process, signal).is_ok(),
        Err(rustix::io::Errno::SRCH) => false,
        // Kernels and sandboxes without descriptors of processes.
        Err(_) => is_ours() && rustix::process::kill_process(pid, signal).is_ok(),
    }
}

#[cfg(not(target_os = "linux"))]
fn send(pid: Pid, signal: Signal, is_ours: impl Fn() -> bool) -> bool {
    is_ours() && rustix::process::kill_process(pid, signal).is_ok()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// How a child ended, in words.
pub fn describe_end(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A node that ended instead of coming up.
pub fn ended_early(layout: &Layout, name: &str, how: &str) -> Failure {
    let tail = log_tail(layout, name, 1);
    let log = layout.log_file(name);
    let said = if tail.is_empty() { String::new() } else { format!("; it said: {tail}") };
    Failure::new(Exit::CheckFailed, format!("{name} ended: {how}{said}"))
        .with_hint(format!("see {}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_recognised_by_its_data_directory() {
        let data = Path::new("/d/n1/data");
        let line: &[&[u8]] = &[b"kvnode", b"--name", b"n1", b"--data-dir", b"/d/n1/data", b""];
        assert!(is_node(line, data));
        assert!(!is_node(&[b"vim", b"/d/n1/data"], data));
        assert!(!is_node(&[b"kvnode", b"--data-dir", b"/d/n1/data2"], data));
        assert!(!is_node(&[b"kvnode", b"--data-dir"], data));
        assert!(!is_node(&[], data));
    }

    #[test]
    fn a_pid_that_another_program_got_is_stale() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::create(dir.path()).expect("a layout");
        fs::create_dir_all(layout.data_dir("n1")).expect("made");
        for text in [std::process::id().to_string(), "1".into(), "-5".into(), "x".into()] {
            fs::write(layout.pid_file("n1"), text).expect("written");
            assert_eq!(find(&layout, "n1"), None);
            assert!(!layout.pid_file("n1").exists());
        }
        let running = Running { pid: rustix::process::getpid() };
        assert!(!signal(&layout, "n1", running, Signal::TERM));
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::create(dir.path()).expect("a layout");
        assert_eq!(log_tail(&layout, "n1", 3), "");
        fs::create_dir_all(layout.node_dir("n1")).expect("made");
        let long = (0..2000).map(|line| format!("line {line}\n")).collect::<String>();
        fs::write(layout.log_file("n1"), format!("{long}\n\n")).expect("written");
        assert_eq!(log_tail(&layout, "n1", 2), "line 1998\nline 1999");
    }
}
