use crate::prelude::*;

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let facts =
        json!({"versions": "Enabled", "lock": {"enabled": true, "mode": "COMPLIANCE", "days": 30}})
            .to_string();
    api.has(with(location("Available", ""), &json!({"metadata": {"annotations": {"backup-controller/bucket": facts}}})))
        .has(with(
                location("Unavailable", "the store refused to list s3://other: 403\u{1b}[2J AccessDenied"),
                &json!({"metadata": {"name": "other"}, "spec": {"default": false, "accessMode": "ReadOnly", "objectStorage": {"bucket": "other", "prefix": ""}}}),
            ),
        )
        .has(with(location("", ""), &json!({"metadata": {"name": "new"}, "spec": {"default": false}, "status": null})));
    api
}

#[tokio::test]
async fn locations_are_listed_and_described() {
    transcript!(
        Person::at(&cluster().await),
        "locations",
        "locations get -o wide",
        "locations describe default",
        "locations describe other",
        "locations describe default -o yaml"
    );
}

#[tokio::test]
async fn one_bad_location_of_snapshots_hides_no_other() {
    let api = FakeApi::start().await;
    let of = |name: &str, spec: serde_json::Value| {
        json!({"apiVersion": "velero.io/v1", "kind": "VolumeSnapshotLocation", "spec": spec,
            "metadata": {"name": name, "namespace": "velero", "uid": name, "creationTimestamp": "2026-11-01T03:00:00Z"}})
    };
    api.has(of("east", json!({"provider": "acme/disks", "config": {"region": "e1\u{1b}[2J", "pool": "a"}, "credential": {"name": "cloud", "key": "acme"}})))
        .has(of("west", json!({"provider": "acme/disks"})))
        .has(of("worse", json!({"provider": 7})));
    transcript!(
        Person::at(&api),
        "locations snapshots",
        "locations snapshots -o wide",
        "locations snapshots west -o name",
        "locations snapshots none"
    );
}

