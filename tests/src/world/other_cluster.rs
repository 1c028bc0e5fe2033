//! Backups that another cluster has put into a bucket, and their synchronisation.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use backup_core::{
    api::Backup,
    labels::{SYNC_ANNOTATION, SYNC_PENDING_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::Summary,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::World;
use crate::{
    api::ApiExt as _,
    archive::{gzipped, tarball},
    wait::{Probe, TIMEOUT, eventually},
};

/// Metadata of a backup as another cluster has written it.
pub fn metadata(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": "old", "uid": format!("old-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "velero.io/storage-location": "old" } },
        "spec": { "storageLocation": "old", "ttl": "720h0m0s", "includedNamespaces": ["nowhere"],
            "hooks": { "resources": [{ "name": "h", "pre": [{ "exec": { "command": ["/bin/false"] } }] }] } },
        "status": { "version": 1, "formatVersion": "1.1.0", "phase": phase, "startTimestamp": "2026-01-01T00:00:00Z",
            "completionTimestamp": "2026-01-01T00:01:00Z", "expiration": "2126-01-01T00:00:00Z" },
    })
}

impl World {
    /// The folder of a backup, on the S3 server's disk.
    pub fn stored_folder(&self, bucket: &str, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.s3()?.files(bucket).join("backups").join(name))
    }

    /// Puts a backup into a bucket, as another cluster would.
    pub fn store_backup(&self, bucket: &str, name: &str, metadata: &Value) -> anyhow::Result<()> {
        let folder = self.stored_folder(bucket, name)?;
        std::fs::create_dir_all(&folder)?;
        std::fs::write(
            folder.join(format!("{name}.tar.gz")),
            tarball(&[("metadata/version", b"1.1.0\n")])?,
        )?;
        std::fs::write(
            folder.join("velero-backup.json"),
            serde_json::to_vec_pretty(metadata)?,
        )?;
        Ok(())
    }

    /// Puts a Completed backup into a bucket, as another cluster would.
    pub fn store_completed(&self, bucket: &str, name: &str) -> anyhow::Result<()> {
        self.store_backup(bucket, name, &metadata(name, "Completed"))
    }

    /// Adds a compressed side file to such a backup: `<name>-<suffix>`.
    pub fn store_file(
        &self,
        bucket: &str,
        name: &str,
        suffix: &str,
        list: &Value,
    ) -> anyhow::Result<()> {
        let folder = self.stored_folder(bucket, name)?;
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(
            folder.join(format!("{name}-{suffix}")),
            gzipped(list.to_string().as_bytes())?,
        )?)
    }

    /// The summary of the last synchronisation of a location.
    pub async fn sync_summary(&self, location: &str) -> anyhow::Result<Summary> {
        let location = self.locations().get(location).await?;
        let text = location
            .annotations()
            .get(SYNC_ANNOTATION)
            .context("no pass was made")?;
        Ok(serde_json::from_str(text)?)
    }

    /// Requests synchronisation, and returns its summary. `remove` is the number of removals that a
    /// user agrees to.
    pub async fn sync(&self, location: &str, remove: Option<u64>) -> anyhow::Result<Summary> {
        self.sync_within(location, remove, TIMEOUT).await
    }

    /// Like `sync`, for a bucket that takes long to compare.
    pub async fn sync_within(
        &self,
        location: &str,
        remove: Option<u64>,
        deadline: Duration,
    ) -> anyhow::Result<Summary> {
        let id = format!("{:?}", std::time::SystemTime::now());
        let request = json!({ "id": id, "remove": remove }).to_string();
        let patch = json!({ "metadata": { "annotations": { SYNC_REQUEST_ANNOTATION: request } } });
        self.locations().merge_patch(location, patch).await?;
        eventually("the pass was made", deadline, async || {
            let summary = self.sync_summary(location).await?;
            let seen = format!("{summary:?}");
            let made = summary.request.as_ref() == Some(&id);
            anyhow::Ok(if made {
                Probe::Ready(summary)
            } else {
                Probe::NotYet(seen)
            })
        })
        .await
    }

    /// Waits until a backup is in the cluster.
    pub async fn backup_arrives(&self, name: &str) -> anyhow::Result<Backup> {
        self.backups()
            .wait_until(name, "is in the cluster", TIMEOUT, |_| true)
            .await
    }

    pub async fn all_arrive(&self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            self.backup_arrives(name).await?;
        }
        Ok(())
    }

    /// Waits until a backup is in the cluster with all of its objects.
    pub async fn backup_synced(&self, name: &str) -> anyhow::Result<Backup> {
        let whole = |backup: &Backup| !backup.annotations().contains_key(SYNC_PENDING_ANNOTATION);
        self.backups()
            .wait_until(name, "is no longer pending", Duration::from_mins(2), whole)
            .await
    }

    /// Removes a location and its Backups from the cluster, as a test that ends does.
    pub async fn forget_location(&self, location: &str) -> anyhow::Result<()> {
        self.remove_location(location).await?;
        for backup in self.backups().list_all().await? {
            if backup.spec.storage_location.as_deref() == Some(location) {
                self.backups().delete_object(&backup.name_any()).await?;
            }
        }
        Ok(())
    }
}
