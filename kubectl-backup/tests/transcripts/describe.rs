use backup_lock::{Footprint, Ledger, ObjectKey, ledger::Ask};

use crate::{delete::request, prelude::*};

async fn describe(backup: Value) -> String {
    let api = FakeApi::start().await;
    let name = backup["metadata"]["name"].as_str().unwrap().to_owned();
    let line = format!("describe {name}");
    has_files(&api, "Backup", &name);
    api.has(backup).has(location("Available", ""));
    Person::at(&api).types(&line).await
}

/// Stores the files of a backup or restore with many errors.
pub fn has_files(api: &FakeApi, of: &str, name: &str) {
    let file = |kind: &str, content: Value| {
        api.has_file(&format!("{of}{kind}"), name, &content);
    };
    let behind = |what: &str| {
        if of == "Restore" {
            format!("({what})")
        } else {
            String::new()
        }
    };
    file(
        "ResourceList",
        json!({
            "v1/Pod": [format!("db/db-0{}", behind("failed")), format!("shop/web-0{}", behind("created")), format!("shop/web-1{}", behind("created"))],
            "v1/Secret": [format!("shop/tls{}", behind("skipped")), format!("db/tls{}", behind("created"))],
            "apps/v1/Deployment": [format!("shop/web{}", behind("created"))],
            "v1/Namespace": [format!("shop{}", behind("created")), format!("db{}", behind("created"))],
            "example.io/v1/备份": [format!("shop/每日{}", behind("updated"))],
        }),
    );
    file(
        "Results",
        json!({
            "errors": { "namespaces": { "db": ["pods db-0: the hook \"freeze\" has failed: exit code 1"] }, "velero": ["persistentvolumeclaims db/pgdata: operation vs-7 of velero.io/csi failed: the driver has no room"] },
            "warnings": { "namespaces": {
                "shop": ["left out as it is terminating", "left out as it is terminating", "left out as it is terminating"],
                "db": ["left out as it is terminating"], "cache": ["left out as it is terminating"],
            }, "cluster": ["the API server does not serve example.io/v1beta1 any more"] },
        }),
    );
    let operation = |number: u32, status: Value| {
        json!({
            "spec": { "backupName": name, "backupUID": "u", "backupItemAction": "velero.io/csi", "restoreItemAction": "velero.io/csi", "operationID": format!("vs-{number}"),
                "resourceIdentifier": { "Group": "", "Resource": "persistentvolumeclaims", "Namespace": "db", "Name": format!("pgdata-{number}") } },
            "status": with(json!({ "created": "2026-11-03T03:05:00Z" }), &status),
        })
    };
    file(
        "ItemOperations",
        json!([
            operation(
                1,
                json!({ "phase": "Completed", "nCompleted": 10, "nTotal": 10, "operationUnits": "bytes", "updated": "2026-11-03T03:13:00Z" })
            ),
            operation(
                2,
                json!({ "phase": "InProgress", "nCompleted": 3, "nTotal": 10, "operationUnits": "bytes", "description": "copying", "updated": "2026-11-03T05:14:02Z" })
            ),
            operation(3, json!({ "phase": "New" })),
            operation(
                7,
                json!({ "phase": "Failed", "error": "the driver has no room", "updated": "2026-11-03T03:12:00Z" })
            ),
        ]),
    );
    let volumes = json!([
        { "pvcName": "pgdata-1", "pvcNamespace": "db", "pvName": "pv-1", "backupMethod": "CSISnapshot", "restoreMethod": "CSISnapshot", "result": "succeeded", "csiSnapshotInfo": { "snapshotHandle": "snap-1", "size": 1_073_741_824 } },
        { "pvcName": "pgdata-7", "pvcNamespace": "db", "pvName": "pv-7", "backupMethod": "CSISnapshot", "restoreMethod": "CSISnapshot", "result": "failed" },
        { "pvName": "pv-8", "skipped": true, "skippedReason": "no driver for it" },
    ]);
    file(
        if of == "Backup" {
            "VolumeInfos"
        } else {
            "VolumeInfo"
        },
        volumes,
    );
}

