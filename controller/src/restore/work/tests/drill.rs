//! Restores that are drills.

use backup_core::{
    api::DrillSpec,
    drill::restore_spec,
    labels::{DRILL_LABEL, RESTORE_NAME, csi::VOLUME_SNAPSHOT_NAME},
    volume_data::MissingData,
};

use super::*;

const SCRATCH: &str = "drill-0123abcd-a";

/// The spec of a drill of namespace `a`.
fn spec(drill: &Value) -> Value {
    let drill: DrillSpec = serde_json::from_value(drill.clone()).unwrap();
    let spec = restore_spec("b", "0123abcd", &["a".to_owned()].into(), drill);
    serde_json::to_value(spec).unwrap()
}

fn with(mut item: Value, change: &Value) -> Value {
    json_patch::merge(&mut item, change);
    item
}

fn items() -> Vec<(&'static str, Option<&'static str>, Value)> {
    let claimed = json!({ "spec": { "template": { "spec": { "volumes": [
        { "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } } } });
    let web = with(item("apps/v1", "Deployment", "web"), &claimed);
    let nightly = with(
        item("batch/v1", "CronJob", "nightly"),
        &json!({ "spec": { "schedule": "@daily" } }),
    );
    vec![
        stored_item("namespaces", "v1 Namespace", "a"),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
        ("deployments.apps", Some("a"), web),
        ("cronjobs.batch", Some("a"), nightly),
        stored_item(
            "persistentvolumeclaims",
            "v1 PersistentVolumeClaim",
            "a/data",
        ),
        stored_item("persistentvolumes", "v1 PersistentVolume", "pv"),
        stored_item(
            "networkpolicies.networking.k8s.io",
            "networking.k8s.io/v1 NetworkPolicy",
            "a/open",
        ),
        stored_item("notes.example.com", "example.com/v1 Note", "a/n"),
        stored_item(
            "clusterrolebindings.rbac.authorization.k8s.io",
            "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
            "admin",
        ),
    ]
}

#[tokio::test]
async fn a_drill_restores_a_copy_that_has_no_effects_elsewhere() {
    let (fake, report) = restored(&items(), spec(&json!({}))).await;
    assert_eq!(report.counts().1, 0);
    let left = report.summary().left;
    assert_eq!((left.left_out_items(), left.failed), (3, 0), "{left:?}");
    let namespace = fake.get(&format!("/api/v1/namespaces/{SCRATCH}")).unwrap();
    assert_eq!(namespace["metadata"]["labels"][DRILL_LABEL], "uid-r");
    assert_eq!(fake.get("/api/v1/namespaces/a"), None);
    let in_scratch =
        |group: &str, place: &str| fake.get(&format!("/{group}/namespaces/{SCRATCH}/{place}"));
    let web = in_scratch("apis/apps/v1", "deployments/web").unwrap();
    let volumes = &web["spec"]["template"]["spec"]["volumes"];
    assert_eq!(*volumes, json!([{ "name": "data", "emptyDir": {} }]));
    assert_eq!(web["metadata"]["labels"][RESTORE_NAME], "r");
    let nightly = in_scratch("apis/batch/v1", "cronjobs/nightly").unwrap();
    assert_eq!(nightly["spec"]["suspend"], true);
    for (group, place) in [
        ("api/v1", "persistentvolumeclaims/data"),
        ("apis/networking.k8s.io/v1", "networkpolicies/open"),
        ("apis/example.com/v1", "notes/n"),
    ] {
        assert_eq!(in_scratch(group, place), None, "{place}");
    }
    let outside = posts(&fake)
        .into_iter()
        .filter(|path| !path.contains(SCRATCH) && path != "/api/v1/namespaces");
    assert_eq!(outside.count(), 0);
}

#[tokio::test]
async fn a_drill_restores_the_types_that_it_names() {
    let drill = json!({ "additionalResources": ["notes.example.com"] });
    let (fake, _) = restored(&items(), spec(&drill)).await;
    let path = format!("/apis/example.com/v1/namespaces/{SCRATCH}/notes/n");
    assert!(fake.get(&path).is_some());
}

#[tokio::test]
async fn a_drill_restores_nothing_into_a_namespace_that_it_has_not_made() {
    let fake = fake::server();
    let path = format!("/api/v1/namespaces/{SCRATCH}");
    fake.put(
        &path,
        json!({ "metadata": { "name": SCRATCH, "uid": "u" } }),
    );
    let before = fake.under("/");
    let report = restored_in(&fake, &items(), spec(&json!({}))).await;
    assert!(report.counts().1 > 0 && report.summary().left.failed > 0);
    assert_eq!(fake.under("/"), before);
}

#[tokio::test]
async fn a_drill_that_is_taken_up_again_uses_its_namespaces() {
    let fake = fake::server();
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    for resumed in [false, true] {
        let world = World {
            resumed,
            ..World::new(&fake, &calls, &claimed)
        };
        let (report, done) = world.run(&items(), spec(&json!({}))).await;
        done.unwrap();
        assert_eq!(report.counts().1, 0, "{resumed}");
    }
}

#[tokio::test]
async fn hooks_run_in_a_drill_only_if_it_asks_for_them() {
    let annotations = json!({ "post.hook.restore.velero.io/command": "[\"load\"]",
        "init.hook.restore.velero.io/container-image": "i" });
    let pod = json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [{ "name": "main" }] } });
    let items = [("pods", Some("a"), with(item("v1", "Pod", "p"), &pod))];
    let path = format!("/api/v1/namespaces/{SCRATCH}/pods/p");
    for hooks in [false, true] {
        let (fake, pods) = (fake::server(), FakePods::default());
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let world = World {
            pods: Some(&pods),
            ..World::new(&fake, &calls, &claimed)
        };
        let start = async {
            while fake.get(&path).is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let running = json!([{ "name": "main", "state": { "running": {} } }]);
            fake.edit(&path, |pod| {
                pod["spec"]["nodeName"] = json!("n");
                pod["status"] = json!({ "phase": "Running", "containerStatuses": running });
            });
        };
        let drill = spec(&json!({ "hooks": hooks }));
        let ((report, done), ()) = futures::join!(world.run(&items, drill), start);
        done.unwrap();
        assert_eq!(report.counts().1, 0, "{hooks}");
        let pod = fake.get(&path).unwrap();
        assert_eq!(pod["spec"]["initContainers"].is_array(), hooks);
        assert_eq!(pods.ran().len(), usize::from(hooks));
    }
}

/// An API server refuses what a quota counts until it has seen the status of the quota.
#[tokio::test]
async fn the_first_items_are_restored_when_the_api_server_knows_the_new_quota() {
    let fake = fake::server();
    let pods = format!("/api/v1/namespaces/{SCRATCH}/pods");
    let refused = pods.clone();
    fake.fault(move |_, request| {
        let message = "pods \"p\" is forbidden: status unknown for quota: drill, resources: pods";
        let is_early = request.is("POST", &refused) && request.earlier < 2;
        is_early.then(|| Fault::refuse(403, "Forbidden", message))
    });
    let items = [stored_item("pods", "v1 Pod", "a/p")];
    let report = restored_in(&fake, &items, spec(&json!({}))).await;
    assert_eq!(report.counts().1, 0);
    assert!(fake.get(&format!("{pods}/p")).is_some());
    let lines = fake.log();
    let first = |line: String| lines.iter().position(|one| *one == line).unwrap();
    let quota = format!("/api/v1/namespaces/{SCRATCH}/resourcequotas/drill/status");
    assert!(
        first(format!("PATCH {quota}")) < first(format!("POST {pods}")),
        "{lines:?}"
    );
}

/// A claim of the backup with this volume, of class `fast`.
fn claim(name: &str, volume: &str) -> (&'static str, Option<&'static str>, Value) {
    let more = json!({ "metadata": { "namespace": "a" },
        "spec": { "volumeName": volume, "storageClassName": "fast" } });
    let claim = with(item("v1", "PersistentVolumeClaim", name), &more);
    ("persistentvolumeclaims", Some("a"), claim)
}

/// A VolumeSnapshot of the backup, with this content.
fn snapshot(name: &str, content: &str) -> (&'static str, Option<&'static str>, Value) {
    let more = json!({ "metadata": { "namespace": "a" },
        "spec": { "source": { "persistentVolumeClaimName": "data" } },
        "status": { "boundVolumeSnapshotContentName": content } });
    let of_group = format!("{SNAPSHOT_GROUP}/v1");
    let snapshot = with(item(&of_group, "VolumeSnapshot", name), &more);
    (
        "volumesnapshots.snapshot.storage.k8s.io",
        Some("a"),
        snapshot,
    )
}

/// A claim with a CSI snapshot, one whose volume would be restored itself, a snapshot of a user, and
/// a workload that uses both claims.
fn items_with_volumes() -> Vec<(&'static str, Option<&'static str>, Value)> {
    let mut data = claim("data", "pv-data");
    data.2["metadata"]["annotations"] = json!({ VOLUME_SNAPSHOT_NAME: "s" });
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "c" },
        "spec": { "deletionPolicy": "Delete", "driver": "disk", "source": { "volumeHandle": "v" },
            "volumeSnapshotRef": { "namespace": "a", "name": "s" } },
        "status": { "snapshotHandle": "h" },
    });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-kept" },
        "spec": { "persistentVolumeReclaimPolicy": "Retain", "claimRef": { "namespace": "a", "name": "kept" } },
    });
    let volumes = ["data", "kept"]
        .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }));
    let pods = json!({ "spec": { "template": { "spec": { "volumes": volumes } } } });
    vec![
        snapshot("s", "c"),
        snapshot("of-user", "gone"),
        (
            "volumesnapshotcontents.snapshot.storage.k8s.io",
            None,
            content,
        ),
        data,
        claim("kept", "pv-kept"),
        ("persistentvolumes", None, volume),
        (
            "deployments.apps",
            Some("a"),
            with(item("apps/v1", "Deployment", "web"), &pods),
        ),
    ]
}

