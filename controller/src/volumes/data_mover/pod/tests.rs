use std::num::NonZeroU64;

use backup_core::api::BackupStorageLocationSpec;
use rstest::rstest;

use super::*;
use crate::testing;

fn settings() -> MoverSettings {
    MoverSettings {
        image: "example.com/backup-mover:1".to_owned(),
        ..testing::mover_settings()
    }
}

fn owner() -> OwnerReference {
    OwnerReference {
        api_version: "velero.io/v2alpha1".to_owned(),
        kind: "DataUpload".to_owned(),
        name: "upload-data-1".to_owned(),
        uid: "uid-1".to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn location(change: impl FnOnce(&mut BackupStorageLocationSpec)) -> BackupStorageLocation {
    let mut spec = BackupStorageLocationSpec {
        provider: "aws".to_owned(),
        config: [
            ("region".to_owned(), "minio".to_owned()),
            ("s3ForcePathStyle".to_owned(), "true".to_owned()),
            ("s3Url".to_owned(), "https://s3.example.com".to_owned()),
        ]
        .into(),
        ..BackupStorageLocationSpec::default()
    };
    spec.object_storage.bucket = "backups".to_owned();
    spec.object_storage.prefix = Some("east".to_owned());
    change(&mut spec);
    BackupStorageLocation::new("default", spec)
}

fn made(location: &BackupStorageLocation, work: PodWork<'_>) -> Result<Value, String> {
    made_with(&settings(), location, work)
}

fn made_with(
    settings: &MoverSettings,
    location: &BackupStorageLocation,
    work: PodWork<'_>,
) -> Result<Value, String> {
    let request = PodRequest {
        name: "upload-data-1",
        owner: owner(),
        location,
        repository: "shop",
        work,
    };
    let pod = request.pod("velero", settings)?;
    Ok(serde_json::to_value(pod).unwrap())
}

fn backup(block: bool) -> PodWork<'static> {
    PodWork::Backup {
        claim: "upload-data-1",
        block,
        label: "uid-of-claim",
        tags: vec!["backup=nightly".to_owned(), "claim=data".to_owned()],
        note: Some("uid-b/uid-1".to_owned()),
        user: None,
        is_repeated: false,
    }
}

fn restore(block: bool) -> PodWork<'static> {
    PodWork::Restore {
        claim: "download-data-1",
        block,
        snapshot: "4f1c0a7d",
        user: None,
        existing: None,
        is_repeated: false,
    }
}

/// The same, after a pod was lost.
fn repeated(mut work: PodWork<'static>) -> PodWork<'static> {
    if let PodWork::Backup { is_repeated, .. } | PodWork::Restore { is_repeated, .. } = &mut work {
        *is_repeated = true;
    }
    work
}

/// The same, of a claim with this annotation.
fn as_user(mut work: PodWork<'static>, annotation: &'static str) -> PodWork<'static> {
    if let PodWork::Backup { user, .. } | PodWork::Restore { user, .. } = &mut work {
        *user = Some(annotation);
    }
    work
}

fn security(capabilities: &[&str]) -> Value {
    json!({
        "runAsUser": 0, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "seccompProfile": { "type": "RuntimeDefault" },
        "capabilities": { "drop": ["ALL"], "add": capabilities },
    })
}

/// A security context that Pod Security `restricted` admits.
fn restricted(user: u32, group: u32) -> Value {
    json!({
        "runAsUser": user, "runAsGroup": group, "runAsNonRoot": true,
        "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "seccompProfile": { "type": "RuntimeDefault" }, "capabilities": { "drop": ["ALL"] },
    })
}

#[test]
fn a_backup_pod_reads_the_claim_and_passes_baseline() {
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "upload-data-1", "namespace": "velero",
            "labels": {
                "app.kubernetes.io/name": "backup-mover",
                "velero.io/exclude-from-backup": "true",
                "backup-controller/mover-work": "backup",
                "backup-controller/repository": repository_name("shop", "default"),
                "backup-controller/transfer": "upload-data-1",
            },
            "ownerReferences": [{
                "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload", "name": "upload-data-1", "uid": "uid-1",
                "controller": true,
            }],
        },
        "spec": {
            "restartPolicy": "Never", "serviceAccountName": "backup-mover",
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "volumes": [{ "name": "volume", "persistentVolumeClaim": { "claimName": "upload-data-1" } }],
            "containers": [{
                "name": "mover", "image": "example.com/backup-mover:1",
                "args": [
                    "backup", "--provider=aws", "--bucket=backups", "--prefix=east", "--config=region=minio",
                    "--config=s3ForcePathStyle=true", "--config=s3Url=https://s3.example.com",
                    "--repository=restic/shop", "--folder=/volume", "--host=shop", "--label=uid-of-claim",
                    "--tag=backup=nightly", "--tag=claim=data", "--note=uid-b/uid-1",
                    "--termination-log=/dev/termination-log",
                ],
                "env": [
                    { "name": "MALLOC_ARENA_MAX", "value": "2" },
                    { "name": "BACKUP_REPOSITORY_PASSWORD", "valueFrom":
                        { "secretKeyRef": { "name": "velero-repo-credentials", "key": "repository-password" } } },
                    { "name": "BACKUP_STORE_CREDENTIALS", "valueFrom":
                        { "secretKeyRef": { "name": "cloud-credentials", "key": "cloud", "optional": true } } },
                ],
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "512Mi" } },
                "securityContext": security(&["DAC_OVERRIDE"]),
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{ "name": "volume", "mountPath": "/volume", "readOnly": true }],
            }],
        },
    });
    assert_eq!(made(&location(|_| ()), backup(false)), Ok(expected));
}

