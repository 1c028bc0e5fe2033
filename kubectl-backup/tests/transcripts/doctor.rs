use backup_core::api::{BackupPhase, RestorePhase};
use backup_lock::Ledger;

use crate::{
    install::{deployment, has_claim, has_snapshots, of_driver},
    locks::marker,
    prelude::*,
};

/// A certificate authority that expires in November 2036: PEM in base64, as in registrations.
const AUTHORITY: &str = include_str!("authority.txt");

fn definition(name: &str, phases: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {"group": "velero.io", "scope": "Namespaced", "names": {"plural": name, "kind": "X"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": {"type": "object", "properties": {"phase": {"type": "string", "enum": phases}}}}}},
        }]},
    })
}

fn registration(over: &Value) -> Value {
    let webhook = json!({
        "name": "claims.backup-webhook.velero.io", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun", "failurePolicy": "Fail",
        "clientConfig": {"service": {"name": "backup-webhook", "namespace": "velero"}, "caBundle": AUTHORITY.trim()},
        "rules": [{"apiGroups": ["velero.io"], "apiVersions": ["*"], "resources": ["backups", "restores"], "operations": ["CREATE", "UPDATE"]}],
    });
    let deletions = json!({
        "name": "deletions.backup-webhook.velero.io", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun", "failurePolicy": "Fail",
        "clientConfig": {"service": {"name": "backup-webhook", "namespace": "velero"}},
        "rules": [
            {"apiGroups": ["velero.io"], "apiVersions": ["*"], "resources": ["backups"], "operations": ["DELETE"]},
            {"apiGroups": ["velero.io"], "apiVersions": ["*"], "resources": ["deletebackuprequests"], "operations": ["CREATE", "UPDATE"]},
        ],
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "backup-webhook"},
        "webhooks": [with(webhook, over), deletions],
    })
}

fn leader(renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "backup-controller", "namespace": "velero"},
        "spec": {"holderIdentity": "backup-controller-7d9f_1", "leaseDurationSeconds": 15, "renewTime": renewed},
    })
}

fn a_schedule(name: &str, over: &Value) -> Value {
    let schedule = json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": {"name": name, "namespace": "velero"},
        "spec": {"schedule": "0 3 * * *", "template": {}},
        "status": {"phase": "Enabled", "lastBackup": "2026-11-03T03:00:00Z"},
    });
    with(schedule, over)
}

fn asks(api: &FakeApi, date: &str, phases: &Value, registration: &Value) {
    api.on_get(
        "/version",
        Fault::Bytes(200, vec![("date", date.to_owned())], b"{}".to_vec()),
    )
    .on_get(
        "/backups.velero.io",
        Fault::Answer(200, definition("backups.velero.io", phases)),
    )
    .on_get(
        "/restores.velero.io",
        Fault::Answer(
            200,
            definition("restores.velero.io", &json!(RestorePhase::KNOWN)),
        ),
    )
    // Three checks read it.
    .on_get(
        "configurations/backup-webhook",
        Fault::Answer(200, registration.clone()),
    )
    .on_get(
        "configurations/backup-webhook",
        Fault::Answer(200, registration.clone()),
    )
    .on_get(
        "configurations/backup-webhook",
        Fault::Answer(200, registration.clone()),
    );
}

#[tokio::test]
async fn where_all_is_well_nothing_is_to_be_done() {
    let api = FakeApi::start().await;
    let phases = json!(BackupPhase::KNOWN);
    asks(
        &api,
        "Tue, 03 Nov 2026 05:14:12 GMT",
        &phases,
        &registration(&json!({})),
    );
    let words = "admission webhook \"claims.backup-webhook.velero.io\" denied the request: Backup velero/kubectl-backup-doctor is not valid: spec.ttl: \"tomorrow\" is not a duration: expected numbers with units such as \"720h\", \"1h30m\" or \"45s\"";
    api.on_post("/backups", Fault::forbidden(words));
    api.has(leader("2026-11-03T05:14:10.000000Z"))
        .has(lease(&Ledger::default()).await)
        .has(location("Available", ""))
        .has(a_schedule("nightly", &json!({})))
        .has(deployment("backup-controller", &json!({})))
        .has_at("/api/v1/namespaces/velero/services/backup-webhook", json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backup-webhook", "namespace": "velero"},
            "spec": {"selector": {"app.kubernetes.io/name": "backup-webhook"}, "ports": [{"port": 443, "targetPort": "reviews"}]},
        }))
        .has_at("/api/v1/namespaces/velero/pods/backup-webhook-6c4f-x", json!({
            "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
            "metadata": {"name": "backup-webhook-6c4f-x", "namespace": "velero", "labels": {"app.kubernetes.io/name": "backup-webhook"}},
            "spec": {"containers": [{"name": "webhook", "ports": [{"name": "reviews", "containerPort": 10250}]}]},
        }))
        // Reading a replica's certificate needs rights that few users have.
        .on_get("/portforward", Fault::forbidden("… is forbidden: User \"jane\" cannot get resource \"pods/portforward\""));
    transcript!(Person::at(&api), "doctor");
}

