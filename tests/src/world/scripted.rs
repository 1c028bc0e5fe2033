//! Items that carry instructions for the kit's plugins (`tests/plugins`).

use backup_core::api::{BackupSpec, GoDuration, RestoreSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use super::{
    World,
    backups::{Operations as _, into_namespace, of_namespaces},
};
use crate::{
    api::create_all, install::ensure_namespace, skip::Skip, velero_plugins::VeleroPlugins,
};

/// A ConfigMap: its name, its plugin, and the instruction for that.
pub type Script<'a> = (&'a str, &'a str, &'a str);

/// A backup of all objects of a namespace with a label that merely related objects do not have.
pub fn of_scripted(namespace: &str) -> BackupSpec {
    let selector = json!({ "matchLabels": { "listed": "yes" } });
    BackupSpec {
        label_selector: serde_json::from_value(selector).ok(),
        ..of_namespaces(&[namespace])
    }
}

/// A restore of the objects with that label from the backup of this name, into the namespace
/// `<backup>-back`.
pub fn into_back(backup: &str) -> RestoreSpec {
    RestoreSpec {
        label_selector: of_scripted(backup).label_selector,
        ..into_namespace(backup, &format!("{backup}-back"))
    }
}

impl World {
    /// The plugins; skips the test if there are none.
    pub fn plugins(&self) -> anyhow::Result<VeleroPlugins> {
        self.plugins
            .clone()
            .ok_or_else(|| Skip("the plugins are built with Go").into())
    }

    /// Creates a namespace with ConfigMaps for plugins of backups.
    pub async fn scripted(&self, namespace: &str, items: &[Script<'_>]) -> anyhow::Result<()> {
        let objects = items.iter().map(|(name, plugin, script)| {
            json!({ "data": { "now": "before" },
                "metadata": { "name": name, "labels": { "example.io/plugin": plugin, "listed": "yes" },
                    "annotations": { "example.io/do": script } } })
        });
        self.create_in(namespace, objects).await
    }

    /// Creates a namespace with ConfigMaps for plugins of restores, and a backup of the same name.
    /// ConfigMaps without a plugin are not selected by [`into_back`].
    pub async fn scripted_backup(&self, name: &str, items: &[Script<'_>]) -> anyhow::Result<()> {
        let objects = items.iter().map(|(item, plugin, script)| {
            let listed = if plugin.is_empty() { "no" } else { "yes" };
            json!({ "data": { "of": item },
                "metadata": { "name": item, "annotations": { "example.io/restore": script },
                    "labels": { "example.io/restored-by": plugin, "listed": listed } } })
        });
        self.create_in(name, objects).await?;
        self.back_up(name, of_namespaces(&[name])).await.map(drop)
    }

    async fn create_in(
        &self,
        namespace: &str,
        maps: impl Iterator<Item = Value>,
    ) -> anyhow::Result<()> {
        ensure_namespace(&self.client, namespace).await?;
        let objects = maps.map(|mut object| {
            object["apiVersion"] = "v1".into();
            object["kind"] = "ConfigMap".into();
            object["metadata"]["namespace"] = namespace.into();
            object
        });
        create_all(&self.client, objects).await
    }
}

/// A backup or a restore of such items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedJob {
    Backup,
    Restore,
}

/// The end of such a job.
#[derive(Debug)]
pub struct JobEnd {
    pub phase: String,
    pub errors: i64,
    /// Attempted, completed, failed.
    pub operations: [i64; 3],
}

impl ScriptedJob {
    pub const BOTH: [Self; 2] = [Self::Backup, Self::Restore];

    /// One value for a backup, another one for a restore.
    pub fn of<T>(self, backup: T, restore: T) -> T {
        match self {
            Self::Backup => backup,
            Self::Restore => restore,
        }
    }

    /// The plugin that only changes items.
    pub fn plugin(self) -> &'static str {
        self.of("mark", "alter")
    }

