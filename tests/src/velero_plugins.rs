//! A folder with plugin binaries of Velero's kind, and their records of their calls.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::{
    binaries::{build_plugins, go_available},
    wait::until,
};

/// The folder `plugins` of a world. The binaries in it write their records to `plugins-state`
/// beside it (`tests/plugins`).
#[derive(Clone, Debug)]
pub struct VeleroPlugins {
    folder: PathBuf,
    state: PathBuf,
}

/// One call to a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    pub call: String,
    /// The object of the call, as `namespace/name`.
    pub item: String,
    pub process: u32,
}

impl VeleroPlugins {
    /// Builds the binary into the folder; `None` without Go. The binary accesses the cluster by
    /// `kubeconfig`.
    pub fn install(world: &Path, kubeconfig: &Path) -> anyhow::Result<Option<Self>> {
        if !go_available() {
            return Ok(None);
        }
        let binary = build_plugins()?;
        let plugins = Self {
            folder: world.join("plugins"),
            state: world.join("plugins-state"),
        };
        for folder in [&plugins.folder, &plugins.state] {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::copy(&binary, plugins.folder.join("plugins")).context("copy the plugin binary")?;
        std::fs::copy(kubeconfig, plugins.state.join("kubeconfig"))
            .context("copy the kubeconfig")?;
        Ok(Some(plugins))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds the same binary under another name, which says what goes wrong at its start.
    pub fn add(&self, name: &str) -> anyhow::Result<()> {
        std::fs::copy(self.folder.join("plugins"), self.folder.join(name))?;
        Ok(())
    }

    /// Removes a binary.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.folder.join(name))?)
    }

    /// Ends the operations that wait for this (`start=released`).
    pub fn release(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(self.state.join("released"), "")?)
    }

    /// A file that a plugin has written.
    pub fn file(&self, name: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.state.join(name))
            .with_context(|| format!("read {name} of the plugins"))
    }

    /// Names of the files that a plugin has written, with this prefix.
    pub fn files(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.state)
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Sets a plugin's fault, by a file.
    pub fn tell(&self, name: &str, script: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.state.join(name), script)?)
    }

    /// Removes a plugin's fault.
    pub fn untell(&self, name: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.state.join(name))?)
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Vec<Called> {
        let text = std::fs::read_to_string(self.state.join("calls")).unwrap_or_default();
        let called = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            Some(Called {
                call: words.next()?,
                item: words.next()?,
                process: words.next()?.parse().ok()?,
            })
        };
        text.lines().filter_map(called).collect()
    }

    /// Waits until a plugin has received this call for an object.
    pub async fn wait_for_call(
        &self,
        call: &str,
        item: &str,
        deadline: Duration,
    ) -> anyhow::Result<()> {
        until(&format!("{call} of {item}"), deadline, async || {
            anyhow::Ok(!self.processes(call, item).is_empty())
        })
        .await
    }

    /// The processes that received this call for an object, one for each call.
    pub fn processes(&self, call: &str, item: &str) -> Vec<u32> {
        let all = self
            .calls()
            .into_iter()
            .filter(|called| called.call == call && called.item == item);
        all.map(|called| called.process).collect()
    }

    /// Checks how often plugins have received calls for objects of a namespace: the call, the
    /// object, and the number.
    pub fn have_seen(
        &self,
        namespace: &str,
        expected: &[(&str, &str, usize)],
    ) -> anyhow::Result<()> {
        for (call, object, times) in expected {
            let item = format!("{namespace}/{object}");
            ensure!(
                self.processes(call, &item).len() == *times,
                "not {times} times {call} of {item}: {:?}",
                self.calls()
            );
        }
        Ok(())
    }
}
