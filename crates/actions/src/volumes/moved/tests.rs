use backup_core::{
    api::restore::{RestoreSpec, UploaderConfigForRestore},
    data_movement::{DATA_UPLOAD_NAME, download_of_claim},
    volume_data::MissingData,
};
use backup_runtime::leader::Leadership;
use backup_testkit::{FakeApi, Fault, status as answer};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    csi::fake::snapshot_api,
    restore::{built_in, transform},
};

const DOWNLOADS: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads/";
const CLAIM: &str = "/api/v1/namespaces/copy/persistentvolumeclaims/data";

fn object(value: Value) -> Object {
    let Value::Object(object) = value else {
        panic!("no object: {value}")
    };
    object
}

fn restore(restore_pvs: Option<bool>) -> Restore {
    let mut restore = Restore::new(
        "r",
        RestoreSpec {
            restore_pvs,
            item_operation_timeout: Some(backup_core::api::GoDuration::from_secs(60)),
            ..RestoreSpec::default()
        },
    );
    restore.metadata.uid = Some("uid-r".into());
    restore.metadata.creation_timestamp =
        Some(serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap());
    restore
}

/// A claim that Velero and an earlier restore of ours have restored, and that we have backed up.
fn claim() -> Object {
    let earlier = data_source("download-data-old");
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "shop", "uid": "uid-claim",
            "annotations": { DATA_UPLOAD_NAME: "velero/upload-data-1",
                "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "volumeName": "pv-old", "storageClassName": "fast",
            "selector": { "matchLabels": { DYNAMIC_RESTORE: "shop.data.x" } },
            "dataSource": earlier, "dataSourceRef": earlier },
        "status": { "phase": "Bound" },
    }))
}

fn rules() -> Arc<RestoreRules> {
    Arc::new(RestoreRules {
        namespaces: Arc::new([("shop".to_owned(), "copy".to_owned())].into()),
        restore_label: "r".into(),
        ..RestoreRules::default()
    })
}

/// The data of claim `shop/data`.
fn moved(incomplete: Option<&str>) -> MovedRestore {
    let data = MovedData {
        snapshot: "k1".to_owned(),
        size: 7,
        incomplete: incomplete.map(str::to_owned),
    };
    MovedRestore {
        claims: [(("shop".to_owned(), "data".to_owned()), data)].into(),
        properties: ClaimProperties::new(),
        location: "default".to_owned(),
        rules: rules(),
        restored: RestoredVolumes::default(),
    }
}

fn downloads(fake: &FakeApi) -> DownloadApi {
    DownloadApi::new(&fake.client(), "velero", &Leadership::always())
}

/// Executes the action on a claim.
async fn executed(
    fake: &FakeApi,
    moved: MovedRestore,
    claim: &Object,
    restore: &Restore,
) -> Result<RestoreActionOutput, ActionError> {
    let action = action(&snapshot_api(fake), Some(&downloads(fake)), moved);
    let item = transform::stripped(claim);
    let input = RestoreActionInput {
        item: &item,
        from_backup: claim,
        restore,
        left_to_controller: None,
    };
    action.execute(input).await
}

/// The item as the action `velero.io/pvc` leaves it, which comes later.
async fn unbound(item: &Object, claim: &Object, restore: &Restore) -> Object {
    let all = built_in(&rules());
    let pvc = all.iter().find(|action| action.name() == "velero.io/pvc");
    let input = RestoreActionInput {
        item,
        from_backup: claim,
        restore,
        left_to_controller: None,
    };
    pvc.unwrap().execute(input).await.unwrap().item.unwrap()
}

