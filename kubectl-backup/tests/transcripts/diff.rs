use crate::{prelude::*, verify::tar_of};

fn object(kind: &str, name: &str, more: &Value) -> Value {
    let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": "shop" } });
    with(object, more)
}

/// A backup of three ConfigMaps (unchanged, changed, missing in the cluster), a Secret, and a Pod
/// that a controller makes.
async fn stored() -> FakeApi {
    let api = FakeApi::start().await;
    let same = object(
        "ConfigMap",
        "same",
        &json!({ "data": { "colour": "blue" } }),
    );
    let changed = object(
        "ConfigMap",
        "changed",
        &json!({ "data": { "colour": "blue", "size": "1" } }),
    );
    let gone = object("ConfigMap", "gone", &json!({ "data": { "colour": "red" } }));
    let applied = json!({ "kubectl.kubernetes.io/last-applied-configuration": "password: b25l" });
    let data = json!({ "old": "b25l", "kept": "a2VwdA==" });
    let secret = object(
        "Secret",
        "password",
        &json!({ "metadata": { "annotations": applied }, "data": data }),
    );
    let owners = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true }]);
    let made = object(
        "Pod",
        "web-1",
        &json!({ "metadata": { "ownerReferences": owners } }),
    );
    let items: Vec<(String, Value)> = [
        ("configmaps", "same", &same),
        ("configmaps", "changed", &changed),
        ("configmaps", "gone", &gone),
        ("secrets", "password", &secret),
        ("pods", "web-1", &made),
    ]
    .map(|(plural, name, object)| {
        (
            format!("resources/{plural}/namespaces/shop/{name}.json"),
            object.clone(),
        )
    })
    .into();
    api.has(completed_backup("nightly"))
        .has_bytes("BackupContents", "nightly", tar_of(&items));
    let given = json!({ "metadata": { "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-02T03:00:00Z" } });
    let there = |plural: &str, object: &Value, change: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        let object = with(with(object.clone(), &given), change);
        api.has_at(&format!("/api/v1/namespaces/shop/{plural}/{name}"), object);
    };
    there("configmaps", &same, &json!({}));
    there(
        "configmaps",
        &changed,
        &json!({ "data": { "colour": "green" } }),
    );
    let applied = json!({ "kubectl.kubernetes.io/last-applied-configuration": "password: dHdv" });
    there(
        "secrets",
        &secret,
        &json!({ "metadata": { "annotations": applied }, "data": { "old": "dHdv" } }),
    );
    api
}

#[tokio::test]
async fn what_differs_is_shown_as_kubectl_does_and_secrets_stay_secret() {
    let api = stored().await;
    transcript!(Person::at(&api), "diff nightly");
    transcript!("diff json" => Person::at(&api), "diff nightly -o json");
}

#[tokio::test]
async fn a_program_and_a_part_can_be_chosen() {
    let api = stored().await;
    let person = Person::at(&api).with_var("KUBECTL_EXTERNAL_DIFF", "diff -rq");
    transcript!(person, "diff nightly --include-resources=configmaps");
    let missing = Person::at(&api).with_var("KUBECTL_EXTERNAL_DIFF", "no-such-program");
    transcript!(missing, "diff nightly");
    transcript!(
        Person::at(&api),
        "diff nightly --include-namespaces=other",
        "diff nightly --include-resources=secrets --namespace-mappings=shop:shop-copy -o yaml",
        "diff gone",
    );
}

#[tokio::test]
async fn a_backup_without_objects_is_not_the_same_as_the_cluster() {
    let api = FakeApi::with([completed_backup("empty")]).await;
    api.has_bytes("BackupContents", "empty", tar_of(&[]));
    transcript!(Person::at(&api), "diff empty", "diff empty -o yaml");
}
