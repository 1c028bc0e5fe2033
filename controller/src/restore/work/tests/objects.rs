//! Objects that the spec names one by one.

use super::*;

async fn restored(items: Items<'_>, spec: Value) -> Report {
    let fake = fake::server();
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let (report, done) = World::new(&fake, &calls, &claimed).run(items, spec).await;
    done.unwrap();
    report
}

#[tokio::test]
async fn only_the_objects_that_the_spec_names_are_restored() {
    let items = [
        ("configmaps", Some("a"), item("v1", "ConfigMap", "one")),
        ("configmaps", Some("a"), item("v1", "ConfigMap", "two")),
        ("configmaps", Some("b"), item("v1", "ConfigMap", "one")),
        ("secrets", Some("a"), item("v1", "Secret", "one")),
        (
            "storageclasses.storage.k8s.io",
            None,
            item("storage.k8s.io/v1", "StorageClass", "fast"),
        ),
        (
            "storageclasses.storage.k8s.io",
            None,
            item("storage.k8s.io/v1", "StorageClass", "slow"),
        ),
    ];
    let report = restored(
        &items,
        json!({ "includedObjects": ["a/ConfigMap/one", "storageclasses/slow"] }),
    )
    .await;
    assert_eq!(report.counts(), (0, 0));
    let listed = listed(report);
    assert_eq!(listed["v1/ConfigMap"], json!(["a/one(created)"]));
    assert_eq!(
        listed["storage.k8s.io/v1/StorageClass"],
        json!(["slow(created)"])
    );
    assert_eq!(listed["v1/Secret"], Value::Null);
}
