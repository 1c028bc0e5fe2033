use backup_core::{
    api::{BackupPhase, backup::BackupProgress},
    labels::DIGESTS_ANNOTATION,
};
use serde_json::json;

use super::*;
use crate::{
    JobFiles,
    testing::{Fault, Recorder, backup, folder, get, keys, memory, no_files, noise, of, pod, put},
};

const DIR: &str = "p/backups/b";

/// Stores backup `b` with these pods; large ones make contents of several parts. Returns the Backup
/// as it is in the cluster.
async fn stored(location: &Location, pods: &[&str], is_large: bool) -> Backup {
    let mut writer = location.open_backup("b", &of("u1")).await.unwrap();
    let mut files = no_files();
    for name in pods {
        let filler = if is_large {
            std::str::from_utf8(noise()).unwrap()
        } else {
            "0"
        };
        let metadata = json!({ "name": name, "namespace": "ns" });
        let item = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"filler":{filler}}}"#
        );
        writer.item(&pod(name), item.as_bytes()).await.unwrap();
        let list = &mut files.resource_list;
        list.add("v1", "Pod", Some("ns"), name, None);
    }
    let mut end = backup("u1", BackupPhase::Completed);
    let count = i64::try_from(pods.len()).unwrap();
    end.status.progress = Some(BackupProgress {
        total_items: count,
        items_backed_up: count,
        ..BackupProgress::default()
    });
    publish(writer.finish().await.unwrap(), &files, &end).await;
    end
}

async fn publish(pending: crate::PendingBackup, files: &JobFiles, end: &Backup) {
    let mut committed = pending.commit(files, end).await.unwrap();
    committed.publish().await.unwrap();
}

async fn verify(location: &Location, backup: &Backup) -> Result<VerifiedFiles, StoreError> {
    let throttle = Arc::new(Throttle::new(None));
    location.verify(backup, Limits::DEFAULT, &throttle).await
}

/// The findings, each as `file: message`, and whether digests were compared.
async fn findings(location: &Location, backup: &Backup) -> (Vec<String>, bool) {
    let verified = verify(location, backup).await.unwrap();
    let findings = verified.findings.into_iter();
    let texts = findings.map(|one| format!("{}: {}", one.file, one.message));
    (texts.collect(), verified.compared)
}

/// Removes the digests from the metadata, as if an earlier version had written it.
async fn forget_digests(location: &Location) {
    let key = format!("{DIR}/velero-backup.json");
    let metadata = get(location, &key).await.unwrap();
    let mut metadata: serde_json::Value = serde_json::from_slice(&metadata).unwrap();
    let annotations = metadata["metadata"]["annotations"].as_object_mut();
    annotations.unwrap().remove(DIGESTS_ANNOTATION).unwrap();
    put(location, &key, metadata.to_string().as_bytes()).await;
}

