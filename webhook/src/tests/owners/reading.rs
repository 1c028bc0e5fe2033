//! What namespace owners read by DownloadRequests.

use backup_core::{
    labels::{
        OBJECTS_ANNOTATION, PLAN_ANNOTATION, READ_KEY_ANNOTATION, READ_UID_ANNOTATION,
        STORED_SCOPE_ANNOTATION,
    },
    reading::KEY_LENGTH,
};
use backup_testkit::velero_path;

use super::*;

fn key_hash() -> String {
    "ab".repeat(KEY_LENGTH)
}

/// A DownloadRequest for a kind of file of this name, with these annotations beside the key.
fn reading(kind: &str, name: &str, annotations: &Value) -> Value {
    let target = json!({ "target": { "kind": kind, "name": name } });
    let mut request = creation("DownloadRequest", "read-1", "1", target);
    request["object"]["metadata"]["annotations"] = with(
        &json!({ READ_KEY_ANNOTATION: key_hash() }),
        annotations.clone(),
    );
    request
}

fn with_stored_objects(rules: &[Rule]) -> (FakeApi, Replica) {
    let (api, replica) = owner_with(rules);
    let of = |namespace: &str| json!({ "includedNamespaces": [namespace], "includeClusterResources": false });
    let restored = |namespace: &str| with(&of(namespace), json!({ "backupName": "mine" }));
    for (name, namespace) in [("mine", "shop"), ("theirs", "prod"), ("edited", "shop")] {
        api.put_velero(
            "Backup",
            name,
            &format!("u-{name}"),
            "Completed",
            &of(namespace),
        );
    }
    // An operator, or a pipeline, has edited the spec since.
    api.edit(&velero_path("Backup", "edited"), |backup| {
        let scope = of("prod").to_string();
        backup["metadata"]["annotations"] = json!({ STORED_SCOPE_ANNOTATION: scope });
    });
    let along = json!({ "includedNamespaces": ["shop"] });
    api.put_velero("Backup", "along", "u-along", "Completed", &along);
    for (name, namespace) in [("mine", "shop"), ("theirs", "prod")] {
        api.put_velero(
            "Restore",
            name,
            &format!("u-{name}"),
            "Completed",
            &restored(namespace),
        );
        let schedule = json!({ "schedule": "@daily", "template": of(namespace) });
        api.put_velero("Schedule", name, &format!("u-{name}"), "Enabled", &schedule);
    }
    (api, replica)
}