    /// The plugin that also starts operations.
    pub fn operator(self) -> &'static str {
        self.of("operate", "move")
    }

    /// A name that the jobs of the other kind do not have.
    pub fn name(self, what: &str) -> String {
        format!("{}-{what}", self.of("plugin", "ria"))
    }

    /// The namespace of its items when it has ended.
    pub fn target(self, name: &str) -> String {
        format!("{name}{}", self.of("", "-back"))
    }

    /// The arguments of our command with this verb.
    pub fn command<'a>(self, verb: &'a str, name: &'a str) -> Vec<&'a str> {
        let noun: &[&str] = self.of(&[], &["restore"]);
        [noun, &[verb, name]].concat()
    }

    /// Creates a namespace with items, and what else the job needs.
    pub async fn prepare(
        self,
        world: &World,
        namespace: &str,
        items: &[Script<'_>],
    ) -> anyhow::Result<()> {
        match self {
            Self::Backup => world.scripted(namespace, items).await,
            Self::Restore => world.scripted_backup(namespace, items).await,
        }
    }

    /// Creates the job for the items of a namespace; `timeout` is that of operations.
    pub async fn create(
        self,
        world: &World,
        namespace: &str,
        name: &str,
        timeout: Option<GoDuration>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Backup => {
                let spec = BackupSpec {
                    item_operation_timeout: timeout,
                    ..of_scripted(namespace)
                };
                world.create_backup(name, spec).await.map(drop)
            }
            Self::Restore => {
                let spec = RestoreSpec {
                    item_operation_timeout: timeout,
                    namespace_mapping: [(namespace.to_owned(), self.target(name))].into(),
                    ..into_back(namespace)
                };
                world.create_restore(name, spec).await.map(drop)
            }
        }
    }

    /// Creates the job for the items of the namespace of the same name.
    pub async fn start(self, world: &World, name: &str) -> anyhow::Result<()> {
        self.create(world, name, name, None).await
    }

    /// Waits for the end, in whatever phase.
    pub async fn ended(self, world: &World, name: &str) -> anyhow::Result<JobEnd> {
        match self {
            Self::Backup => {
                let backup = world.backup_ended(name).await?;
                Ok(JobEnd {
                    phase: backup.phase().to_string(),
                    errors: backup.status.errors,
                    operations: backup.status.operations(),
                })
            }
            Self::Restore => {
                let restore = world.restore_ended(name).await?;
                Ok(JobEnd {
                    phase: restore.phase().to_string(),
                    errors: restore.status.errors,
                    operations: restore.status.operations(),
                })
            }
        }
    }

    /// A side file.
    pub async fn file(self, world: &World, name: &str, suffix: &str) -> anyhow::Result<Value> {
        match self {
            Self::Backup => world.backup_file(name, suffix).await,
            Self::Restore => world.restore_file(name, suffix).await,
        }
    }

    /// The errors in the results, as one text.
    pub async fn errors(self, world: &World, name: &str) -> anyhow::Result<String> {
        Ok(self.file(world, name, "results.gz").await?["errors"].to_string())
    }

    pub async fn log(self, world: &World, name: &str) -> anyhow::Result<String> {
        match self {
            Self::Backup => world.backup_log(name).await,
            Self::Restore => world.restore_log(name).await,
        }
    }

    /// An item of the backup, or the restored item; `None` if it does not exist.
    pub async fn item(
        self,
        world: &World,
        name: &str,
        item: &str,
    ) -> anyhow::Result<Option<Value>> {
        match self {
            Self::Backup => Ok(world.backup_config_map(name, item).await.ok()),
            Self::Restore => {
                let made: Api<ConfigMap> =
                    Api::namespaced(world.client.clone(), &self.target(name));
                let made = made.get_opt(item).await?;
                Ok(made.map(serde_json::to_value).transpose()?)
            }
        }
    }

    /// The plugin that has marked an item.
    pub async fn marked_by(
        self,
        world: &World,
        name: &str,
        item: &str,
    ) -> anyhow::Result<Option<String>> {
        let item = self.item(world, name, item).await?.unwrap_or_default();
        let plugin = item["metadata"]["annotations"]["example.io/marked-by"].as_str();
        Ok(plugin.map(str::to_owned))
    }
}
