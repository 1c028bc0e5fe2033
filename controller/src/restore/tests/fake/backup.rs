//! A stored backup for tests.

use std::collections::HashSet;

use backup_core::api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation};
use backup_store::{ItemPath, Location};
use serde_json::Value;

use crate::testing;

/// Stores a backup named `b` of these items (group resource, namespace, object) in a folder; also
/// returns its location and the location's object. A repeated item is stored in another version.
pub(crate) async fn stored(
    items: &[(&str, Option<&str>, Value)],
) -> (tempfile::TempDir, Location, BackupStorageLocation) {
    let folder = tempfile::tempdir().unwrap();
    let object = testing::local_location(folder.path());
    let location = Location::open(&object, None, None).unwrap();
    let mut writer = location
        .open_backup("b", &crate::testing::claimant("uid-b"))
        .await
        .unwrap();
    let mut files = testing::no_files();
    let mut seen = HashSet::new();
    for (group_resource, namespace, json) in items {
        let name = json["metadata"]["name"].as_str().unwrap_or("x").to_owned();
        let version = json["apiVersion"]
            .as_str()
            .and_then(|api| api.rsplit('/').next())
            .unwrap_or("v1");
        let preferred = seen.insert((group_resource, namespace, name.clone()));
        let path = ItemPath {
            group_resource,
            version,
            preferred,
            namespace: *namespace,
            name: &name,
        };
        writer
            .item(&path, json.to_string().as_bytes())
            .await
            .unwrap();
    }
    for (_, namespace, json) in items {
        let api_version = json["apiVersion"].as_str().unwrap_or_default();
        let kind = json["kind"].as_str().unwrap_or_default();
        let name = json["metadata"]["name"].as_str().unwrap_or("x");
        files
            .resource_list
            .add(api_version, kind, *namespace, name, None);
    }
    let collected = writer.finish().await.unwrap();
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.metadata.uid = Some("uid-b".to_owned());
    backup.status.phase = Some(BackupPhase::Completed);
    collected
        .commit(&files, &backup)
        .await
        .unwrap()
        .publish()
        .await
        .unwrap();
    (folder, location, object)
}
