//! Restores whose items are done, and whose operations are running.

use backup_actions::restore::MOVED_NAME;
use backup_core::{
    labels::{LEFT_ITEMS_ANNOTATION, MISSING_DATA_ANNOTATION},
    volume_info::VolumeInfo,
};
use backup_store::{Claimant, FoundJob, Scope};

use super::*;

/// A recorded Restore in this phase, with operations in these phases.
async fn kept(
    phase: &str,
    operations: &[&str],
    errors: usize,
) -> (FakeApi, tempfile::TempDir, JobContext) {
    let operation = |(n, phase): (usize, &&str)| {
        let item = json!({"Group": "", "Resource": "configmaps", "Namespace": "a", "Name": format!("c-{n}")});
        json!({
            "spec": {"restoreName": "r", "restoreUID": "uid-r", "restoreItemAction": "x/gone",
                "resourceIdentifier": item, "operationID": format!("id-{n}")},
            "status": {"phase": phase, "error": if *phase == "Failed" { "no space" } else { "" }},
        })
    };
    let operations = operations.iter().enumerate().map(operation).collect();
    let volume = VolumeInfo::not_restored("a", "data", "pv", "its snapshot was not restored");
    kept_with(phase, operations, volume, errors).await
}

/// The same with these operations and the entry of a volume.
async fn kept_with(
    phase: &str,
    operations: Vec<Value>,
    volume: VolumeInfo,
    errors: usize,
) -> (FakeApi, tempfile::TempDir, JobContext) {
    let (fake, folder, ctx) = prepared(Some(phase)).await;
    let mut files = testing::no_files();
    files.item_operations = operations;
    files
        .resource_list
        .add("v1", "ConfigMap", Some("a"), "c", Some("created"));
    files.volume_info = vec![volume];
    for n in 0..errors {
        files.results.error(Scope::Cluster, format!("error {n}"));
    }
    let (_, store) = ctx.locations.open("default").await.unwrap();
    let claimant = Claimant {
        uid: "uid-r".to_owned(),
        installation: "cluster/velero".to_owned(),
    };
    store
        .open_restore("r", &claimant)
        .await
        .unwrap()
        .await_operations(
            &files,
            json!({"hookStatus": {"hooksAttempted": 2, "hooksFailed": 1},
                "leftItems": {"left": 1, "items": ["ConfigMap a/left"]}}),
        )
        .await
        .unwrap();
    (fake, folder, ctx)
}

pub(super) fn file(folder: &tempfile::TempDir, suffix: &str) -> Value {
    stored(folder, &format!("restore-r-{suffix}"))
}

fn stored(folder: &tempfile::TempDir, name: &str) -> Value {
    let path = folder.path().join("restores/r").join(name);
    serde_json::from_reader(flate2::read::MultiGzDecoder::new(
        std::fs::File::open(path).unwrap(),
    ))
    .unwrap()
}

#[tokio::test]
async fn what_was_recorded_is_gone_on_with_whatever_the_phase_says_and_no_item_is_looked_at_again()
{
    for (phase, operations, errors, end) in [
        ("InProgress", vec!["Completed"], 0, "Completed"),
        (
            "WaitingForPluginOperations",
            vec!["Completed", "Completed"],
            0,
            "Completed",
        ),
        (
            "WaitingForPluginOperations",
            vec!["Completed", "Failed"],
            0,
            "PartiallyFailed",
        ),
        (
            "WaitingForPluginOperations",
            vec!["Completed"],
            1,
            "PartiallyFailed",
        ),
        ("Finalizing", vec!["Completed"], 0, "Completed"),
        // A published failure is not withdrawn.
        (
            "WaitingForPluginOperationsPartiallyFailed",
            vec!["Completed"],
            0,
            "PartiallyFailed",
        ),
    ] {
        let (fake, folder, ctx) = kept(phase, &operations, errors).await;
        assert_eq!(step(&mut worker(&ctx)).await, Step::Done, "{phase}");
        let status = status(&fake);
        assert_eq!(status["phase"], end, "{phase}: {status}");
        assert_eq!(status["restoreItemOperationsAttempted"], operations.len());
        let failed = operations
            .iter()
            .filter(|phase| **phase == "Failed")
            .count();
        assert_eq!(status["restoreItemOperationsFailed"], failed);
        assert_eq!(
            status["progress"],
            json!({"totalItems": 1, "itemsRestored": 1})
        );
        assert_eq!(
            status["hookStatus"],
            json!({"hooksAttempted": 2, "hooksFailed": 1})
        );
        let annotations = &fake.get(RESTORE).unwrap()["metadata"]["annotations"];
        let said = |name: &str| annotations[name].as_str().unwrap_or_default().to_owned();
        assert!(
            said(MISSING_DATA_ANNOTATION).contains("a/data"),
            "{annotations}"
        );
        assert!(
            said(LEFT_ITEMS_ANNOTATION).contains("ConfigMap a/left"),
            "{annotations}"
        );
        assert!(!fake.log().iter().any(|line| is_item(line)), "{phase}");
        let results = file(&folder, "results.gz");
        assert_eq!(
            status["errors"] == 0,
            end == "Completed",
            "{status} {results}"
        );
        assert_eq!(
            results["errors"].to_string().matches("no space").count(),
            failed,
            "{results}"
        );
        assert_eq!(
            file(&folder, "itemoperations.json.gz")
                .as_array()
                .unwrap()
                .len(),
            operations.len()
        );
        assert!(
            !folder
                .path()
                .join("restores/r/.private/uid-r/record")
                .exists(),
            "{phase}"
        );
        assert_eq!(claims(&ctx).await, 0);
    }
}