#[tokio::test]
async fn a_claim_waits_for_the_download_that_is_made_for_it() {
    let (fake, restore) = (FakeApi::new(), restore(None));
    let moved = moved(None);
    let restored = moved.restored.clone();
    let output = executed(&fake, moved, &claim(), &restore).await.unwrap();
    let name = output.operation.unwrap();
    assert_eq!(name, download_name("data", "uid-r", "shop"));
    assert!(output.additional.is_empty() && output.wait.is_none());
    let made = unbound(&output.item.unwrap(), &claim(), &restore).await;
    let source = data_source(&name);
    assert_eq!(
        made["spec"],
        json!({ "storageClassName": "fast", "dataSource": source, "dataSourceRef": source })
    );
    assert_eq!(
        made["metadata"],
        json!({ "name": "data", "namespace": "shop" })
    );

    let download = fake.get(&format!("{DOWNLOADS}{name}")).unwrap();
    assert_eq!(
        download["metadata"]["labels"],
        json!({ "velero.io/restore-name": "r", "velero.io/restore-uid": "uid-r",
            "velero.io/pvc-uid": "uid-claim", "velero.io/async-operation-id": name })
    );
    let owner = &download["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("Restore"), &json!("uid-r"), &json!(true))
    );
    assert_eq!(
        download["spec"],
        json!({ "targetVolume": { "pvc": "data", "pv": "", "namespace": "copy" },
            "backupStorageLocation": "default", "snapshotID": "k1", "snapshotSize": 7,
            "sourceNamespace": "shop", "datamover": "backup-mover", "operationTimeout": "1m0s" })
    );
    let entries = restored.entries();
    assert_eq!(
        serde_json::to_value(&entries).unwrap()[0]["snapshotDataMovementInfo"]["operationID"],
        json!(name)
    );
    assert_eq!(MissingData::of(&entries), None);
}

#[tokio::test]
async fn a_new_volume_gets_the_properties_of_the_old_one() {
    let (fake, restore) = (FakeApi::new(), restore(None));
    let properties = VolumeProperties {
        reclaim_policy: "Retain".to_owned(),
        labels: [("team".to_owned(), "shop".to_owned())].into(),
        ..VolumeProperties::default()
    };
    let mut moved = moved(None);
    let key = ("shop".to_owned(), "data".to_owned());
    moved.properties.insert(key, properties.clone());
    let output = executed(&fake, moved, &claim(), &restore).await.unwrap();
    let path = format!("{DOWNLOADS}{}", output.operation.unwrap());
    let download = fake.get(&path).unwrap();
    let stored = &download["metadata"]["annotations"][VOLUME_PROPERTIES_ANNOTATION];
    let stored: VolumeProperties = serde_json::from_str(stored.as_str().unwrap()).unwrap();
    assert_eq!(stored, properties);
}

/// A claim of this name that is not the restore's, with the volume `pv-1`.
fn put_other_claim(fake: &FakeApi) {
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": "copy", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "volumeName": "pv-1" }, "status": { "phase": "Bound" } });
    fake.put(CLAIM, claim);
}

#[rstest]
#[case::full("full", None, json!(null))]
#[case::without_extra_files("full", Some(true), json!({ DELETE_EXTRA_FILES: "true" }))]
#[case::incremental("incremental", Some(false), json!(null))]
#[tokio::test]
async fn data_is_restored_into_a_claim_that_exists_if_the_restore_says_so(
    #[case] policy: &str,
    #[case] delete_extra_files: Option<bool>,
    #[case] config: Value,
) {
    let fake = FakeApi::new();
    put_other_claim(&fake);
    let mut restore = restore(None);
    restore.spec.existing_volume_data_policy = Some(policy.to_owned());
    restore.spec.uploader_config = Some(UploaderConfigForRestore {
        delete_extra_files,
        ..UploaderConfigForRestore::default()
    });
    let mut moved = moved(None);
    let key = ("shop".to_owned(), "data".to_owned());
    moved.properties.insert(key, VolumeProperties::default());
    let restored = moved.restored.clone();
    let output = executed(&fake, moved, &claim(), &restore).await.unwrap();
    assert_eq!(output.item, None, "the claim is only compared");
    let download = fake
        .get(&format!("{DOWNLOADS}{}", output.operation.unwrap()))
        .unwrap();
    let spec = &download["spec"];
    assert_eq!(spec["restoreType"], policy);
    assert_eq!(
        spec["targetVolume"],
        json!({ "pvc": "data", "pv": "pv-1", "namespace": "copy" })
    );
    assert_eq!(spec["dataMoverConfig"], config);
    assert_eq!(download["metadata"]["annotations"], Value::Null);
    assert!(restored.is_in_place("copy", "data"));
    assert_eq!(MissingData::of(&restored.entries()), None);
}

