use crate::prelude::*;

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let facts = json!({"versions": "Enabled", "lock": {"enabled": true, "mode": "COMPLIANCE", "days": 30}})
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
    let api = FakeApi::with([with(location("Available", ""), &json!({"spec": {"default": true}}))]).await;
    let person = Person::at(&api);
    person.writes("ca.pem", "PEM");
    let create = "locations create second --provider=aws --bucket=b --prefix=p --config=region=eu-1,s3Url=https://s3 \
                  --credential=cloud=key --default --access-mode=ReadOnly --cacert=~/ca.pem --backup-sync-period=1m --validation-frequency=0s";
    transcript!("location yaml" => person, &format!("{create} --dry-run=client -o yaml"));
    let mut all = person.types(create).await;
    assert_eq!(api.stored("backupstoragelocations", "default").unwrap()["spec"]["default"], false);
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
    for (status, code) in [
        (json!({"phase": "Available"}), 0),
        (json!({"phase": "Unavailable", "message": "403 AccessDenied"}), 3),
    ] {
        let tried = with(location("", ""), &json!({"metadata": {"name": "new"}, "status": status}));
        api.becomes("/new", [tried]);
        let seen = Person::at(&api).types("locations create new --provider=aws --bucket=b --wait").await;
        assert!(seen.ends_with(&format!("--- exit {code}\n")), "{seen}");
        assert!(Person::at(&api).types("locations delete new --yes").await.ends_with("--- exit 0\n"));
    }
    let seen = Person::at(&api)
        .types("locations create late --provider=aws --bucket=b --wait --timeout=300ms")
        .await;
    assert!(seen.ends_with("--- exit 124\n"), "{seen}");
}
