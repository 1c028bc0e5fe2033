//! The plugins of the server: its init containers.

use backup_store::plugin_of;
use serde_json::{Value, json};

use super::some_of;
use crate::{
    commands::migrate::{
        consequence::{Consequence, Subject},
        installation::VeleroInstallation,
        server::repository,
    },
    print::plain,
};

const ON: Subject = Subject("plugins");
/// Images of Velero's project, and the providers that they serve. Our controller has their object
/// stores, and none of their snapshots.
const STORES: [(&str, &str); 3] = [
    ("velero-plugin-for-aws", "aws"),
    ("velero-plugin-for-gcp", "gcp"),
    ("velero-plugin-for-microsoft-azure", "azure"),
];
/// Before Velero 1.14, a plugin took the snapshots of CSI volumes.
const CSI: &str = "velero-plugin-for-csi";
/// Folder that an init container copies a plugin to (Velero `pkg/builder/container_builder.go`,
/// v1.18).
const TARGET: &str = "/target";

/// Use of an init container here.
enum Fate {
    /// Our controller does the same; the verb says what.
    BuiltIn(&'static str),
    /// Our controller needs it for snapshots only.
    Snapshots(String),
    /// Our controller runs it unchanged.
    Carried,
    NoPlugin,
}

impl Fate {
    fn of(container: &Value, installation: &VeleroInstallation) -> Self {
        let mounts = container["volumeMounts"].as_array();
        let mut mounts = mounts.into_iter().flatten();
        if !mounts.any(|mount| mount["mountPath"] == TARGET) {
            return Self::NoPlugin;
        }
        let repository = repository(container["image"].as_str().unwrap_or_default());
        if repository == CSI {
            return Self::BuiltIn("takes snapshots of CSI volumes");
        }
        let store = STORES.iter().find(|(image, _)| *image == repository);
        let Some((_, provider)) = store else {
            return Self::Carried;
        };
        let locations = snapshot_locations(provider, installation);
        let with_snapshots = installation
            .backups
            .iter()
            .filter(|backup| backup.plugin_snapshots > 0)
            .count();
        match (locations.as_slice(), with_snapshots) {
            ([], 0) => Self::BuiltIn("has its store"),
            ([], backups) => Self::Snapshots(format!("backups: {backups}")),
            (names, _) => Self::Snapshots(format!("locations: {}", some_of(names))),
        }
    }
}

/// Names of the locations whose snapshots the plugins of a provider take.
fn snapshot_locations(provider: &str, installation: &VeleroInstallation) -> Vec<String> {
    let all = installation.snapshot_locations.iter();
    let of_provider = all.filter(|location| {
        let object = location.object.as_ref().ok();
        object.is_some_and(|object| plugin_of(&object.spec.provider) == plugin_of(provider))
    });
    of_provider.map(|location| location.name.clone()).collect()
}

pub(crate) fn consequences(installation: &VeleroInstallation) -> Vec<Consequence> {
    let containers = installation.server.init_containers.iter();
    containers
        .map(|container| consequence(container, installation))
        .collect()
}

fn consequence(container: &Value, installation: &VeleroInstallation) -> Consequence {
    let text = |field: &str| plain(container[field].as_str().unwrap_or_default());
    let image = text("image");
    let overlay = "Add it by an overlay, if it is needed (docs/operate/install.md#overlays).";
    match Fate::of(container, installation) {
        Fate::BuiltIn(what) => ON.stays(format!(
            "{image} is not needed: our controller {what}"
        )),
        Fate::Snapshots(users) => ON.changes(format!(
            "{image} goes into our controller for its snapshots ({users}); its store is built in"
        )),
        Fate::Carried => ON
            .changes(format!(
                "{image} goes into our controller, and runs there unchanged with the rights of ServiceAccount \
                 backup-controller"
            ))
            .with_remedy("Grant what it needs beyond them (docs/operate/plugins.md#install-a-plugin)."),
        Fate::NoPlugin => ON
            .changes(format!(
                "init container {} ({image}) is no plugin, and is left out",
                text("name")
            ))
            .with_remedy(overlay),
    }
}

/// Init containers that our controller gets, without environment.
pub(crate) fn carried(installation: &VeleroInstallation) -> Vec<Value> {
    let containers = installation.server.init_containers.iter();
    let carried = containers.filter(|container| {
        let fate = Fate::of(container, installation);
        matches!(fate, Fate::Carried | Fate::Snapshots(_))
    });
    carried
        .map(|container| {
            json!({
                "name": container["name"],
                "image": container["image"],
                "volumeMounts": [{ "name": "plugins", "mountPath": TARGET }],
            })
        })
        .collect()
}
