//! Restores that remove objects, and the rights of their authors.

use super::*;

/// An API server where users may delete this, and nothing else.
fn allowing(resource: &'static str, namespace: &'static str) -> FakeApi {
    let api = FakeApi::new();
    api.allow(move |review| {
        let asked = &review["resourceAttributes"];
        asked["verb"] == "delete"
            && asked["resource"] == resource
            && asked["namespace"] == namespace
    });
    api
}

fn pruning(resources: &Value, mapping: &Value) -> Value {
    json!({ "backupName": "old", "includedNamespaces": ["shop"], "includedResources": resources,
        "namespaceMapping": mapping, "prune": true })
}

#[tokio::test]
async fn who_may_not_delete_may_not_have_a_restore_remove_objects() {
    for (resources, mapping, lacks) in [
        (json!(["configmaps"]), json!({}), ""),
        (
            json!(["configmaps", "deploy"]),
            json!({}),
            "delete deployments.apps in namespace shop",
        ),
        (json!([]), json!({}), "delete *.* in namespace shop"),
        (
            json!(["cm"]),
            json!({ "shop": "copy" }),
            "delete configmaps in namespace copy",
        ),
    ] {
        let api = allowing("configmaps", "shop");
        let replica = Replica::over(&api);
        let spec = pruning(&resources, &mapping);
        let answer = replica.create("Restore", "r", "1", spec.clone()).await;
        assert_eq!(allowed(&answer), lacks.is_empty(), "{spec}: {answer}");
        if !lacks.is_empty() {
            assert_says!(message(&answer), lacks, "spec.prune");
        }
        let mut without = spec;
        without["prune"] = json!(false);
        let answer = replica.create("Restore", "s", "2", without).await;
        assert!(allowed(&answer) || lacks.is_empty(), "{answer}");
    }
}

#[tokio::test]
async fn a_restore_cannot_be_changed_to_remove_what_its_author_may_not_delete() {
    let replica = Replica::over(&allowing("configmaps", "shop"));
    let mut request = creation("Restore", "r", "1", pruning(&json!([]), &json!({})));
    request["operation"] = json!("UPDATE");
    request["oldObject"] = request["object"].clone();
    request["oldObject"]["spec"]["prune"] = json!(false);
    let answer = replica.review(request.clone()).await;
    assert_says!(message(&answer), "delete *.* in namespace shop");
    request["object"]["spec"]["includedResources"] = json!(["configmaps"]);
    assert!(allowed(&replica.review(request).await));
}

#[tokio::test]
async fn beside_another_server_no_right_to_delete_is_asked_for() {
    let api = allowing("configmaps", "shop");
    let replica = Replica::of(&api, |velero| velero.engine = false);
    let spec = pruning(&json!([]), &json!({}));
    assert!(allowed(&replica.create("Restore", "r", "1", spec).await));
    let asks = |request: &ApiRequest| {
        request.is_access_review() && request.body["spec"]["resourceAttributes"]["verb"] == "delete"
    };
    assert!(!api.requests().iter().any(asks));
}
