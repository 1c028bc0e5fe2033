//! Filter policies.

use super::*;

fn policies(text: &str) -> FilterPolicies {
    let data = [("policy".to_owned(), format!("version: v1\n{text}"))].into();
    backup_core::resource_policy::read_for_restore(&data).unwrap()
}

fn labelled(api_version: &str, kind: &str, name: &str) -> Value {
    let mut object = item(api_version, kind, name);
    object["metadata"]["labels"] = json!({ "app": "web" });
    object
}

async fn restored_by(policy: &str, items: Items<'_>, spec: Value) -> (FakeApi, Report) {
    let fake = fake::server();
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let world = World {
        filters: policies(policy),
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(items, spec).await;
    done.unwrap();
    (fake, report)
}

#[tokio::test]
async fn a_policy_says_what_is_restored_into_its_namespaces() {
    let items = [
        (
            "configmaps",
            Some("a"),
            labelled("v1", "ConfigMap", "app-1"),
        ),
        (
            "configmaps",
            Some("a"),
            labelled("v1", "ConfigMap", "other"),
        ),
        stored_item("configmaps", "v1 ConfigMap", "a/app-2"),
        ("pods", Some("a"), labelled("v1", "Pod", "p")),
        stored_item("configmaps", "v1 ConfigMap", "b/b"),
        stored_item(
            "storageclasses.storage.k8s.io",
            "storage.k8s.io/v1 StorageClass",
            "fast",
        ),
        stored_item(
            "storageclasses.storage.k8s.io",
            "storage.k8s.io/v1 StorageClass",
            "slow",
        ),
    ];
    let policy = "
clusterScopedFilterPolicy: {resourceFilters: [{kinds: [StorageClass], names: [fast]}]}
namespacedFilterPolicies:
- namespaces: ['a*']
  resourceFilters: [{kinds: [ConfigMap], names: ['app-*'], labelSelector: {matchLabels: {app: web}}}]
";
    let (fake, report) = restored_by(policy, &items, json!({})).await;
    assert_eq!(report.counts(), (0, 0));
    let progress = report.progress();
    assert_eq!(progress.total_items, progress.items_restored);
    let listed = listed(report);
    assert_eq!(
        listed["v1/ConfigMap"],
        json!(["a/app-1(created)", "b/b(created)"])
    );
    assert_eq!(
        listed["storage.k8s.io/v1/StorageClass"],
        json!(["fast(created)"])
    );
    assert!(!posts(&fake).iter().any(|path| path.ends_with("/pods")));

    // Types that the spec excludes stay excluded; its label selector does not apply where a policy
    // does.
    let spec = json!({ "excludedResources": ["storageclasses"], "labelSelector": { "matchLabels": { "no": "where" } } });
    let (_, report) = restored_by(policy, &items, spec).await;
    let listed = self::listed(report);
    assert_eq!(listed["v1/ConfigMap"], json!(["a/app-1(created)"]));
    assert_eq!(listed["storage.k8s.io/v1/StorageClass"], Value::Null);
}

#[tokio::test]
async fn a_policy_may_name_a_kind_that_is_served_only_once_it_is_restored() {
    let items = [
        stored_item("widgets.example.com", "example.com/v1 Widget", "a/w"),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
        definition("widgets"),
    ];
    let policy =
        "namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [Widget, Gone]}]}]";
    // Definitions are not selected then, but restored as needed.
    let (fake, report) = restored_by(policy, &items, json!({ "includedNamespaces": ["a"] })).await;
    assert!(
        fake.get("/apis/example.com/v1/namespaces/a/widgets/w")
            .is_some()
    );
    assert!(fake.get("/api/v1/namespaces/a/configmaps/c").is_none());
    assert_eq!(report.counts(), (1, 0));
    let warnings = report.into_files().results.warnings.velero;
    assert_says!(warnings[0], "no resource is called Gone");
}

#[tokio::test]
async fn what_a_selected_item_needs_comes_along_whatever_the_policy_says() {
    let mut pod = item("v1", "Pod", "p");
    pod["metadata"]["namespace"] = json!("a");
    pod["spec"] =
        json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] });
    let items = [
        ("pods", Some("a"), pod),
        stored_item(
            "persistentvolumeclaims",
            "v1 PersistentVolumeClaim",
            "a/data",
        ),
        stored_item(
            "persistentvolumeclaims",
            "v1 PersistentVolumeClaim",
            "a/other",
        ),
    ];
    let policy = "namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [Pod]}]}]";
    let (fake, _) = restored_by(policy, &items, json!({})).await;
    assert!(
        fake.get("/api/v1/namespaces/a/persistentvolumeclaims/data")
            .is_some()
    );
    assert!(
        fake.get("/api/v1/namespaces/a/persistentvolumeclaims/other")
            .is_none()
    );
}