const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";

/// A server with the class of the claims.
fn server_with_class() -> FakeApi {
    let fake = fake::server();
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "disk" });
    fake.put("/apis/storage.k8s.io/v1/storageclasses/fast", class);
    fake
}

#[tokio::test]
async fn a_drill_of_volumes_makes_new_ones_of_the_snapshots_of_the_backup() {
    let fake = server_with_class();
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let snapshots =
        format!("/apis/snapshot.storage.k8s.io/v1/namespaces/{SCRATCH}/volumesnapshots/");
    let becomes_ready = async {
        while fake.under(&snapshots).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for path in fake.under(&snapshots).into_keys() {
            fake.edit(&path, |snapshot| {
                snapshot["status"] = json!({ "readyToUse": true });
            });
        }
    };
    let items = items_with_volumes();
    let drill = spec(&json!({ "volumes": true }));
    let world = World::new(&fake, &calls, &claimed);
    let ((report, done), ()) = futures::join!(world.run(&items, drill), becomes_ready);
    done.unwrap();
    assert_eq!(report.counts().1, 0);
    assert_eq!(report.summary().left.left_out_items(), 2);

    let contents = fake.under(CONTENTS);
    let [content] = contents.values().collect::<Vec<_>>()[..] else {
        panic!("{contents:?}")
    };
    assert_eq!(content["metadata"]["labels"][DRILL_LABEL], "uid-r");
    assert_eq!(content["spec"]["deletionPolicy"], "Retain");
    assert_eq!(content["spec"]["source"], json!({ "snapshotHandle": "h" }));
    let reference = &content["spec"]["volumeSnapshotRef"];
    assert_eq!(reference["namespace"], SCRATCH);
    assert_eq!(fake.under(&snapshots).len(), 1, "one of a user is left out");

    let in_scratch =
        |group: &str, place: &str| fake.get(&format!("/{group}/namespaces/{SCRATCH}/{place}"));
    let data = in_scratch("api/v1", "persistentvolumeclaims/data").unwrap();
    assert_eq!(data["spec"]["volumeName"], Value::Null);
    assert_eq!(data["spec"]["dataSourceRef"]["name"], reference["name"]);
    let kept = in_scratch("api/v1", "persistentvolumeclaims/kept");
    assert_eq!(kept, None);
    assert!(!posts(&fake).contains(&"/api/v1/persistentvolumes".to_owned()));
    let web = in_scratch("apis/apps/v1", "deployments/web").unwrap();
    let expected = json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "kept", "emptyDir": {} },
    ]);
    assert_eq!(web["spec"]["template"]["spec"]["volumes"], expected);
    let quota = in_scratch("api/v1", "resourcequotas/drill").unwrap();
    assert_eq!(quota["spec"]["hard"]["persistentvolumeclaims"], "1");

    let files = report.into_files();
    let warnings = &files.results.warnings.namespaces[SCRATCH];
    assert_says!(
        warnings.join("; "),
        "claim \"kept\" is left out, and its pods get an empty volume",
        "a drill uses no volume that exists"
    );
    let missing = MissingData::of(&files.volume_info).unwrap();
    let names: Vec<&String> = missing.volumes.keys().collect();
    assert_eq!(names, [&format!("{SCRATCH}/kept")]);
}