#[tokio::test]
async fn whatever_is_broken_is_told_with_its_remedy() {
    let api = FakeApi::start().await;
    let old = "New FailedValidation InProgress Completed PartiallyFailed Failed Deleting";
    let old = json!(old.split(' ').collect::<Vec<_>>());
    let weak = registration(
        &json!({"failurePolicy": "Ignore", "objectSelector": {"matchLabels": {"guarded": "yes"}}, "clientConfig": {"caBundle": null, "service": {"namespace": "backups"}}, "rules": []}),
    );
    asks(&api, "Tue, 03 Nov 2026 05:19:12 GMT", &old, &weak);
    api.has(leader("2026-11-03T05:04:12.000000Z"))
        .has(lease(&Ledger::default()).await)
        .has(with(location("Unavailable", "403 AccessDenied"), &json!({"spec": {"default": false}})))
        .has(json!({"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": {"name": "bad", "namespace": "velero"}, "spec": 1}))
        .has(a_schedule("good", &json!({"spec": {"template": {"storageLocation": "default"}}})))
        .has(a_schedule("wrong", &json!({"status": {"phase": "FailedValidation", "validationErrors": ["spec.template.ttl: -1h is negative"]}})))
        .has(a_schedule("paused", &json!({"spec": {"paused": true}})))
        .has(a_schedule("never", &json!({"spec": {"schedule": "0 0 31 2 *"}})))
        .has(a_schedule("lost", &json!({"spec": {"template": {"storageLocation": "gone"}}})))
        .has(with(new_backup("sneaked"), &json!({"metadata": {"uid": "u"}, "status": {"phase": "InProgress"}})));
    api.forbids("downloadrequests").forbids("services");
    let person = Person::at(&api).with_var("PATH", "~/bin:~/more");
    person.writes("bin/kubectl-backup-describe", "");
    person.writes("bin/kubectl-backup", "");
    person.writes("more/kubectl-backup", "");
    transcript!(person, "doctor");
}

#[tokio::test]
async fn a_finalizer_that_would_keep_the_ledger_is_named_before_it_does() {
    let api = FakeApi::start().await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    api.has(with(lease(&Ledger::default()).await, &finalizers));
    let seen = Person::at(&api).types("doctor").await;
    let said =
        "the ledger backup-lock-velero has the finalizer example.com/keep of another program";
    let remedy = "kubectl --namespace=velero patch lease backup-lock-velero --type=merge";
    assert_says!(seen, said, remedy);
}

