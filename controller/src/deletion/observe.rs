//! Reads the facts about a request: the backup, the restores that use it, and its store. Nothing is
//! cached.

use backup_client::errors::found;
use backup_core::{
    api::{
        Backup, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    labels,
};
use backup_runtime::{Cluster, list};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    copies,
    decide::{Facts, Store, has_files},
};
use crate::{
    copies::of_deletion,
    location::{LocationError, Locations, is_available, is_read_only},
    restores_of_backup,
    retention::KeptCopies,
};

pub(super) async fn facts(
    cluster: &Cluster,
    locations: &Locations,
    request: &DeleteBackupRequest,
) -> Result<Facts, kube::Error> {
    let name = &request.spec.backup_name;
    let backup = if name.is_empty() {
        None
    } else {
        found(cluster.api::<Backup>().get(name).await, name)?
    };
    let now = Timestamp::now();
    let (users, store) = match &backup {
        Some(backup) => {
            let kept = copies::kept(cluster, locations, request, backup, now).await?;
            (
                restores_of_backup::unfinished(cluster, backup).await?,
                stores(locations, backup, kept.as_ref(), now).await,
            )
        }
        None => (Vec::new(), Store::Ready),
    };
    Ok(Facts {
        backup,
        users,
        store,
        now,
    })
}

/// Requests to delete the backup of this name and uid. A request without a uid may mean a backup
/// created since, so it only counts once it was answered.
pub(super) async fn requests_for(
    cluster: &Cluster,
    backup: &str,
    uid: Option<&str>,
) -> Result<Vec<DeleteBackupRequest>, kube::Error> {
    list::raw::<DeleteBackupRequest, _>(cluster, "", |request| {
        let label = request.labels().get(labels::BACKUP_UID).map(String::as_str);
        let answered = request.data["status"]["phase"].as_str()
            == Some(DeleteBackupRequestPhase::Processed.as_str());
        let meant = if label.is_some() {
            label == uid
        } else {
            answered
        };
        let same = request.data["spec"]["backupName"].as_str() == Some(backup) && meant;
        same.then(|| {
            let mut brief =
                DeleteBackupRequest::new(&request.name_any(), DeleteBackupRequestSpec::default());
            brief.metadata.uid = request.uid();
            brief
        })
    })
    .await
}

/// Whether the files of the backup, and of its copies that are deleted with it, can be deleted.
async fn stores(
    locations: &Locations,
    backup: &Backup,
    kept: Option<&KeptCopies>,
    now: Timestamp,
) -> Store {
    if !has_files(backup) {
        return Store::Ready;
    }
    let own = match locations.of_backup(backup).await {
        Err(error) => unusable(&error),
        Ok(location) => store(&location),
    };
    if own != Store::Ready {
        return own;
    }
    for copy in of_deletion(backup, kept, now) {
        let of_copy = match copies::find(locations, &copy.location).await {
            Ok(None) => gone(&copy.location, kept),
            Ok(Some(location)) => store(&location),
            Err(error) => unusable(&error),
        };
        if of_copy != Store::Ready {
            return or_keep(of_copy, &backup.name_any());
        }
    }
    Store::Ready
}

/// What the copy in a location that does not exist means. Its files may be in the bucket: there, a
/// location that is made again would bring the backup back.
fn gone(location: &str, kept: Option<&KeptCopies>) -> Store {
    match kept {
        None => Store::Never(format!(
            "BackupStorageLocation {location} does not exist, so what is stored there cannot be deleted: create it again"
        )),
        // Those that stay anyhow do not hold up the expiration of the backup.
        Some(_) => Store::Ready,
    }
}

fn unusable(error: &LocationError) -> Store {
    if error.is_transient() {
        Store::Unknown(error.to_string())
    } else {
        Store::Never(error.to_string())
    }
}

fn store(location: &BackupStorageLocation) -> Store {
    let name = location.name_any();
    if is_read_only(location) {
        Store::Never(format!(
            "BackupStorageLocation {name} is read-only: set spec.accessMode to ReadWrite to delete backups"
        ))
    } else if is_available(location) {
        Store::Ready
    } else if location.status.phase.is_none() {
        Store::Unknown(format!(
            "BackupStorageLocation {name} was not validated yet"
        ))
    } else {
        let message = location.status.message.clone();
        let message =
            message.unwrap_or_else(|| format!("BackupStorageLocation {name} is unavailable"));
        Store::NotNow(format!("its files can not be deleted now: {message}"))
    }
}

