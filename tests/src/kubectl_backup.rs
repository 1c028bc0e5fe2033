//! Runs the kubectl plugin as a user would.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::process::peak_memory_kib;

/// The plugin and the kubeconfig it is used with.
#[derive(Clone, Debug)]
pub struct KubectlBackup {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Ran {
    /// Runs a command to its end. Errors: it takes longer than three minutes.
    pub async fn of(command: Command) -> anyhow::Result<Self> {
        Self::interrupted(command, std::future::pending()).await
    }

    /// Like `of`, but interrupts the command as Ctrl-C does once `when` is over.
    async fn interrupted(
        mut command: Command,
        when: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        let shown = format!("{:?}", command.as_std());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = command
            .spawn()
            .with_context(|| format!("{shown} cannot be started"))?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut end = std::pin::pin!(child.wait_with_output());
        let run = async {
            tokio::select! {
                output = &mut end => return Ok(output?),
                is_time = when => is_time?,
            }
            kill_process(id.context("it has no id")?, Signal::INT)?;
            anyhow::Ok(end.await?)
        };
        let output = tokio::time::timeout(Duration::from_mins(3), run)
            .await
            .with_context(|| format!("{shown} does not end"))??;
        Ok(Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            elapsed: start.elapsed(),
        })
    }

    /// Fails with the whole output unless the exit code is this one.
    pub fn expect_code(self, code: i32) -> anyhow::Result<Self> {
        anyhow::ensure!(
            self.code == code,
            "exit code {} and not {code}\n{}\n{}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(self)
    }
}

impl KubectlBackup {
    pub(crate) fn new(program: &Path, kubeconfig: &Path) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs the plugin with these arguments. Errors: the exit code is not 0.
    pub async fn succeeds(&self, args: &[&str]) -> anyhow::Result<Ran> {
        self.fails(0, args).await
    }

    /// The standard output for these arguments. Errors: the exit code is not 0.
    pub async fn stdout(&self, args: &[&str]) -> anyhow::Result<String> {
        Ok(self.succeeds(args).await?.stdout)
    }

    /// Runs the plugin with these arguments. Errors: the exit code is not this one.
    pub async fn fails(&self, code: i32, args: &[&str]) -> anyhow::Result<Ran> {
        self.run(args).await?.expect_code(code)
    }

    /// Runs the plugin with these arguments. Errors: it takes longer than three minutes.
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Ran> {
        Ran::of(self.command(args)).await
    }

    /// Runs the plugin with these arguments, and interrupts it once `when` is over.
    pub async fn interrupted(
        &self,
        args: &[&str],
        when: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<Ran> {
        Ran::interrupted(self.command(args), when).await
    }

    /// Runs the plugin, and returns its peak memory, sampled every few milliseconds. Errors: the
    /// exit code is neither 0 nor 1.
    pub async fn peak_memory_kib(&self, args: &[&str]) -> anyhow::Result<u64> {
        let mut command = self.command(args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().context("it has no id")?;
        let mut peak = 0;
        loop {
            if let Some(status) = child.try_wait()? {
                anyhow::ensure!(
                    matches!(status.code(), Some(0 | 1)) && peak > 0,
                    "{args:?}: {status}, {peak} KiB"
                );
                return Ok(peak);
            }
            peak = peak_memory_kib(id).unwrap_or(peak);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Removes the plugin's cache of backups from earlier runs.
    pub fn forget(&self) -> anyhow::Result<()> {
        let folder = self.cache();
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        Ok(())
    }

    fn cache(&self) -> PathBuf {
        self.kubeconfig.with_extension("cache")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("VELERO_NAMESPACE");
        command.env("KUBECACHEDIR", self.cache());
        command
    }
}
