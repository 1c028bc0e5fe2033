use crate::prelude::*;

fn schedule(name: &str, cron: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-10-01T00:00:00Z"},
        "spec": {"schedule": cron, "template": {"includedNamespaces": ["shop"], "storageLocation": "default", "ttl": "720h0m0s"}},
        "status": {"phase": "Enabled", "lastBackup": "2026-11-03T03:00:00Z"},
    })
}

fn location(name: &str, over: &Value) -> Value {
    let location = json!({
        "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": {"name": name, "namespace": "velero"},
        "spec": {"provider": "aws", "objectStorage": {"bucket": "b"}}, "status": {"phase": "Available"},
    });
    with(location, over)
}

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let skipped = json!({
        "metadata": {"annotations": {"backup-controller/cron": "netresearch Europe/Paris", "backup-controller/skipped": "2026-11-02T03:00:00Z refused: Restore velero/back-again is InProgress"}},
        "status": {"lastSkipped": "2026-11-02T03:00:00Z"},
    });
    let broken = json!({"status": {"phase": "FailedValidation", "validationErrors": ["spec.schedule: \"every night\" is no cron expression: expected 5 fields"]}});
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    api.has_at("/api/v1/namespaces/shop", shop);
    api.has(with(schedule("nightly", "0 3 * * *"), &skipped))
        .has(with(schedule("paused", "@hourly"), &json!({"spec": {"paused": true}})))
        .has(with(schedule("broken", "every night"), &broken))
        .has(schedule("either", "0 0 13 * 5"))
        .has(location("default", &json!({})))
        .has(location("fixed", &json!({"spec": {"accessMode": "ReadOnly"}})))
        .has(completed_backup("nightly-20261102030000"))
        .has(with(
                completed_backup("nightly-20261103030000"),
                &json!({"status": {"phase": "PartiallyFailed", "errors": 2, "startTimestamp": "2026-11-03T03:00:05Z"}}),
            ),
        );
    api
}

#[tokio::test]
async fn schedules_are_listed_with_their_next_runs() {
    transcript!(
        Person::at(&cluster().await),
        "schedules",
        "schedules get -o wide"
    );
}

#[tokio::test]
async fn what_keeps_a_schedule_from_making_backups_that_last_is_said() {
    let api = cluster().await;
    let stored_in = |name: &str| json!({"spec": {"template": {"storageLocation": name}}});
    api.has(with(schedule("refused", "@daily"), &stored_in("fixed")))
        .has(with(schedule("lost", "@daily"), &stored_in("gone")))
        .has(with(
            schedule("brief", "0 0 1 1 *"),
            &json!({"spec": {"template": {"ttl": "1h0m0s"}}}),
        ));
    transcript!(
        Person::at(&api),
        "schedules get refused lost brief",
        "schedules describe refused",
        "schedules describe brief"
    );
}

#[tokio::test]
async fn a_schedule_is_described_with_what_came_of_it() {
    let api = cluster().await;
    let person = Person::at(&api);
    transcript!(
        person,
        "schedules describe nightly",
        "schedules describe broken",
        "schedules describe either"
    );
    api.on_get("/backups", Fault::Hang);
    transcript!(
        person,
        "schedules describe paused -o yaml --request-timeout=500ms",
        "schedules describe gone"
    );
}

#[tokio::test]
async fn a_schedule_is_created_with_every_field_of_its_template() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let line = "schedules create nightly --schedule=0\u{a0}3\u{a0}*\u{a0}*\u{a0}* --include-namespaces=shop,db --exclude-resources=events \
                -l app=shop --ttl=720h --storage-location=default --snapshot-volumes=false --volume-snapshot-locations=ebs --snapshot-move-data \
                --data-mover=velero --default-volumes-to-fs-backup --parallel-files-upload=4 --csi-snapshot-timeout=5m --item-operation-timeout=2h \
                --ordered-resources=pods=shop/a,shop/b;persistentvolumes=pv1 --resource-policies-configmap=volumes --backup-type=Full \
                --volume-group-snapshot-label-key=group --labels=team=shop --annotations=note=x --paused --skip-immediately --use-owner-references-in-backup=false";
    let seen = person.types(line).await;
    assert_says!(
        seen,
        "\nschedule.velero.io/nightly created\n",
        "--- exit 0\n"
    );
    let stored = api.stored("schedules", "nightly").unwrap();
    let shown = json!({"labels": stored["metadata"]["labels"], "annotations": stored["metadata"]["annotations"], "spec": stored["spec"]});
    assert_snapshot!(pretty(&shown));
    transcript!(
        person,
        "schedules create weekly --schedule=@weekly --dry-run=client -o yaml",
        "schedules create wrong --schedule=sometimes"
    );
}