#[tokio::test]
async fn nothing_is_restored_into_a_claim_without_a_volume() {
    let fake = FakeApi::new();
    put_other_claim(&fake);
    fake.edit(CLAIM, |claim| claim["spec"]["volumeName"] = json!(""));
    let mut restore = restore(None);
    restore.spec.existing_volume_data_policy = Some("full".to_owned());
    let error = executed(&fake, moved(None), &claim(), &restore).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("has no volume"), "{error}");
    assert!(fake.under(DOWNLOADS).is_empty());
}

#[tokio::test]
async fn a_download_that_is_stored_without_its_labels_is_an_error() {
    let (fake, restore) = (FakeApi::new(), restore(None));
    fake.fault(|_, request| {
        let mut object = (request.method == "POST").then(|| request.body.clone())?;
        object["metadata"]["labels"] = json!({});
        Some(Fault::Answer(answer(200, object)))
    });
    let error = executed(&fake, moved(None), &claim(), &restore).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("metadata.labels") && error.contains("mutating webhook"),
        "{error}"
    );
}

#[tokio::test]
async fn a_repeated_run_finds_its_download_and_takes_no_other() {
    let (fake, restore) = (FakeApi::new(), restore(None));
    let first = executed(&fake, moved(None), &claim(), &restore).await;
    let second = executed(&fake, moved(None), &claim(), &restore).await;
    assert_eq!(first.unwrap(), second.unwrap());
    let path = format!("{DOWNLOADS}{}", download_name("data", "uid-r", "shop"));
    fake.edit(&path, |download| {
        download["metadata"]["labels"]["velero.io/restore-uid"] = json!("other");
    });
    let error = executed(&fake, moved(None), &claim(), &restore).await;
    assert!(matches!(error, Err(ActionError::Final { .. })), "{error:?}");
}

#[tokio::test]
async fn a_part_of_the_data_is_restored_and_known_as_a_part() {
    let fake = FakeApi::new();
    let moved = moved(Some("only a part of it was saved"));
    let restored = moved.restored.clone();
    let output = executed(&fake, moved, &claim(), &restore(None)).await;
    assert!(output.unwrap().operation.is_some());
    let missing = MissingData::of(&restored.entries()).unwrap();
    assert_eq!((missing.missing, missing.of), (1, 1));
    assert_eq!(missing.volumes["copy/data"], "only a part of it was saved");
}

/// A claim that exists, or whose data is not wanted, or not in a repository.
#[rstest]
#[case::there(Some("2026-01-01T00:00:00Z"), None, "data", false)]
#[case::made_by_an_earlier_try(Some("2026-01-02T00:00:01Z"), None, "data", true)]
#[case::not_wanted(None, Some(false), "data", false)]
#[case::not_moved(None, None, "other", false)]
#[case::new(None, None, "data", true)]
#[tokio::test]
async fn only_a_claim_of_this_restore_gets_a_download(
    #[case] created: Option<&str>,
    #[case] restore_pvs: Option<bool>,
    #[case] name: &str,
    #[case] expected: bool,
) {
    let (fake, restore) = (FakeApi::new(), restore(restore_pvs));
    if let Some(created) = created {
        let metadata = json!({ "name": "data", "namespace": "copy", "creationTimestamp": created,
            "labels": { labels::RESTORE_NAME: "r" } });
        fake.put(
            CLAIM,
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata }),
        );
    }
    let mut claim = claim();
    json::set(&mut claim, &["metadata"], "name", json!(name));
    let moved = moved(None);
    let restored = moved.restored.clone();
    let output = executed(&fake, moved, &claim, &restore).await.unwrap();
    assert_eq!(output.operation.is_some(), expected);
    assert_eq!(fake.under(DOWNLOADS).len(), usize::from(expected));
    assert_eq!(restored.entries().len(), usize::from(expected));
    // A reference to a download of an earlier restore is never left.
    let item = output.item.unwrap_or_else(|| transform::stripped(&claim));
    let made = unbound(&item, &claim, &restore).await;
    assert_eq!(
        download_of_claim(&made["spec"]),
        output.operation.as_deref()
    );
    assert_eq!(made["metadata"].get("annotations"), None);
}