/// The record of claim `data`, whose data our data mover has put into the repository.
fn moved() -> SavedVolumes {
    let record = json!({ "pvcNamespace": "a", "pvcName": "data", "pvName": "pv-data", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true, "result": "succeeded", "pvInfo": { "reclaimPolicy": "Retain", "labels": { "team": "a" } },
        "snapshotDataMovementInfo": { "dataMover": "backup-mover", "snapshotHandle": "k1", "size": 7 } });
    SavedVolumes {
        records: vec![VolumeInfo::of(&record).unwrap()],
        in_repository: Vec::new(),
    }
}

/// Restores claim `data`, whose data was moved, by a drill with these settings.
async fn drill_of_moved_data(fake: &FakeApi, has_mover: bool, drill: &Value) -> Report {
    let (claimed, calls) = (Footprint::everything(), fake::calls(fake));
    let world = World {
        saved: moved(),
        has_mover,
        ..World::new(fake, &calls, &claimed)
    };
    let items = [
        claim("data", "pv-data"),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
    ];
    let (report, done) = world.run(&items, spec(drill)).await;
    done.unwrap();
    report
}

const DOWNLOADS: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads/";

#[tokio::test]
async fn moved_data_comes_into_a_volume_that_is_deleted_with_its_claim() {
    let fake = server_with_class();
    let drill = json!({ "volumes": true });
    let report = drill_of_moved_data(&fake, true, &drill).await;
    assert_eq!(report.counts(), (0, 0));
    let downloads = fake.under(DOWNLOADS);
    let [download] = downloads.values().collect::<Vec<_>>()[..] else {
        panic!("{downloads:?}")
    };
    assert_eq!(download["spec"]["targetVolume"]["namespace"], SCRATCH);
    let annotations = &download["metadata"]["annotations"];
    let properties = annotations["backup-controller/volume-properties"].as_str();
    let properties: Value = serde_json::from_str(properties.unwrap()).unwrap();
    assert_eq!(
        properties,
        json!({ "reclaimPolicy": "Delete", "labels": {} })
    );
    let claim = format!("/api/v1/namespaces/{SCRATCH}/persistentvolumeclaims/data");
    let claim = fake.get(&claim).unwrap();
    assert_eq!(claim["spec"]["dataSourceRef"]["kind"], "DataDownload");
}