fn packed(text: &str) -> Vec<u8> {
    crate::gzip::member(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_backup_of_one_part_or_of_several_is_whole() {
    for is_large in [false, true] {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            let pods: &[&str] = if is_large { &["one"] } else { &["one", "two"] };
            let backup = stored(&location, pods, is_large).await;
            let verified = verify(&location, &backup).await.unwrap();
            assert!(verified.findings.is_empty(), "{:?}", verified.findings);
            assert!(verified.compared);
            assert_eq!(verified.bytes > 8 << 20, is_large, "{}", verified.bytes);
            forget_digests(&location).await;
            assert_eq!(findings(&location, &backup).await, (Vec::new(), false));
        }
    }
}

#[tokio::test]
async fn each_file_that_is_missing_cut_or_changed_is_found() {
    let location = memory("p");
    let backup = stored(&location, &["one", "two"], false).await;
    let files: Vec<String> = keys(&location)
        .await
        .into_iter()
        .filter(|key| !key.contains(".private") && !key.ends_with("velero-backup.json"))
        .collect();
    assert_eq!(files.len(), 8, "{files:?}");
    for key in files {
        let file = key.rsplit('/').next().unwrap();
        let bytes = get(&location, &key).await.unwrap();
        location
            .delete(vec![Path::from(key.as_str())])
            .await
            .unwrap();
        let missing = format!("{file}: it is missing");
        assert_eq!(findings(&location, &backup).await, (vec![missing], true));

        put(&location, &key, &bytes[..bytes.len() - 1]).await;
        let (found, _) = findings(&location, &backup).await;
        let damaged = format!("{file}: ");
        assert!(
            found.len() == 1 && found[0].starts_with(&damaged),
            "{file}: {found:?}"
        );

        // The same content, compressed in another way.
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        let mut unpacked = flate2::read::MultiGzDecoder::new(&bytes[..]);
        std::io::copy(&mut unpacked, &mut encoder).unwrap();
        put(&location, &key, &encoder.finish().unwrap()).await;
        let changed =
            format!("{file}: it can be read, but its bytes are not those that were written");
        assert_eq!(findings(&location, &backup).await, (vec![changed], true));
        put(&location, &key, &bytes).await;
    }
    assert_eq!(findings(&location, &backup).await, (Vec::new(), true));
}

#[tokio::test]
async fn files_that_disagree_are_found_without_digests() {
    let location = memory("p");
    let backup = stored(&location, &["one", "two"], false).await;
    forget_digests(&location).await;
    let list = format!("{DIR}/b-resource-list.json.gz");
    for (names, expected) in [
        (
            r#"{"v1/Pod":["ns/one","ns/two","ns/three"]}"#,
            &[
                "b-resource-list.json.gz: the status of the backup says 2 items, the file has 3",
                "b.tar.gz: v1/Pod ns/three is listed and not in it",
            ][..],
        ),
        (
            r#"{"v1/Pod":["ns/one"],"v1/Node":["ns/two"]}"#,
            &[
                "b.tar.gz: v1/Node ns/two is listed and not in it",
                "b.tar.gz: v1/Pod ns/two is in it and not listed",
            ],
        ),
        (r#"{"v1/Pod":["ns/one","ns/two"]}"#, &[]),
    ] {
        put(&location, &list, &packed(names)).await;
        let (found, compared) = findings(&location, &backup).await;
        assert_eq!(found, expected, "{names}");
        assert!(!compared);
    }
    put(&location, &format!("{DIR}/b-results.gz"), b"no gzip").await;
    put(&location, &format!("{DIR}/notes.gz"), b"no gzip").await;
    put(&location, &format!("{DIR}/notes.txt"), b"by a user").await;
    let (found, _) = findings(&location, &backup).await;
    let files: Vec<&str> = found
        .iter()
        .filter_map(|text| text.split(':').next())
        .collect();
    assert_eq!(files, ["b-results.gz", "notes.gz"], "{found:?}");
}

#[tokio::test]
async fn metadata_that_is_missing_or_of_another_backup_is_found() {
    let location = memory("p");
    let backup = stored(&location, &["one"], false).await;
    let mut other = backup.clone();
    other.metadata.uid = Some("u2".to_owned());
    let (found, _) = findings(&location, &other).await;
    assert_eq!(
        found,
        ["velero-backup.json: it is the metadata of another backup of this name"]
    );
    let key = format!("{DIR}/velero-backup.json");
    put(&location, &key, b"{}").await;
    let (found, compared) = findings(&location, &backup).await;
    assert!(found.len() == 1 && !compared, "{found:?}");
    location.delete(vec![Path::from(key)]).await.unwrap();
    let (found, _) = findings(&location, &backup).await;
    assert_eq!(found, ["velero-backup.json: it is missing"]);
}

#[tokio::test]
async fn a_store_that_does_not_answer_says_nothing_about_the_files() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    let backup = stored(&location, &["one"], false).await;
    for file in ["velero-backup.json", "b-logs.gz", "b.tar.gz"] {
        recorder.fault(&format!("get {DIR}/{file}"), Fault::Fail);
        let error = verify(&location, &backup).await.unwrap_err();
        assert!(error.is_transient(), "{file}: {error}");
    }
    assert_eq!(findings(&location, &backup).await, (Vec::new(), true));
}

#[tokio::test]
async fn a_digest_of_a_small_file_is_the_one_that_other_programs_compute() {
    let location = memory("p");
    stored(&location, &["one"], false).await;
    let metadata = location.read_metadata("b").await.unwrap().unwrap();
    let digests = FileDigests::read(&metadata).unwrap();
    let layout_keys = location.layout().backup("b").unwrap();
    let key = layout_keys.file(LOG);
    let log = get(&location, key.as_ref()).await.unwrap();
    let digest = backup_core::digest::sha256(&log);
    assert_eq!(digests.find(&layout_keys, &key), Some(digest.as_str()));
}
