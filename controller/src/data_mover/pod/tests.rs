use std::time::Duration;

use backup_core::api::BackupStorageLocationSpec;
use rstest::rstest;

use super::*;

fn settings() -> MoverSettings {
    MoverSettings {
        image: "example.com/backup-mover:1".to_owned(),
        memory_limit: "512Mi".to_owned(),
        prepare_timeout: Duration::from_mins(30),
        concurrency: 20,
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
    let request = PodRequest {
        name: "upload-data-1",
        owner: owner(),
        location,
        repository: "shop",
        work,
    };
    let pod = request.pod("velero", &settings())?;
    Ok(serde_json::to_value(pod).unwrap())
}

fn backup(block: bool) -> PodWork<'static> {
    PodWork::Backup {
        claim: "upload-data-1",
        block,
        label: "uid-of-claim",
        tags: vec!["backup=nightly".to_owned(), "claim=data".to_owned()],
    }
}

fn restore(block: bool) -> PodWork<'static> {
    PodWork::Restore {
        claim: "download-data-1",
        block,
        snapshot: "4f1c0a7d",
        existing: None,
        is_repeated: false,
    }
}

fn security(capabilities: &[&str]) -> Value {
    json!({
        "runAsUser": 0, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "seccompProfile": { "type": "RuntimeDefault" },
        "capabilities": { "drop": ["ALL"], "add": capabilities },
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
                    "--tag=backup=nightly", "--tag=claim=data", "--termination-log=/dev/termination-log",
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
#[case(PodWork::Maintain, "maintain", Some("--prune"))]
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
    assert_eq!(container["securityContext"], security(&[]));
    assert_eq!(pod["spec"]["volumes"], Value::Null);
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels[WORK_LABEL], command);
    assert_eq!(labels[TRANSFER_LABEL], Value::Null);
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
