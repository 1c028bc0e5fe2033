//! Stored files of backups and restores: in the bucket of the default location, and conditions for
//! any store.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context as _, ensure};
use backup_core::api::Backup;
use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use super::{BUCKET, World, backups::Operations as _};
use crate::{binaries::build_control_plane, faulty_s3::FaultyS3, object_store::S3, skip::Skip};

impl World {
    /// The S3 server; skips the test if there is none.
    pub fn s3(&self) -> anyhow::Result<&S3> {
        self.s3
            .as_ref()
            .ok_or_else(|| Skip("there is no S3 server without Go").into())
    }

    /// One more proxy in front of the S3 server, which can inject faults.
    pub async fn faulty_s3(&self) -> anyhow::Result<FaultyS3> {
        FaultyS3::start(self.s3()?.address()).await
    }

    /// Applies an S3 location with the bucket of the same name; `more` are fields of its spec.
    pub async fn apply_s3_location(
        &self,
        name: &str,
        url: &str,
        more: &Value,
    ) -> anyhow::Result<()> {
        let mut spec = S3::location_spec(name, url);
        json_patch::merge(&mut spec, more);
        self.apply_location(name, spec).await
    }

    /// Like `apply_s3_location`, and waits until the location is available.
    pub async fn s3_location(&self, name: &str, url: &str) -> anyhow::Result<()> {
        self.apply_s3_location(name, url, &json!({})).await?;
        self.location_available(name).await
    }

    /// Creates a bucket with these Completed backups of another cluster, and a location of the same
    /// name that is compared with the cluster every second. Waits until all backups are in the
    /// cluster.
    pub async fn synced_bucket(
        &self,
        bucket: &str,
        url: &str,
        backups: &[&str],
    ) -> anyhow::Result<()> {
        self.s3()?.create_bucket(bucket).await?;
        for name in backups {
            self.store_completed(bucket, name)?;
        }
        self.synced_location(bucket, url, &json!({})).await?;
        self.all_arrive(backups).await
    }

    /// A location that is compared with the cluster every second.
    pub async fn synced_location(&self, name: &str, url: &str, more: &Value) -> anyhow::Result<()> {
        let mut fields = json!({ "backupSyncPeriod": "1s" });
        json_patch::merge(&mut fields, more);
        self.apply_s3_location(name, url, &fields).await?;
        self.location_available(name).await
    }

    /// A side file of a backup: `<backup>-<suffix>`.
    pub async fn backup_file(&self, backup: &str, suffix: &str) -> anyhow::Result<Value> {
        self.s3()?
            .document(BUCKET, &format!("backups/{backup}/{backup}-{suffix}"))
            .await
    }

    /// A side file of a restore: `restore-<restore>-<suffix>`.
    pub async fn restore_file(&self, restore: &str, suffix: &str) -> anyhow::Result<Value> {
        self.s3()?
            .document(
                BUCKET,
                &format!("restores/{restore}/restore-{restore}-{suffix}"),
            )
            .await
    }

    pub async fn backup_log(&self, backup: &str) -> anyhow::Result<String> {
        self.s3()?
            .text(BUCKET, &format!("backups/{backup}/{backup}-logs.gz"))
            .await
    }

    pub async fn restore_log(&self, restore: &str) -> anyhow::Result<String> {
        self.s3()?
            .text(
                BUCKET,
                &format!("restores/{restore}/restore-{restore}-logs.gz"),
            )
            .await
    }

    /// The results of a backup, as one text.
    pub async fn backup_results(&self, backup: &str) -> anyhow::Result<String> {
        Ok(self.backup_file(backup, "results.gz").await?.to_string())
    }

    /// The errors in the results of a backup, as one text.
    pub async fn backup_errors(&self, backup: &str) -> anyhow::Result<String> {
        Ok(self.backup_file(backup, "results.gz").await?["errors"].to_string())
    }

    /// The warnings in the results of a backup, as one text.
    pub async fn backup_warnings(&self, backup: &str) -> anyhow::Result<String> {
        Ok(self.backup_file(backup, "results.gz").await?["warnings"].to_string())
    }

    /// The errors in the results of a restore, as one text.
    pub async fn restore_errors(&self, restore: &str) -> anyhow::Result<String> {
        Ok(self.restore_file(restore, "results.gz").await?["errors"].to_string())
    }

    /// Paths of the entries of a backup, in order.
    pub async fn backup_entries(&self, backup: &str) -> anyhow::Result<Vec<String>> {
        let key = format!("backups/{backup}/{backup}.tar.gz");
        let entries = self.s3()?.inspect_tarball(BUCKET, &key).await?;
        Ok(entries
            .iter()
            .filter_map(|entry| Some(entry["name"].as_str()?.to_owned()))
            .collect())
    }

    /// A ConfigMap in the backup, from the namespace with the backup's name.
    pub async fn backup_config_map(&self, backup: &str, name: &str) -> anyhow::Result<Value> {
        self.backup_item(
            backup,
            &format!("configmaps/namespaces/{backup}/{name}.json"),
        )
        .await
    }

    /// The last item of a backup whose path has this prefix.
    pub async fn backup_item(&self, backup: &str, path: &str) -> anyhow::Result<Value> {
        let bytes = self
            .s3()?
            .read(BUCKET, &format!("backups/{backup}/{backup}.tar.gz"))
            .await?;
        let mut tar = tar::Archive::new(MultiGzDecoder::new(bytes.as_ref()));
        let (wanted, mut found) = (format!("resources/{path}"), None);
        for entry in tar.entries()? {
            let entry = entry?;
            if entry.path()?.to_string_lossy().starts_with(&wanted) {
                found = Some(serde_json::from_reader(entry)?);
            }
        }
        found.with_context(|| format!("{wanted}… is not in the backup"))
    }
}

