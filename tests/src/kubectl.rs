//! The clients of users and pipelines: the published kubectl, and a client-go program.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use backup_core::api::Backup;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::{install::NAMESPACE, kubectl_backup::Ran};

/// kubectl and the client-go program, with the kubeconfig that they use.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

/// Result of one creation, as a client-go program saw it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientGo {
    /// Name of the created object; empty if none was created.
    pub name: String,
    pub uid: String,
    pub elapsed_seconds: f64,
    /// Number of requests that were sent for the one call.
    pub attempts: u32,
    /// The error in words; empty for success.
    pub error: String,
    pub code: u16,
    pub reason: String,
    /// Seconds after which the server suggests a retry.
    pub retry_after_seconds: u32,
    pub causes: Vec<Value>,
    pub warnings: Vec<String>,
}

impl Kubectl {
    /// Manifests and caches go into `folder`.
    pub(crate) fn new(program: PathBuf, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("kubectl");
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            program,
            kubeconfig: kubeconfig.to_owned(),
            folder,
        })
    }

    /// Writes an object to a file, for `-f`.
    pub fn manifest(&self, object: &impl serde::Serialize) -> anyhow::Result<String> {
        let text = serde_json::to_vec(object)?;
        let path = tempfile::Builder::new()
            .suffix(".json")
            .tempfile_in(&self.folder)?
            .keep()?
            .1;
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Ran> {
        Ran::of(self.command("kubectl", args)).await
    }

    /// Runs kubectl with these arguments. Errors: the exit code is not 0.
    pub async fn succeeds(&self, args: &[&str]) -> anyhow::Result<Ran> {
        self.run(args).await?.expect_code(0)
    }

    /// Creates the object of a manifest by client-go, with its built-in retries.
    pub async fn client_go(
        &self,
        manifest: &str,
        resource: &str,
        flags: &[&str],
    ) -> anyhow::Result<ClientGo> {
        let mut command = self.command(
            "client-go-create",
            &["--file", manifest, "--resource", resource],
        );
        command.args(flags);
        let ran = Ran::of(command).await?;
        serde_json::from_str(&ran.stdout).with_context(|| format!("{ran:?}"))
    }

    /// Runs the commands of a page in a folder, as a user would in a shell.
    pub async fn shell(&self, plugin: &Path, folder: &Path, commands: &str) -> anyhow::Result<Ran> {
        let mut command = self.in_shell(plugin)?;
        command
            .args(["-e", "-x", "-c", commands])
            .current_dir(folder);
        Ran::of(command).await
    }

    /// A shell in which `kubectl` and `kubectl backup` (this plugin) can be run.
    pub fn in_shell(&self, plugin: &Path) -> anyhow::Result<Command> {
        let bin = self.folder.join("bin");
        std::fs::create_dir_all(&bin)?;
        let (kubectl, plugin) = (self.program.display(), plugin.display());
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = backup ]; then shift; exec '{plugin}' \"$@\"; fi\nexec '{kubectl}' kubectl \"$@\"\n"
        );
        let program = bin.join("kubectl");
        std::fs::write(&program, script)?;
        std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .env("PATH", format!("{}:{path}", bin.display()))
            .env_remove("VELERO_NAMESPACE");
        self.set_environment(&mut command);
        Ok(command)
    }

    fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(name).args(args);
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        command.env("KUBECONFIG", &self.kubeconfig);
        // Discovery data cached for one world must not be used for the next one on the same port.
        command
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .env("HOME", &self.folder);
    }
}

/// A Backup with its kind and its namespace, as in a manifest.
pub fn with_kind(backup: &Backup) -> Value {
    let mut object = serde_json::to_value(backup).unwrap_or_default();
    object["apiVersion"] = "velero.io/v1".into();
    object["kind"] = "Backup".into();
    object["metadata"]["namespace"] = NAMESPACE.into();
    object
}
