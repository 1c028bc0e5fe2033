//! Locations that a plugin serves: the one of `tests/plugins/folder.go`, which keeps objects as
//! files, writes them in place, and injects the fault that the file `do` beside them names.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::{World, velero_plugins::VeleroPlugins};

pub const PROVIDER: &str = "example.io/folder";

/// A location that the plugin serves.
pub struct PluginLocation {
    folder: PathBuf,
    name: String,
    plugins: VeleroPlugins,
}

impl PluginLocation {
    /// A location with a bucket of the same name, in a separate folder.
    pub async fn make(world: &World, name: &str) -> anyhow::Result<Self> {
        let plugins = world.plugins()?;
        let folder = world.folder().join("objects").join(name);
        std::fs::create_dir_all(folder.join(name))?;
        let spec = json!({
            "provider": PROVIDER, "objectStorage": { "bucket": name, "prefix": "deep/down" },
            "config": { "folder": folder }, "credential": { "name": "cloud-credentials", "key": "cloud" },
        });
        world.apply_location(name, spec).await?;
        world.location_available(name).await?;
        Ok(Self {
            folder,
            name: name.to_owned(),
            plugins,
        })
    }

    /// Its name, which is also the name of its bucket.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn store(&self) -> PathBuf {
        self.folder.join(&self.name).join("deep/down")
    }

    /// A file of a backup.
    pub fn file(&self, backup: &str, file: &str) -> PathBuf {
        self.store().join("backups").join(backup).join(file)
    }

    /// Sets the plugin's fault from now on; an empty line ends it.
    pub fn misbehave(&self, line: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.folder.join("do"), line)?)
    }

    /// The processes that were asked to write a key, one for each request.
    pub fn writers(&self, key: &str) -> Vec<u32> {
        self.plugins
            .processes("PutObject", &format!("deep/down/backups/{key}"))
    }

    /// The processes that took the received data for the whole object.
    pub fn stored(&self, key: &str) -> Vec<u32> {
        self.plugins
            .processes("stored", &format!("deep/down/backups/{key}"))
    }

    pub async fn remove(self, world: &World) -> anyhow::Result<()> {
        world.remove_location(&self.name).await
    }
}
