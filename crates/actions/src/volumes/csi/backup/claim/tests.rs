use backup_core::volume_info::VolumeMethod;
use backup_testkit::FakeApi;

use super::*;
use crate::csi::fake::{
    SNAPSHOTS as PATH, backup, binds, claim, cluster, only_snapshot, requests, snapshot_api,
    upload_api,
};

fn action(fake: &FakeApi) -> (ClaimAction, Arc<BackupVolumes>) {
    let volumes = Arc::new(BackupVolumes::default());
    let action = ClaimAction::new(&snapshot_api(fake), &upload_api(fake), &volumes);
    (action, volumes)
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_snapshotted_and_says_where_its_data_is() {
    let fake = cluster(binds(
        json!({ "snapshotHandle": "snap-1", "restoreSize": 2_u64 << 30 }),
    ));
    let (action, volumes) = action(&fake);
    let output = action
        .execute(&claim("pv-csi"), &backup("InProgress"))
        .await
        .unwrap();
    let snapshot = only_snapshot(&fake).unwrap();
    let name = snapshot["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        snapshot["spec"]["source"]["persistentVolumeClaimName"],
        "data"
    );
    assert_eq!(snapshot["spec"]["volumeSnapshotClassName"], "fast");
    assert_eq!(
        snapshot["metadata"]["labels"],
        json!({ "app": "db", "velero.io/backup-name": "b", "velero.io/backup-uid": "uid-b" })
    );
    let stored = output.item.unwrap();
    assert_eq!(
        stored["metadata"]["annotations"][csi::VOLUME_SNAPSHOT_NAME],
        name
    );
    assert_eq!(
        stored["metadata"]["labels"][csi::VOLUME_SNAPSHOT_NAME],
        name
    );
    assert_eq!(stored["metadata"]["labels"]["velero.io/backup-name"], "b");
    assert_eq!(
        stored["spec"]["resources"]["requests"]["storage"], "2Gi",
        "as large as the snapshot"
    );
    let snapshot = &output.additional[0];
    assert_eq!(
        (snapshot.group_resource.as_str(), snapshot.name.as_str()),
        (SNAPSHOTS, name)
    );
    assert_eq!(output.operation, None);
    assert_eq!(
        volumes.info()[0].backup_method,
        Some(VolumeMethod::CsiSnapshot)
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_names_the_class_of_a_claim() {
    let fake = cluster(binds(json!({ "snapshotHandle": "snap-1" })));
    let class = json!({ "metadata": { "name": "slow" }, "driver": "disk.example.com" });
    fake.put(
        "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/slow",
        class,
    );
    let policy = |_: &Value, _: &Value| VolumeDecision::Snapshot {
        class: Some("slow".to_owned()),
    };
    let volumes = Arc::new(BackupVolumes::with_policy(Box::new(policy)));
    let action = ClaimAction::new(&snapshot_api(&fake), &upload_api(&fake), &volumes);
    // In advance, and at its execution.
    action.begin(&claim("pv-csi"), &backup("InProgress")).await;
    assert_eq!(
        only_snapshot(&fake).unwrap()["spec"]["volumeSnapshotClassName"],
        "slow"
    );
    action
        .execute(&claim("pv-csi"), &backup("InProgress"))
        .await
        .unwrap();
    assert_eq!(
        only_snapshot(&fake).unwrap()["spec"]["volumeSnapshotClassName"],
        "slow"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_does_it_again_finds_the_snapshot_that_was_begun() {
    let fake = cluster(binds(json!({ "snapshotHandle": "snap-1" })));
    let one = action(&fake)
        .0
        .execute(&claim("pv-csi"), &backup("InProgress"))
        .await
        .unwrap();
    let two = action(&fake)
        .0
        .execute(&claim("pv-csi"), &backup("InProgress"))
        .await
        .unwrap();
    assert_eq!(one, two);
    assert!(only_snapshot(&fake).is_some());
    // A snapshot of that name that is not ours is left unchanged.
    let mut theirs = backup("InProgress");
    theirs.metadata.uid = Some("uid-b".into());
    let (path, _) = fake.under(PATH).pop_first().unwrap();
    fake.edit(&path, |snapshot| snapshot["metadata"]["labels"] = json!({}));
    let error = action(&fake)
        .0
        .execute(&claim("pv-csi"), &theirs)
        .await
        .unwrap_err();
    assert!(matches!(error, ActionError::Final { .. }), "{error}");
    assert!(only_snapshot(&fake).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_never_cut_is_an_error_with_its_text_and_is_removed() {
    let fake = cluster(binds(json!({ "error": { "message": "the disk is busy" } })));
    let (action, volumes) = action(&fake);
    let started = Instant::now();
    let error = action
        .execute(&claim("pv-csi"), &backup("InProgress"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("30s") && error.ends_with("the disk is busy"),
        "{error}"
    );
    assert!(
        started.elapsed() <= Duration::from_secs(31),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(only_snapshot(&fake), None);
    assert_eq!(requests(&fake, "DELETE"), 1);
    assert!(volumes.info().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_snapshotted_says_why() {
    let fake = cluster(|_| {});
    let (action, volumes) = action(&fake);
    let output = action
        .execute(&claim("pv-other"), &backup("InProgress"))
        .await
        .unwrap();
    assert_eq!(
        output.item.unwrap()["metadata"]["annotations"][csi::SKIPPED_NO_CSI_VOLUME],
        "true"
    );
    assert!(
        volumes.missing()[0]
            .1
            .contains("not one of CSI but hostPath")
    );

    let error = action
        .execute(&claim("pv-gone"), &backup("InProgress"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("pv-gone is not there"), "{error}");

    fake.delete("/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/fast");
    let error = action
        .execute(&claim("pv-csi"), &backup("InProgress"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no VolumeSnapshotClass of the driver disk.example.com"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_where_nothing_is_wanted() {
    let fake = cluster(|_| {});
    let (action, volumes) = action(&fake);
    let mut unbound = claim("pv-csi");
    unbound["status"]["phase"] = json!("Pending");
    let mut unwanted = backup("InProgress");
    unwanted.spec.snapshot_volumes = Some(false);
    for (claim, backup) in [
        (unbound, backup("InProgress")),
        (claim("pv-csi"), unwanted),
        (claim("pv-csi"), backup("Finalizing")),
        (claim("pv-csi"), backup("FinalizingPartiallyFailed")),
    ] {
        assert_eq!(
            action.execute(&claim, &backup).await.unwrap(),
            BackupActionOutput::default()
        );
    }
    assert_eq!((requests(&fake, "POST"), volumes.missing().len()), (0, 0));
    assert_eq!(
        volumes.info()[0].skipped_reason.as_deref(),
        Some("spec.snapshotVolumes is false")
    );
}
