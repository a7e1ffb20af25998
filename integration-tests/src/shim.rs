//! A disk whose syncs can be counted and held: a small C library, compiled here and loaded into the
//! nodes in front of libc.
//!
//! A killed process does not show a missing sync, as what it wrote survives in the page cache. A sync
//! that is held does: whatever is acknowledged meanwhile was acknowledged without it.
//! Only calls through libc are seen, not those by raw system call.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use tempfile::TempDir;

const SOURCE: &str = include_str!("shim/sync.c");
const CONTROL_BYTES: u64 = 32;
const CONTROL_VARIABLE: &str = "RINGKV_SYNC_CONTROL";

/// The compiled library with the control files of the nodes that load it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shim {
    directory: Arc<TempDir>,
}

/// How often data was made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// Calls of `fdatasync`.
    pub fdatasyncs: u64,
    /// Calls of `fsync`.
    pub fsyncs: u64,
    /// Calls of `sync_file_range`, which promise nothing.
    pub ranges: u64,
}

impl Syncs {
    /// The calls that promise durability.
    pub fn durable(&self) -> u64 {
        self.fdatasyncs + self.fsyncs
    }
}

impl Shim {
    /// Compiles the library.
    pub fn build() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("ringkv-shim-").tempdir()?;
        let source = directory.path().join("sync.c");
        fs::write(&source, SOURCE)?;
        let output = Command::new("cc")
            .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(directory.path().join("sync.so"))
            .arg(&source)
            .output()
            .context("the sync shim needs a C compiler called `cc`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the sync shim does not compile: {said}");
        Ok(Self { directory: Arc::new(directory) })
    }

    /// The variables with which a process loads the library and finds its control file, which is
    /// made if it is not there.
    pub fn environment(&self, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        let path = self.control_path(name);
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        file.set_len(CONTROL_BYTES)?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Ok(vec![
            ("LD_PRELOAD".to_owned(), text(&self.directory.path().join("sync.so"))),
            (CONTROL_VARIABLE.to_owned(), text(&path)),
        ])
    }

    /// Holds the syncs of a process from now on, or lets them go.
    pub fn hold(&self, name: &str, is_held: bool) -> anyhow::Result<()> {
        let file = File::options().write(true).open(self.control_path(name))?;
        file.write_all_at(&u32::from(is_held).to_ne_bytes(), 0)?;
        Ok(())
    }

    /// How many calls of a process are being held.
    pub fn held(&self, name: &str) -> anyhow::Result<u32> {
        let mut number = [0; 4];
        File::open(self.control_path(name))?.read_exact_at(&mut number, 4)?;
        Ok(u32::from_ne_bytes(number))
    }

    /// The calls of a process since its control file was made.
    pub fn syncs(&self, name: &str) -> anyhow::Result<Syncs> {
        let file = File::open(self.control_path(name))?;
        let number = |offset| -> anyhow::Result<u64> {
            let mut number = [0; 8];
            file.read_exact_at(&mut number, offset)?;
            Ok(u64::from_ne_bytes(number))
        };
        Ok(Syncs { fdatasyncs: number(8)?, fsyncs: number(16)?, ranges: number(24)? })
    }

    fn control_path(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.control"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_for;
    use std::time::Duration;

    /// A program that syncs a file once, through libc.
    fn syncing_program(shim: &Shim, name: &str) -> anyhow::Result<std::process::Child> {
        let file = shim.directory.path().join("synced");
        let script = "import os, sys; f = open(sys.argv[1], 'wb'); f.write(b'x'); f.flush(); \
                      os.fdatasync(f.fileno()); os.fsync(f.fileno())";
        let program = Command::new("python3")
            .args(["-c", script])
            .arg(file)
            .envs(shim.environment(name)?)
            .spawn();
        program.context("python3 is needed")
    }

    #[tokio::test]
    async fn syncs_are_counted_and_held() -> anyhow::Result<()> {
        let shim = Shim::build()?;
        let mut free = syncing_program(&shim, "free")?;
        assert!(free.wait()?.success());
        let want = Syncs { fdatasyncs: 1, fsyncs: 1, ranges: 0 };
        assert_eq!(shim.syncs("free")?, want);

        shim.environment("held")?;
        shim.hold("held", true)?;
        let mut held = syncing_program(&shim, "held")?;
        wait_for("a held sync", Duration::from_secs(10), async || {
            match shim.held("held").map_err(|error| error.to_string())? {
                1 => Ok(()),
                other => Err(format!("{other} are held")),
            }
        })
        .await?;
        assert!(held.try_wait()?.is_none(), "it went on although its sync is held");
        shim.hold("held", false)?;
        assert!(held.wait()?.success());
        assert_eq!(shim.syncs("held")?, want);
        Ok(())
    }
}
