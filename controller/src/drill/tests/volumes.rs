//! Volumes of drills, and the contents of their snapshots.

use super::*;

const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/";
const VOLUMES: &str = "/api/v1/persistentvolumes/";
/// When the volumes of the drill were provisioned: later than its namespaces.
const LATER: &str = "2026-01-02T00:01:00Z";
/// A time before the drill began.
const BEFORE: &str = "2025-12-01T00:00:00Z";

/// The drill of a setup, with volumes and without checks.
fn with_volumes() -> Setup {
    let setup = Setup::new();
    setup.edit(|object| {
        object["spec"]["drill"] = json!({ "volumes": true });
        object["spec"]["restorePVs"] = json!(true);
    });
    setup
}

/// Adds a volume of a claim, which a provisioner has made.
fn put_volume(setup: &Setup, name: &str, namespace: &str, policy: &str, created: &str) {
    let object = json!({
        "metadata": { "name": name, "creationTimestamp": created,
            "annotations": { "pv.kubernetes.io/provisioned-by": "disk" } },
        "spec": { "persistentVolumeReclaimPolicy": policy, "claimRef": { "namespace": namespace, "name": "data" } },
    });
    setup.fake.put(&format!("{VOLUMES}{name}"), object);
}

fn policy(setup: &Setup, volume: &str) -> Value {
    let object = setup.fake.get(&format!("{VOLUMES}{volume}")).unwrap();
    object["spec"]["persistentVolumeReclaimPolicy"].clone()
}

/// Adds a content that a drill with this uid has created, as the installation in this namespace.
fn put_content(setup: &Setup, name: &str, drill: &str, installation: &str) {
    let object = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": name, "uid": format!("uid-{name}"),
            "labels": { DRILL_LABEL: drill, DRILL_INSTALLATION_LABEL: installation },
            "annotations": { DRILL_RESTORE_ANNOTATION: "r" } },
        "spec": { "deletionPolicy": "Delete", "source": { "snapshotHandle": "h" },
            "volumeSnapshotRef": { "namespace": SHOP, "name": "s" } },
    });
    setup.fake.put(&format!("{CONTENTS}{name}"), object);
}

fn contents(setup: &Setup) -> Vec<String> {
    let all = setup.fake.under(CONTENTS).into_keys();
    all.map(|path| path.trim_start_matches(CONTENTS).to_owned())
        .collect()
}

/// Adds a claim of the drill whose volume is being provisioned.
fn put_pending_claim(setup: &Setup) -> String {
    let path = format!("/api/v1/namespaces/{SHOP}/persistentvolumeclaims/data");
    let object = json!({
        "metadata": { "name": "data", "namespace": SHOP,
            "annotations": { "volume.kubernetes.io/storage-provisioner": "disk" } },
        "spec": {}, "status": { "phase": "Pending" },
    });
    setup.fake.put(&path, object);
    path
}

/// Position of the first request of this method for a path with this beginning.
fn position(setup: &Setup, line: &str) -> usize {
    let lines = setup.fake.log();
    let at = lines.iter().position(|one| one.starts_with(line));
    at.unwrap_or_else(|| panic!("no {line}: {lines:#?}"))
}

#[tokio::test]
async fn volumes_of_the_drill_go_with_its_namespaces_and_others_stay() {
    let setup = with_volumes();
    put_volume(&setup, "new", SHOP, "Retain", LATER);
    put_volume(&setup, "older", DB, "Delete", BEFORE);
    put_volume(&setup, "elsewhere", "shop", "Retain", LATER);
    setup.run_to_the_end(&Value::Null).await;
    assert_eq!(policy(&setup, "new"), "Delete");
    assert_eq!(policy(&setup, "older"), "Retain", "it keeps its data");
    assert_eq!(policy(&setup, "elsewhere"), "Retain");
    assert_eq!(setup.namespaces(), Vec::<String>::new());
    let removal = position(&setup, "DELETE /api/v1/namespaces/");
    for volume in ["new", "older"] {
        let prepared = position(&setup, &format!("PATCH {VOLUMES}{volume}"));
        assert!(prepared < removal, "{volume}");
    }
    let references = setup.fake.requests().into_iter();
    let mut patches = references.filter(|request| request.path.starts_with(VOLUMES));
    assert!(patches.all(|request| request.body["spec"]["claimRef"].is_null()));
}

#[tokio::test]
async fn no_namespace_is_removed_before_its_volumes_are_prepared() {
    let setup = with_volumes();
    put_volume(&setup, "new", SHOP, "Retain", LATER);
    let path = format!("{VOLUMES}new");
    let changed = path.clone();
    // Another client changes the volume in between.
    setup.fake.before("PATCH", &path, move |api| {
        api.edit(&changed, |volume| {
            volume["metadata"]["labels"] = json!({ "team": "a" });
        });
    });
    setup.run_to_the_end(&Value::Null).await;
    assert_eq!(policy(&setup, "new"), "Delete");
    let request = format!("PATCH {path}");
    assert_eq!(setup.fake.count(&request), 2);
    let prepared = setup.fake.log().iter().rposition(|line| *line == request);
    let removal = position(&setup, "DELETE /api/v1/namespaces/");
    assert!(prepared.unwrap() < removal);
}

