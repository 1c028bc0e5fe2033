//! Deletes the snapshots that belong to a stored backup (Velero
//! `internal/delete/actions/csi/volumesnapshotcontent_action.go`, v1.18).
//!
//! They no longer have objects in the cluster. For each one a content is created by hand with the
//! policy `Delete`, and deleted. Its name is derived from the uids, so that a repeated deletion
//! finds it.

use std::time::Duration;

use backup_client::errors::{is_transient, plain};
use backup_core::{api::Backup, labels, names};
use backup_store::Contents;
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{CONTENTS, ContentStatus, SnapshotApi, status};
use crate::json::text;

/// Interval between checks of a created content.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Deletes a backup's snapshots; returns a sentence for each that stays. Waits for the driver at
/// most `patience`, in total.
pub async fn snapshots(
    api: &SnapshotApi,
    backup: &Backup,
    contents: &Contents,
    patience: Duration,
) -> Vec<String> {
    let until = Instant::now() + patience;
    let mut errors = Vec::new();
    for item in contents.items(CONTENTS) {
        let wanted = match contents.object(item) {
            Ok(stored) => wanted(&Value::Object(stored), backup),
            Err(error) => {
                errors.push(error.to_string());
                continue;
            }
        };
        let Some(wanted) = wanted else { continue };
        if let Err(error) = delete(api, &wanted, until).await {
            let handle = wanted
                .data
                .pointer("/spec/source/snapshotHandle")
                .and_then(Value::as_str);
            errors.push(format!(
                "snapshot {} stays in the storage system: {error}",
                handle.unwrap_or_default()
            ));
        }
    }
    errors
}

/// Deletes the snapshots known only from contents that the import of the backup created; returns a
/// sentence for each that stays. Waits for the driver at most `patience`, in total. May be
/// repeated.
pub async fn synced(
    api: &SnapshotApi,
    backup: &Backup,
    patience: Duration,
) -> Result<Vec<String>, kube::Error> {
    let until = Instant::now() + patience;
    let mut errors = Vec::new();
    let uid = backup.uid().unwrap_or_default();
    let contents = if uid.is_empty() {
        Vec::new()
    } else {
        api.synced_for(&uid).await?
    };
    for content in &contents {
        let name = content.name_any();
        let removed = match api.remove_content(content, "Delete").await {
            Ok(()) => gone(api, &name, until).await,
            Err(error) => Err(plain(&error)),
        };
        if let Err(error) = removed {
            errors.push(format!(
                "the snapshot of VolumeSnapshotContent {name} stays in the storage system: {error}"
            ));
        }
    }
    Ok(errors)
}

/// Waits until the driver has removed the snapshot of a deleted content.
async fn gone(api: &SnapshotApi, name: &str, until: Instant) -> Result<(), String> {
    loop {
        match api.content(name).await {
            Ok(None) => return Ok(()),
            Ok(Some(content)) => {
                if Instant::now() >= until {
                    let state = status::<ContentStatus>(&content);
                    return Err(state.error.map_or_else(
                        || "the driver has not removed it".to_owned(),
                        |e| e.to_string(),
                    ));
                }
            }
            Err(error) => {
                if !is_transient(&error) || Instant::now() >= until {
                    return Err(plain(&error));
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Deletes one snapshot. Done when the content is gone: only then has the driver removed the
/// snapshot.
async fn delete(api: &SnapshotApi, wanted: &DynamicObject, until: Instant) -> Result<(), String> {
    let name = wanted.name_any();
    api.create_content(wanted)
        .await
        .map_err(|error| plain(&error))?;
    loop {
        match api.content(&name).await {
            Ok(None) => return Ok(()),
            Ok(Some(content)) => {
                let state = status::<ContentStatus>(&content);
                let leaves = content.metadata.deletion_timestamp.is_some();
                if !leaves && state.ready_to_use == Some(true) {
                    api.delete_content(&content)
                        .await
                        .map_err(|error| plain(&error))?;
                } else if Instant::now() >= until {
                    let silent = if leaves {
                        "the driver has not removed it"
                    } else {
                        "the driver does not answer"
                    };
                    let why = state
                        .error
                        .map_or_else(|| silent.to_owned(), |error| error.to_string());
                    return Err(format!("VolumeSnapshotContent {name}: {why}"));
                }
            }
            Err(error) => {
                if !is_transient(&error) || Instant::now() >= until {
                    return Err(plain(&error));
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The content with which the snapshot of a stored content is deleted; `None` if that is of another
/// backup, or has no handle.
fn wanted(stored: &Value, backup: &Backup) -> Option<DynamicObject> {
    let of = stored
        .pointer("/metadata/labels")?
        .get(labels::BACKUP_NAME)?
        .as_str()?;
    if of != labels::valid_value(&backup.name_any()) {
        return None;
    }
    let handle = text(stored, "/status/snapshotHandle")?;
    let uid = text(stored, "/metadata/uid").unwrap_or_default();
    let name = names::derived(
        "velero-delete",
        "snapshot",
        &[&backup.uid().unwrap_or_default(), uid, handle],
    );
    let object = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        // Drivers find their Secrets in annotations.
        "metadata": { "name": name, "annotations": stored["metadata"]["annotations"],
            "labels": { labels::BACKUP_NAME: of } },
        "spec": {
            "deletionPolicy": "Delete", "driver": stored["spec"]["driver"], "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": format!("ns-{uid}"), "name": format!("name-{uid}") },
        },
    });
    serde_json::from_value(object).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_backup_has_cut_is_deleted() {
        let backup = super::super::fake::backup("Deleting");
        let stored = json!({
            "metadata": { "name": "snapcontent-1", "uid": "u1", "labels": { "velero.io/backup-name": "b" },
                "annotations": { "snapshot.storage.kubernetes.io/deletion-secret-name": "key" } },
            "spec": { "driver": "disk", "deletionPolicy": "Retain", "source": { "volumeHandle": "v" } },
            "status": { "snapshotHandle": "snap-1" },
        });
        let made = wanted(&stored, &backup).unwrap();
        assert_eq!(
            made.name_any(),
            wanted(&stored, &backup).unwrap().name_any(),
            "the same each time"
        );
        assert_eq!(
            made.data["spec"]["source"],
            json!({ "snapshotHandle": "snap-1" })
        );
        assert_eq!(made.data["spec"]["deletionPolicy"], "Delete");
        assert_eq!(made.annotations().len(), 1);
        for (pointer, value) in [
            ("/metadata/labels", json!({})),
            (
                "/metadata/labels",
                json!({ "velero.io/backup-name": "other" }),
            ),
            ("/status", Value::Null),
        ] {
            let mut other = stored.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert!(wanted(&other, &backup).is_none(), "{pointer}");
        }
    }
}
