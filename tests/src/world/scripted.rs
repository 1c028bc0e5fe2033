//! Items that carry instructions for the kit's plugins (`tests/plugins`).

use backup_core::api::{BackupSpec, RestoreSpec};
use serde_json::{Value, json};

use super::{
    World,
    backups::{into_namespace, of_namespaces},
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
