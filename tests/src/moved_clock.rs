//! A clock that is set forward or back, for programs that are started with
//! [`MovedClock::variables`].

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::{binaries::root, skip::Skip};

pub struct MovedClock {
    library: PathBuf,
    /// Eight bytes: the offset in seconds. The programs map it into their memory.
    file: PathBuf,
}

impl MovedClock {
    /// Builds the library into this folder by `cc`, which also links Rust programs.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        if !cfg!(target_os = "linux") {
            return Err(Skip("the time of day is moved on Linux only").into());
        }
        let (library, file) = (folder.join("clock.so"), folder.join("clock"));
        let source = root().join("tests/clock/clock.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .output();
        let built = built
            .context("run cc, the C compiler (build-essential), which builds the moved clock")?;
        ensure!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let clock = Self { library, file };
        std::fs::write(&clock.file, 0_i64.to_ne_bytes())?;
        Ok(clock)
    }

    pub fn variables(&self) -> [(&str, &str); 2] {
        // Both are in a folder of this kit, whose name is valid text.
        [
            ("LD_PRELOAD", self.library.to_str().unwrap_or_default()),
            ("BACKUP_TESTS_CLOCK", self.file.to_str().unwrap_or_default()),
        ]
    }

    /// Sets the time of day forward by this much, from now on.
    pub fn forward(&self, time: Duration) -> anyhow::Result<()> {
        self.set(i64::try_from(time.as_secs())?)
    }

    /// Sets the time of day back by this much, from now on.
    pub fn back(&self, time: Duration) -> anyhow::Result<()> {
        self.set(-i64::try_from(time.as_secs())?)
    }

    fn set(&self, seconds: i64) -> anyhow::Result<()> {
        File::options()
            .write(true)
            .open(&self.file)?
            .write_all_at(&seconds.to_ne_bytes(), 0)?;
        Ok(())
    }
}
