//! Items that are not Kubernetes objects.

use super::*;

#[tokio::test]
async fn an_item_that_cannot_be_decoded_is_named_also_with_a_selector() {
    let mut odd = item("v1", "ConfigMap", "odd");
    odd["metadata"]["labels"] = json!({"app": "web", "version": 5});
    let mut plain = odd.clone();
    plain["metadata"]["labels"]["app"] = json!("db");
    let items = [
        ("configmaps", Some("a"), json!([1])),
        ("configmaps", Some("a"), odd),
        ("configmaps", Some("b"), plain),
        ("configmaps", Some("c"), json!("not an object")),
        ("namespaces", None, json!(1)),
    ];
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"labelSelector": selector, "includedNamespaces": ["a", "b", "x"]});
    let (fake, report) = restored(&items, spec).await;
    assert!(fake.get("/api/v1/namespaces/a/configmaps/odd").is_some());
    assert!(
        fake.get("/api/v1/namespaces/b/configmaps/odd").is_none(),
        "it can be read, and is not selected"
    );
    assert_eq!(report.counts(), (0, 2));
    let results = report.into_files().results;
    let of = |error: &str| format!("{error} \"x\"");
    assert_says!(results.errors.namespaces["a"][0], &of("ConfigMap"));
    assert_says!(results.errors.cluster[0], &of("Namespace"));
}

#[tokio::test]
async fn an_item_that_cannot_be_decoded_is_named_by_its_path_whatever_is_selected() {
    let items = [
        ("configmaps", Some("a"), json!("no object")),
        stored_item("configmaps", "v1 ConfigMap", "a/good"),
        ("namespaces", None, json!(["no object"])),
    ];
    let path = |path: &str| {
        format!(
            "item resources/{path}.json of the backup cannot be read: it is no Kubernetes object"
        )
    };
    for (selector, all) in [
        (json!({}), true),
        (json!({"matchLabels": {"app": "web"}}), false),
    ] {
        let (fake, report) = restored(&items, json!({"labelSelector": selector})).await;
        assert_eq!(
            fake.get("/api/v1/namespaces/a/configmaps/good").is_some(),
            all
        );
        let files = report.into_files();
        assert_says!(
            files.results.errors.namespaces["a"][0],
            &path("configmaps/namespaces/a/x")
        );
        assert_says!(
            files.results.errors.cluster[0],
            &path("namespaces/cluster/x")
        );
        let list = serde_json::to_value(files.resource_list).unwrap();
        assert_eq!(
            list["v1/ConfigMap"][usize::from(all)],
            "a/x(failed)",
            "{list}"
        );
    }
}