/// Makes a test for each backup: its description is as in the snapshot.
macro_rules! described {
    ($($test:ident: $backup:expr;)+) => {$(
        #[tokio::test]
        async fn $test() {
            assert_snapshot!(describe($backup).await);
        }
    )+};
}

described! {
    a_backup_that_waits_for_operations_shows_each:
        with(new_backup("waits"), &json!({"status": {"phase": "WaitingForPluginOperationsPartiallyFailed", "errors": 2, "warnings": 6, "startTimestamp": "2026-11-03T05:13:00Z", "progress": {"totalItems": 9, "itemsBackedUp": 9}, "backupItemOperationsAttempted": 4, "backupItemOperationsCompleted": 1, "backupItemOperationsFailed": 1}}));
    a_completed_backup:
        completed_backup("nightly-20261103030000");
    a_backup_that_selected_nothing:
        with(completed_backup("empty"), &json!({"status": {"warnings": 1, "progress": {"totalItems": 0, "itemsBackedUp": 0}}}));
    a_backup_whose_names_were_not_found:
        with(completed_backup("typo"), &json!({"status": {"phase": "PartiallyFailed", "errors": 1, "warnings": 1, "progress": {"totalItems": 0, "itemsBackedUp": 0}}}));
    a_backup_that_failed_validation:
        with(new_backup("wrong"), &json!({"spec": {"storageLocation": "gone"}, "status": {"phase": "FailedValidation", "validationErrors": ["an existing backup storage location was not specified: \"gone\"", "encountered labelSelector as well as orLabelSelectors"]}}));
    a_backup_that_failed:
        with(completed_backup("full"), &json!({"status": {"phase": "Failed", "failureReason": "the bucket is full"}}));
    a_backup_whose_end_is_blocked:
        with(new_backup("stuck"), &json!({"metadata": {"annotations": {"backup-controller/blocked": "s3://acme-dr answers 503: retrying"}}, "status": {"phase": "Finalizing", "startTimestamp": "2026-11-03T05:00:00Z", "progress": {"totalItems": 10, "itemsBackedUp": 10}}}));
    a_backup_that_nobody_picks_up:
        with(new_backup("lonely"), &json!({"metadata": {"creationTimestamp": "2026-11-03T05:04:12Z"}, "spec": {"includedNamespaces": ["shop", "db"], "orLabelSelectors": [{"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}]}}));
    a_phase_of_a_newer_server_is_shown_and_not_judged:
        with(completed_backup("newer"), &json!({"status": {"phase": "Compacting"}}));
}

fn running(done: u32) -> Value {
    with(
        new_backup("shop"),
        &json!({"status": {"phase": "InProgress", "startTimestamp": "2026-11-03T05:13:00Z", "progress": {"totalItems": 300, "itemsBackedUp": done}}}),
    )
}

/// A backup that ends while it is watched.
async fn ending() -> FakeApi {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "shop");
    api.has(running(120));
    api.becomes(
        "/backups/shop",
        [running(120), running(240), completed_backup("shop")],
    );
    api
}

#[tokio::test]
async fn on_a_terminal_a_running_backup_is_redrawn_with_a_bar() {
    let api = ending().await;
    transcript!(
        Person::at(&api).at_terminal(""),
        "describe shop -w --color=never"
    );
}

/// Lines that have scrolled away could not be overwritten. The last screen stays.
#[tokio::test]
async fn what_is_redrawn_is_cut_to_the_window_until_the_end() {
    let api = ending().await;
    transcript!(Person::at(&api).in_window(60, 7), "describe shop -w");
}

#[tokio::test]
async fn a_part_that_takes_long_does_not_hold_the_next_screen() {
    let api = FakeApi::start().await;
    api.on_get("/events", Fault::Hang);
    api.has(running(120))
        .becomes("/backups/shop", [running(120), running(240)]);
    let begun = std::time::Instant::now();
    let seen = Person::at(&api)
        .at_terminal("")
        .watches("describe shop -w --color=never", "240 of 300")
        .await;
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(8),
        "{seen}"
    );
    assert!(
        seen.contains("EVENTS  unavailable: not read yet") && !seen.contains("no answer"),
        "{seen}"
    );
}

#[tokio::test]
async fn in_a_pipe_changes_are_told_and_the_end_is_shown() {
    let api = FakeApi::start().await;
    let failed = with(
        completed_backup("shop"),
        &json!({"status": {"phase": "PartiallyFailed", "errors": 2}}),
    );
    let running = backup_in("InProgress", "shop");
    has_files(&api, "Backup", "shop");
    api.has(running.clone())
        .becomes("/backups/shop", [running.clone(), running, failed]);
    transcript!(Person::at(&api), "describe shop --watch");
}

#[tokio::test]
async fn a_file_that_does_not_come_is_told_in_its_place() {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "nightly");
    let status = json!({"status": {"phase": "PartiallyFailed", "errors": 2, "backupItemOperationsAttempted": 4, "backupItemOperationsCompleted": 1, "backupItemOperationsFailed": 1}});
    let damaged = Fault::Bytes(200, Vec::new(), b"not gzip".to_vec());
    api.has(with(completed_backup("nightly"), &status))
        .has(location("Available", ""));
    api.meets(&Method::POST, "/downloadrequests", vec![Fault::Hang; 2]);
    api.on_get("files/read-0", damaged.clone())
        .on_get("files/read-1", damaged);
    let seen = Person::at(&api).types("describe nightly").await;
    let missing = seen
        .lines()
        .filter(|line| line.contains("unavailable: "))
        .count();
    // Four parts, plus the verdict and the answer, which need the list.
    assert_eq!(missing, 6, "{seen}");
    assert_says!(seen, "no answer within 10s", "cannot be read");
    assert_says!(
        seen,
        "Something was not saved (2 errors); the rest can be restored."
    );
}

#[tokio::test]
async fn a_partially_failed_backup_with_events() {
    let api = FakeApi::start().await;
    let name = "nightly-20261103030000";
    let day_before = json!({"metadata": {"creationTimestamp": "2026-11-02T03:00:00Z"}, "status": {"startTimestamp": "2026-11-02T03:00:00Z", "completionTimestamp": "2026-11-02T03:10:00Z"}});
    has_files(&api, "Backup", name);
    api.has(with(
        completed_backup("nightly-20261102030000"),
        &day_before,
    ));
    let status = json!({"status": {"phase": "PartiallyFailed", "errors": 2, "warnings": 17, "hookStatus": {"hooksAttempted": 4, "hooksFailed": 1}, "backupItemOperationsAttempted": 31, "backupItemOperationsCompleted": 29, "backupItemOperationsFailed": 2}});
    api.has(with(completed_backup(name), &status))
        .has(location("Available", ""));
    let failed = "pods/db-0: volume pgdata was not saved";
    for (number, level, reason, message, at) in [
        (1, "Warning", "ItemFailed", failed, "2026-11-03T03:09:00Z"),
        (2, "Warning", "ItemFailed", failed, "2026-11-03T03:10:00Z"),
        (
            3,
            "Normal",
            "Finished",
            "PartiallyFailed",
            "2026-11-03T03:14:12Z",
        ),
    ] {
        api.has(event(number, "Backup", name, level, reason, message, at));
    }
    let person = Person::at(&api);
    transcript!("describe partially failed" => person, &format!("describe {name}"));
    transcript!("describe in full" => person, &format!("describe {name} --details"));
    transcript!("describe json" => person, &format!("describe {name} -o json"));
}

#[tokio::test]
async fn a_completed_backup_in_a_location_that_is_unavailable() {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "nightly");
    api.has(completed_backup("nightly")).has(location(
        "Unavailable",
        "AccessDenied: the key has no right to list\nthe bucket",
    ));
    transcript!(Person::at(&api), "describe nightly");
}

#[tokio::test]
async fn a_backup_that_waits_for_a_restore_names_the_holder() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let restore = ObjectKey::restore("velero", "back-again");
    ledger
        .admit(
            &restore,
            "r",
            &Footprint::everything(),
            "2026-11-03T05:10:12Z",
            &Ask::default(),
        )
        .unwrap();
    ledger.activate(&restore, "r").unwrap();
    api.has(with(
        new_backup("shop"),
        &json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "Queued", "queuePosition": 1}}),
    ))
    .has(lease(&ledger).await);
    transcript!(Person::at(&api), "describe shop");
}