#[tokio::test]
async fn a_plan_changes_the_claim_and_makes_nothing() {
    let fake = FakeApi::new();
    let mut restore = restore(None);
    restore.metadata.uid = None;
    let moved = moved(None);
    let restored = moved.restored.clone();
    let action = action(&snapshot_api(&fake), None, moved);
    let claim = claim();
    let item = transform::stripped(&claim);
    let input = RestoreActionInput {
        item: &item,
        from_backup: &claim,
        restore: &restore,
        left_to_controller: None,
    };
    let output = action.execute(input).await.unwrap();
    assert_eq!(output.operation, None);
    assert!(download_of_claim(&output.item.unwrap()["spec"]).is_some());
    assert_eq!(restored.entries().len(), 1);
    assert_eq!(fake.writes(), 0);
    assert!(action.progress("d", &restore).await.is_err());
}

#[rstest]
#[case::new(json!({}), false, "", "New")]
#[case::at_work(json!({ "phase": "InProgress", "message": "waiting" }), false, "", "InProgress: waiting")]
#[case::done(json!({ "phase": "Completed" }), true, "", "Completed")]
#[case::failed(json!({ "phase": "Failed", "message": "no pod" }), true, "no pod", "Failed: no pod")]
#[case::cancelled(json!({ "phase": "Canceled" }), true, "DataDownload d is Canceled", "Canceled")]
#[case::of_a_newer_version(json!({ "phase": "Resting" }), false, "", "Resting")]
#[tokio::test]
async fn the_operation_is_as_far_as_its_download(
    #[case] status: Value,
    #[case] completed: bool,
    #[case] error: &str,
    #[case] description: &str,
) {
    let fake = FakeApi::new();
    let mut status = status;
    status["progress"] = json!({ "bytesDone": 3, "totalBytes": 7 });
    fake.put(
        &format!("{DOWNLOADS}d"),
        json!({ "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload", "status": status,
            "metadata": { "name": "d", "namespace": "velero" },
            "spec": { "targetVolume": { "pvc": "data", "pv": "", "namespace": "copy" },
                "backupStorageLocation": "default", "snapshotID": "k1", "sourceNamespace": "shop",
                "operationTimeout": "1m0s" } }),
    );
    let restore = restore(None);
    let action = action(&snapshot_api(&fake), Some(&downloads(&fake)), moved(None));
    let progress = action.progress("d", &restore).await.unwrap();
    assert_eq!(
        (progress.completed, progress.error.as_str()),
        (completed, error)
    );
    assert_eq!(progress.description, description);
    assert_eq!((progress.done, progress.total), (3, 7));
}

#[tokio::test]
async fn a_download_that_is_gone_has_failed_and_is_not_cancelled() {
    let (fake, restore) = (FakeApi::new(), restore(None));
    let action = action(&snapshot_api(&fake), Some(&downloads(&fake)), moved(None));
    let progress = action.progress("d", &restore).await.unwrap();
    assert!(progress.completed && progress.error.contains("was deleted"));
    action.cancel("d", &restore).await.unwrap();
    assert!(action.cancel("../d", &restore).await.is_err());
}

#[tokio::test]
async fn downloads_that_have_not_ended_are_cancelled() {
    let (fake, restore) = (FakeApi::new(), restore(None));
    let output = executed(&fake, moved(None), &claim(), &restore).await;
    let path = format!("{DOWNLOADS}{}", output.unwrap().operation.unwrap());
    fake.edit(&path, |download| {
        download["status"] = json!({ "phase": "Failed" });
    });
    downloads(&fake).cancel_all("uid-r").await.unwrap();
    assert!(fake.get(&path).unwrap()["spec"]["cancel"].is_null());
    fake.edit(&path, |download| {
        download["status"] = json!({ "phase": "Accepted" });
    });
    downloads(&fake).cancel_all("uid-other").await.unwrap();
    downloads(&fake).cancel_all("uid-r").await.unwrap();
    assert_eq!(fake.get(&path).unwrap()["spec"]["cancel"], true);
}
