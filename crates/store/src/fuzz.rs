//! Damaged files of a bucket: each one is read or refused with an error that names it, and takes
//! little memory.

use backup_core::api::{Backup, BackupPhase, Restore};
use backup_testkit::Fuzz;
use bytes::Bytes;
use object_store::path::Path;
use serde_json::json;

use crate::{
    StoreError, gzip,
    job::record::{Contents as Recorded, Record, held},
    layout::Layout,
    tarball::{Contents, Limits},
    testing::{backup, memory, put},
};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
const URL: &str = "s3://bucket/t.tar.gz";
const LIMITS: Limits = Limits {
    items: 10_000,
    bytes: 64 << 20,
    item_memory: 8 << 20,
};

/// A tar archive of these entries; a second entry follows extended headers of Go's kind.
fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (number, (path, data)) in entries.iter().enumerate() {
        if number == 1 {
            tar.append_pax_extensions([("mtime", b"1.5".as_slice()), ("path", path.as_bytes())])
                .unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, data.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// Corrects the checksum of each block that looks like a header.
fn repaired(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    for block in archive.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    archive
}

fn seeds_of_archives() -> Vec<Vec<u8>> {
    let long = format!("resources/pods/namespaces/a/{}.json", "x".repeat(200));
    let p = object("p");
    let long_object = object(&"x".repeat(200));
    vec![
        tar(&[
            ("metadata/version", "1.1.0\n"),
            ("resources/pods/namespaces/a/p.json", &p),
            ("resources/pods/v1-preferredversion/namespaces/a/p.json", &p),
            ("resources/crontabs.example.com/v1beta1/cluster/p.json", &p),
        ]),
        tar(&[
            (&long, &long_object),
            ("resources/nodes/cluster/p.json", &p),
        ]),
        tar(&[]),
    ]
}

/// The JSON of an object of this name.
fn object(name: &str) -> String {
    json!({ "metadata": { "name": name, "labels": { "a": "b" } }, "spec": [1, null] }).to_string()
}

/// Reads everything in an archive; returns a word for each item.
fn read(archive: &[u8]) -> Result<String, StoreError> {
    let contents = Contents::index(URL, archive, LIMITS)?;
    let mut words = vec![contents.namespaces().len().to_string()];
    for group_resource in contents.types() {
        for item in contents.items(&group_resource) {
            let path = contents.path_of(item)?;
            let name = contents.name_of(item)?;
            assert!(
                path.starts_with("resources/") && !path.split('/').any(|part| part == ".."),
                "{path:?}"
            );
            assert_eq!(
                contents.find(&group_resource, contents.namespace_of(item), &name),
                Some(*item)
            );
            for version in contents.other_versions(&group_resource) {
                contents.in_version(item, &group_resource, version)?;
            }
            words.push(match contents.object(item) {
                Ok(_) => "object".to_owned(),
                Err(error) => {
                    assert_says!(error, &path);
                    error.to_string().replace(&path, "")
                }
            });
        }
    }
    Ok(words.join(" "))
}

fn archive_is_read_or_refused(archive: &[u8]) -> String {
    read(archive).unwrap_or_else(|error| {
        assert_says!(error, URL);
        error.to_string()
    })
}

#[test]
fn any_tar_archive_is_read_or_refused() {
    let fuzz = Fuzz::new(FOLDER, "archive", seeds_of_archives());
    Fuzz {
        wrap: |tar| gzip::member(&repaired(tar)).unwrap(),
        ..fuzz
    }
    .run(archive_is_read_or_refused);
}

#[test]
fn any_bytes_are_a_gzipped_archive_or_are_refused() {
    let seeds = seeds_of_archives()
        .iter()
        .map(|tar| gzip::member(tar).unwrap())
        .collect();
    Fuzz::new(FOLDER, "gzip", seeds).run(archive_is_read_or_refused);
}

/// Records of all kinds.
fn records(file: &[u8]) -> Vec<Record> {
    let layout = Layout::new("p").unwrap();
    let keys = layout.backup("b").unwrap();
    let files = crate::testing::no_files().encode::<Backup>(&keys).unwrap();
    let files: Vec<(Path, Bytes)> = files
        .into_iter()
        .map(|(key, bytes)| {
            (
                key,
                if file.is_empty() {
                    bytes
                } else {
                    file.to_vec().into()
                },
            )
        })
        .collect();
    let open = Recorded::Open {
        parts: None,
        tail: Bytes::from_static(b"tail"),
        total: 7,
    };
    [Recorded::Inline, Recorded::Abandoned, open]
        .map(|contents| Record {
            uid: "u".to_owned(),
            contents,
            status: json!({ "progress": { "totalItems": 3 } }),
            operations_after: 0,
            files: held(files.clone()),
        })
        .into()
}

#[test]
fn any_record_is_read_or_refused() {
    let seeds = records(b"")
        .iter()
        .map(|record| record.encode().unwrap().to_vec())
        .collect();
    let fuzz = Fuzz::new(FOLDER, "record", seeds);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let read = |bytes: &[u8]| {
        let location = memory("p");
        let keys = location.layout().backup("b").unwrap();
        runtime.block_on(async {
            put(&location, "p/backups/b/.private/record-1", bytes).await;
            location.read_record(&keys, 1).await.map(Option::unwrap)
        })
    };
    Fuzz {
        wrap: repaired,
        ..fuzz
    }
    .run(|bytes| {
        let record = match read(bytes) {
            Ok(record) => record,
            Err(error) => {
                assert!(
                    error
                        .to_string()
                        .contains("s3://bucket/p/backups/b/.private/record-1"),
                    "{error}"
                );
                return error.to_string();
            }
        };
        let back = read(&record.encode().unwrap()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
        format!("{:?} {}", record.contents, record.files.len())
    });
}

/// Puts one document under each key that is read as JSON, plain or gzipped, and calls all readers.
async fn read_documents(document: &[u8]) -> String {
    let location = memory("p");
    let gzipped = gzip::member(document).unwrap();
    put(&location, "p/backups/b/velero-backup.json", document).await;
    for file in [
        "volumeinfo.json.gz",
        "volumesnapshots.json.gz",
        "podvolumebackups.json.gz",
        "resource-list.json.gz",
    ] {
        put(&location, &format!("p/backups/b/b-{file}"), &gzipped).await;
    }
    put(&location, "p/backups/b/.private/owner", document).await;
    put(&location, "p/backups/b/.private/journal-1", document).await;
    let saved = location
        .saved_volumes(&backup("u", BackupPhase::Completed))
        .await;
    let said = [
        location
            .read_metadata("b")
            .await
            .map(|found| format!("{:?}", found.map(|backup| backup.status.phase))),
        location
            .read_volume_snapshots("b")
            .await
            .map(|found| format!("{:?}", found.is_some())),
        saved.map(|volumes| format!("{} {}", volumes.records.len(), volumes.in_repository.len())),
        location
            .listed_names("b", 1_000)
            .await
            .map(|found| format!("{}", found.is_some())),
        location
            .claimant_of_backup("b")
            .await
            .map(|found| format!("{}", found.is_some())),
        location
            .journal::<Backup>("b", "u", |_, _| {})
            .await
            .map(|(_, entries)| entries.len().to_string()),
    ];
    let mut words = String::new();
    for result in said {
        words.push_str(&result.unwrap_or_else(|error| {
            assert!(
                error.to_string().contains("s3://bucket/p/backups/b/"),
                "{error}"
            );
            error.to_string()
        }));
    }
    words
}

/// The same for a record, whose files are the document, and for the operations that follow it.
async fn read_job(document: &[u8]) -> String {
    let location = memory("p");
    let mut words = String::new();
    put(&location, "p/backups/c/.private/operations-1", document).await;
    for record in records(&gzip::member(document).unwrap()) {
        // Such a record holds nothing to read.
        if matches!(record.contents, Recorded::Abandoned) {
            continue;
        }
        let encoded = record.encode().unwrap();
        put(&location, "p/backups/c/.private/record-1", &encoded).await;
        put(&location, "p/restores/c/.private/u/record", &encoded).await;
        let backup = location
            .find_job::<Backup>("c", "u")
            .await
            .map(|_| "backup".to_owned());
        let restore = location
            .find_job::<Restore>("c", "u")
            .await
            .map(|_| "restore".to_owned());
        for result in [backup, restore] {
            words.push_str(&result.unwrap_or_else(|error| {
                assert!(error.to_string().contains("s3://bucket/p/"), "{error}");
                error.to_string()
            }));
        }
    }
    words
}

#[test]
fn any_document_of_a_bucket_is_read_or_refused() {
    let mut metadata = backup("u", BackupPhase::Completed);
    metadata.spec.included_namespaces = vec!["a".to_owned()];
    let seeds = vec![
        serde_json::to_vec(&metadata).unwrap(),
        br#"{"v1/Pod":["a/p","a/q"],"v1/Node":null}"#.to_vec(),
        br#"[{"spec":{"snapshotID":"s"},"status":{"phase":"Completed"}}]"#.to_vec(),
        br#"[{"pvcName":"d","pvcNamespace":"a","backupMethod":"CSISnapshot","result":"succeeded","snapshotDataMoved":true,
            "csiSnapshotInfo":{"snapshotHandle":"h","size":1,"driver":"d"},"startTimestamp":"2026-01-01T00:00:00Z"}]"#
            .to_vec(),
        br#"{"operations":[{"spec":{"operationID":"o"}}],"errors":{"velero":["e"]},"warnings":{}}"#.to_vec(),
        b"uid\ncluster/velero\n".to_vec(),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    Fuzz::new(FOLDER, "documents", seeds).run(|document| {
        runtime.block_on(async { read_documents(document).await + &read_job(document).await })
    });
}