#[tokio::test]
async fn schedules_are_paused_triggered_and_deleted() {
    let api = cluster().await;
    let person = Person::at(&api);
    transcript!(
        person,
        "schedules pause nightly gone",
        "schedules unpause paused --skip-immediately",
        "schedules trigger nightly",
        "schedules delete either",
        "schedules delete either --yes"
    );
    assert_eq!(
        api.stored("schedules", "nightly").unwrap()["spec"]["paused"],
        true
    );
    let unpaused = api.stored("schedules", "paused").unwrap();
    assert_eq!(
        (
            &unpaused["spec"]["paused"],
            &unpaused["spec"]["skipImmediately"]
        ),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        api.stored("backups", "nightly-20261103051412-000000")
            .unwrap()["spec"]["includedNamespaces"],
        json!(["shop"])
    );
    assert!(api.stored("schedules", "either").is_none());
    let forbidden =
        "schedules.velero.io \"nightly\" is forbidden: User \"jane\" cannot patch resource";
    api.next(Method::PATCH, "/nightly", Fault::forbidden(forbidden));
    assert_says!(
        person.types("schedules pause nightly").await,
        "--- exit 1\n"
    );
}

#[tokio::test]
async fn a_schedule_is_changed_by_what_the_flags_name() {
    let api = cluster().await;
    let person = Person::at(&api);
    let selected = json!({"spec": {"template": {"labelSelector": {"matchLabels": {"app": "web"}}, "of": "another program"}}});
    api.has(with(api.stored("schedules", "nightly").unwrap(), &selected));
    let cron = "schedules set nightly --schedule=30\u{a0}1\u{a0}*\u{a0}*\u{a0}* --ttl=14d --include-namespaces=shop,db";
    let seen = person.types(cron).await;
    assert_says!(seen, "schedule.velero.io/nightly changed", "--- exit 0\n");
    let spec = api.stored("schedules", "nightly").unwrap()["spec"].clone();
    assert_eq!(
        (
            &spec["schedule"],
            &spec["template"]["ttl"],
            &spec["template"]["includedNamespaces"]
        ),
        (
            &json!("30 1 * * *"),
            &json!("336h0m0s"),
            &json!(["shop", "db"])
        )
    );
    assert_eq!(
        spec["template"]["storageLocation"], "default",
        "what no flag names stays"
    );
    assert_eq!(spec["template"]["of"], "another program");
    person
        .types("schedules set nightly --or-selector=app=a\u{a0}or\u{a0}app=b")
        .await;
    let template = api.stored("schedules", "nightly").unwrap()["spec"]["template"].clone();
    assert!(
        template.get("labelSelector").is_none() && template["orLabelSelectors"].is_array(),
        "{template}"
    );
    transcript!(
        person,
        "schedules set nightly --schedule=sometimes",
        "schedules set nightly --ttl=14d",
        "schedules set nightly",
        "schedules set nightly-20261102030000 --ttl=1d"
    );
}

#[tokio::test]
async fn a_schedule_created_again_is_not_deleted() {
    let api = cluster().await;
    let other = with(
        api.stored("schedules", "either").unwrap(),
        &json!({"metadata": {"uid": "another"}}),
    );
    api.next(Method::DELETE, "/either", Fault::Becomes(other));
    let seen = Person::at(&api)
        .types("schedules delete either --yes")
        .await;
    assert_says!(seen, "Precondition failed", "--- exit 1\n");
    assert_eq!(
        api.stored("schedules", "either").unwrap()["metadata"]["uid"],
        "another"
    );
}

#[tokio::test]
async fn the_newest_backup_is_found_behind_many() {
    let api = cluster().await;
    for n in 0..600 {
        let early = json!({"status": {"startTimestamp": "2026-10-01T03:00:00Z"}});
        api.has(with(
            completed_backup(&format!("nightly-2026100103{n:04}")),
            &early,
        ));
    }
    let seen = Person::at(&api).types("schedules describe nightly").await;
    assert_says!(seen, "nightly-20261103030000");
}

