//! Locations of backups and of snapshots.

use backup_core::api::{BackupStorageLocation, VeleroKind, VolumeSnapshotLocation};
use backup_store::{check_settings, is_built_in, plugin_of};

use crate::{
    commands::migrate::{
        consequence::{Consequence, Subject},
        installation::{Stored, VeleroInstallation},
    },
    print::plain,
};

const ON: Subject = Subject("locations");
/// A setting that a location may not have: it would choose a file of the controller.
const CREDENTIALS_FILE: &str = "credentialsFile";

pub(crate) fn consequences(installation: &VeleroInstallation) -> Vec<Consequence> {
    let namespace = &installation.namespace;
    let mut all = Vec::new();
    for location in &installation.locations {
        all.extend(unreadable(ON, location, namespace));
        all.extend(dropped_fields(ON, location));
        if let Ok(object) = &location.object {
            all.push(of_backups(&location.name, object));
        }
    }
    for location in &installation.snapshot_locations {
        all.extend(unreadable(ON, location, namespace));
        all.extend(dropped_fields(ON, location));
        if let Ok(object) = &location.object {
            all.push(of_snapshots(&location.name, object));
        }
    }
    all
}

pub(crate) fn unreadable<K: VeleroKind>(
    on: Subject,
    stored: &Stored<K>,
    namespace: &str,
) -> Option<Consequence> {
    let why = stored.object.as_ref().err()?;
    let name = &stored.name;
    let kind = K::kind(&());
    let plural = K::plural(&());
    Some(
        on.unknown(format!("{kind} {name} cannot be read: {why}"))
            .with_remedy(format!(
                "Correct it: kubectl -n {namespace} edit {plural}.velero.io {name}"
            )),
    )
}

pub(crate) fn dropped_fields<K: VeleroKind>(
    on: Subject,
    stored: &Stored<K>,
) -> Option<Consequence> {
    if stored.unknown_fields.is_empty() {
        return None;
    }
    let fields = plain(&stored.unknown_fields.join(", "));
    let kind = K::kind(&());
    Some(on.lost(
        format!(
            "{kind} {} has fields that do not exist here, and are dropped when it is next written: {fields}",
            stored.name
        ),
        "Note them for the way back, if they are needed there (kubectl get -o yaml).",
    ))
}

fn of_backups(name: &str, location: &BackupStorageLocation) -> Consequence {
    let spec = &location.spec;
    let provider = plain(&spec.provider);
    if let Err(error) = check_settings(spec) {
        let plugin = if is_built_in(&spec.provider) {
            format!(
                ", or let the plugin serve the location: --controller-arg=--object-store-plugins={provider}, and its init \
                 container in our controller (docs/operate/plugins.md#stores)"
            )
        } else {
            String::new()
        };
        return ON.lost(
            format!(
                "{name} cannot be used as it is: {}",
                plain(&error.to_string())
            ),
            format!("Correct the setting before the move{plugin}."),
        );
    }
    let bucket = plain(&spec.object_storage.bucket);
    let prefix = spec.object_storage.prefix.as_deref().unwrap_or_default();
    let place = if prefix.is_empty() {
        bucket
    } else {
        format!("{bucket}, prefix {}", plain(prefix))
    };
    ON.stays(if is_built_in(&spec.provider) {
        format!("{name} ({place}): provider {provider} is built in")
    } else {
        format!(
            "{name} ({place}) is served by plugin {}",
            plugin_of(&provider)
        )
    })
}

fn of_snapshots(name: &str, location: &VolumeSnapshotLocation) -> Consequence {
    if location.spec.config.contains_key(CREDENTIALS_FILE) {
        return ON.lost(
            format!("{name} takes no snapshots: spec.config[{CREDENTIALS_FILE}] is refused"),
            "Name a Secret in spec.credential before the move, and remove the setting.",
        );
    }
    let plugin = plain(&plugin_of(&location.spec.provider));
    ON.stays(format!(
        "snapshots of {name} are taken by plugin {plugin}, which our controller needs for it"
    ))
}