/// Adds how to delete the backup without its copies.
fn or_keep(of_copy: Store, backup: &str) -> Store {
    let more = |why: String| {
        format!(
            "{why}. A copy of the backup is there: `kubectl backup delete {backup} --keep-copies` leaves it"
        )
    };
    match of_copy {
        Store::Ready => Store::Ready,
        Store::Never(why) => Store::Never(more(why)),
        Store::NotNow(why) => Store::NotNow(more(why)),
        Store::Unknown(why) => Store::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use backup_core::labels::{KEEP_COPIES_ANNOTATION, SCHEDULE_NAME};
    use backup_testkit::{FakeApi, velero_path};
    use serde_json::json;

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn copies_that_go_with_the_backup_need_a_location_that_can_be_written() {
        let api = FakeApi::new();
        let folder = tempfile::tempdir().unwrap();
        let mut location = serde_json::to_value(testing::local_location(folder.path())).unwrap();
        location["status"] = json!({ "phase": "Available" });
        let path = |name: &str| velero_path("BackupStorageLocation", name);
        api.put(&path("default"), location.clone());
        let copies = json!([{ "location": "second", "phase": "Completed", "uid": "u" }]);
        let status = json!({ "phase": "Completed", "copies": copies });
        let spec = json!({ "storageLocation": "default" });
        let backup: Backup =
            serde_json::from_value(testing::velero("Backup", "b", spec, status)).unwrap();
        let cluster = testing::cluster(api.client());
        let locations = testing::locations(&cluster);
        let now = Timestamp::now();
        let found = async |kept: Option<&KeptCopies>| {
            let found = stores(&locations, &backup, kept, now).await;
            format!("{found:?}")
        };
        let text = found(None).await;
        assert!(text.starts_with("Never"), "its location is gone: {text}");
        assert_says!(
            text,
            "BackupStorageLocation second does not exist",
            "kubectl backup delete b --keep-copies"
        );
        assert_eq!(found(Some(&KeptCopies::new())).await, "Ready");
        location["status"]["phase"] = json!("Unavailable");
        api.put(&path("second"), location.clone());
        let text = found(None).await;
        assert!(text.starts_with("NotNow"), "{text}");
        assert_says!(text, "kubectl backup delete b --keep-copies");
        location["status"]["phase"] = json!("Available");
        location["spec"]["accessMode"] = json!("ReadOnly");
        api.put(&path("second"), location);
        let text = found(None).await;
        assert!(
            text.starts_with("Never") && text.contains("--keep-copies"),
            "{text}"
        );
        assert_eq!(found(Some(&KeptCopies::new())).await, "Ready");
    }

    #[tokio::test]
    async fn an_expired_copy_stays_when_the_backup_goes_if_rules_keep_it_or_it_is_the_last() {
        let api = FakeApi::new();
        let cluster = testing::cluster(api.client());
        let locations = testing::locations(&cluster);
        let over = "2020-01-02T00:00:00Z";
        let copies =
            json!([{ "location": "second", "phase": "Completed", "uid": "u", "expiration": over }]);
        let status = json!({ "phase": "Deleting", "startTimestamp": "2026-01-01T00:00:00Z", "copies": copies });
        let mut backup = testing::velero(
            "Backup",
            "b",
            json!({ "storageLocation": "default" }),
            status,
        );
        backup["metadata"]["labels"] = json!({ SCHEDULE_NAME: "nightly" });
        api.put(&velero_path("Backup", "b"), backup.clone());
        let backup: Backup = serde_json::from_value(backup).unwrap();
        let in_bucket = json!({ "provider": "aws", "objectStorage": { "bucket": "b" } });
        let is_there = json!({ "phase": "Available" });
        api.put(
            &velero_path("BackupStorageLocation", "default"),
            testing::velero("BackupStorageLocation", "default", in_bucket, is_there),
        );
        let newer = velero_path("Backup", "newer");
        api.put(
            &newer,
            testing::velero(
                "Backup",
                "newer",
                json!({ "storageLocation": "default" }),
                json!({ "phase": "Completed", "startTimestamp": "2026-01-02T00:00:00Z" }),
            ),
        );
        let spec = json!({ "schedule": "@daily", "template": {},
            "copies": [{ "location": "second", "keep": { "last": 1 } }] });
        let schedule = velero_path("Schedule", "nightly");
        api.put(
            &schedule,
            testing::velero("Schedule", "nightly", spec, json!({})),
        );
        let mut request = DeleteBackupRequest::default();
        let now = Timestamp::now();
        let found = async |request: &DeleteBackupRequest| {
            let kept = copies::kept(&cluster, &locations, request, &backup, now).await;
            format!("{:?}", kept.unwrap())
        };
        assert_eq!(found(&request).await, "None");
        let annotations = request.annotations_mut();
        annotations.insert(KEEP_COPIES_ANNOTATION.to_owned(), "true".to_owned());
        let kept = found(&request).await;
        assert_says!(kept, "second", "the rules of its schedule keep it");
        api.edit(&schedule, |schedule| {
            schedule["spec"]["copies"][0]["keep"] = json!(null);
        });
        assert_eq!(found(&request).await, "Some({})");
        api.delete(&newer);
        let kept = found(&request).await;
        assert_says!(kept, "second", "it is the last good one");
    }
}
