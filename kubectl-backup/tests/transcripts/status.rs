use crate::prelude::*;

fn namespace(api: &FakeApi, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    api.has_at(&format!("/api/v1/namespaces/{name}"), object);
}

fn schedule(name: &str, namespaces: &[&str]) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": {"name": name, "namespace": "velero", "creationTimestamp": "2026-10-01T00:00:00Z"},
        "spec": {"schedule": "0 3 * * *", "template": {"includedNamespaces": namespaces, "storageLocation": "default"}},
        "status": {"phase": "Enabled"},
    })
}

fn location(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": {"name": name, "namespace": "velero"},
        "spec": {"provider": "aws", "objectStorage": {"bucket": "b"}}, "status": status,
    })
}

fn of(name: &str, namespaces: &[&str]) -> Value {
    with(
        completed_backup(name),
        &json!({"spec": {"includedNamespaces": namespaces, "excludedNamespaces": null}}),
    )
}

#[tokio::test]
async fn what_is_not_protected_comes_first_with_the_reason() {
    let api = FakeApi::start().await;
    for name in ["shop", "db", "monitoring", "kube-system"] {
        namespace(&api, name);
    }
    let old = json!({"status": {"startTimestamp": "2026-10-20T03:00:00Z"}});
    let running = json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "InProgress", "progress": {"totalItems": 40, "itemsBackedUp": 12}}});
    api.has(schedule("nightly", &["shop", "db"]))
        .has(of("nightly-20261103030000", &["shop"]))
        .has(with(of("nightly-20261020030000", &["db"]), &old))
        .has(with(new_backup("by-hand"), &running))
        .has(with(completed_restore("back-again", "nightly"), &json!({"status": {"phase": "InProgress"}})))
        .has(location("default", &json!({"phase": "Available"})))
        .has(location("away", &json!({"phase": "Unavailable", "message": "no route to host"})));
    for (name, namespace) in [("nightly-20261103030000", "shop"), ("nightly-20261020030000", "db")] {
        api.has_file("BackupResourceList", name, &json!({ "v1/Namespace": [namespace] }));
    }
    let person = Person::at(&api);
    transcript!(
        person,
        "status",
        "status -o name",
        "status --except-namespaces=kube-*,db,monitoring",
        "status --rpo=720h -o wide"
    );
    let document = person.types("status -o json").await;
    assert!(
        document.contains("\"kind\": \"ClusterStatus\"") && document.ends_with("--- exit 1\n"),
        "{document}"
    );
}

#[tokio::test]
async fn a_large_cluster_fits_on_a_screen() {
    let api = FakeApi::start().await;
    for number in 0..2000 {
        namespace(&api, &format!("team-{number:04}"));
    }
    api.has(schedule("nightly", &["team-0*", "team-10*"]))
        .has(of("nightly-20261103030000", &["team-0*", "team-10*"]))
        .has(location("default", &json!({"phase": "Available"})));
    let held: Vec<String> = (0..1100).map(|number| format!("team-{number:04}")).collect();
    api.has_file("BackupResourceList", "nightly-20261103030000", &json!({ "v1/Namespace": held }));
    let person = Person::at(&api);
    transcript!(person, "status");
    assert_eq!(
        person.types("status -o name").await.lines().filter(|line| line.starts_with("namespace/")).count(),
        900
    );
}

#[tokio::test]
async fn an_empty_cluster_and_one_without_rights_are_told() {
    let api = FakeApi::start().await;
    let forbidden = Fault::forbidden(
        "namespaces is forbidden: User \"jane\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope",
    );
    transcript!(Person::at(&api), "status");
    api.on_get("/namespaces", forbidden);
    transcript!(Person::at(&api), "status");
}
