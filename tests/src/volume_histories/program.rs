//! `backup-mover` as a process: started as in its pod, paused, killed; and restic, which checks the
//! repository.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_core::data_movement::{MoverOutcome, PASSWORD_VARIABLE, repository_path};
use rustix::process::{Pid, Signal, kill_process};

use super::repository::{NAMESPACE, PASSWORD};
use crate::moved_clock::MovedClock;

/// Maximum time that a program runs, also on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);
/// Interval between looks at a program.
const POLL: Duration = Duration::from_micros(200);

/// The log of all programs of a history.
const LOG: &str = "backup-mover.log";

/// Starts the programs of a history.
pub(super) struct Mover<'a> {
    pub(super) program: &'a Path,
    pub(super) clock: &'a MovedClock,
    /// Folder of the history.
    pub(super) folder: &'a Path,
    /// Folder in the place of a bucket.
    pub(super) bucket: &'a Path,
}

impl Mover<'_> {
    pub(super) fn start(&self, command: &str, args: &[String]) -> anyhow::Result<RunningMover> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(LOG))?;
        let output = tempfile::tempfile_in(self.folder)?;
        let child = Command::new(self.program)
            .arg(command)
            .args(args)
            .args(["--provider", "local", "--bucket"])
            .arg(self.bucket)
            .arg("--repository")
            .arg(repository_path(NAMESPACE))
            .env(PASSWORD_VARIABLE, PASSWORD)
            .envs(self.clock.variables())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("run {}", self.program.display()))?;
        Ok(RunningMover {
            child,
            output,
            begun: Instant::now(),
        })
    }
}

/// A program that runs. It is killed when this is dropped.
pub(super) struct RunningMover {
    child: Child,
    output: File,
    begun: Instant,
}

impl RunningMover {
    /// Time since its start.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits until this is true, or the program has ended.
    pub(super) fn wait_until(
        &mut self,
        mut condition: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        while self.child.try_wait()?.is_none() && !condition()? {
            ensure!(
                self.elapsed() < DEADLINE,
                "backup-mover runs for more than {DEADLINE:?}"
            );
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Sends SIGKILL, unless it has ended.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill()?)
    }

    /// Stops it for a while, unless it has ended.
    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        // Its id is not used again before its end is seen here.
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), signal)?;
        }
        Ok(())
    }

    /// Waits for its end. Returns its outcome; `None` if a signal has ended it.
    pub(super) fn end(&mut self) -> anyhow::Result<Option<MoverOutcome>> {
        self.wait_until(|| Ok(false))?;
        let status = self.child.wait()?;
        if status.signal().is_some() {
            return Ok(None);
        }
        let mut text = String::new();
        self.output.rewind()?;
        self.output.read_to_string(&mut text)?;
        let outcome = serde_json::from_str(&text)
            .with_context(|| format!("{status}, and its outcome is {text:?}: see {LOG}"))?;
        Ok(Some(outcome))
    }
}

impl Drop for RunningMover {
    fn drop(&mut self) {
        // Without an effect if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What restic says about a repository.
pub(super) enum ResticCheck {
    NotInstalled,
    NoErrors,
    /// Its output.
    Errors(String),
}

impl ResticCheck {
    /// Reads all data. Writes nothing.
    pub(super) fn run(repository: &Path) -> anyhow::Result<Self> {
        let output = Command::new("restic")
            .args(["check", "--read-data", "--no-cache", "--no-lock", "--repo"])
            .arg(repository)
            .env("RESTIC_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::NotInstalled);
            }
            Err(error) => return Err(error).context("run restic"),
        };
        if output.status.success() {
            return Ok(Self::NoErrors);
        }
        let text = [output.stdout, output.stderr].concat();
        Ok(Self::Errors(String::from_utf8_lossy(&text).into_owned()))
    }
}
