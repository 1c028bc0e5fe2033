use crate::prelude::*;

fn namespace(api: &FakeApi, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    api.has_at(&format!("/api/v1/namespaces/{name}"), object);
}

fn schedule(name: &str, namespaces: &[&str]) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": {"name": name, "namespace": "velero", "creationTimestamp": "2026-10-01T00:00:00Z"},
        "spec": {"schedule": "0 3 * * *", "template": {"includedNamespaces": namespaces, "storageLocation": "default"}},
        "status": {"phase": "Enabled"},
    })
}

fn location(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": {"name": name, "namespace": "velero"},
        "spec": {"provider": "aws", "objectStorage": {"bucket": "b"}}, "status": status,
    })
}

fn of(name: &str, namespaces: &[&str]) -> Value {
    with(
        completed_backup(name),
        &json!({"spec": {"includedNamespaces": namespaces, "excludedNamespaces": null}}),
    )
}

#[tokio::test]
async fn what_is_not_protected_comes_first_with_the_reason() {
    let api = FakeApi::start().await;
    for name in ["shop", "db", "monitoring", "kube-system"] {
        namespace(&api, name);
    }
    let old = json!({"status": {"startTimestamp": "2026-10-20T03:00:00Z"}});
    let running = json!({"spec": {"includedNamespaces": ["shop"]}, "status": {"phase": "InProgress", "progress": {"totalItems": 40, "itemsBackedUp": 12}}});
    api.has(schedule("nightly", &["shop", "db"]))
        .has(of("nightly-20261103030000", &["shop"]))
        .has(with(of("nightly-20261020030000", &["db"]), &old))
        .has(with(new_backup("by-hand"), &running))
        .has(with(
            completed_restore("back-again", "nightly"),
            &json!({"status": {"phase": "InProgress"}}),
        ))
        .has(location("default", &json!({"phase": "Available"})))
        .has(location(
            "away",
            &json!({"phase": "Unavailable", "message": "no route to host"}),
        ));
    for (name, namespace) in [
        ("nightly-20261103030000", "shop"),
        ("nightly-20261020030000", "db"),
    ] {
        api.has_file(
            "BackupResourceList",
            name,
            &json!({ "v1/Namespace": [namespace] }),
        );
    }
    let person = Person::at(&api);
    transcript!(
        person,
        "status",
        "status -o name",
        "status --except-namespaces=kube-*,db,monitoring",
        "status --rpo=720h -o wide"
    );
    let document = person.types("status -o json").await;
    assert_says!(document, "\"kind\": \"ClusterStatus\"", "--- exit 1\n");
}

#[tokio::test]
async fn last_good_backups_that_were_verified_are_counted() {
    let api = FakeApi::start().await;
    namespace(&api, "shop");
    let record = r#"{"at":"2026-11-03T02:14:12Z","findings":0}"#;
    let verified = json!({"metadata": {"annotations": {"backup-controller/verified": record}}});
    let name = "nightly-20261103030000";
    api.has(schedule("nightly", &["shop"]))
        .has(with(of(name, &["shop"]), &verified))
        .has(location("default", &json!({"phase": "Available"})))
        .has_file(
            "BackupResourceList",
            name,
            &json!({ "v1/Namespace": ["shop"] }),
        );
    let screen = Person::at(&api).types("status").await;
    assert_says!(
        screen,
        "Verified",
        "1 of 1 last good backup found whole, last 3h ago"
    );
}

#[tokio::test]
async fn a_schedule_whose_backups_are_refused_or_do_not_last_protects_nothing() {
    let api = FakeApi::start().await;
    let of_template = |name: &str, template: &Value| {
        with(
            schedule(name, &[name]),
            &json!({ "spec": { "template": template } }),
        )
    };
    let stored_in = |name: &str| of_template(name, &json!({ "storageLocation": name }));
    let yearly = json!({ "spec": { "schedule": "0 0 1 1 *" } });
    let all = [
        stored_in("default"),
        stored_in("fixed"),
        stored_in("away"),
        stored_in("gone"),
        with(
            schedule("leap", &["leap"]),
            &json!({ "spec": { "schedule": "0 0 29 2 *" } }),
        ),
        with(of_template("brief", &json!({ "ttl": "1h0m0s" })), &yearly),
    ];
    for schedule in all {
        let name = schedule["metadata"]["name"].as_str().unwrap().to_owned();
        namespace(&api, &name);
        let by_hand = format!("by-hand-{name}");
        api.has(schedule)
            .has(of(&by_hand, &[name.as_str()]))
            .has_file(
                "BackupResourceList",
                &by_hand,
                &json!({ "v1/Namespace": [name] }),
            );
    }
    let read_only = json!({ "spec": { "accessMode": "ReadOnly" } });
    api.has(location("default", &json!({"phase": "Available"})))
        .has(with(
            location("fixed", &json!({"phase": "Available"})),
            &read_only,
        ))
        .has(location(
            "away",
            &json!({"phase": "Unavailable", "message": "no route to host"}),
        ));
    transcript!(Person::at(&api), "status");
}