#[tokio::test]
async fn a_restore_that_waits_for_its_turn_names_those_before_it() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let everything = Footprint::everything();
    let holder = ObjectKey::backup("velero", "nightly");
    ledger
        .admit(
            &holder,
            "b",
            &everything,
            "2026-11-03T05:10:12Z",
            &Ask::default(),
        )
        .unwrap();
    ledger.activate(&holder, "b").unwrap();
    for (name, since) in [
        ("late", "2026-11-03T05:11:12Z"),
        ("later", "2026-11-03T05:12:12Z"),
    ] {
        let queue = Ask::queued();
        let key = ObjectKey::restore("velero", name);
        ledger
            .admit(&key, &format!("uid-of-{name}"), &everything, since, &queue)
            .unwrap();
    }
    let waits = json!({"metadata": {"creationTimestamp": "2026-11-03T05:11:12Z"}, "status": null});
    api.has(with(completed_restore("late", "nightly"), &waits))
        .has(completed_backup("nightly"))
        .has(lease(&ledger).await);
    transcript!(Person::at(&api), "restore describe late");
    transcript!("to wait for it says the same" => Person::at(&api), "restore wait late --timeout=300ms");
}

#[tokio::test]
async fn a_running_backup_shows_its_own_claim() {
    let api = FakeApi::start().await;
    let mut ledger = Ledger::default();
    let key = ObjectKey::backup("velero", "shop");
    ledger
        .admit(
            &key,
            "uid-of-shop",
            &Footprint::namespaces(["shop"]),
            "2026-11-03T05:12:12Z",
            &Ask::default(),
        )
        .unwrap();
    ledger.activate(&key, "uid-of-shop").unwrap();
    let over = json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "InProgress", "errors": 1, "startTimestamp": "2026-11-03T05:13:00Z", "progress": {"totalItems": 300, "itemsBackedUp": 120}}});
    api.has(with(new_backup("shop"), &over))
        .has(lease(&ledger).await);
    transcript!(Person::at(&api), "describe shop");
}