#[tokio::test]
async fn a_ledger_that_grants_nothing_is_broken_for_doctor_and_status() {
    let api = FakeApi::start().await;
    let rebuilding = Ledger {
        status: backup_lock::ledger::Status::Rebuilding,
        ..Ledger::default()
    };
    let edited = with(
        lease(&Ledger::default()).await,
        &json!({"metadata": {"annotations": {"backup-lock/sum": "0123456789abcdef"}}}),
    );
    let kept = with(
        lease(&Ledger::default()).await,
        &json!({"metadata": {"finalizers": ["example.com/keep"], "deletionTimestamp": "2026-11-03T05:00:00Z"}}),
    );
    for (ledger, why, remedy) in [
        (
            marker(),
            "the ledger is gone",
            "backup-controller has rebuilt it",
        ),
        (
            kept,
            "kept by the finalizer example.com/keep of another program",
            "patch lease backup-lock-velero",
        ),
        (
            lease(&rebuilding).await,
            "it was lost or damaged",
            "backup-controller rebuilds it",
        ),
        (
            of_a_newer_format(lease(&Ledger::default()).await),
            "the ledger has format 99",
            "apply the newer version",
        ),
        (
            edited,
            "its checksum does not fit",
            "backup-controller has rebuilt it",
        ),
    ] {
        api.has(ledger);
        let seen = Person::at(&api).types("doctor").await;
        let broken = "✗ lock                   no Backup or Restore of velero.io can be created: ";
        assert_says!(seen, broken, why, remedy);
        assert!(seen.ends_with("--- exit 1\n"), "{seen}");
        let seen = Person::at(&api).types("status").await;
        assert_says!(seen, "nothing can be created: ", why, remedy);
        assert!(seen.ends_with("--- exit 1\n"), "{seen}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_says_so_in_its_place() {
    let api = FakeApi::start().await;
    let forbidden = Fault::forbidden("… is forbidden: User \"jane\" cannot get resource");
    api.on_get("/version", Fault::Hang)
        .on_get("/backups.velero.io", forbidden.clone())
        .on_get("configurations/backup-webhook", forbidden.clone())
        .on_get("configurations/backup-webhook", forbidden.clone())
        // Four checks list them.
        .on_get("/backupstoragelocations", forbidden.clone())
        .on_get("/backupstoragelocations", forbidden.clone())
        .on_get("/backupstoragelocations", forbidden.clone())
        .on_get("/backupstoragelocations", forbidden.clone())
        // For the lock, and for the snapshot controller.
        .on_get("/leases", forbidden.clone())
        .on_get("/leases", forbidden.clone())
        .on_get("/leases/backup-controller", forbidden)
        .on_post("/backups", Fault::refused(500, "InternalError", "Internal error occurred: failed calling webhook \"claims.backup-webhook.velero.io\": connection refused"));
    let start = std::time::Instant::now();
    transcript!(Person::at(&api), "doctor");
    assert!(
        start.elapsed() < std::time::Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_webhook_that_hangs_is_broken_and_not_unknown() {
    let api = FakeApi::start().await;
    api.on_post("/backups", Fault::Hang);
    let seen = Person::at(&api).types("doctor").await;
    assert_says!(
        seen,
        "✗ webhook                a creation was not answered within 1.8s"
    );
    assert!(seen.ends_with("--- exit 1\n"), "{seen}");
}

#[tokio::test]
async fn another_webhooks_refusal_is_no_sign_of_ours() {
    let api = FakeApi::start().await;
    let words =
        "admission webhook \"validate.kyverno.svc\" denied the request: label team is missing";
    api.on_post("/backups", Fault::forbidden(words));
    let seen = Person::at(&api).types("doctor").await;
    assert_says!(
        seen,
        "? webhook                not known: another webhook or policy refused the question: label team is missing"
    );
}

#[tokio::test]
async fn what_a_location_says_while_it_is_available_is_told() {
    let api = FakeApi::start().await;
    api.has(location(
        "Available",
        "spec.backupSyncPeriod is negative (-5s), which counts as not set",
    ));
    let seen = Person::at(&api).types("doctor").await;
    let expected = "! locations              default is Available, checked 40s ago, but spec.backupSyncPeriod is negative (-5s), which counts \
                    as not set";
    assert_says!(seen, expected);
}

#[tokio::test]
async fn a_secret_of_notifications_that_cannot_be_used_is_told() {
    let api = FakeApi::start().await;
    let seen = Person::at(&api).types("doctor").await;
    let not_known =
        "? notifications          not known: the arguments of the controller could not be read";
    assert_says!(seen, not_known);
    let args = [
        "--notify-url=https://hooks.example.com",
        "--notify-secret=hook",
    ];
    let over =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "x", "args": args}]}}}});
    api.has(deployment("backup-controller", &over));
    let path = "/api/v1/namespaces/velero/secrets/hook";
    let begin = "✗ notifications          Secret hook of --notify-secret, without which no notification is sent,";
    for (data, problem) in [
        (None, Some("does not exist")),
        (Some(json!({})), Some("has no key authorization")),
        (
            Some(json!({"authorization": ""})),
            Some("has no value under the key authorization"),
        ),
        (Some(json!({"authorization": "QmVhcmVyIHgK"})), None),
    ] {
        if let Some(data) = data {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": "velero"}, "data": data});
            api.has_at(path, secret);
        }
        let seen = Person::at(&api).types("doctor").await;
        match problem {
            Some(problem) => assert_says!(seen, format!("{begin} {problem}\n").as_str()),
            None => assert!(!seen.contains("notifications"), "{seen}"),
        }
    }
}

#[tokio::test]
async fn a_copy_whose_location_is_gone_is_told() {
    let api = FakeApi::start().await;
    let copies = json!([{"location": "offsite", "phase": "Completed"}]);
    let backup = with(
        new_backup("nightly-1"),
        &json!({"status": {"phase": "Completed", "copies": copies}}),
    );
    api.has(location("Available", "")).has(backup);
    let seen = Person::at(&api).types("doctor").await;
    let expected = "! copies                 1 backup is copied into location offsite, which does not exist (nightly-1)\n";
    assert_says!(seen, expected);
}

