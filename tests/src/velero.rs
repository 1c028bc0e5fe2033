//! An installation of Velero, as objects: the definitions of its Go module, and what
//! `tests/velero/installation.yaml` has. No server runs.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};
use kube::Client;
use serde_json::Value;

use crate::{
    binaries::{go_available, root},
    install::{NAMESPACE, apply_file, ensure_namespace, install_definitions},
};

/// Module of Velero, on which `tests/plugins` depends.
const MODULE: &str = "github.com/vmware-tanzu/velero";
const DEFINITIONS: [&str; 2] = ["config/crd/v1/bases", "config/crd/v2alpha1/bases"];

/// Applies all objects, and waits until the definitions are served. Returns `false` without Go, which
/// has the module.
pub async fn install(client: &Client) -> anyhow::Result<bool> {
    if !go_available() {
        return Ok(false);
    }
    let module = module()?;
    let mut files = Vec::new();
    for folder in DEFINITIONS {
        let folder = module.join(folder);
        for file in
            std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?
        {
            files.push(file?.path());
        }
    }
    files.sort();
    install_definitions(client, &files).await?;
    ensure_namespace(client, NAMESPACE).await?;
    apply_file(client, &root().join("tests/velero/installation.yaml")).await?;
    Ok(true)
}

/// The folder of the module, which is downloaded once.
fn module() -> anyhow::Result<PathBuf> {
    let output = Command::new("go")
        .current_dir(root().join("tests/plugins"))
        .args(["mod", "download", "-json", MODULE])
        .output()
        .context("run go mod download")?;
    ensure!(
        output.status.success(),
        "go mod download {MODULE}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let answer: Value =
        serde_json::from_slice(&output.stdout).context("read what go mod download says")?;
    let folder = answer["Dir"].as_str().context("the module has no folder")?;
    Ok(folder.into())
}