#[test]
fn a_restore_pod_writes_the_claim_as_root_with_what_owners_and_modes_need() {
    let pod = made(&location(|_| ()), restore(false)).unwrap();
    let container = &pod["spec"]["containers"][0];
    let expected = json!([
        "restore",
        "--provider=aws",
        "--bucket=backups",
        "--prefix=east",
        "--config=region=minio",
        "--config=s3ForcePathStyle=true",
        "--config=s3Url=https://s3.example.com",
        "--repository=restic/shop",
        "--snapshot=4f1c0a7d",
        "--target=/volume",
        "--existing=refuse",
        "--termination-log=/dev/termination-log",
    ]);
    assert_eq!(container["args"], expected);
    let added = [
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "SETFCAP",
        "MKNOD",
    ];
    assert_eq!(container["securityContext"], security(&added));
    assert_eq!(
        container["volumeMounts"],
        json!([{ "name": "volume", "mountPath": "/volume", "readOnly": false }])
    );
    assert_eq!(
        pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
        "download-data-1"
    );
    assert_eq!(pod["metadata"]["labels"][WORK_LABEL], "restore");
}

#[rstest]
#[case(None, false, "--existing=refuse")]
#[case(None, true, "--existing=replace")]
#[case(Some("amend"), false, "--existing=amend")]
#[case(Some("amend"), true, "--existing=amend")]
fn a_volume_that_existed_before_is_not_emptied_for_a_second_pod(
    #[case] existing: Option<&'static str>,
    #[case] is_repeated: bool,
    #[case] expected: &str,
) {
    let work = PodWork::Restore {
        claim: "download-data-1",
        block: false,
        snapshot: "4f1c0a7d",
        existing,
        user: None,
        is_repeated,
    };
    let pod = made(&location(|_| ()), work).unwrap();
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert!(args.iter().any(|arg| arg == expected), "{args:?}");
}

#[rstest]
#[case(backup(true), "--device=/dev/volume")]
#[case(restore(true), "--target=/dev/volume")]
fn a_block_volume_is_a_device_and_no_mount(#[case] work: PodWork<'static>, #[case] arg: &str) {
    let pod = made(&location(|_| ()), work).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["volumeDevices"],
        json!([{ "name": "volume", "devicePath": "/dev/volume" }])
    );
    assert_eq!(container["volumeMounts"], Value::Null);
    let args = container["args"].as_array().unwrap();
    assert!(args.iter().any(|other| other == arg), "{args:?}");
    assert!(!args.iter().any(|other| other == "--folder=/volume"));
}

#[rstest]
#[case(PodWork::Init, "init", None)]
#[case(PodWork::Maintain { request: None }, "maintain", Some("--prune"))]
#[case(PodWork::Open { inputs: "i" }, "open", None)]
fn pods_of_a_repository_have_no_volume_and_no_rights(
    #[case] work: PodWork<'static>,
    #[case] command: &str,
    #[case] arg: Option<&str>,
) {
    let pod = made(&location(|_| ()), work).unwrap();
    let container = &pod["spec"]["containers"][0];
    let args = container["args"].as_array().unwrap();
    assert_eq!(args[0], command);
    assert_eq!(args.iter().any(|other| other == "--prune"), arg.is_some());
    assert_eq!(container["securityContext"], restricted(65_532, 65_532));
    assert_eq!(pod["spec"]["volumes"], Value::Null);
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels[WORK_LABEL], command);
    assert_eq!(labels[TRANSFER_LABEL], Value::Null);
}