#[tokio::test]
async fn the_contents_of_a_drill_are_removed_and_keep_the_snapshots() {
    let setup = with_volumes();
    put_content(&setup, "own", "uid-r", "velero");
    put_content(&setup, "of-another-installation", "uid-r", "velero-2");
    setup.fake.edit(&format!("{CONTENTS}own"), |content| {
        content["metadata"]["finalizers"] = json!(["bound"]);
    });
    let backup = json!({ "metadata": { "name": "of-backup" },
        "spec": { "deletionPolicy": "Delete", "volumeSnapshotRef": { "namespace": "shop" } } });
    setup.fake.put(&format!("{CONTENTS}of-backup"), backup);
    for _ in 0..20 {
        setup.reconcile().await.unwrap();
    }
    assert!(!setup.state().is_over, "a content is held by its finalizer");
    let own = setup.fake.get(&format!("{CONTENTS}own")).unwrap();
    assert_eq!(own["spec"]["deletionPolicy"], "Retain");
    assert!(own["metadata"]["deletionTimestamp"].is_string());
    setup.fake.delete(&format!("{CONTENTS}own"));
    setup.run_to_the_end(&Value::Null).await;
    assert_eq!(contents(&setup), ["of-another-installation", "of-backup"]);
    let removal = position(&setup, "DELETE /api/v1/namespaces/");
    let released = position(&setup, &format!("PATCH {CONTENTS}own"));
    assert!(removal < released, "a snapshot may still be in use before");
}

#[tokio::test]
async fn namespaces_wait_for_volumes_that_are_being_provisioned() {
    let setup = with_volumes();
    let claim = put_pending_claim(&setup);
    for _ in 0..20 {
        setup.reconcile().await.unwrap();
    }
    assert!(setup.state().result.is_some());
    assert_eq!(setup.namespaces(), [DB, SHOP]);
    let swept = setup.controller().sweep(&mut BTreeMap::new()).await;
    assert_eq!((swept.unwrap(), setup.namespaces().len()), (2, 1));
    setup.fake.edit(&claim, |claim| {
        claim["spec"]["volumeName"] = json!("new");
    });
    put_volume(&setup, "new", SHOP, "Retain", LATER);
    setup.run_to_the_end(&Value::Null).await;
    assert_eq!(policy(&setup, "new"), "Delete");
    assert_eq!(setup.namespaces(), Vec::<String>::new());
}

#[tokio::test]
async fn a_drill_whose_restore_is_gone_leaves_no_volume_and_no_content() {
    let setup = with_volumes();
    put_volume(&setup, "new", SHOP, "Retain", LATER);
    put_content(&setup, "own", "uid-r", "velero");
    put_content(&setup, "of-a-drill-that-is-gone", "uid-gone", "velero");
    let controller = setup.controller();
    let sweep = async || controller.sweep(&mut BTreeMap::new()).await.unwrap();
    assert_eq!(sweep().await, 4);
    assert_eq!(contents(&setup), ["own"], "the other drill runs");
    assert_eq!(policy(&setup, "new"), "Retain");
    setup.fake.delete(&velero_path("Restore", "r"));
    assert_eq!(sweep().await, 3);
    assert_eq!(policy(&setup, "new"), "Delete");
    assert_eq!(setup.namespaces(), Vec::<String>::new());
    assert_eq!(contents(&setup), ["own"], "its namespaces were there");
    assert_eq!(sweep().await, 1);
    assert_eq!(contents(&setup), Vec::<String>::new());
    assert_eq!(sweep().await, 0);
}

#[tokio::test(start_paused = true)]
async fn volumes_and_contents_are_removed_after_a_crash_at_any_write() {
    for writes in 0..10 {
        for last in [LastWrite::Lost, LastWrite::Unanswered] {
            let setup = with_volumes();
            put_volume(&setup, "new", SHOP, "Retain", LATER);
            put_volume(&setup, "older", DB, "Delete", BEFORE);
            put_content(&setup, "own", "uid-r", "velero");
            setup.fake.crash_after(writes, last);
            setup.run_to_the_end(&Value::Null).await;
            let case = format!("{last:?} after {writes} writes");
            assert_eq!(policy(&setup, "new"), "Delete", "{case}");
            assert_eq!(policy(&setup, "older"), "Retain", "{case}");
            assert_eq!(setup.namespaces(), Vec::<String>::new(), "{case}");
            assert_eq!(contents(&setup), Vec::<String>::new(), "{case}");
        }
    }
}