#[tokio::test]
async fn a_copy_that_has_failed_is_told() {
    let api = FakeApi::start().await;
    let offsite = json!({"metadata": {"name": "offsite"}, "spec": {"default": false}});
    let copies = json!([{"location": "offsite", "phase": "Failed", "message": "403 AccessDenied"}]);
    let backup = with(
        completed_backup("nightly-1"),
        &json!({"spec": {"copies": [{"location": "offsite"}]}, "status": {"copies": copies}}),
    );
    api.has(location("Available", ""))
        .has(with(location("Available", ""), &offsite))
        .has(backup);
    let person = Person::at(&api);
    let expected = "! copies                 1 backup is not copied into location offsite: the copy has failed (nightly-1); message of nightly-1: 403 AccessDenied\n";
    let remedy = "kubectl backup copy nightly-1 --to=offsite";
    assert_says!(person.types("doctor").await, expected, remedy);
}

#[tokio::test]
async fn locations_that_nobody_can_write_are_told() {
    let api = FakeApi::start().await;
    let read_only = json!({"spec": {"accessMode": "ReadOnly"},
        "metadata": {"annotations": {"backup-controller/bucket": "{\"notRemovable\":\"403 AccessDenied\"}"}}});
    api.has(with(location("Available", ""), &read_only))
        .has(a_schedule("nightly", &json!({})));
    let seen = Person::at(&api).types("doctor").await;
    for expected in [
        "✓ locations              default is Available, checked 40s ago, read-only: no backup is stored there\n",
        "! locations              backups cannot be deleted from default, so what has expired stays: 403 AccessDenied\n",
        "! locations              all are read-only: no backup can be stored\n",
        "✗ schedules              nightly stores in location default, which is read-only: each backup of it is refused\n",
    ] {
        assert!(seen.contains(expected), "{expected}{seen}");
    }
}

#[tokio::test]
async fn volumes_that_the_next_backup_would_not_hold_are_named() {
    let disk = of_driver("disk.example.com");
    let mut all = String::new();
    for args in [
        None,
        Some(json!([])),
        Some(json!(["--features=EnableCSI"])),
        Some(json!(["--guard=velero"])),
    ] {
        let api = FakeApi::start().await;
        has_snapshots(&api, &[("fast", "disk.example.com")]);
        has_claim(&api, "shop", "data", &disk);
        has_claim(
            &api,
            "shop",
            "files",
            &json!({ "hostPath": { "path": "/data" } }),
        );
        if let Some(args) = &args {
            let containers = json!([{ "name": "controller", "args": args }]);
            let pod = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
            api.has(deployment("backup-controller", &pod));
        }
        let seen = Person::at(&api).types("doctor").await;
        let said = seen
            .lines()
            .skip_while(|line| !line.contains(" volumes  "))
            .take_while(|line| !line.contains(" lock  "));
        let said = said.collect::<Vec<_>>().join("\n");
        all = format!("{all}arguments of the controller: {args:?}\n{said}\n\n");
    }
    assert_snapshot!(all);
    let api = FakeApi::start().await;
    api.on_get(
        "/persistentvolumes",
        Fault::forbidden("… is forbidden: User \"jane\" cannot list resource"),
    );
    let seen = Person::at(&api).types("doctor").await;
    assert_says!(seen, "? volumes                not known: ");
}

#[tokio::test]
async fn a_location_of_snapshots_that_cannot_be_used_is_broken() {
    let api = FakeApi::start().await;
    let of = |name: &str, spec: Value| {
        json!({"apiVersion": "velero.io/v1", "kind": "VolumeSnapshotLocation",
            "metadata": {"name": name, "namespace": "velero"}, "spec": spec})
    };
    let secret =
        json!({"metadata": {"name": "cloud", "namespace": "velero"}, "data": {"acme": "eA=="}});
    let status = json!({"apiVersion": "velero.io/v1", "kind": "ServerStatusRequest",
        "metadata": {"name": "asked", "namespace": "velero"}, "spec": {},
        "status": {"phase": "Processed", "plugins": [{"name": "acme/disks", "kind": "VolumeSnapshotter"}]}});
    api.has(of(
        "east",
        json!({"provider": "acme/disks", "credential": {"name": "cloud", "key": "acme"}}),
    ))
    .has(of(
        "north",
        json!({"provider": "acme/disks", "credential": {"name": "cloud", "key": "other"}}),
    ))
    .has(of(
        "west",
        json!({"provider": "disks", "credential": {"name": "gone", "key": "acme"}}),
    ))
    .has_at("/api/v1/namespaces/velero/secrets/cloud", secret)
    .has(status.clone())
    .on_post("/serverstatusrequests", Fault::Answer(201, status));
    let seen = Person::at(&api).types("doctor").await;
    let about_volumes = seen.lines().skip_while(|line| !line.contains(" volumes  "));
    let about_volumes: Vec<&str> = about_volumes
        .take_while(|line| !line.contains(" lock  "))
        .collect();
    assert_snapshot!(about_volumes.join("\n"));
}