#[rstest]
#[case(KeyWork::Add, "add-key", "repository-password-next")]
#[case(KeyWork::Remove, "remove-key", "repository-password-previous")]
fn a_pod_that_changes_keys_has_both_passwords_from_one_secret(
    #[case] work: KeyWork,
    #[case] command: &str,
    #[case] key: &str,
) {
    let change = KeyChange::requested(work, "uid/7");
    let pod = made(&location(|_| ()), PodWork::ChangeKeys(&change)).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["args"][0], command);
    let password =
        |key: &str| json!({ "secretKeyRef": { "name": "velero-repo-credentials", "key": key } });
    let environment = &container["env"];
    assert_eq!(environment[1]["valueFrom"], password("repository-password"));
    assert_eq!(
        environment[3],
        json!({ "name": "BACKUP_REPOSITORY_OTHER_PASSWORD", "valueFrom": password(key) })
    );
    let metadata = &pod["metadata"];
    assert_eq!(metadata["annotations"][VALID_FOR_ANNOTATION], "uid/7");
    assert_eq!(metadata["labels"][WORK_LABEL], command);
}

#[test]
fn a_pod_that_was_requested_says_for_which_request() {
    let maintenance = PodWork::Maintain {
        request: Some("now"),
    };
    let check = PodWork::Check {
        part: None,
        packs: &[],
        request: Some("now"),
    };
    for (work, arg) in [(maintenance, "--prune"), (check, "--read-data")] {
        let pod = made(&location(|_| ()), work).unwrap();
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations[VALID_FOR_ANNOTATION], "now");
        let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
        assert!(args.contains(&json!(arg)), "{args:?}");
    }
}

#[test]
fn a_check_reads_its_part_and_the_packs_that_were_damaged() {
    let packs = ["ab".repeat(32)];
    let work = PodWork::Check {
        part: Some(3),
        packs: &packs,
        request: None,
    };
    let pod = made(&location(|_| ()), work).unwrap();
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert_eq!(args[0], "check");
    for expected in [
        "--read-data-part=3/30",
        &format!("--read-pack={}", packs[0]),
    ] {
        assert!(args.iter().any(|arg| arg == expected), "{args:?}");
    }
    assert_eq!(pod["metadata"]["annotations"], Value::Null);
}

#[test]
fn secrets_are_named_in_the_environment_and_never_in_arguments() {
    let own = location(|spec| {
        spec.credential = Some(SecretKey {
            name: "bucket-key".to_owned(),
            key: "file".to_owned(),
            optional: None,
        });
        spec.object_storage.ca_cert_ref = Some(SecretKey {
            name: "bucket-ca".to_owned(),
            key: "ca.crt".to_owned(),
            optional: None,
        });
        let leak = "https://$(BACKUP_REPOSITORY_PASSWORD).example.com";
        spec.config.insert("s3Url".to_owned(), leak.to_owned());
    });
    let pod = made(&own, backup(false)).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["env"][2],
        json!({ "name": "BACKUP_STORE_CREDENTIALS", "valueFrom":
            { "secretKeyRef": { "name": "bucket-key", "key": "file" } } })
    );
    assert_eq!(
        container["env"][3],
        json!({ "name": "BACKUP_STORE_CA", "valueFrom":
            { "secretKeyRef": { "name": "bucket-ca", "key": "ca.crt" } } })
    );
    let args = container["args"].to_string();
    assert!(
        args.contains("--config=s3Url=https://$$(BACKUP_REPOSITORY_PASSWORD).example.com"),
        "Kubernetes takes two for one, and replaces nothing: {args}"
    );
    assert!(!args.contains("bucket-key") && !args.contains("velero-repo-credentials"));
}

#[test]
fn the_ca_of_a_location_is_decoded() {
    let inline = location(|spec| {
        spec.object_storage.ca_cert = Some("UEVN".to_owned());
        spec.config.insert("caCert".to_owned(), "PEM".to_owned());
    });
    let pod = made(&inline, PodWork::Init).unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["env"][3],
        json!({ "name": "BACKUP_STORE_CA", "value": "PEM" })
    );
    assert!(!container["args"].to_string().contains("PEM"));
}

#[rstest]
#[case("example.com/tape", "region", "a", "which only a plugin serves")]
#[case("local", "region", "a", "a folder of the controller")]
#[case("velero.io/local", "region", "a", "a folder of the controller")]
#[case("aws", KEY_FILE, "/key", "a file that pods")]
fn a_location_that_no_pod_can_use_is_refused(
    #[case] provider: &str,
    #[case] key: &str,
    #[case] value: &str,
    #[case] part: &str,
) {
    let location = location(|spec| {
        spec.provider = provider.to_owned();
        spec.config.insert(key.to_owned(), value.to_owned());
    });
    let error = made(&location, PodWork::Init).unwrap_err();
    assert!(
        error.contains("BackupStorageLocation default") && error.contains(part),
        "{error}"
    );
}

