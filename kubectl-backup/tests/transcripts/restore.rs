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

/// A restore of namespace `shop` into `copy` that removes objects.
const PRUNING: &str = "restore nightly --name=pruned --include-namespaces=shop,db --namespace-mappings=shop:copy --prune";

#[tokio::test]
async fn a_restore_that_removes_objects_is_confirmed_by_the_names_of_the_namespaces() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    for (person, line, exit, words) in [
        (
            Person::at(&api),
            PRUNING.to_owned(),
            2,
            "refusing to remove objects from namespaces copy,db without --yes-prune",
        ),
        (
            Person::at(&api),
            format!("{PRUNING} --yes-prune=shop,db"),
            2,
            "--yes-prune does not name the namespaces that objects would be removed from: copy,db",
        ),
        (
            Person::at(&api),
            PRUNING.replace("--prune", "--yes-prune=copy,db"),
            2,
            "--yes-prune has nothing to confirm",
        ),
        (
            Person::at(&api).at_terminal("y\n"),
            PRUNING.to_owned(),
            1,
            "no restore was created",
        ),
        (
            Person::at(&api).at_terminal("copy\n"),
            PRUNING.to_owned(),
            1,
            "Type copy,db to confirm",
        ),
    ] {
        let seen = person.types(&line).await;
        assert!(
            seen.contains(words) && seen.ends_with(&format!("--- exit {exit}\n")),
            "{seen}"
        );
        assert_eq!(api.stored("restores", "pruned"), None, "{seen}");
    }
    let by_hand = PRUNING.replace("pruned", "by-hand");
    let person = Person::at(&api).at_terminal("db, copy\n");
    let seen = person.types(&by_hand).await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
    let in_a_pipeline = format!("{PRUNING} --yes-prune=copy,db");
    let seen = Person::at(&api).types(&in_a_pipeline).await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
    for name in ["by-hand", "pruned"] {
        let stored = api.stored("restores", name).unwrap();
        assert_eq!(stored["spec"]["prune"], true, "{stored}");
    }
}

#[tokio::test]
async fn a_removal_that_is_not_valid_or_not_known_is_told_before_the_question() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let person = Person::at(&api).at_terminal("shop\n");
    let seen = person.types("restore nightly --name=r --prune").await;
    assert!(
        seen.contains("spec.prune: removes objects") && !seen.contains("to confirm"),
        "{seen}"
    );
    // The answer of an API server with Velero's definition: the field is dropped.
    let dropped = json!({"apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {"name": "r", "namespace": "velero"},
        "spec": {"backupName": "nightly", "includedNamespaces": ["shop"]}});
    api.on_post("/restores", Fault::Answer(201, dropped));
    let line = "restore nightly --name=r --include-namespaces=shop --prune";
    let seen = person.types(line).await;
    assert!(
        seen.contains("does not know spec.prune, so nothing would be removed"),
        "{seen}"
    );
    assert_eq!(api.stored("restores", "r"), None);
}

#[tokio::test]
async fn what_would_be_removed_is_a_section_of_its_own_and_red_on_a_terminal() {
    let plan = json!({ "plan": {
        "results": {
            "warnings": { "velero": ["not removed: PersistentVolumeClaim shop/cache: its data would be lost"] },
            "errors": {},
        },
        "resourceList": {
            "v1/ConfigMap": ["shop/colours(skipped)", "shop/extra(removed)"],
            "v1/Secret": ["shop/old(removed)"],
        },
        "notes": [],
    } });
    let api = FakeApi::with([completed_backup("nightly")]).await;
    api.has_bytes("RestoreResourceList", "pruned", planned(&[plan]));
    let line =
        "restore create pruned --from-backup=nightly --include-namespaces=shop --prune --plan";
    let seen = Person::at(&api).types(line).await;
    for words in [
        "Items       1: 1 ConfigMap (1 skipped, 2 removed)\n",
        "REMOVED\n  ConfigMap shop/extra\n  Secret shop/old\n",
        "not removed: PersistentVolumeClaim shop/cache",
    ] {
        assert!(seen.contains(words), "{words:?} is not in {seen}");
    }
    let seen = Person::at(&api).at_terminal("").types(line).await;
    assert!(seen.contains("␛[31mConfigMap shop/extra␛[0m"), "{seen}");
    let document = Person::at(&api).reads(&format!("{line} -o json")).await;
    assert_eq!(document["kind"], "RestorePlan");
    assert_eq!(
        document["resourceList"]["v1/Secret"],
        json!(["shop/old(removed)"])
    );
}
