//! Runs the kubectl plugin as a person would.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;

/// The plugin and the kubeconfig it is used with.
#[derive(Clone, Debug)]
pub struct Plugin {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// What a run of the plugin gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Fails, with everything that was printed, unless the exit code is this one.
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

impl Plugin {
    pub(crate) fn new(program: &Path, kubeconfig: &Path) -> Self {
        Self { program: program.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Where the program is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it with these arguments; a run of more than three minutes is an error.
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Ran> {
        let run = tokio::process::Command::new(&self.program)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("VELERO_NAMESPACE")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_mins(3), run)
            .await
            .with_context(|| format!("kubectl backup {} does not end", args.join(" ")))??;
        Ok(Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