#[test]
fn a_ca_that_is_not_base64_is_refused() {
    let location = location(|spec| {
        spec.object_storage.ca_cert = Some("-----BEGIN".to_owned());
    });
    let error = made(&location, PodWork::Init).unwrap_err();
    assert!(error.contains("spec.objectStorage.caCert"), "{error}");
}

#[rstest]
#[case::of_a_backup(backup(false))]
#[case::of_a_restore(restore(false))]
fn a_pod_after_a_lost_one_has_fewer_threads_and_smaller_buffers(#[case] work: PodWork<'static>) {
    let first = made(&location(|_| ()), work.clone()).unwrap();
    let second = made(&location(|_| ()), repeated(work)).unwrap();
    let [first, second] = [&first, &second].map(|pod| &pod["spec"]["containers"][0]);
    assert_eq!(first["resources"]["limits"], json!({ "memory": "512Mi" }));
    assert_eq!(
        second["resources"]["limits"],
        json!({ "memory": "512Mi", "cpu": "1" })
    );
    assert_eq!(second["env"][0]["value"], "1");
    let args = |container: &Value| container["args"].as_array().unwrap().clone();
    for arg in ["--parallel-uploads=1", "--read-memory=8Mi"] {
        assert!(args(second).contains(&json!(arg)), "{second}");
        assert!(!args(first).contains(&json!(arg)), "{first}");
    }
}

#[test]
fn a_restore_after_a_lost_pod_replaces_its_files() {
    let pod = made(&location(|_| ()), repeated(restore(false))).unwrap();
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&json!("--existing=replace")), "{args:?}");
}

#[test]
fn limits_of_bandwidth_are_passed_on() {
    let settings = MoverSettings {
        upload_limit: NonZeroU64::new(20 << 20),
        download_limit: NonZeroU64::new(500_000),
        ..settings()
    };
    for work in [backup(false), PodWork::Maintain { request: None }] {
        let pod = made_with(&settings, &location(|_| ()), work).unwrap();
        let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
        for arg in ["--upload-limit=20971520", "--download-limit=500000"] {
            assert!(args.contains(&json!(arg)), "{args:?}");
        }
    }
}

#[test]
fn a_claim_may_ask_for_a_user_without_capabilities() {
    let pod = made(&location(|_| ()), as_user(backup(false), "1000")).unwrap();
    let context = &pod["spec"]["containers"][0]["securityContext"];
    assert_eq!(*context, restricted(1000, 1000));
    assert_eq!(
        pod["spec"]["securityContext"],
        Value::Null,
        "a group would be given files of the volume, which would be saved with it"
    );
    let pod = made(&location(|_| ()), as_user(restore(false), "1000:2000")).unwrap();
    let context = &pod["spec"]["containers"][0]["securityContext"];
    assert_eq!(*context, restricted(1000, 2000));
    assert_eq!(
        pod["spec"]["securityContext"],
        json!({ "fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch" })
    );
    let error = made(&location(|_| ()), as_user(backup(false), "0")).unwrap_err();
    assert!(error.contains("backup-controller/mover-user"), "{error}");
}

#[rstest]
#[case::name("mover-key", "mover-key", "cloud")]
#[case::name_and_key("mover-key/file", "mover-key", "file")]
fn pods_with_a_volume_have_the_credentials_for_movers_and_others_those_of_the_location(
    #[case] annotation: &str,
    #[case] name: &str,
    #[case] key: &str,
) {
    let mut location = location(|spec| {
        spec.credential = Some(SecretKey {
            name: "bucket-key".to_owned(),
            key: "cloud".to_owned(),
            optional: None,
        });
    });
    let annotation = (
        "backup-controller/mover-credential".to_owned(),
        annotation.to_owned(),
    );
    location.metadata.annotations = Some([annotation].into());
    let of_movers = json!({ "secretKeyRef": { "name": name, "key": key } });
    let of_location = json!({ "secretKeyRef": { "name": "bucket-key", "key": "cloud" } });
    for (work, expected) in [
        (backup(false), &of_movers),
        (restore(true), &of_movers),
        (PodWork::Init, &of_location),
        (PodWork::Maintain { request: None }, &of_location),
    ] {
        let pod = made(&location, work).unwrap();
        let environment = &pod["spec"]["containers"][0]["env"];
        assert_eq!(environment[2]["valueFrom"], *expected);
    }
}

#[test]
fn a_wrong_annotation_with_credentials_is_refused() {
    for text in ["", "/", "name/", "/key"] {
        let mut location = location(|_| ());
        let annotation = (
            "backup-controller/mover-credential".to_owned(),
            text.to_owned(),
        );
        location.metadata.annotations = Some([annotation].into());
        let error = made(&location, backup(false)).unwrap_err();
        assert!(error.contains("NAME/KEY"), "{error}");
        assert!(made(&location, PodWork::Init).is_ok(), "it needs none");
    }
}