#[tokio::test]
async fn a_part_that_cannot_be_fetched_fails_nothing() {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "nightly");
    let forbidden =
        |what: &str| Fault::forbidden(&format!("{what} is forbidden: User \"jane\" cannot get it"));
    api.has(completed_backup("nightly"))
        .on_get(
            "/default",
            forbidden("backupstoragelocations.velero.io \"default\""),
        )
        .on_get(
            "/backup-lock-velero",
            forbidden("leases.coordination.k8s.io \"backup-lock-velero\""),
        )
        .on_get(
            "/deletebackuprequests",
            Fault::refused(500, "InternalError", "etcdserver: request timed out"),
        )
        .on_get("/events", Fault::Hang);
    transcript!(Person::at(&api), "describe nightly --request-timeout=500ms");
}

#[tokio::test]
async fn a_backup_whose_deletion_failed_shows_why() {
    let api = FakeApi::start().await;
    let request = request(
        "Processed",
        &["the bucket refuses: object lock until 3 Dec"],
    );
    let request = with(
        request,
        &json!({"metadata": {"creationTimestamp": "2026-11-03T05:00:12Z"}}),
    );
    api.has(with(
        completed_backup("nightly"),
        &json!({"status": {"phase": "Deleting"}}),
    ))
    .has(request)
    .has(location("Available", ""));
    transcript!(Person::at(&api), "describe nightly");
}

