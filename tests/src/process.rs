//! A child process with its log in a file: started, watched, killed, paused, restarted.

use std::{
    collections::BTreeMap,
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    binaries::build_control_plane,
    wait::{eventually, until, when},
};

/// How to start a process; kept for restarts.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name in messages, and stem of the log file.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Variables added to the environment.
    pub env: BTreeMap<String, String>,
}

/// A running (or ended) process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts the process, appending its output to `<folder>/<name>.log`.
    pub fn start(spec: Spec, folder: &Path) -> anyhow::Result<Self> {
        let mut process = Self {
            log: folder.join(format!("{}.log", spec.name)),
            spec,
            child: None,
        };
        process.launch()?;
        Ok(process)
    }

    /// Starts a program with this kubeconfig; its log and temporary files are in `folder`.
    pub fn start_program(
        name: &str,
        program: &Path,
        args: Vec<String>,
        kubeconfig: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let env = [("KUBECONFIG", kubeconfig), ("TMPDIR", folder)];
        let env = env
            .map(|(name, path)| (name.to_owned(), path.display().to_string()))
            .into();
        Self::start(
            Spec {
                name: name.to_owned(),
                program: program.to_owned(),
                args,
                env,
            },
            folder,
        )
    }

    /// Starts a server of the kit's control-plane binary, and waits until it listens.
    pub(crate) async fn serve(
        component: &str,
        address: SocketAddr,
        mut args: Vec<String>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        args.splice(0..0, [component.to_owned(), format!("--listen={address}")]);
        let spec = Spec {
            name: component.to_owned(),
            program: build_control_plane()?,
            args,
            env: BTreeMap::new(),
        };
        Self::start_listening(spec, address, folder).await
    }

    /// Starts a server, and waits until it listens on this address.
    pub(crate) async fn start_listening(
        spec: Spec,
        address: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let what = format!("{} listens", spec.name);
        let mut process = Self::start(spec, folder)?;
        until(&what, Duration::from_secs(20), async || {
            process.check()?;
            anyhow::Ok(TcpStream::connect(address).await.is_ok())
        })
        .await?;
        Ok(process)
    }

    fn launch(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.spec.program)
            .args(&self.spec.args)
            .envs(&self.spec.env)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!("start {} ({})", self.spec.name, self.spec.program.display())
            })?;
        self.child = Some(child);
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Fails, with the end of the log, when the process has ended by itself.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            bail!("{} ended with {status}:\n{}", self.spec.name, self.tail(30));
        }
        Ok(())
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await.or_else(|e| {
                if e.kind() == std::io::ErrorKind::InvalidInput {
                    Ok(())
                } else {
                    Err(e)
                }
            })?;
        }
        Ok(())
    }

    /// Asks the process to end (SIGTERM), waits up to `patience`, then kills it. True if it ended
    /// by itself.
    pub async fn stop(&mut self, patience: Duration) -> anyhow::Result<bool> {
        self.signal(Signal::TERM)?;
        let Some(child) = &mut self.child else {
            return Ok(true);
        };
        let ended = tokio::time::timeout(patience, child.wait()).await.is_ok();
        self.kill().await?;
        Ok(ended)
    }

    /// Restarts the process with extra environment variables for this start only.
    pub async fn restart_with(&mut self, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        self.kill().await?;
        let env = self.spec.env.clone();
        self.spec.env.extend(
            variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let launched = self.launch();
        self.spec.env = env;
        launched
    }

    /// Restarts the process with extra flags for this start only.
    pub async fn restart_with_flags(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.kill().await?;
        let args = self.spec.args.clone();
        self.spec.args.extend(flags.iter().map(ToString::to_string));
        let launched = self.launch();
        self.spec.args = args;
        launched
    }

    /// Waits until the process has been killed (SIGKILL), by itself or from outside. Errors: it
    /// ended otherwise, or not in time.
    pub async fn killed(&mut self, patience: Duration) -> anyhow::Result<()> {
        use std::os::unix::process::ExitStatusExt as _;
        let Some(child) = &mut self.child else {
            bail!("{} was not running", self.spec.name)
        };
        let Ok(status) = tokio::time::timeout(patience, child.wait()).await else {
            bail!("{} still runs after {patience:?}", self.spec.name);
        };
        let status = status?;
        if status.signal() == Some(Signal::KILL.as_raw()) {
            return Ok(());
        }
        bail!("{} ended with {status}:\n{}", self.spec.name, self.tail(30))
    }

    /// Waits until the process is stopped (SIGSTOP), by itself or from outside. Linux only.
    pub async fn paused(&mut self, patience: Duration) -> anyhow::Result<()> {
        eventually(
            &format!("{} is paused", self.name()),
            patience,
            async || {
                self.check()?;
                let id = self.id().context("process has ended")?;
                let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
                let state = status
                    .lines()
                    .find(|line| line.starts_with("State:"))
                    .unwrap_or_default();
                anyhow::Ok(when(state.contains("T (stopped)"), state))
            },
        )
        .await
    }

    /// Whether the process runs; a paused one does.
    pub fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Whether the process ended by itself, and was not killed here.
    pub fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
    }

    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill().await?;
        self.launch()
    }

    /// Later starts use this program, with the same flags.
    pub(crate) fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.spec.program);
    }

    /// Pauses the process without ending it (SIGSTOP).
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues a paused process (SIGCONT).
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        if let Some(pid) = self
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// Peak memory so far in KiB (Linux: VmHWM).
    pub fn peak_memory_kib(&self) -> anyhow::Result<u64> {
        peak_memory_kib(self.id().context("process has ended")?)
    }

    pub fn tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    pub fn log(&self) -> String {
        self.tail(usize::MAX)
    }
}

/// Peak memory of a process so far (KiB).
pub fn peak_memory_kib(id: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .context("no VmHWM")?;
    Ok(line
        .split_whitespace()
        .nth(1)
        .context("no number")?
        .parse()?)
}