#[tokio::test]
async fn a_schedule_without_backups_that_last_is_named_when_it_is_created() {
    let api = FakeApi::start().await;
    for (flags, warning) in [
        (
            "--storage-location=nowhere",
            "stores in location nowhere, which does not exist",
        ),
        (
            "--ttl=1h",
            "keeps each backup for 60m, and makes the next one up to 24h later",
        ),
    ] {
        let seen = Person::at(&api)
            .types(&format!("schedules create s --schedule=@daily {flags}"))
            .await;
        assert_says!(seen, &format!("warning: schedule s {warning}"));
        assert_says!(
            Person::at(&api).types("schedules delete s --yes").await,
            "--- exit 0\n"
        );
    }
}

#[tokio::test]
async fn a_schedule_of_a_namespace_that_does_not_exist_says_so() {
    let api = cluster().await;
    let of = |included: &[&str]| json!({"spec": {"template": {"includedNamespaces": included}}});
    let person = Person::at(&api);
    api.has(with(schedule("nightly", "@daily"), &of(&["shop", "shp"])));
    let seen = person.types("schedules describe nightly").await;
    assert_says!(
        seen,
        "! nightly   Enabled",
        "  It includes namespace shp, which does not exist: nothing of it is saved.\n"
    );
    let document = person.reads("schedules describe nightly -o json").await;
    assert_eq!(document["tone"], "warn");
    // Globs may match a namespace later; and not every user may read namespaces.
    api.has(with(schedule("nightly", "@daily"), &of(&["shop", "shp-*"])));
    let seen = person.types("schedules describe nightly").await;
    assert_says!(seen, "✓ nightly   Enabled");
    api.has(with(schedule("nightly", "@daily"), &of(&["shp"])));
    let forbidden = "namespaces \"shp\" is forbidden: User \"jane\" cannot get resource";
    api.on_get("/namespaces/shp", Fault::forbidden(forbidden));
    let seen = person.types("schedules describe nightly").await;
    assert_says!(seen, "✓ nightly   Enabled");
}

#[tokio::test]
async fn a_ttl_of_zero_is_the_default_of_the_server() {
    let api = cluster().await;
    let person = Person::at(&api);
    let note = "note: with --ttl=0 a backup is kept for the server's default time";
    for line in [
        "create now --ttl=0",
        "schedules create zero --schedule=@daily --ttl=0s",
        "schedules set nightly --ttl=0",
    ] {
        assert_says!(person.types(line).await, note, "--- exit 0\n");
    }
    assert!(
        !person
            .types("create later --ttl=1h")
            .await
            .contains("note:")
    );
    assert_eq!(
        api.stored("backups", "now").unwrap()["spec"]["ttl"],
        "0s",
        "as velero's command sends it"
    );
    let seen = person.types("schedules describe zero").await;
    assert_says!(seen, "Kept for     as the server is set\n");
    let seen = person.types("schedules get nightly -o wide").await;
    assert!(!seen.contains("0s"), "{seen}");
}

#[tokio::test]
async fn what_rules_keep_is_shown_before_it_goes() {
    let api = cluster().await;
    for (name, day) in [("old", "28"), ("older", "27")] {
        let over = json!({"metadata": {"creationTimestamp": format!("2026-10-{day}T03:00:00Z")},
            "status": {"startTimestamp": format!("2026-10-{day}T03:00:00Z"), "expiration": "2026-11-01T03:00:00Z"}});
        api.has(with(completed_backup(name), &over));
    }
    let person = Person::at(&api);
    let seen = person.types("schedules keep nightly --dry-run").await;
    assert_says!(
        seen,
        "KEPT BY",
        "Rules of nightly: nothing (UTC). 2 backups would be removed now.",
        "ttl, last good",
        "--- exit 0\n"
    );
    let line = "schedules keep nightly --keep-daily=2 --dry-run -o json";
    let plan = person.reads(line).await;
    assert_eq!(plan["kind"], "KeepPlan");
    let kept: Vec<String> = plan["backups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            format!(
                "{} {}",
                one["name"].as_str().unwrap(),
                one["keptBy"].as_array().unwrap().len()
            )
        })
        .collect();
    assert_eq!(
        kept,
        [
            "nightly-20261103030000 1",
            "nightly-20261102030000 3",
            "old 1",
            "older 0"
        ]
    );
    assert!(
        api.stored("schedules", "nightly").unwrap()["spec"]
            .get("keep")
            .is_none()
    );
    assert!(api.seen().iter().all(|request| request.starts_with("GET")));

    let seen = person
        .types("schedules keep nightly --keep-daily=7 --keep-monthly=12")
        .await;
    assert_says!(seen, "schedule.velero.io/nightly changed", "--- exit 0\n");
    let keep = || api.stored("schedules", "nightly").unwrap()["spec"]["keep"].clone();
    assert_eq!(keep(), json!({"daily": 7, "monthly": 12}));
    let seen = person.types("schedules describe nightly").await;
    assert_says!(seen, "daily 7, monthly 12");
    person
        .types("schedules set nightly --keep-daily=0 --keep-last=3")
        .await;
    assert_eq!(keep(), json!({"monthly": 12, "last": 3}));
    person
        .types("schedules set nightly --keep-monthly=0 --keep-last=0")
        .await;
    assert_eq!(keep(), Value::Null);
    for (line, exit) in [
        (
            "schedules keep nightly --keep-last=1 -o json",
            "--- exit 2\n",
        ),
        ("schedules keep nightly", "--- exit 0\n"),
        ("schedules keep nightly --keep-last=-1", "--- exit 2\n"),
        ("schedules keep nightly --keep-last=10001", "--- exit 2\n"),
        ("schedules keep gone --dry-run", "--- exit 1\n"),
    ] {
        assert_says!(person.types(line).await, exit);
    }
}

