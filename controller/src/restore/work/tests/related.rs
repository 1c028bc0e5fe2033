//! Related items.

use super::*;

#[tokio::test]
async fn a_pod_brings_its_claims_with_their_volumes_and_its_priority_class() {
    let mut pod = item("v1", "Pod", "db");
    pod["metadata"]["labels"] = json!({"app": "db"});
    pod["metadata"]["namespace"] = json!("a");
    pod["spec"] = json!({
        "priorityClassName": "high",
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    });
    let mut second = pod.clone();
    second["metadata"]["name"] = json!("db-2");
    let mut claim = item("v1", "PersistentVolumeClaim", "data");
    claim["spec"] = json!({"volumeName": "disk"});
    let mut volume = item("v1", "PersistentVolume", "disk");
    volume["spec"] = json!({"persistentVolumeReclaimPolicy": "Retain"});
    let class = item("scheduling.k8s.io/v1", "PriorityClass", "high");
    let items = [
        ("pods", Some("a"), pod),
        ("pods", Some("a"), second),
        ("persistentvolumeclaims", Some("a"), claim),
        stored_item(
            "persistentvolumeclaims",
            "v1 PersistentVolumeClaim",
            "a/unused",
        ),
        ("persistentvolumes", None, volume),
        ("priorityclasses.scheduling.k8s.io", None, class.clone()),
    ];
    let spec = |more: Value| {
        let mut spec = json!({"labelSelector": {"matchLabels": {"app": "db"}}});
        json_patch::merge(&mut spec, &more);
        spec
    };
    let (fake, report) = restored(&items, spec(json!({}))).await;
    assert_eq!(report.counts(), (0, 0));
    let progress = report.progress();
    assert_eq!((progress.total_items, progress.items_restored), (6, 6));
    let claims = "/api/v1/namespaces/a/persistentvolumeclaims";
    let made = posts(&fake);
    let at = |path: &str| made.iter().position(|post| post == path).unwrap();
    assert_eq!(made.len(), 6, "{made:?}");
    let volumes = at("/api/v1/persistentvolumes");
    assert!(
        volumes < at(claims) && at(claims) < at("/api/v1/namespaces/a/pods"),
        "{made:?}"
    );
    assert_eq!(
        fake.get(&format!("{claims}/data")).unwrap()["spec"]["volumeName"],
        "disk"
    );
    // The filters of types apply to related items.
    let only_pods = json!({"includedResources": ["pods"]});
    let (fake, report) = restored(&items, spec(only_pods)).await;
    assert_eq!(
        (report.counts(), posts(&fake).len()),
        ((0, 0), 3),
        "namespace and pods"
    );
    let claims = json!({"includedResources": ["pods", "pvc", "persistentvolumeclaims"]});
    let (fake, _) = restored(&items, spec(claims)).await;
    assert_eq!(posts(&fake).len(), 5, "volumes come with their claims");
    // A class that the backup does not hold may be in the cluster: nothing is missing.
    let (_, report) = restored(&items[..5], spec(json!({}))).await;
    assert_eq!(report.counts(), (0, 0));
    // A claim that the backup does not hold is reported once for each pod.
    let (_, report) = restored(&items[..2], spec(json!({}))).await;
    assert_eq!(report.counts(), (2, 0));
}

#[tokio::test]
async fn a_definition_comes_along_when_its_resources_need_it() {
    let items = [
        stored_item("widgets.example.com", "example.com/v1 Widget", "a/w"),
        definition("widgets"),
        definition("others"),
    ];
    let (fake, report) = restored(&items, json!({"includedNamespaces": ["a"]})).await;
    assert_eq!(report.counts(), (0, 0));
    assert!(
        fake.get("/apis/example.com/v1/namespaces/a/widgets/w")
            .is_some()
    );
    assert!(
        fake.get(&format!("{CRDS}/others.example.com")).is_none(),
        "nobody asked for it"
    );
    let spec = json!({"includedNamespaces": ["a"], "includeClusterResources": false});
    let (_, report) = restored(&items, spec).await;
    assert_eq!(
        report.counts(),
        (0, 1),
        "not served, and not to be brought along"
    );
}

#[tokio::test]
async fn a_volume_that_is_kept_comes_along_with_its_claim() {
    let volume = |name: &str, policy: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "a", "name": name, "uid": "u"}}})
    };
    let claim = |name: &str, volume: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"volumeName": volume}})
    };
    let items = [
        ("persistentvolumeclaims", Some("a"), claim("kept", "kept")),
        ("persistentvolumeclaims", Some("a"), claim("anew", "gone")),
        ("persistentvolumes", None, volume("kept", "Retain")),
        ("persistentvolumes", None, volume("gone", "Delete")),
        ("persistentvolumes", None, volume("unused", "Retain")),
    ];
    let (fake, _) = restored(&items, json!({"includedNamespaces": ["a"]})).await;
    let volume = fake.get("/api/v1/persistentvolumes/kept").unwrap();
    assert_eq!(
        volume["spec"]["claimRef"],
        json!({"namespace": "a", "name": "kept"})
    );
    assert!(fake.get("/api/v1/persistentvolumes/gone").is_none());
    assert!(fake.get("/api/v1/persistentvolumes/unused").is_none());
    let at = |name: &str| {
        fake.get(&format!(
            "/api/v1/namespaces/a/persistentvolumeclaims/{name}"
        ))
        .unwrap()
    };
    assert_eq!(at("kept")["spec"], json!({"volumeName": "kept"}));
    assert_eq!(at("anew")["spec"], Value::Null);
}