#[tokio::test]
async fn a_location_is_created_changed_and_deleted_without_a_manifest() {
    let api = FakeApi::with([with(
        location("Available", ""),
        &json!({"spec": {"default": true}}),
    )])
    .await;
    api.validates(json!({"phase": "Available"}));
    let person = Person::at(&api);
    person.writes("ca.pem", "PEM");
    let create = "locations create second --provider=aws --bucket=b --prefix=p --config=region=eu-1,s3Url=https://s3 \
                  --credential=cloud=key --default --access-mode=ReadOnly --cacert=~/ca.pem --backup-sync-period=1m --validation-frequency=0s";
    transcript!("location yaml" => person, &format!("{create} --dry-run=client -o yaml"));
    let mut all = person.types(create).await;
    assert_eq!(
        api.stored("backupstoragelocations", "default").unwrap()["spec"]["default"],
        false
    );
    for line in [
        "locations set second --config=s3Url=,region=eu-2",
        "locations set second",
        "locations set gone --default",
        "locations create x --provider=aws",
        "locations delete second --yes",
    ] {
        all += &person.types(line).await;
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn whether_a_new_location_can_be_used_is_waited_for() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let create = "locations create new --provider=aws --bucket=b --wait --no-verify";
    for (status, code) in [
        (json!({"phase": "Available"}), 0),
        (
            json!({"phase": "Unavailable", "message": "403 AccessDenied"}),
            3,
        ),
    ] {
        api.validates(status);
        let seen = person.types(create).await;
        assert!(seen.ends_with(&format!("--- exit {code}\n")), "{seen}");
        assert_says!(
            person.types("locations delete new --yes").await,
            "--- exit 0\n"
        );
    }
    api.validates(Value::Null);
    let seen = person.types(&format!("{create} --timeout=300ms")).await;
    assert!(seen.ends_with("--- exit 124\n"), "{seen}");
}

fn names(api: &FakeApi) -> Vec<String> {
    let all = api.all("backupstoragelocations");
    all.iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_location_that_cannot_be_used_is_not_stored() {
    let default = with(
        location("Available", ""),
        &json!({"spec": {"default": true}}),
    );
    let api = FakeApi::with([default.clone()]).await;
    let why = "BackupStorageLocation new-try-20261103051412: the store has no bucket b";
    api.validates(json!({"phase": "Unavailable", "message": why}));
    let person = Person::at(&api);
    let mut seen = String::new();
    for line in [
        "locations create new --provider=aws --bucket=b --default",
        "locations create default --provider=aws --bucket=b",
        "locations set default --config=region=eu-2",
        "locations set default --access-mode=ReadWrite --default",
    ] {
        seen += &person.types(line).await;
    }
    assert_eq!(names(&api), ["default"]);
    assert_eq!(
        api.stored("backupstoragelocations", "default").unwrap()["spec"],
        default["spec"]
    );
    // These settings need nothing new from the bucket, so it is not tried.
    seen += &person
        .types("locations set default --access-mode=ReadOnly --validation-frequency=1m")
        .await;
    seen += &person
        .types("locations create new --provider=aws --bucket=b --no-verify")
        .await;
    assert_eq!(names(&api), ["default", "new"]);
    assert_snapshot!(seen);
}

#[tokio::test]
async fn what_a_try_leaves_is_named() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let create =
        "locations create new --provider=aws --bucket=b --default --validation-frequency=0s";
    let mut seen = person.types(&format!("{create} --timeout=300ms")).await;
    assert!(names(&api).is_empty(), "{seen}");

    let trial = "/new-try-20261103051412";
    api.validates(json!({"phase": "Available"})).next(
        Method::DELETE,
        trial,
        Fault::forbidden("no"),
    );
    seen += &person.types(create).await;
    assert_eq!(names(&api), [&trial[1..]]);
    // It is not the default, and no backups are imported from its bucket.
    let spec = api.all("backupstoragelocations").remove(0)["spec"].take();
    let expected =
        json!({"provider": "aws", "objectStorage": {"bucket": "b"}, "backupSyncPeriod": "0s"});
    assert_eq!(spec, expected);
    assert_snapshot!(seen);
}

#[tokio::test]
async fn a_location_of_snapshots_needs_no_manifest() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let create = "locations snapshots create east --provider=acme/disks --config=region=e1,pool=a --credential=cloud=acme --labels=team=shop";
    let mut all = person
        .types(&format!("{create} --dry-run=client -o yaml"))
        .await;
    for line in [
        create,
        create,
        "locations snapshots set east --config=region=e2,pool= --credential=new=acme",
        "locations snapshots -o wide",
        "locations snapshots set east",
        "locations snapshots set gone --config=a=b",
        "locations snapshots -o name delete east",
        "locations snapshots delete east --yes",
        "locations snapshots",
    ] {
        all += &person.types(line).await;
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn the_question_before_a_location_is_deleted_names_its_backups() {
    let api = FakeApi::with([location("Available", "")]).await;
    let person = Person::at(&api).at_terminal("n\n");
    let mut all = person.types("locations delete default").await;
    for name in ["nightly-1", "nightly-2"] {
        api.has(completed_backup(name));
    }
    api.has(with(
        completed_backup("elsewhere"),
        &json!({"spec": {"storageLocation": "other"}}),
    ));
    all += &person.types("locations delete default").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_folder_inside_that_of_another_location_is_not_taken() {
    let root = with(
        location("Available", ""),
        &json!({"spec": {"objectStorage": {"bucket": "b", "prefix": null}, "config": null}}),
    );
    let api = FakeApi::with([root]).await;
    api.validates(json!({"phase": "Available"}));
    transcript!(
        Person::at(&api),
        "locations create second --provider=aws --bucket=b --prefix=p"
    );
    assert_eq!(names(&api), ["default"]);
}

fn stopped(refused: u64, request: Option<&str>) -> Value {
    let record = json!({"at": "2026-11-03T05:00:00Z", "refused": refused, "request": request,
        "reason": "40 backups would be removed"});
    let annotations = json!({"backup-controller/retention": record.to_string()});
    with(
        location("Available", ""),
        &json!({"metadata": {"uid": "l", "annotations": annotations}}),
    )
}

#[tokio::test]
async fn retention_that_has_stopped_is_shown_and_goes_on_by_consent() {
    let api = FakeApi::with([stopped(40, None)]).await;
    let person = Person::at(&api);
    let agree = "kubectl backup locations retention default --accept-removals=40";
    for (line, parts) in [
        (
            "locations retention default",
            ["stopped", "40 backups would be removed", agree],
        ),
        (
            "locations describe default",
            [
                "retention has stopped",
                "40 expired backups at once",
                "kubectl backup locations retention default",
            ],
        ),
        (
            "doctor",
            [
                "default: retention has stopped",
                "40 expired backups at once",
                "kubectl backup locations retention default",
            ],
        ),
        (
            "status",
            ["Location", "retention has stopped", "40 expired backups"],
        ),
    ] {
        let seen = person.types(line).await;
        for part in parts {
            assert_says!(seen, part);
        }
    }
    let seen = person
        .types("locations retention default --accept-removals=39")
        .await;
    assert_says!(
        seen,
        "40 removals of location \"default\" were refused, not 39: all of them are made, or none",
        "--- exit 1\n"
    );
    assert!(
        api.seen()
            .iter()
            .all(|request| !request.starts_with("PATCH"))
    );

    let get = "backupstoragelocations/default";
    api.on_get(get, Fault::Becomes(stopped(40, None)));
    api.on_get(get, Fault::Becomes(stopped(40, None)));
    api.on_get(get, Fault::Becomes(stopped(0, Some(crate::person::NOW))));
    let seen = person
        .types("locations retention default --accept-removals=40")
        .await;
    assert_says!(seen, "nothing waits for consent", "--- exit 0\n");
    let record = json!({"at": "2026-11-03T05:00:00Z", "removed": 1}).to_string();
    let annotations = json!({"backup-controller/retention": record});
    let removed = json!({"metadata": {"annotations": annotations}});
    let api = FakeApi::with([with(location("Available", ""), &removed)]).await;
    let seen = Person::at(&api).types("locations retention default").await;
    assert_says!(seen, "1 backup by the last pass", "--- exit 0\n");
    let api = FakeApi::with([location("Available", "")]).await;
    let person = Person::at(&api);
    let seen = person.types("locations retention default").await;
    assert_says!(seen, "nothing yet", "--- exit 0\n");
    let seen = person
        .types("locations retention default --accept-removals=1")
        .await;
    assert_says!(
        seen,
        "nothing was refused when location \"default\" was last looked at by retention"
    );
    let seen = person
        .types("locations retention default --now --timeout=100ms")
        .await;
    assert_says!(seen, "--- exit 124\n");
    let asked = api.stored("backupstoragelocations", "default").unwrap();
    let request = asked["metadata"]["annotations"]["backup-controller/retention-request"]
        .as_str()
        .unwrap();
    assert_eq!(request, format!(r#"{{"id":"{}"}}"#, crate::person::NOW));
}
