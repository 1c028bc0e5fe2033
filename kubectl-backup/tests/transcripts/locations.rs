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
