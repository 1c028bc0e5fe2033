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
        stored_item("configmaps", "v1 ConfigMap", "a/one"),
        stored_item("configmaps", "v1 ConfigMap", "a/two"),
        stored_item("configmaps", "v1 ConfigMap", "b/one"),
        stored_item("secrets", "v1 Secret", "a/one"),
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
