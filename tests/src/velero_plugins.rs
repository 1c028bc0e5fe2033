//! A folder with plugin binaries of Velero's kind, and what they note down about their calls.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use crate::{
    binaries::{build_plugins, go_available},
    wait::until,
};

/// The folder `plugins` of a world. What the binaries in it note is in `plugins-state` beside it (`tests/plugins`).
#[derive(Clone, Debug)]
pub struct VeleroPlugins {
    folder: PathBuf,
    state: PathBuf,
}

/// One call to a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    pub call: String,
    /// On which object, as `namespace/name`.
    pub item: String,
    pub process: u32,
}

impl VeleroPlugins {
    /// Builds the binary and puts it into the folder; none without Go. `kubeconfig` is what it talks to the cluster with.
    pub fn install(world: &Path, kubeconfig: &Path) -> anyhow::Result<Option<Self>> {
        if !go_available() {
            return Ok(None);
        }
        let binary = build_plugins()?;
        let plugins = Self { folder: world.join("plugins"), state: world.join("plugins-state") };
        for folder in [&plugins.folder, &plugins.state] {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::copy(&binary, plugins.folder.join("plugins")).context("copy the plugin binary")?;
        std::fs::copy(kubeconfig, plugins.state.join("kubeconfig")).context("copy the kubeconfig")?;
        Ok(Some(plugins))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts the same binary there under another name, which tells how it misbehaves at its start.
    pub fn add(&self, name: &str) -> anyhow::Result<()> {
        std::fs::copy(self.folder.join("plugins"), self.folder.join(name))?;
        Ok(())
    }

    /// Takes a binary away again.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.folder.join(name))?)
    }

    /// Lets the operations end that wait for this (`start=released`).
    pub fn release(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(self.state.join("released"), "")?)
    }

    /// A file that a plugin has written.
    pub fn file(&self, name: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.state.join(name)).with_context(|| format!("read {name} of the plugins"))
    }

    /// Names of the files that a plugin has written, of those that begin so.
    pub fn files(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.state).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Tells a plugin by a file how something goes wrong.
    pub fn tell(&self, name: &str, script: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.state.join(name), script)?)
    }

    /// Takes that back.
    pub fn untell(&self, name: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.state.join(name))?)
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Vec<Called> {
        let text = std::fs::read_to_string(self.state.join("calls")).unwrap_or_default();
        let called = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            Some(Called { call: words.next()?, item: words.next()?, process: words.next()?.parse().ok()? })
        };
        text.lines().filter_map(called).collect()
    }

    /// Waits until a plugin was called so about an object.
    pub async fn wait_for_call(&self, call: &str, item: &str, deadline: Duration) -> anyhow::Result<()> {
        until(&format!("{call} of {item}"), deadline, async || {
            anyhow::Ok(!self.processes(call, item).is_empty())
        })
        .await
    }

    /// The processes that were called so about an object, one for each call.
    pub fn processes(&self, call: &str, item: &str) -> Vec<u32> {
        let all = self.calls().into_iter().filter(|called| called.call == call && called.item == item);
        all.map(|called| called.process).collect()
    }
}
