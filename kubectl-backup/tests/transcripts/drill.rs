use backup_core::{
    drill::{DrillResult, DrillState, id, restore_name, scratch_name},
    labels::{
        DRILL_SCHEDULE_LABEL, DRILL_STATE_ANNOTATION, DRILLED_ANNOTATION, LAST_DRILL_ANNOTATION,
    },
};

use crate::{person::NOW, prelude::*};

/// Name of the drill that is made of backup `nightly`.
fn name() -> String {
    restore_name("nightly", &id(&["nightly", NOW]))
}

fn result(failure: &str) -> DrillResult {
    DrillResult {
        seconds: 41,
        items: 312,
        restored: 312,
        checks: 3,
        passed: 3,
        ..DrillResult::of_nothing(
            "r",
            failure.to_owned(),
            "2026-11-02T15:14:12Z".parse().unwrap(),
        )
    }
}

/// A cluster with backup `nightly`, which holds something of three namespaces.
async fn cluster() -> FakeApi {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let list = json!({ "v1/ConfigMap": ["shop/a", "db/a", "kube-system/a"], "v1/Node": ["n"] });
    api.has_file("BackupResourceList", "nightly", &list);
    api
}

#[tokio::test]
async fn a_drill_is_a_restore_into_scratch_namespaces() {
    let api = cluster().await;
    let person = Person::at(&api);
    let seen = person
        .types("drill nightly --quota=pods=9 --require-ready")
        .await;
    let name = name();
    let follow = format!("kubectl backup restore describe {name}");
    assert_says!(
        seen,
        format!("{name} created").as_str(),
        follow.as_str(),
        "exit 0"
    );
    let spec = &api.stored("restores", &name).unwrap()["spec"];
    let id = id(&["nightly", NOW]);
    let mapping = json!({ "db": scratch_name(&id, "db"), "shop": scratch_name(&id, "shop") });
    let expected = json!({
        "backupName": "nightly", "includedNamespaces": ["db", "shop"], "namespaceMapping": mapping,
        "includeClusterResources": false, "restorePVs": false,
        "drill": { "quota": { "pods": "9" }, "requireReady": true },
    });
    assert_eq!(*spec, expected);
}

#[tokio::test]
async fn a_drill_of_volumes_asks_for_them() {
    let api = cluster().await;
    let person = Person::at(&api);
    let seen = person.types("drill nightly --volumes").await;
    assert_says!(seen, "exit 0");
    let spec = &api.stored("restores", &name()).unwrap()["spec"];
    let expected = json!({ "volumes": true });
    assert_eq!(
        (&spec["drill"], &spec["restorePVs"]),
        (&expected, &json!(true))
    );
}

#[tokio::test]
async fn a_file_describes_a_drill_with_its_checks() {
    let api = cluster().await;
    let person = Person::at(&api);
    let file = "includedNamespaces: [shop]\nchecks:\n- name: smoke\n  namespace: shop\n  job: {template: {spec: {containers: [{name: c, image: i}]}}}\n";
    person.writes("drill.yaml", file);
    person.writes("wrong.yaml", "checks: []\ntemplate: {}\n");
    person.writes("invalid.yaml", "checks:\n- name: smoke\n  namespace: db\n");
    let folder = person.home.path().display().to_string();
    let types = async |file: &str| {
        person
            .types(&format!("drill nightly -f {folder}/{file}"))
            .await
    };
    assert_says!(
        types("wrong.yaml").await,
        "\"template\" is no field of a drill",
        "exit 1"
    );
    assert_says!(
        types("invalid.yaml").await,
        "spec.drill.checks[0].job",
        "exit 1"
    );
    assert!(api.all("restores").is_empty());
    assert_says!(types("drill.yaml").await, "exit 0");
    let spec = &api.stored("restores", &name()).unwrap()["spec"];
    assert_eq!(spec["includedNamespaces"], json!(["shop"]));
    assert_eq!(spec["drill"]["checks"][0]["name"], "smoke");
}

#[tokio::test]
async fn the_drill_of_a_schedule_is_as_its_spec_says_and_counts_for_it() {
    let api = cluster().await;
    let of_schedule = json!({ "metadata": { "labels": { "velero.io/schedule-name": "daily" } } });
    api.has(with(completed_backup("nightly"), &of_schedule));
    let drill = json!({ "every": "24h", "includedNamespaces": ["shop"], "quota": { "pods": "5" } });
    api.has(json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "daily", "namespace": "velero" },
        "spec": { "schedule": "@daily", "template": {}, "drill": drill } }));
    let seen = Person::at(&api).types("drill --schedule=daily").await;
    assert_says!(seen, "exit 0");
    let restore = api.stored("restores", &name()).unwrap();
    assert_eq!(restore["metadata"]["labels"][DRILL_SCHEDULE_LABEL], "daily");
    assert_eq!(restore["spec"]["includedNamespaces"], json!(["shop"]));
    assert_eq!(
        restore["spec"]["drill"],
        json!({ "quota": { "pods": "5" } })
    );
}