#[tokio::test]
async fn an_owner_reads_what_the_owner_could_create_and_sees_what_is_about_the_owners_namespaces() {
    let uid = |name: &str| json!({ READ_UID_ANNOTATION: format!("u-{name}") });
    let plan = |namespace: &str| {
        let spec = json!({ "backupName": "mine", "includedNamespaces": [namespace], "includeClusterResources": false });
        json!({ PLAN_ANNOTATION: spec.to_string() })
    };
    let objects = |query: Value| json!({ OBJECTS_ANNOTATION: query.to_string() });
    let named = |kind: &str, name: &str| objects(json!({ "kind": kind, "of": { "name": name } }));
    let of_namespaces = |kind: &str, names: &[&str]| {
        objects(json!({ "kind": kind, "of": { "namespaces": names } }))
    };
    let rows = [
        (reading("BackupContents", "mine", &uid("mine")), ""),
        (reading("BackupLog", "mine", &uid("mine")), ""),
        (
            reading("BackupContents", "theirs", &uid("theirs")),
            "may not read files of Backup velero/theirs: that takes the right to get and list configmaps in namespace prod",
        ),
        (
            reading("BackupLog", "theirs", &uid("theirs")),
            "may not read files of Backup velero/theirs",
        ),
        (
            reading("BackupContents", "edited", &uid("edited")),
            "may not read files of Backup velero/edited",
        ),
        // Volumes came along, which the owner may not read.
        (
            reading("BackupContents", "along", &uid("along")),
            "get and list persistentvolumes in the whole cluster",
        ),
        (
            reading("BackupContents", "theirs", &uid("mine")),
            "another one has its name now",
        ),
        (
            reading(
                "BackupContents",
                "mine",
                &json!({ READ_KEY_ANNOTATION: null }),
            ),
            "reads by keys only",
        ),
        (
            reading("BackupContents", "mine", &json!({})),
            READ_UID_ANNOTATION,
        ),
        (
            reading("BackupContents", "gone", &uid("gone")),
            "there is no Backup velero/gone",
        ),
        (
            reading("BackupContents", "../restores/mine", &uid("mine")),
            "there is no Backup",
        ),
        (
            reading("Tomorrow", "mine", &uid("mine")),
            "spec.target.kind \"Tomorrow\" is not known",
        ),
        (reading("RestoreLog", "mine", &uid("mine")), ""),
        (
            reading("RestoreLog", "theirs", &uid("theirs")),
            "may not read files of Restore velero/theirs",
        ),
        (reading("RestoreResourceList", "new", &plan("shop")), ""),
        (
            reading("RestoreResourceList", "new", &plan("prod")),
            "may not plan Restore velero/new",
        ),
        (
            reading("BackupResourceList", "mine", &named("Backup", "mine")),
            "",
        ),
        (
            reading("BackupResourceList", "along", &named("Backup", "along")),
            "",
        ),
        (
            reading("BackupResourceList", "mine", &named("Restore", "mine")),
            "",
        ),
        (
            reading("BackupResourceList", "mine", &named("Schedule", "mine")),
            "",
        ),
        (
            reading("BackupResourceList", "mine", &named("Backup", "theirs")),
            "may not see Backup velero/theirs",
        ),
        (
            reading("BackupResourceList", "mine", &named("Restore", "theirs")),
            "may not see Restore velero/theirs",
        ),
        (
            reading("BackupResourceList", "mine", &named("Schedule", "theirs")),
            "may not see Schedule velero/theirs",
        ),
        (
            reading("BackupResourceList", "mine", &named("Backup", "gone")),
            "there is no Backup velero/gone",
        ),
        (
            reading(
                "BackupResourceList",
                "list",
                &of_namespaces("Backup", &["shop"]),
            ),
            "",
        ),
        (
            reading(
                "BackupResourceList",
                "list",
                &of_namespaces("Backup", &["shop", "prod"]),
            ),
            "may not see each Backup of shop, prod",
        ),
        (
            reading(
                "BackupResourceList",
                "list",
                &of_namespaces("Secret", &["shop"]),
            ),
            OBJECTS_ANNOTATION,
        ),
    ];
    for (request, expected) in rows {
        let (_, replica) = with_stored_objects(&[ALL_OF_SHOP]);
        let what = request["object"].to_string();
        assert_refused(&replica.review(request.clone()).await, expected, &what);
        // For all others, creating a request is the right to read.
        let (api, replica) = with_stored_objects(&[]);
        allow(&api, &[("velero", "create", "downloadrequests.velero.io")]);
        assert!(allowed(&replica.review(request).await), "{what}");
        assert_eq!(api.writes(), 0);
    }
}

#[tokio::test]
async fn what_a_restore_would_do_is_told_by_the_right_to_restore() {
    let reads_all = ("velero", "all-namespaces", "downloadrequests.velero.io");
    let restores_all = ("velero", "all-namespaces", "restores.velero.io");
    let spec = json!({ "backupName": "mine", "includedNamespaces": ["prod"], "includeClusterResources": false });
    let plan = reading(
        "RestoreResourceList",
        "new",
        &json!({ PLAN_ANNOTATION: spec.to_string() }),
    );
    let file = reading(
        "BackupContents",
        "theirs",
        &json!({ READ_UID_ANNOTATION: "u-theirs" }),
    );
    for (rule, may_read, may_plan) in [(reads_all, true, false), (restores_all, false, true)] {
        let (_, replica) = with_stored_objects(&[ALL_OF_SHOP, rule]);
        let answer = replica.review(file.clone()).await;
        assert_eq!(allowed(&answer), may_read, "{rule:?}: {answer}");
        let answer = replica.review(plan.clone()).await;
        assert_eq!(allowed(&answer), may_plan, "{rule:?}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_while_it_is_not_known_what_an_owner_may_do() {
    let shop = json!({ "includedNamespaces": ["shop"], "includeClusterResources": false });
    for request in [
        creation("Backup", "b", "1", shop.clone()),
        creation(
            "Schedule",
            "s",
            "1",
            json!({ "schedule": "@daily", "template": shop }),
        ),
        reading(
            "BackupLog",
            "mine",
            &json!({ READ_UID_ANNOTATION: "u-mine" }),
        ),
    ] {
        let (api, replica) = with_stored_objects(&[ALL_OF_SHOP]);
        api.fail(ApiRequest::is_access_review);
        let answer = replica.review(request).await;
        assert_eq!(answer["status"]["code"], 503, "{answer}");
        assert_says!(message(&answer), "try again");
    }
}
