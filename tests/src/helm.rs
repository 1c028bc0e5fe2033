//! The published Helm program, with the chart of `deploy/chart`.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::{
    binaries::{build_helm, root},
    kubectl_backup::Ran,
};

/// Helm, and the folder of its caches.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Helm {
    /// Builds Helm from its Go module at first use.
    pub fn new(kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("helm");
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            program: build_helm()?,
            kubeconfig: kubeconfig.to_owned(),
            folder,
        })
    }

    /// Writes values to a file, for `--values`.
    pub fn values(&self, text: &str) -> anyhow::Result<String> {
        let path = tempfile::Builder::new()
            .suffix(".yaml")
            .tempfile_in(&self.folder)?
            .keep()?
            .1;
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Folder of the chart, as an argument.
    pub fn chart() -> String {
        root().join("deploy/chart").display().to_string()
    }

    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Ran> {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.folder);
        for name in [
            "HELM_CACHE_HOME",
            "HELM_CONFIG_HOME",
            "HELM_DATA_HOME",
            "HELM_NAMESPACE",
        ] {
            command.env_remove(name);
        }
        Ran::of(command).await
    }

    /// Runs Helm with these arguments. Errors: the exit code is not 0.
    pub async fn succeeds(&self, args: &[&str]) -> anyhow::Result<Ran> {
        self.run(args).await?.expect_code(0)
    }
}