#[tokio::test]
async fn an_operation_whose_action_is_not_there_any_more_ends_with_a_text_that_says_so() {
    let (fake, folder, ctx) = kept("InProgress", &["New"], 0).await;
    step(&mut worker(&ctx)).await;
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["errors"]),
        (&json!("PartiallyFailed"), &json!(1)),
        "{status}"
    );
    let results = file(&folder, "results.gz");
    assert_says!(
        results["errors"]["namespaces"]["a"][0].as_str().unwrap(),
        "no action x/gone"
    );
    let patches: Vec<_> = fake
        .log()
        .into_iter()
        .filter(|line| line.starts_with("PATCH"))
        .collect();
    assert!(
        patches.len() >= 3,
        "waiting, finalizing, ended: {patches:?}"
    );
}

/// The operation of our data mover decides whether the data of a volume was restored.
#[tokio::test]
async fn data_whose_download_has_failed_is_missing_at_the_end() {
    for (phase, end, missing) in [
        ("Completed", "Completed", ""),
        ("Failed", "PartiallyFailed", "3 files could not be restored"),
        ("Canceled", "PartiallyFailed", "DataDownload d is Canceled"),
        // It was deleted.
        ("", "PartiallyFailed", "was deleted"),
    ] {
        let item = json!({"Group": "", "Resource": "persistentvolumeclaims", "Namespace": "a", "Name": "data"});
        let operation = json!({
            "spec": {"restoreName": "r", "restoreUID": "uid-r", "restoreItemAction": MOVED_NAME,
                "resourceIdentifier": item, "operationID": "d"},
            "status": {"phase": "New"},
        });
        let volume = json!({"pvcNamespace": "a", "pvcName": "data", "restoreMethod": "CSISnapshot",
            "snapshotDataMoved": true,
            "snapshotDataMovementInfo": {"dataMover": "backup-mover", "operationID": "d", "snapshotHandle": "k1"}});
        let volume = VolumeInfo::of(&volume).unwrap();
        let (fake, folder, ctx) =
            kept_with("WaitingForPluginOperations", vec![operation], volume, 0).await;
        if !phase.is_empty() {
            let message = if phase == "Failed" { missing } else { "" };
            fake.put(
                "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads/d",
                json!({"apiVersion": "velero.io/v2alpha1", "kind": "DataDownload",
                    "metadata": {"name": "d", "namespace": "velero"},
                    "status": {"phase": phase, "message": message}}),
            );
        }
        assert_eq!(step(&mut worker(&ctx)).await, Step::Done, "{phase}");
        assert_eq!(status(&fake)["phase"], end, "{phase}");
        let annotations = &fake.get(RESTORE).unwrap()["metadata"]["annotations"];
        let said = annotations[MISSING_DATA_ANNOTATION].as_str();
        assert_eq!(said.is_some(), !missing.is_empty(), "{phase}: {said:?}");
        assert!(
            said.unwrap_or_default().contains(missing),
            "{phase}: {said:?}"
        );
        let volumes = stored(&folder, "r-volumeinfo.json.gz");
        assert_eq!(
            volumes[0]["result"] == "failed",
            said.is_some(),
            "{volumes}"
        );
    }
}