#[tokio::test]
async fn each_namespace_is_looked_for_in_its_backups_however_many_there_are() {
    let api = FakeApi::start().await;
    api.has(schedule("nightly", &["*"]))
        .has(location("default", &json!({"phase": "Available"})));
    // The oldest contains another namespace than its spec names, because the spec was edited.
    for number in 0..12 {
        let (name, backup) = (format!("team-{number:02}"), format!("of-team-{number:02}"));
        let holds = if number == 0 {
            "another"
        } else {
            name.as_str()
        };
        let at = format!("2026-11-03T03:{number:02}:00Z");
        namespace(&api, &name);
        api.has(with(
            of(&backup, &[name.as_str()]),
            &json!({"status": {"startTimestamp": at}}),
        ))
        .has_file(
            "BackupResourceList",
            &backup,
            &json!({ "v1/Namespace": [holds] }),
        );
    }
    transcript!(Person::at(&api), "status");
    // A list that cannot be read gives no answer.
    api.has_bytes("BackupResourceList", "of-team-01", b"not gzip".to_vec());
    transcript!(Person::at(&api), "status");
}

#[tokio::test]
async fn a_large_cluster_fits_on_a_screen() {
    let api = FakeApi::start().await;
    for number in 0..2000 {
        namespace(&api, &format!("team-{number:04}"));
    }
    api.has(schedule("nightly", &["team-0*", "team-10*"]))
        .has(of("nightly-20261103030000", &["team-0*", "team-10*"]))
        .has(location("default", &json!({"phase": "Available"})));
    let held: Vec<String> = (0..1100)
        .map(|number| format!("team-{number:04}"))
        .collect();
    api.has_file(
        "BackupResourceList",
        "nightly-20261103030000",
        &json!({ "v1/Namespace": held }),
    );
    let person = Person::at(&api);
    transcript!(person, "status");
    assert_eq!(
        person
            .types("status -o name")
            .await
            .lines()
            .filter(|line| line.starts_with("namespace/"))
            .count(),
        900
    );
}

#[tokio::test]
async fn an_empty_cluster_and_one_without_rights_are_told() {
    let api = FakeApi::start().await;
    let forbidden = Fault::forbidden(
        "namespaces is forbidden: User \"jane\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope",
    );
    transcript!(Person::at(&api), "status");
    api.on_get("/namespaces", forbidden);
    transcript!(Person::at(&api), "status");
}

#[tokio::test]
async fn a_schedule_that_does_not_run_is_shown_or_started() {
    let api = FakeApi::start().await;
    for name in ["shop", "db", "new"] {
        namespace(&api, name);
    }
    api.has(with(
        schedule("nightly", &["shop"]),
        &json!({"spec": {"paused": true}}),
    ))
    .has(with(
        schedule("wrong", &["db"]),
        &json!({"status": {"phase": "FailedValidation"}}),
    ))
    .has(location("default", &json!({"phase": "Available"})));
    let seen = Person::at(&api).types("status").await;
    let (_, next) = seen.split_once("NEXT\n").unwrap();
    for command in [
        "create NAME --schedule='0 3 * * *' --include-namespaces=new\n",
        "describe wrong\n",
        "unpause nightly\n",
    ] {
        assert!(
            next.contains(&format!("kubectl backup schedules {command}")),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn without_the_right_to_list_namespaces_none_counts_as_protected() {
    let api = FakeApi::start().await;
    api.has(schedule("nightly", &["shop"]))
        .has(of("nightly-20261103030000", &["shop"]))
        .has(location("default", &json!({"phase": "Available"})))
        .on_get("/namespaces", Fault::forbidden("namespaces is forbidden: User \"jane\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope"));
    api.has_file(
        "BackupResourceList",
        "nightly-20261103030000",
        &json!({ "v1/Namespace": ["shop"] }),
    );
    let seen = Person::at(&api).types("status").await;
    let (_, unchecked) = seen.split_once("NOT CHECKED\n").unwrap();
    assert!(
        unchecked.contains("shop ")
            && unchecked.contains("whether it exists, and since when, is not known"),
        "{seen}"
    );
    assert!(seen.ends_with("--- exit 1\n"), "{seen}");
}

#[tokio::test]
async fn a_schedule_that_includes_a_namespace_which_does_not_exist_is_named() {
    let api = FakeApi::start().await;
    namespace(&api, "shop");
    api.has(schedule("nightly", &["shop", "shp", "team-*"]))
        .has(of("nightly-20261103030000", &["shop"]))
        .has(location("default", &json!({"phase": "Available"})));
    api.has_file(
        "BackupResourceList",
        "nightly-20261103030000",
        &json!({ "v1/Namespace": ["shop"] }),
    );
    let person = Person::at(&api);
    assert_says!(
        person.types("status").await,
        "! velero   1 namespace, all protected\n",
        "  Schedule   nightly includes namespace shp, which does not exist: nothing of it is saved\n",
        "NEXT\n  kubectl backup schedules describe nightly\n--- exit 0\n"
    );
    let document = person.reads("status -o json").await;
    assert_eq!(
        document["absentNamespaces"],
        json!([{"schedule": "nightly", "namespaces": ["shp"]}])
    );
}
