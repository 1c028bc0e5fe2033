use super::{
    super::fake::{Fake, GROUP, backup, binds, claim},
    *,
};

fn action(fake: &Fake) -> (ClaimAction, Arc<Volumes>) {
    let volumes = Arc::new(Volumes::default());
    (ClaimAction::new(fake.api(), Arc::clone(&volumes)), volumes)
}

fn snapshots() -> String {
    format!("{GROUP}/namespaces/shop/volumesnapshots/")
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_snapshotted_and_says_where_its_data_is() {
    let fake = Fake::new(binds(json!({ "snapshotHandle": "snap-1", "restoreSize": 2_u64 << 30 })));
    let (action, volumes) = action(&fake);
    let executed = action.execute(&claim("pv-csi"), &backup("InProgress")).await.unwrap();
    let snapshot = fake.only(&snapshots()).unwrap();
    let name = snapshot["metadata"]["name"].as_str().unwrap();
    assert_eq!(snapshot["spec"]["source"]["persistentVolumeClaimName"], "data");
    assert_eq!(snapshot["spec"]["volumeSnapshotClassName"], "fast");
    assert_eq!(
        snapshot["metadata"]["labels"],
        json!({ "app": "db", "velero.io/backup-name": "b", "velero.io/backup-uid": "uid-b" })
    );
    let stored = executed.item.unwrap();
    assert_eq!(stored["metadata"]["annotations"][csi::VOLUME_SNAPSHOT_NAME], name);
    assert_eq!(stored["metadata"]["labels"][csi::VOLUME_SNAPSHOT_NAME], name);
    assert_eq!(stored["metadata"]["labels"]["velero.io/backup-name"], "b");
    assert_eq!(stored["spec"]["resources"]["requests"]["storage"], "2Gi", "as large as the snapshot");
    let along = &executed.additional[0];
    assert_eq!((along.group_resource.as_str(), along.name.as_str()), (SNAPSHOTS, name));
    assert_eq!(executed.operation, None);
    assert_eq!(volumes.info()[0]["backupMethod"], "CSISnapshot");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_it_again_finds_the_snapshot_that_was_begun() {
    let fake = Fake::new(binds(json!({ "snapshotHandle": "snap-1" })));
    let one = action(&fake).0.execute(&claim("pv-csi"), &backup("InProgress")).await.unwrap();
    let two = action(&fake).0.execute(&claim("pv-csi"), &backup("InProgress")).await.unwrap();
    assert_eq!(one, two);
    assert!(fake.only(&snapshots()).is_some());
    // One of that name that is not ours is left alone.
    let mut theirs = backup("InProgress");
    theirs.metadata.uid = Some("uid-b".into());
    let path =
        fake.objects.lock().unwrap().keys().find(|at| at.contains("/volumesnapshots/")).unwrap().clone();
    fake.objects.lock().unwrap().get_mut(&path).unwrap()["metadata"]["labels"] = json!({});
    let error = action(&fake).0.execute(&claim("pv-csi"), &theirs).await.unwrap_err();
    assert!(matches!(error, ActionError::Final { .. }), "{error}");
    assert!(fake.only(&snapshots()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_never_cut_is_an_error_with_its_text_and_is_removed() {
    let fake = Fake::new(binds(json!({ "error": { "message": "the disk is busy" } })));
    let (action, volumes) = action(&fake);
    let started = Instant::now();
    let error = action.execute(&claim("pv-csi"), &backup("InProgress")).await.unwrap_err().to_string();
    assert!(error.contains("30s") && error.ends_with("the disk is busy"), "{error}");
    assert!(started.elapsed() <= Duration::from_secs(31), "{:?}", started.elapsed());
    assert_eq!(fake.only(&snapshots()), None);
    assert_eq!(fake.asked("DELETE"), 1);
    assert!(volumes.info().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_snapshotted_says_why() {
    let fake = Fake::new(|_| {});
    let (action, volumes) = action(&fake);
    let executed = action.execute(&claim("pv-other"), &backup("InProgress")).await.unwrap();
    assert_eq!(executed.item.unwrap()["metadata"]["annotations"][csi::SKIPPED_NO_CSI_VOLUME], "true");
    assert!(volumes.missing()[0].1.contains("not one of CSI"));

    let error = action.execute(&claim("pv-gone"), &backup("InProgress")).await.unwrap_err().to_string();
    assert!(error.contains("pv-gone is not there"), "{error}");

    fake.objects.lock().unwrap().retain(|at, _| !at.contains("classes"));
    let error = action.execute(&claim("pv-csi"), &backup("InProgress")).await.unwrap_err().to_string();
    assert!(error.contains("no VolumeSnapshotClass of the driver disk.example.com"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_where_nothing_is_wanted() {
    let fake = Fake::new(|_| {});
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
        assert_eq!(action.execute(&claim, &backup).await.unwrap(), Executed::default());
    }
    assert_eq!((fake.asked("POST"), volumes.missing().len()), (0, 0));
    assert_eq!(volumes.info()[0]["skippedReason"], "spec.snapshotVolumes is false");
}
