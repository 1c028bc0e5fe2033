//! Restores that are drills.

use backup_core::{
    api::DrillSpec,
    drill::restore_spec,
    labels::{DRILL_LABEL, RESTORE_NAME},
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
