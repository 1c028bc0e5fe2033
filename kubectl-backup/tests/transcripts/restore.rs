use crate::prelude::*;

#[tokio::test]
async fn a_restore_is_created_with_and_without_the_word() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let person = Person::at(&api);
    transcript!(
        person,
        "restore --from-backup=nightly --include-namespaces=shop --namespace-mappings=shop:copy,db:db-copy --existing-resource-policy=update"
    );
    assert_eq!(
        api.stored("restores", "nightly-20261103051412-000000")
            .unwrap()["spec"],
        json!({"backupName": "nightly", "includedNamespaces": ["shop"], "namespaceMapping": {"shop": "copy", "db": "db-copy"}, "existingResourcePolicy": "update"})
    );
    transcript!(person, "restore create again --from-backup=nightly");
    transcript!(
        person,
        "restore create --from-schedule=nightly --name=newest --restore-volumes=false -o name"
    );
    assert_eq!(
        api.stored("restores", "newest").unwrap()["spec"],
        json!({"scheduleName": "nightly", "restorePVs": false})
    );
}

#[tokio::test]
async fn a_schedule_without_a_backup_is_told_at_once() {
    let api = FakeApi::with([with(
        completed_backup("partly"),
        &json!({"metadata": {"labels": {"velero.io/schedule-name": "weekly"}}, "status": {"phase": "PartiallyFailed"}}),
    )])
    .await;
    api.has(json!({"apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": {"name": "weekly", "namespace": "velero"},
        "spec": {"schedule": "@weekly", "template": {}}}));
    transcript!(
        Person::at(&api),
        "restore --from-schedule=nope",
        "restore --from-schedule=weekly",
        "restore --from-schedule=weekly --plan"
    );
    assert!(api.all("restores").is_empty());
}

#[tokio::test]
async fn objects_are_named_one_by_one() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let person = Person::at(&api);
    transcript!(
        person,
        "restore nightly --name=one --object=shop/deployment/web --object=clusterrole/reader"
    );
    assert_eq!(
        api.stored("restores", "one").unwrap()["spec"],
        json!({"backupName": "nightly", "includedNamespaces": ["shop"], "includeClusterResources": true,
            "includedObjects": ["shop/deployment/web", "clusterrole/reader"]})
    );
    // The answer of an API server with Velero's definition: the field is dropped.
    let dropped = json!({"apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {"name": "two", "namespace": "velero"},
        "spec": {"backupName": "nightly", "includedNamespaces": ["shop"]}});
    api.on_post("/restores", Fault::Answer(201, dropped));
    transcript!(
        person,
        "restore nightly --name=two --object=shop/deployment/web",
        "restore nightly --object=web",
        "restore nightly --object=shop/deployment/web --include-namespaces=shop"
    );
    assert_eq!(api.stored("restores", "two"), None);
}

#[tokio::test]
async fn a_backup_that_cannot_be_restored_is_told_at_once() {
    let api = FakeApi::with([
        new_backup("early"),
        with(
            completed_backup("broken"),
            &json!({"status": {"phase": "Failed"}}),
        ),
        with(
            completed_backup("newer"),
            &json!({"status": {"phase": "Compacting"}}),
        ),
    ])
    .await;
    transcript!(
        Person::at(&api),
        "restore --from-backup=early",
        "restore --from-backup=broken",
        "restore --from-backup=newer"
    );
}

/// The controller's answer to a request for a plan.
fn planned(lines: &[Value]) -> Vec<u8> {
    lines
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        .into_bytes()
}

#[tokio::test]
async fn what_a_restore_would_do_is_shown_item_by_item() {
    let plan = json!({ "plan": {
        "results": {
            "warnings": { "namespaces": { "shop": ["ConfigMap \"colours\" exists and differs from the backup; it was left unchanged"] } },
            "errors": { "namespaces": { "shop": ["Pod \"web-1\" could not be created: pods \"web-1\" is forbidden: exceeded quota: small"] } },
        },
        "resourceList": {
            "v1/ConfigMap": ["shop/colours(skipped)", "shop/sizes(created)", "new/sizes(created)"],
            "v1/Namespace": ["new(created)", "shop(skipped)"],
            "v1/Pod": ["shop/web-1(failed)"],
        },
        "missingData": { "missing": 1, "of": 3, "volumes": { "shop/data": "its snapshot was not restored" } },
        "notes": ["1 item was not tried by the API server: namespace \"new\" is only made by the restore"],
    } });
    let api = FakeApi::with([completed_backup("nightly")]).await;
    api.has_bytes(
        "RestoreResourceList",
        "again",
        planned(&[json!({ "progress": { "done": 2, "total": 6 } }), plan]),
    );
    let plan = "restore create again --from-backup=nightly";
    transcript!(Person::at(&api), &format!("{plan} --plan"));
    assert_eq!(api.stored("restores", "again"), None);
    let seen = Person::at(&api)
        .types(&format!("{plan} --dry-run=server"))
        .await;
    assert_eq!(
        seen.replace("--dry-run=server", "--plan"),
        Person::at(&api).types(&format!("{plan} --plan")).await
    );
    let asked = api.stored("downloadrequests", "read-1").unwrap();
    let spec = asked["metadata"]["annotations"]["backup-controller/plan-restore"]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(spec).unwrap(),
        json!({ "backupName": "nightly" })
    );
}

#[tokio::test]
async fn a_restore_that_would_not_start_has_no_plan() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let refused = json!({ "refused": "spec.resourceModifier.name: there is no ConfigMap \"gone\" in the namespace of this Restore" });
    api.has_bytes("RestoreResourceList", "refused", planned(&[refused]));
    api.has_bytes(
        "RestoreResourceList",
        "cut",
        planned(&[json!({ "progress": { "done": 2, "total": 6 } })]),
    );
    transcript!(
        Person::at(&api),
        "restore create refused --from-backup=nightly --dry-run=server",
        "restore create cut --from-backup=nightly --dry-run=server",
        "restore create missing --from-backup=nightly --dry-run=server"
    );
}