#[tokio::test]
async fn restores_are_described_with_their_source() {
    let api = FakeApi::start().await;
    has_files(&api, "Restore", "whole");
    has_files(&api, "Restore", "half");
    api.has(completed_backup("nightly"))
        .has(location("Available", ""))
        .has(completed_restore("whole", "nightly"))
        .has(with(completed_restore("half", "gone"), &json!({"spec": {"namespaceMapping": {"shop": "shop-copy"}, "existingResourcePolicy": "update", "includedNamespaces": ["shop"]}, "status": {"phase": "PartiallyFailed", "errors": 1, "warnings": 1}})))
        .has(json!({"apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {"name": "early", "namespace": "velero", "uid": "u", "creationTimestamp": "2026-11-03T05:14:02Z"}, "spec": {"backupName": "gone"}}));
    transcript!(
        Person::at(&api),
        "restore describe whole",
        "restore describe half",
        "restore describe early",
        "restore describe whole -o yaml"
    );
}

#[tokio::test]
async fn texts_from_the_cluster_cannot_write_to_the_terminal() {
    let seen = describe(with(
        completed_backup("evil"),
        &json!({"status": {"phase": "Failed", "failureReason": "\u{1b}]0;owned\u{7}\u{1b}[2Jbye"}}),
    ))
    .await;
    assert!(!seen.contains('␛') && !seen.contains('\u{7}'), "{seen}");
}

#[tokio::test]
async fn watching_one_that_has_ended_ends_with_its_code() {
    let api = FakeApi::start().await;
    for (phase, code) in [("Completed", 0), ("PartiallyFailed", 3), ("Failed", 3)] {
        api.has(backup_in(phase, "b"));
        let (pipe, terminal) = (Person::at(&api), Person::at(&api).at_terminal(""));
        for person in [pipe, terminal] {
            let seen = person.types("describe b -w").await;
            assert!(
                seen.ends_with(&format!("--- exit {code}\n")),
                "{phase}: {seen}"
            );
        }
    }
}

/// Volumes without data are reported by the controller, or by an older server only in its file.
#[tokio::test]
async fn a_completed_backup_without_the_data_of_all_volumes_says_so() {
    let api = FakeApi::start().await;
    let said = r#"{"missing": 2, "of": 3, "volumes": {"db/pgdata-7": "its snapshot failed", "pv-8": "no driver"}}"#;
    let annotation = json!({"metadata": {"annotations": {"backup-controller/missing-data": said}}});
    api.has(with(completed_backup("nightly"), &annotation));
    api.has(with(
        with(completed_backup("partly"), &annotation),
        &json!({"status": {"phase": "PartiallyFailed", "errors": 1}}),
    ));
    for name in ["nightly", "partly"] {
        api.has_file("BackupResourceList", name, &json!({}));
    }
    let person = Person::at(&api);
    transcript!(
        person,
        "get",
        "describe nightly",
        "describe partly",
        "wait nightly"
    );
    let document = person.reads("describe nightly -o json").await;
    assert_eq!(
        (&document["missingData"]["missing"], &document["tone"]),
        (&json!(2), &json!("warn"))
    );

    api.has(completed_backup("older"));
    has_files(&api, "Backup", "older");
    let volumes = json!([{"pvcNamespace": "db", "pvcName": "data", "skipped": true}, {"pvName": "pv-1", "result": "succeeded"}]);
    api.has_file("BackupVolumeInfos", "older", &volumes);
    let seen = person.types("describe older").await;
    assert_says!(
        seen,
        "All items were saved, but the data of 1 of 2 volumes is not in it: db/data"
    );
}

#[tokio::test]
async fn a_restore_that_has_removed_objects_says_how_many_and_is_no_worse_for_it() {
    let api = FakeApi::start().await;
    let items = r#"{"left": 0, "items": [], "removed": 3}"#;
    let over = json!({"metadata": {"annotations": {"backup-controller/left-items": items}}});
    api.has(with(completed_restore("pruned", "nightly"), &over));
    let person = Person::at(&api);
    let seen = person.types("restore describe pruned").await;
    assert_says!(
        seen,
        "Everything was restored",
        "3 objects that the backup does not have"
    );
    assert_says!(person.types("restore get").await, "3 objects removed");
}

/// Volumes without data and unchanged items are reported by the controller, or only in the file.
#[tokio::test]
async fn a_completed_restore_that_has_not_brought_everything_says_so() {
    let api = FakeApi::start().await;
    let data =
        r#"{"missing": 1, "of": 3, "volumes": {"shop/pgdata": "its snapshot was not restored"}}"#;
    let items = r#"{"left": 9, "items": ["ConfigMap shop/settings", "Service shop/web"]}"#;
    let said = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let both = said(
        json!({"backup-controller/missing-data": data, "backup-controller/left-items": items}),
    );
    let restore = |name: &str, over: &Value| with(completed_restore(name, "nightly"), over);
    api.has(restore("both", &both))
        .has(with(
            restore("half", &both),
            &json!({"status": {"phase": "PartiallyFailed", "errors": 1}}),
        ))
        .has(restore(
            "empty",
            &said(json!({"backup-controller/missing-data": data})),
        ))
        .has(restore(
            "left",
            &said(json!({"backup-controller/left-items": items})),
        ));
    let person = Person::at(&api);
    transcript!(
        person,
        "restore get",
        "restore describe both",
        "restore describe half",
        "restore wait both",
        "restore wait empty",
        "restore wait left"
    );
    let document = person.reads("restore describe both -o json").await;
    assert_eq!(
        (&document["missingData"]["missing"], &document["tone"]),
        (&json!(1), &json!("warn"))
    );
    assert_eq!(document["leftItems"]["left"], 9);

    api.has(completed_restore("file", "nightly"));
    has_files(&api, "Restore", "file");
    let volumes =
        json!([{"pvcNamespace": "db", "pvcName": "data", "skipped": true, "skippedReason": "why"}]);
    api.has_file("RestoreVolumeInfo", "file", &volumes);
    let seen = person.types("restore describe file").await;
    assert_says!(
        seen,
        "but the data of 1 of 1 volume was not restored: db/data (why)"
    );
}

#[tokio::test]
async fn the_newest_is_described_where_none_is_named() {
    let api = FakeApi::with([completed_backup("older"), new_backup("nightly")]).await;
    let person = Person::at(&api);
    assert_says!(person.types("describe").await, "nightly   New");
    transcript!(person, "restore describe");
}

#[tokio::test]
async fn commands_in_what_is_shown_have_the_flags_that_were_given() {
    let api = FakeApi::with([backup_in("Failed", "nightly")]).await;
    let person = Person::at(&api);
    let connection = "--context=here --kubeconfig=~/.kube/config";
    let seen = person
        .types(&format!("describe nightly -n velero {connection}"))
        .await;
    let next = "kubectl --kubeconfig=~/.kube/config --context=here -n velero logs deployment/backup-controller";
    assert_says!(seen, next);
    let seen = person
        .types(&format!("describe gone -n velero {connection}"))
        .await;
    let remedy = "`kubectl backup --kubeconfig=~/.kube/config --context=here -n velero get` lists the backups";
    assert_says!(seen, remedy);
}

#[tokio::test]
async fn what_a_restore_left_out_on_purpose_is_counted_with_the_reason() {
    let left_out = json!([
        {"kind": "Job", "count": 2, "reason": "the job had completed"},
        {"kind": "Pod", "count": 1, "reason": "the pod had ended"},
    ]);
    let items = json!({"left": 0, "items": [], "leftOut": left_out}).to_string();
    let over = json!({"metadata": {"annotations": {"backup-controller/left-items": items}}});
    let api = FakeApi::with([with(completed_restore("r", "nightly"), &over)]).await;
    let person = Person::at(&api);
    assert_says!(
        person.types("restore describe r").await,
        "✓ r   Completed",
        "  Everything was restored.\n",
        "LEFT OUT\n  2 Job: the job had completed\n  1 Pod: the pod had ended\n"
    );
    let document = person.reads("restore describe r -o json").await;
    assert_eq!(document["leftItems"]["leftOut"], left_out);
}