#[tokio::test]
async fn a_backup_made_by_hand_is_what_the_schedule_would_make() {
    let api = cluster().await;
    let more = json!({
        "metadata": {"labels": {"team": "a", "argocd.argoproj.io/instance": "x"},
            "annotations": {"backup-lock/on-conflict": "queue", "backup-controller/skipped": "x"}},
        "spec": {"keep": {"weekly": 4}, "copies": [{"location": "offsite", "ttl": "48h0m0s"}], "useOwnerReferencesInBackup": true},
    });
    api.has(with(api.stored("schedules", "nightly").unwrap(), &more));
    let person = Person::at(&api);
    let seen = person.types("schedules trigger nightly").await;
    assert_says!(seen, "--- exit 0\n");
    let made = api
        .stored("backups", "nightly-20261103051412-000000")
        .unwrap();
    let rules = r#"{"rules":{"weekly":4},"zone":"UTC"}"#;
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"backup-controller/keep": rules, "backup-lock/on-conflict": "queue"})
    );
    assert_eq!(
        made["metadata"]["labels"],
        json!({"team": "a", "velero.io/schedule-name": "nightly"})
    );
    assert_eq!(
        made["metadata"]["ownerReferences"][0]["uid"],
        "uid-of-nightly"
    );
    assert_eq!(
        made["spec"]["copies"],
        json!([{"location": "offsite", "ttl": "48h0m0s"}])
    );
}

#[tokio::test]
async fn flags_say_how_backups_are_verified_and_copied() {
    let api = cluster().await;
    let rules = json!({ "spec": { "copies": [{ "location": "offsite", "ttl": "48h0m0s", "keep": { "weekly": 4 } }] } });
    api.has(with(api.stored("schedules", "nightly").unwrap(), &rules));
    let person = Person::at(&api);
    let sets = async |flags: &str| {
        let seen = person
            .types(&format!("schedules set nightly {flags}"))
            .await;
        assert_says!(seen, "schedule.velero.io/nightly changed", "--- exit 0");
        api.stored("schedules", "nightly").unwrap()["spec"].clone()
    };
    let spec = sets("--verify-every=1d --verify-which=random --copy-to=archive,offsite=90d").await;
    assert_eq!(
        spec["verify"],
        json!({ "every": "24h0m0s", "which": "random" })
    );
    let copies = json!([{ "location": "archive" },
        { "location": "offsite", "ttl": "2160h0m0s", "keep": { "weekly": 4 } }]);
    assert_eq!(spec["copies"], copies);
    let shown = person.types("schedules describe nightly").await;
    assert_says!(
        shown,
        "archive (kept as long as the backup); offsite (kept for 2160h0m0s, keeps weekly 4)"
    );
    let spec = sets("--verify-every=0").await;
    assert_eq!(
        (spec.get("verify"), &spec["copies"]),
        (None, &copies),
        "what no flag names stays"
    );
    let line = "schedules create other --schedule=@daily --verify-every=1h --copy-to=offsite";
    assert_says!(person.types(line).await, "--- exit 0");
    let spec = &api.stored("schedules", "other").unwrap()["spec"];
    assert_eq!(
        (&spec["verify"], &spec["copies"]),
        (
            &json!({ "every": "1h0m0s" }),
            &json!([{ "location": "offsite" }])
        )
    );
}