#[tokio::test]
async fn nothing_is_created_that_nothing_would_remove() {
    let api = cluster().await;
    let person = Person::at(&api);
    // The answer of an API server with Velero's definition: the field is dropped.
    let dropped = json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "x", "namespace": "velero" },
        "spec": { "backupName": "nightly" } });
    api.on_post("/restores", Fault::Answer(201, dropped));
    let seen = person.types("drill nightly").await;
    assert_says!(
        seen,
        "does not know spec.drill",
        "kubectl backup upgrade",
        "exit 1"
    );
    for (line, says) in [
        (
            "drill nightly --include-namespaces=velero",
            "would run twice",
        ),
        (
            "drill nightly --include-namespaces=shop,nosuch",
            "the backup does not hold namespace \"nosuch\"",
        ),
        ("drill gone", "gone"),
        ("drill", "exit 2"),
        ("drill a --schedule=b", "exit 2"),
    ] {
        assert_says!(person.types(line).await, says);
    }
    assert!(api.all("restores").is_empty());
}

#[tokio::test]
async fn named_namespaces_are_drilled_if_the_list_of_the_backup_cannot_be_read() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    api.on_post(
        "/downloadrequests",
        Fault::forbidden("… is forbidden: User \"jane\" cannot create resource"),
    );
    let person = Person::at(&api);
    let seen = person
        .types("drill nightly --include-namespaces=shop")
        .await;
    assert_says!(seen, "exit 0");
    let restore = api.stored("restores", &name()).unwrap();
    assert_eq!(restore["spec"]["includedNamespaces"], json!(["shop"]));
}

#[tokio::test]
async fn a_drill_is_followed_to_its_result() {
    for (failure, says, exit) in [
        (
            "",
            "succeeded in 41s, 312 of 312 items, 3 checks passed",
            "exit 0",
        ),
        (
            "check a: exit code 1",
            "failed: check a: exit code 1",
            "exit 3",
        ),
    ] {
        let api = cluster().await;
        let ended = DrillState {
            result: Some(result(failure)),
            ..DrillState::default()
        };
        let stage = |phase: &str, state: &DrillState| {
            json!({ "apiVersion": "velero.io/v1", "kind": "Restore",
                "metadata": { "name": name(), "namespace": "velero", "uid": "u",
                    "annotations": { DRILL_STATE_ANNOTATION: state.annotation() } },
                "spec": { "backupName": "nightly", "drill": {} }, "status": { "phase": phase } })
        };
        let begun = DrillState::default();
        // The answer to the dry run, and then that to the creation.
        let created = stage("New", &begun);
        api.on_post("/restores", Fault::Answer(201, created.clone()));
        api.on_post("/restores", Fault::Answer(201, created));
        let stages = [
            stage("InProgress", &begun),
            stage("Completed", &begun),
            stage("Completed", &ended),
        ];
        api.becomes(&format!("/restores/{}", name()), stages);
        let seen = Person::at(&api).types("drill nightly --wait").await;
        assert_says!(
            seen,
            "its restore is InProgress",
            "its workloads are waited for",
            says,
            exit
        );
    }
}

#[tokio::test]
async fn the_last_drill_is_shown() {
    let api = FakeApi::with([]).await;
    let drilled =
        json!({ "metadata": { "annotations": { DRILLED_ANNOTATION: result("").annotation() } } });
    api.has(with(completed_backup("nightly"), &drilled));
    let last = backup_core::drill::LastDrill::after(None, "nightly", result("")).annotation();
    let annotations = json!({ LAST_DRILL_ANNOTATION: last });
    api.has(json!({ "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": { "name": "daily", "namespace": "velero", "annotations": annotations },
        "spec": { "schedule": "@daily", "template": {}, "drill": { "every": "24h" } } }));
    let person = Person::at(&api);
    let text = "restored 14h ago in 41s, 312 of 312 items, 3 checks passed";
    for line in ["describe nightly", "schedules describe daily"] {
        assert_says!(person.types(line).await, "Drilled", text);
    }
    let document = person.reads("describe nightly -o json").await;
    assert_eq!(document["drilled"]["seconds"], 41);
    let document = person.reads("schedules describe daily -o json").await;
    assert_eq!(document["drill"]["last"]["backup"], "nightly");
}

#[tokio::test]
async fn a_failed_drill_is_said_of_its_restore_and_of_its_backup() {
    let api = FakeApi::with([]).await;
    let failed = result("check a: exit code 1");
    let drilled =
        json!({ "metadata": { "annotations": { DRILLED_ANNOTATION: failed.annotation() } } });
    api.has(with(completed_backup("nightly"), &drilled));
    let state = DrillState {
        result: Some(failed),
        is_over: true,
        ..DrillState::default()
    };
    api.has(json!({ "apiVersion": "velero.io/v1", "kind": "Restore",
        "metadata": { "name": "r", "namespace": "velero", "uid": "u",
            "annotations": { DRILL_STATE_ANNOTATION: state.annotation() } },
        "spec": { "backupName": "nightly", "drill": {} }, "status": { "phase": "Completed" } }));
    let person = Person::at(&api);
    assert_says!(
        person.types("restore get").await,
        "Completed (drill failed)"
    );
    assert_says!(
        person.types("restore describe r").await,
        "The drill has failed.",
        "check a: exit code 1",
        "kubectl backup restore logs r",
        "kubectl backup drill nightly --wait"
    );
    for command in ["restore wait r", "restore describe r -w"] {
        assert_says!(
            person.types(command).await,
            "The drill has failed.",
            "check a: exit code 1",
            "--- exit 3"
        );
    }
    assert_says!(
        person.types("describe nightly").await,
        "Drilled",
        "kubectl backup restore describe r"
    );
}
