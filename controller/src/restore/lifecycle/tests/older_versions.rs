//! Backups written by older versions of Velero, as stored in the bucket. The same table is in
//! docs/use/stored-files.md.

use std::fs;

use super::{operating::file, stored_files::gzip, *};

const STARTED: &str = "2022-08-01T12:00:00Z";

/// The files of a version in the folder of a backup, and the result of a restore.
struct Version {
    name: &'static str,
    /// `status.formatVersion`; `None` before 1.4.
    format: Option<&'static str>,
    /// Whether each item is in the tarball a second time, with its version.
    versioned: bool,
    /// Further files (suffix of the name), besides the files that every version writes.
    files: Vec<(&'static str, Value)>,
    spec: Value,
    status: Value,
    /// The message in the results of a restore, and whether it is an error or a warning; `None`: no
    /// message.
    says: Option<(bool, &'static str)>,
}

impl Version {
    fn of(name: &'static str, files: Vec<(&'static str, Value)>) -> Self {
        let (spec, status) = (json!({}), json!({}));
        Self {
            name,
            format: Some("1.1.0"),
            versioned: true,
            files,
            spec,
            status,
            says: None,
        }
    }
}

fn list() -> (&'static str, Value) {
    (
        "resource-list",
        json!({ "v1/ConfigMap": ["a/c"], "v1/Namespace": ["a"], "v1/Pod": ["a/db-0"], "extensions/v1beta1/Ingress": null }),
    )
}

fn results() -> (&'static str, Value) {
    ("results", json!({ "errors": {}, "warnings": {} }))
}

/// As written by the node agent; with restic there is no `uploaderType`.
fn pod_volume_backups(uploader: Option<&str>) -> (&'static str, Value) {
    let mut spec = json!({ "node": "n", "pod": { "kind": "Pod", "namespace": "a", "name": "db-0" }, "volume": "data",
        "backupStorageLocation": "default", "repoIdentifier": "s3:s3.example.com/restic/a" });
    spec["uploaderType"] = json!(uploader);
    let object = json!({ "kind": "PodVolumeBackup", "apiVersion": "velero.io/v1", "metadata": { "name": "b-x7z" },
        "spec": spec, "status": { "phase": "Completed", "snapshotID": "0f3a" } });
    ("podvolumebackups", json!([object]))
}

fn versions() -> Vec<Version> {
    let skipped = json!([{ "pvcName": "data", "pvcNamespace": "a", "pvName": "pv", "skipped": true,
        "skippedReason": "no snapshotter found for PV", "pvInfo": { "reclaimPolicy": "Delete", "labels": null } }]);
    let operations = json!([{ "Spec": { "backupName": "b" }, "Status": { "Phase": "Completed" } }]);
    vec![
        Version {
            format: None,
            versioned: false,
            says: Some((false, "resource-list.json.gz is not there")),
            ..Version::of("1.0", vec![])
        },
        Version {
            format: Some("1"),
            versioned: false,
            ..Version::of("1.4", vec![list(), ("podvolumebackups", json!([]))])
        },
        Version {
            says: Some((true, "volume data of pod a/db-0")),
            ..Version::of(
                "1.9 with restic",
                vec![
                    list(),
                    pod_volume_backups(None),
                    ("volumesnapshots", Value::Null),
                ],
            )
        },
        Version::of(
            "1.9",
            vec![
                list(),
                ("podvolumebackups", Value::Null),
                ("csi-volumesnapshots", Value::Null),
            ],
        ),
        Version {
            says: Some((true, "volume data of pod a/db-0")),
            ..Version::of(
                "1.10 with kopia",
                vec![
                    list(),
                    pod_volume_backups(Some("kopia")),
                    ("volumesnapshots", json!([])),
                ],
            )
        },
        Version::of(
            "1.11",
            vec![list(), results(), ("itemoperations", operations.clone())],
        ),
        Version {
            spec: json!({ "snapshotMoveData": true, "defaultVolumesToFsBackup": false }),
            status: json!({ "csiVolumeSnapshotsAttempted": 1, "backupItemOperationsAttempted": 1 }),
            says: Some((true, "volumes that it does not name")),
            ..Version::of(
                "1.12 with moved data",
                vec![list(), results(), ("itemoperations", operations)],
            )
        },
        Version::of(
            "1.13",
            vec![
                list(),
                results(),
                ("itemoperations", json!([])),
                ("volumeinfo", json!([])),
            ],
        ),
        Version::of(
            "1.18",
            vec![
                list(),
                results(),
                ("itemoperations", Value::Null),
                ("volumeinfo", skipped),
            ],
        ),
    ]
}

fn tarball(version: &Version) -> Vec<u8> {
    let item = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": "a" },
        "data": { "k": "v" } });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } });
    let mut entries = vec![(
        "metadata/version".to_owned(),
        version.format.unwrap_or("1").to_owned(),
    )];
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "db-0", "namespace": "a" },
        "spec": { "containers": [{ "name": "db" }], "volumes": [{ "name": "data", "emptyDir": {} }] } });
    for (plural, tail, object) in [
        ("configmaps", "namespaces/a/c", item),
        ("namespaces", "cluster/a", namespace),
        ("pods", "namespaces/a/db-0", pod),
    ] {
        entries.push((
            format!("resources/{plural}/{tail}.json"),
            object.to_string(),
        ));
        if version.versioned {
            entries.push((
                format!("resources/{plural}/v1-preferredversion/{tail}.json"),
                object.to_string(),
            ));
        }
    }
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::default(),
    ));
    for (path, text) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_size(text.len() as u64);
        builder
            .append_data(&mut header, path, text.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

#[tokio::test]
async fn a_backup_of_each_version_of_velero_is_restored() {
    for version in versions() {
        let (fake, folder, ctx) = prepared(None).await;
        let files = folder.path().join("backups/b");
        fs::remove_dir_all(&files).unwrap();
        fs::create_dir(&files).unwrap();
        // As written by Go, with fields that are unknown here.
        let metadata = json!({ "name": "b", "namespace": "velero", "uid": "of-the-old-cluster", "resourceVersion": "7",
            "labels": { "velero.io/storage-location": "default" }, "managedFields": [{ "manager": "velero-server" }] });
        let mut status = json!({ "version": 1, "formatVersion": version.format, "phase": "Completed",
            "startTimestamp": STARTED, "validationErrors": null, "volumeSnapshotsAttempted": 0 });
        json_patch::merge(&mut status, &version.status);
        let mut spec = json!({ "metadata": {}, "hooks": {}, "ttl": "720h0m0s", "storageLocation": "default",
            "includedNamespaces": ["*"], "defaultVolumesToRestic": false });
        json_patch::merge(&mut spec, &version.spec);
        let backup = json!({ "kind": "Backup", "apiVersion": "velero.io/v1", "metadata": metadata,
            "spec": spec, "status": status });
        fs::write(
            files.join("velero-backup.json"),
            serde_json::to_string_pretty(&backup).unwrap(),
        )
        .unwrap();
        fs::write(files.join("b.tar.gz"), tarball(&version)).unwrap();
        fs::write(files.join("b-logs.gz"), gzip("time=\"2022\" level=info\n")).unwrap();
        for (name, value) in &version.files {
            fs::write(
                files.join(format!("b-{name}.json.gz")),
                gzip(&format!("{value}\n")),
            )
            .unwrap();
        }
        let types = [
            ("configmaps", "ConfigMap", "Namespaced"),
            ("pods", "Pod", "Namespaced"),
        ];
        fake.put("/api", testing::discovery("", &types));
        // The Backup as synchronised into this cluster.
        fake.put(BACKUP, velero("Backup", "b", spec, status));

        assert_eq!(
            step(&mut worker(&ctx)).await,
            Step::Done,
            "{}",
            version.name
        );
        let name = version.name;
        let status = super::status(&fake);
        let is_error = version.says.is_some_and(|(is_error, _)| is_error);
        assert_eq!(
            status["phase"],
            if is_error {
                "PartiallyFailed"
            } else {
                "Completed"
            },
            "{name} {status}"
        );
        assert_eq!(fake.get(ITEM).unwrap()["data"]["k"], "v", "{name}");
        assert_eq!(status["progress"]["itemsRestored"], 3, "{name}");
        let results = file(&folder, "results.gz");
        let count = |field: &str| status[field].as_i64().unwrap_or_default();
        let told = (count("errors"), count("warnings"));
        assert_eq!(
            told,
            (
                i64::from(is_error),
                i64::from(version.says.is_some() && !is_error)
            ),
            "{name} {results}"
        );
        assert!(
            version
                .says
                .is_none_or(|(_, words)| results.to_string().contains(words)),
            "{name} {results}"
        );
    }
}
