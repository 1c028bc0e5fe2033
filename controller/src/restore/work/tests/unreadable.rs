//! Items that are no Kubernetes objects.

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
    assert!(fake.get("/api/v1/namespaces/b/configmaps/odd").is_none(), "it can be read, and is not selected");
    assert_eq!(report.counts(), (0, 2));
    let results = report.into_files().results;
    let of = |error: &str| format!("{error} \"x\"");
    assert!(results.errors.namespaces["a"][0].contains(&of("ConfigMap")), "{results:?}");
    assert!(results.errors.cluster[0].contains(&of("Namespace")), "{results:?}");
}
