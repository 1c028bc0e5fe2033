//! Restores that are drills, and the other objects of their namespaces.

use backup_core::{api::DrillSpec, drill};

use super::*;

/// The spec of a drill of namespace `shop`.
fn drill() -> Value {
    let namespaces = ["shop".to_owned()].into();
    let spec = drill::restore_spec("old", "0123abcd", &namespaces, DrillSpec::default());
    serde_json::to_value(spec).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_works_in_the_namespaces_of_the_backup_waits_for_no_drill() {
    let (api, replica) = one_replica();
    replica.run(&api, "Restore", "d", "1", drill()).await;
    replica.run(&api, "Backup", "b", "2", backup_spec()).await;
    api.delete_velero("Backup", "b");
    let scratch = json!({ "includedNamespaces": ["drill-0123abcd-shop"] });
    let refused = replica.create("Backup", "of-scratch", "3", scratch).await;
    assert!(!allowed(&refused), "{refused}");
    assert_says!(message(&refused), "velero/d");
}

#[tokio::test(start_paused = true)]
async fn a_drill_waits_for_nothing_in_the_namespaces_of_its_backup() {
    for (kind, spec) in [("Backup", backup_spec()), ("Restore", restore_spec())] {
        let (api, replica) = one_replica();
        replica.run(&api, kind, "x", "1", spec).await;
        let answer = replica.create("Restore", "d", "2", drill()).await;
        assert!(allowed(&answer), "{kind}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drill_that_could_touch_what_exists_is_refused() {
    let (_, replica) = one_replica();
    let mut spec = drill();
    spec["namespaceMapping"] = json!({});
    spec["drill"]["checks"] =
        json!([{ "name": "a", "namespace": "shop", "resource": "pods", "expression": "pods" }]);
    let refused = replica.create("Restore", "d", "1", spec).await;
    assert!(!allowed(&refused), "{refused}");
    assert_says!(
        message(&refused),
        "spec.namespaceMapping.shop: has to be a scratch namespace",
        "spec.drill.checks[0].expression: names \"pods\""
    );
}