#[tokio::test]
async fn operations_that_are_not_in_the_store_are_waited_for_and_never_none() {
    for (gone, says) in [
        (None, "the record of its operations"),
        (Some(BACKUP), "backup \"b\""),
    ] {
        let (fake, folder, ctx) = prepared(Some("WaitingForPluginOperations")).await;
        if let Some(gone) = gone {
            fake.delete(gone);
        }
        assert!(matches!(step(&mut worker(&ctx)).await, Step::Again(_)));
        let restore = fake.get(RESTORE).unwrap();
        assert_eq!(restore["status"]["phase"], "WaitingForPluginOperations");
        let why = restore["metadata"]["annotations"][BLOCKED_ANNOTATION]
            .as_str()
            .unwrap();
        assert_says!(why, says);
        assert_eq!(claims(&ctx).await, 1, "it still works");
        assert!(
            !folder
                .path()
                .join("restores/r/restore-r-results.gz")
                .exists()
        );
    }
}

#[tokio::test]
async fn a_store_that_takes_no_state_delays_the_end_and_says_why() {
    let (fake, folder, ctx) = kept("WaitingForPluginOperations", &["New"], 0).await;
    // A folder blocks the key of the next state.
    let (_, store) = ctx.locations.open("default").await.unwrap();
    let FoundJob::Awaiting(mut waiting) = store.find_job::<Restore>("r", "uid-r").await.unwrap()
    else {
        panic!("no record")
    };
    let ended = json!({"spec": {"restoreItemAction": "x/gone", "operationID": "id-0"}, "status": {"phase": "Completed"}});
    let state = folder.path().join("restores/r/.private/uid-r/operations-1");
    std::fs::create_dir_all(&state).unwrap();
    let mut delayed = worker(&ctx);
    let blocked = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let restore = fake.get(RESTORE).unwrap();
            if restore["metadata"]["annotations"][BLOCKED_ANNOTATION].is_string() {
                break;
            }
        }
        assert_eq!(
            status(&fake)["phase"],
            "WaitingForPluginOperations",
            "not before it is kept"
        );
        std::fs::remove_dir(&state).unwrap();
        // Another replica is faster.
        waiting.store_operations(&[ended]).await.unwrap();
    };
    let (first, ()) = tokio::join!(step(&mut delayed), blocked);
    assert!(matches!(first, Step::Again(_)), "{first:?}");
    step(&mut delayed).await;
    let restore = fake.get(RESTORE).unwrap();
    assert_eq!(
        restore["status"]["phase"], "Completed",
        "what was kept first counts: {restore}"
    );
    assert!(restore["metadata"]["annotations"][BLOCKED_ANNOTATION].is_null());
}

#[tokio::test]
async fn who_waits_for_operations_or_goes_needs_no_place_among_those_at_work() {
    let (fake, _folder, ctx) = kept("WaitingForPluginOperations", &["Completed"], 0).await;
    let permits = Arc::new(Semaphore::new(0));
    let worker = || worker_with(&ctx, &permits);
    step(&mut worker()).await;
    assert_eq!(status(&fake)["phase"], "Completed");
    let mut going = velero(
        "Restore",
        "r",
        json!({"backupName": "b"}),
        json!({"phase": "InProgress"}),
    );
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    going["metadata"]["finalizers"] = json!(Restores::FINALIZERS);
    fake.put(RESTORE, going);
    step(&mut worker()).await;
    assert!(fake.get(RESTORE).is_none());
    fake.put(
        RESTORE,
        velero("Restore", "r", json!({"backupName": "b"}), json!({})),
    );
    let mut waiting = worker();
    let works = tokio::time::timeout(Duration::from_millis(300), step(&mut waiting)).await;
    assert!(works.is_err(), "it waits for a place");
    assert!(fake.get(ITEM).is_none());
}

#[tokio::test]
async fn a_failed_operation_is_counted_once_at_every_time() {
    let (fake, _folder, ctx) =
        kept("WaitingForPluginOperations", &["Completed", "Failed"], 0).await;
    step(&mut worker(&ctx)).await;
    let patches = fake
        .requests()
        .into_iter()
        .filter(|request| request.is("PATCH", RESTORE));
    let errors: Vec<Value> = patches
        .map(|patch| patch.body["status"]["errors"].clone())
        .collect();
    assert!(
        errors.len() >= 2 && errors.iter().all(|errors| errors.is_null() || *errors == 1),
        "{errors:?}"
    );
    assert_eq!(status(&fake)["errors"], 1);
}