#[tokio::test]
async fn data_that_cannot_be_restored_leaves_its_claim_out() {
    for (has_mover, drill, warnings) in
        [(false, json!({ "volumes": true }), 1), (true, json!({}), 0)]
    {
        let fake = fake::server();
        let report = drill_of_moved_data(&fake, has_mover, &drill).await;
        assert_eq!(report.counts(), (warnings, 0), "{drill}");
        assert_eq!(report.summary().left.left_out_items(), 1, "{drill}");
        assert_eq!(fake.under(DOWNLOADS).len(), 0, "{drill}");
        let claims = format!("/api/v1/namespaces/{SCRATCH}/persistentvolumeclaims/");
        assert_eq!(fake.under(&claims).len(), 0, "{drill}");
    }
}

/// A claim may be bound to it, whatever data source it names (kubernetes#101878).
#[tokio::test]
async fn no_claim_is_made_while_a_free_volume_of_its_class_exists() {
    for (class, errors) in [("fast", 1), ("slow", 0)] {
        let fake = server_with_class();
        let volume =
            json!({ "metadata": { "name": "free" }, "spec": { "storageClassName": class } });
        fake.put("/api/v1/persistentvolumes/free", volume);
        let drill = json!({ "volumes": true });
        let report = drill_of_moved_data(&fake, true, &drill).await;
        assert_eq!(report.counts().1, errors, "{class}");
        let results = serde_json::to_string(&report.into_files().results).unwrap();
        let is_named = results.contains("PersistentVolume \\\"free\\\", which exists and is free");
        assert_eq!(is_named, errors > 0, "{results}");
    }
}