/// Checks that a bucket has every file of an ended backup once, no incomplete upload, and the same
/// end as the cluster. Returns the entries of its tarball.
pub async fn is_whole(
    s3: &S3,
    bucket: &str,
    name: &str,
    ended: &Backup,
) -> anyhow::Result<Vec<Value>> {
    let folder = format!("backups/{name}/");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (key, is_deletion) in s3.versions(bucket).await? {
        let Some(file) = key
            .strip_prefix(&folder)
            .filter(|file| !file.starts_with(".private/"))
        else {
            continue;
        };
        ensure!(!is_deletion, "{key} was deleted");
        *counts.entry(file.to_owned()).or_default() += 1;
    }
    ensure!(
        counts.len() == 9 && counts.values().all(|count| *count == 1),
        "not one version of each file: {counts:?}"
    );
    let uploads = s3.uploads(bucket).await?;
    ensure!(uploads.is_empty(), "left half uploaded: {uploads:?}");
    let contents = format!("{folder}{name}.tar.gz");
    let entries = match ended.status.backup_item_operations_attempted {
        0 => s3.inspect_tarball(bucket, &contents).await?,
        _ => s3.inspect_replaced(bucket, &contents).await?,
    };
    ensure!(entries.len() > 3, "only {} entries", entries.len());
    let metadata = s3
        .read(bucket, &format!("{folder}velero-backup.json"))
        .await?;
    let stored: Backup = serde_json::from_slice(&metadata)?;
    ensure!(
        stored.phase() == ended.phase()
            && stored.status.completion_timestamp == ended.status.completion_timestamp
            && stored.metadata.uid == ended.metadata.uid,
        "the cluster says {:?}, the store {:?}",
        ended.status,
        stored.status
    );
    Ok(entries)
}

/// Like `is_whole`, for a store that is a folder on this machine.
pub async fn is_whole_in_folder(store: &Path, name: &str) -> anyhow::Result<()> {
    let folder = store.join("backups").join(name);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder)?.chain(std::fs::read_dir(folder.join(".private"))?) {
        files.push(entry?.file_name().into_string().unwrap_or_default());
    }
    // Nine files, the private folder, and the claim in it.
    ensure!(
        files.len() == 11 && files.contains(&"owner".to_owned()),
        "{files:?}"
    );
    let output = tokio::process::Command::new(build_control_plane()?)
        .arg("inspect")
        .arg(folder.join(format!("{name}.tar.gz")))
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Checks every count in the status of a backup against the list that it counts, including
/// `entries` of the tarball. Returns the ids of the operations, all of which must be operations on
/// snapshots.
pub async fn counts_equal_lists(
    s3: &S3,
    bucket: &str,
    name: &str,
    backup: &Backup,
    entries: &[Value],
) -> anyhow::Result<BTreeSet<String>> {
    let file = async |suffix: &str| {
        s3.document(bucket, &format!("backups/{name}/{name}-{suffix}"))
            .await
    };
    let status = &backup.status;
    let results = file("results.gz").await?;
    for (kind, count) in [("errors", status.errors), ("warnings", status.warnings)] {
        ensure!(
            sentences(&results[kind]) == count,
            "{kind}: {count} counted, listed {results}"
        );
    }
    let operations = file("itemoperations.json.gz").await?;
    let operations = operations.as_array().cloned().unwrap_or_default();
    let ended = |phase: &str| {
        count(
            operations
                .iter()
                .filter(|one| one["status"]["phase"] == phase),
        )
    };
    ensure!(
        status.operations()
            == [
                count(operations.iter()),
                ended("Completed"),
                ended("Failed")
            ],
        "{status:?}, listed {operations:?}"
    );
    let volumes = file("volumeinfo.json.gz").await?;
    let volumes = volumes.as_array().cloned().unwrap_or_default();
    let good = count(
        volumes
            .iter()
            .filter(|volume| volume["result"] == "succeeded"),
    );
    ensure!(
        (
            status.csi_volume_snapshots_attempted,
            status.csi_volume_snapshots_completed
        ) == (count(volumes.iter()), good),
        "{status:?}, listed {volumes:?}"
    );
    let list: BTreeMap<String, Vec<String>> =
        serde_json::from_value(file("resource-list.json.gz").await?)?;
    let listed: BTreeSet<(&String, &String)> = list
        .iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name)))
        .collect();
    let paths = entries.iter().filter_map(|entry| entry["name"].as_str());
    let items: BTreeSet<&str> = paths
        .filter(|path| path.starts_with("resources/") && !path.contains("-preferredversion/"))
        .collect();
    let counted = status.progress.clone().unwrap_or_default();
    ensure!(
        items.len() == listed.len() && counted.items_backed_up == count(items.iter()),
        "counted {counted:?}, listed {listed:?}, stored {items:?}"
    );
    let id = |one: &Value| one["spec"]["operationID"].as_str().map(str::to_owned);
    let ids: BTreeSet<String> = operations.iter().filter_map(id).collect();
    ensure!(
        ids.len() == operations.len(),
        "ids are missing or there twice: {operations:?}"
    );
    Ok(ids)
}

/// Number of messages in one half of the results.
fn sentences(results: &Value) -> i64 {
    match results {
        Value::Array(list) => count(list.iter()),
        Value::Object(fields) => fields.values().map(sentences).sum(),
        _ => 0,
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    items.fold(0, |count, _| count + 1)
}