#[tokio::test]
async fn moved_data_that_cannot_be_read_is_broken() {
    let api = FakeApi::start().await;
    let moves = json!({"spec": {"template": {"snapshotMoveData": true}}});
    let containers = json!([{ "name": "controller", "args": ["--features=EnableCSI"] }]);
    let pod = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let repository = json!({
        "apiVersion": "velero.io/v1", "kind": "BackupRepository",
        "metadata": {"name": "repository-shop", "namespace": "velero"},
        "spec": {"volumeNamespace": "shop", "backupStorageLocation": "default", "repositoryType": "restic", "maintenanceFrequency": "24h"},
        "status": {"phase": "NotReady", "message": "the password is wrong"},
    });
    api.has(a_schedule("nightly", &moves))
        .has(deployment("backup-controller", &pod))
        .has_at(
            "/apis/velero.io/v1/namespaces/velero/backuprepositories/repository-shop",
            repository,
        );
    let seen = Person::at(&api).types("doctor").await;
    for expected in [
        "✗ volumes                backups of nightly move volume data (snapshotMoveData), and the controller has no image of the data mover: they are refused\n",
        "✗ volumes                the repository with the volume data of namespace shop in location default cannot be used: the password is wrong\n",
        "✗ volumes                Secret velero-repo-credentials is missing: without its password the volume data in 1 repository cannot be read\n",
        "kubectl -n velero create secret generic velero-repo-credentials --from-file=repository-password=FILE\n",
    ] {
        assert!(seen.contains(expected), "{expected}{seen}");
    }
    api.has_at(
        "/api/v1/namespaces/velero/secrets/velero-repo-credentials",
        json!({"metadata": {"name": "velero-repo-credentials", "namespace": "velero"}}),
    );
    let seen = Person::at(&api).types("doctor").await;
    let expected = "✓ volumes                the password of the moved volume data is in Secret velero-repo-credentials: keep a copy";
    assert_says!(seen, expected);
}

#[tokio::test]
async fn data_that_cannot_be_moved_and_maintenance_that_fails_are_told() {
    let api = FakeApi::start().await;
    let moves = json!({"spec": {"template": {"snapshotMoveData": true}}});
    let args = ["--features=EnableCSI", "--mover-image=$(MOVER_IMAGE)"];
    let containers = json!([{ "name": "controller", "args": args }]);
    let pod = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let enforced = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    let repository = json!({
        "apiVersion": "velero.io/v1", "kind": "BackupRepository",
        "metadata": {"name": "repository-shop", "namespace": "velero"},
        "spec": {"volumeNamespace": "shop", "backupStorageLocation": "default", "repositoryType": "restic", "maintenanceFrequency": "24h"},
        "status": {"phase": "Ready", "lastMaintenanceTime": "2026-10-28T05:14:12Z",
            "recentMaintenance": [{"result": "Failed", "message": "its pod found no node"}]},
    });
    api.has(a_schedule("nightly", &moves))
        .has(deployment("backup-controller", &pod))
        .has_at(
            "/api/v1/namespaces/velero",
            json!({ "metadata": { "name": "velero", "labels": enforced } }),
        )
        .has_at(
            "/apis/velero.io/v1/namespaces/velero/backuprepositories/repository-shop",
            repository,
        );
    let seen = Person::at(&api).types("doctor").await;
    for expected in [
        "✗ volumes                velero refuses the pods that move volume data (snapshotMoveData): Pod Security keeps it to restricted\n",
        "kubectl label --overwrite namespace velero pod-security.kubernetes.io/enforce=baseline\n",
        "! volumes                the repository with the volume data of namespace shop in location default was not maintained for 6d, so the space of deleted backups is not freed; the last one has failed: its pod found no node\n",
    ] {
        assert!(seen.contains(expected), "{expected}{seen}");
    }
}
