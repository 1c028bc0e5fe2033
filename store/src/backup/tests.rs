use backup_core::api::{Backup, BackupPhase, BackupSpec};
use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use super::{BackupFiles, BackupWriter, ContentsDone};
use crate::{
    Location, LogFile, ResourceList, RestoreFiles, Results, Scope, StoreError,
    tarball::ItemPath,
    testing::{Fault, Recorder, folder, get, keys, memory, put},
};

/// Keys and what they hold.
type Objects<'a> = &'a [(&'a str, &'a [u8])];

const AT: &str = "2026-01-02T03:04:05Z";
const DIR: &str = "p/backups/b";

fn pod(name: &str) -> ItemPath<'_> {
    ItemPath { group_resource: "pods", version: "v1", preferred: true, namespace: Some("ns"), name }
}

fn log(line: &str) -> LogFile {
    let mut log = LogFile::new().unwrap();
    log.line("info", line, &[], AT.parse().unwrap());
    log
}

fn files(line: &str) -> BackupFiles {
    let mut results = Results::default();
    results.warn(Scope::Namespace("ns"), "something");
    let mut resource_list = ResourceList::default();
    resource_list.add("v1", "Pod", Some("ns"), "one", None);
    BackupFiles {
        log: log(line),
        results,
        resource_list,
        volume_info: vec![],
        item_operations: vec![json!({"spec": {"backupName": "b"}})],
        volume_snapshots: vec![],
        pod_volume_backups: vec![],
    }
}

fn backup(uid: &str, phase: BackupPhase) -> Backup {
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.metadata.uid = Some(uid.to_owned());
    backup.status.phase = Some(phase);
    backup
}

async fn contents(location: &Location, uid: &str) -> ContentsDone {
    let mut writer = location.open_backup("b", uid).await.unwrap();
    writer.item(&pod("one"), br#"{"kind":"Pod"}"#).await.unwrap();
    writer.finish_contents().await.unwrap()
}

async fn stored(location: &Location, uid: &str) {
    let mut done = contents(location, uid).await;
    done.put_side_files(&files("x")).await.unwrap();
    done.commit(&backup(uid, BackupPhase::Completed)).await.unwrap();
}

/// Data that does not compress, as large as asked for.
fn noise(size: u32) -> Vec<u8> {
    let mut state = 1_u64;
    (0..size)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[4]
        })
        .collect()
}

async fn add_noise(writer: &mut BackupWriter, items: u32) -> Result<(), StoreError> {
    for n in 0..items {
        writer.item(&pod(&format!("p{n}")), &noise(4 << 20)).await?;
    }
    Ok(())
}

fn json_of(bytes: &[u8]) -> Value {
    let mut decoder = flate2::read::GzDecoder::new(bytes); // one member only
    let mut text = String::new();
    std::io::Read::read_to_string(&mut decoder, &mut text).unwrap();
    assert!(text.ends_with('\n'));
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn everything_is_stored_as_velero_reads_it() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        stored(&location, "u1").await;
        let expected = [
            ".private/owner",
            "b-itemoperations.json.gz",
            "b-logs.gz",
            "b-podvolumebackups.json.gz",
            "b-resource-list.json.gz",
            "b-results.gz",
            "b-volumeinfo.json.gz",
            "b-volumesnapshots.json.gz",
            "b.tar.gz",
            "velero-backup.json",
        ];
        assert_eq!(keys(&location).await, expected.map(|key| format!("{DIR}/{key}")));
        for (file, expected) in [
            ("b-results.gz", json!({"warnings": {"namespaces": {"ns": ["something"]}}, "errors": {}})),
            ("b-resource-list.json.gz", json!({"v1/Pod": ["ns/one"]})),
            ("b-itemoperations.json.gz", json!([{"spec": {"backupName": "b"}}])),
            ("b-volumeinfo.json.gz", json!([])),
            ("b-volumesnapshots.json.gz", json!([])),
            ("b-podvolumebackups.json.gz", json!([])),
        ] {
            assert_eq!(json_of(&get(&location, &format!("{DIR}/{file}")).await.unwrap()), expected, "{file}");
        }
        let log = get(&location, &format!("{DIR}/b-logs.gz")).await.unwrap();
        let log = std::io::read_to_string(MultiGzDecoder::new(log.as_slice())).unwrap();
        assert_eq!(log, format!("time=\"{AT}\" level=info msg=x\n"));

        let metadata = get(&location, &format!("{DIR}/velero-backup.json")).await.unwrap();
        assert!(metadata.starts_with(b"{\n"), "pretty and not compressed");
        let metadata: Value = serde_json::from_slice(&metadata).unwrap();
        assert_eq!((&metadata["apiVersion"], &metadata["kind"]), (&json!("velero.io/v1"), &json!("Backup")));
        assert_eq!(location.read_metadata("b").await.unwrap().unwrap(), backup("u1", BackupPhase::Completed));

        let contents = location.read_contents("b").await.unwrap();
        assert_eq!(contents.read(&contents.items("pods")[0]).unwrap(), br#"{"kind":"Pod"}"#);
        assert_eq!(location.list_backups().await.unwrap(), ["b"]);
        location.check().await.unwrap();
    }
}

#[tokio::test]
async fn contents_come_first_metadata_last_and_nothing_is_overwritten() {
    for large in [false, true] {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        let mut writer = location.open_backup("b", "u1").await.unwrap();
        add_noise(&mut writer, if large { 4 } else { 0 }).await.unwrap();
        let mut done = writer.finish_contents().await.unwrap();
        assert_eq!(done.bytes() > 8 << 20, large);
        done.put_side_files(&files("x")).await.unwrap();
        done.commit(&backup("u1", BackupPhase::PartiallyFailed)).await.unwrap();
        let changes: Vec<String> = recorder
            .operations()
            .into_iter()
            .filter(|operation| {
                ["create", "overwrite", "complete", "delete", "copy"].iter().any(|o| operation.starts_with(o))
            })
            .map(|operation| operation.replace(&format!("{DIR}/"), ""))
            .collect();
        let contents = if large { "complete b.tar.gz" } else { "create b.tar.gz" };
        assert_eq!(changes[..2], ["create .private/owner".to_owned(), contents.to_owned()]);
        assert_eq!(changes.last().unwrap(), "create velero-backup.json");
        let side = &changes[2..changes.len() - 1];
        assert_eq!(side.len(), 7);
        assert!(side.iter().all(|write| write.starts_with("create b-")), "{changes:?}");
    }
}

#[tokio::test]
async fn a_failed_part_is_reported_by_the_next_call_and_the_upload_is_aborted() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    let mut writer = location.open_backup("b", "u1").await.unwrap();
    recorder.fault("part p/backups/b/b.tar.gz", Fault::Fail);
    let mut calls = 0;
    let error = loop {
        calls += 1;
        assert!(calls < 20, "the failure is not reported");
        if let Err(error) = writer.item(&pod(&format!("p{calls}")), &noise(4 << 20)).await {
            break error;
        }
    };
    assert!(error.is_transient(), "{error}");
    assert!(recorder.operations().contains(&"abort p/backups/b/b.tar.gz".to_owned()));
    assert_eq!(writer.item(&pod("x"), b"{}").await.unwrap_err(), error, "it stays failed");
    assert_eq!(writer.finish_contents().await.unwrap_err(), error);
    assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
    // And the same uid begins again.
    stored(&location, "u1").await;
}

#[tokio::test]
async fn giving_up_leaves_only_the_claim() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        let mut writer = location.open_backup("b", "u1").await.unwrap();
        add_noise(&mut writer, 3).await.unwrap();
        writer.abort().await;
        assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
        let writer = location.open_backup("b", "u1").await.unwrap();
        drop(writer);
        assert_eq!(location.open_backup("b", "u2").await.unwrap_err().category(), "exists");
    }
}

#[tokio::test]
async fn large_contents_are_read_back_whole() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        let mut writer = location.open_backup("b", "u1").await.unwrap();
        add_noise(&mut writer, 5).await.unwrap();
        let done = writer.finish_contents().await.unwrap();
        assert!(done.bytes() > 20 << 20);
        let contents = location.read_contents("b").await.unwrap();
        assert_eq!(contents.len(), 5);
        for item in contents.items("pods") {
            assert!(contents.read(item).unwrap() == noise(4 << 20));
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_not_a_conflict() {
    for (key, large) in [
        ("create p/backups/b/b.tar.gz", false),
        ("complete p/backups/b/b.tar.gz", true),
        ("create p/backups/b/b-results.gz", false),
        ("create p/backups/b/b-logs.gz", false),
        ("create p/backups/b/velero-backup.json", false),
    ] {
        for fault in [Fault::Fail, Fault::LoseAnswer] {
            let recorder = Recorder::default();
            let location = recorder.location("p");
            recorder.fault(key, fault);
            let mut done = loop {
                let mut writer = location.open_backup("b", "u1").await.unwrap();
                add_noise(&mut writer, if large { 3 } else { 0 }).await.unwrap();
                match writer.finish_contents().await {
                    Ok(done) => break done,
                    Err(error) => assert!(error.is_transient(), "{key}: {error}"),
                }
            };
            // The log grows between the tries, and the completion time moves.
            if let Err(error) = done.put_side_files(&files("first")).await {
                assert!(error.is_transient(), "{key}: {error}");
                done.put_side_files(&files("second")).await.unwrap();
            }
            if let Err(error) = done.commit(&backup("u1", BackupPhase::Completed)).await {
                assert!(error.is_transient(), "{key}: {error}");
                let mut later = backup("u1", BackupPhase::Completed);
                later.status.completion_timestamp = Some(k8s_time());
                done.commit(&later).await.unwrap();
            }
            assert_eq!(location.read_metadata("b").await.unwrap().unwrap().phase(), BackupPhase::Completed);
            assert!(location.read_contents("b").await.is_ok());
        }
    }
}

fn k8s_time() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(AT.parse().unwrap())
}

#[tokio::test]
async fn a_store_without_conditional_writes_is_looked_at_before_each_write() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    recorder.fault("create p/backups/b/.private/owner", Fault::Unsupported);
    let mut done = contents(&location, "u1").await;
    put(&location, "p/backups/b/b-logs.gz", b"foreign").await;
    assert_eq!(done.put_side_files(&files("x")).await.unwrap_err().category(), "exists");
    assert_eq!(get(&location, "p/backups/b/b-logs.gz").await.unwrap(), b"foreign");
    let creates = recorder.operations().iter().filter(|operation| operation.starts_with("create")).count();
    assert_eq!(creates, 1, "the answer is remembered");
    drop(done);
    stored(&location, "u1").await;
}

#[tokio::test]
async fn every_step_can_be_repeated() {
    let location = memory("p");
    let mut done = contents(&location, "u1").await;
    for _ in 0..2 {
        done.put_side_files(&files("x")).await.unwrap();
    }
    for _ in 0..2 {
        done.commit(&backup("u1", BackupPhase::Completed)).await.unwrap();
    }
    let error = done.commit(&backup("u1", BackupPhase::Failed)).await.unwrap_err();
    assert_eq!(error.category(), "exists", "the first end stands");
}

#[tokio::test]
async fn only_the_end_of_this_backup_is_committed() {
    let location = memory("p");
    let mut done = contents(&location, "u1").await;
    assert!(done.commit(&backup("u1", BackupPhase::Completed)).await.is_err(), "side files are missing");
    done.put_side_files(&files("x")).await.unwrap();
    for phase in BackupPhase::KNOWN.iter().map(|phase| BackupPhase::from(*phase)) {
        if !matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Failed) {
            let error = done.commit(&backup("u1", phase.clone())).await.unwrap_err();
            assert_eq!(error.category(), "config", "{phase}");
        }
    }
    let mut other = backup("u1", BackupPhase::Completed);
    other.metadata.name = Some("c".to_owned());
    for wrong in [other, backup("u2", BackupPhase::Completed)] {
        assert_eq!(done.commit(&wrong).await.unwrap_err().category(), "config");
    }
    assert!(location.read_metadata("b").await.unwrap().is_none());
    done.commit(&backup("u1", BackupPhase::Failed)).await.unwrap();
}

#[tokio::test]
async fn metadata_is_not_written_for_contents_that_have_gone() {
    let location = memory("p");
    let mut done = contents(&location, "u1").await;
    done.put_side_files(&files("x")).await.unwrap();
    put(&location, "p/backups/b/b.tar.gz", b"other").await;
    assert_eq!(done.commit(&backup("u1", BackupPhase::Completed)).await.unwrap_err().category(), "corrupt");
    assert!(location.read_metadata("b").await.unwrap().is_none());
}

#[tokio::test]
async fn a_folder_that_is_not_ours_is_left_alone() {
    let owner = "p/backups/b/.private/owner";
    let metadata = serde_json::to_vec(&backup("u2", BackupPhase::Completed)).unwrap();
    let table: [(Objects<'_>, &str); 6] = [
        (&[("p/backups/b/velero-backup.json", &metadata)], "uid \"u2\""),
        (&[("p/backups/b/velero-backup.json", &metadata), (owner, b"u1\n")], "uid \"u2\""),
        (&[(owner, b"u2\n")], "not finished"),
        (&[(owner, b"u2\n"), ("p/backups/b/b.tar.gz", b"x")], "not finished"),
        (&[("p/backups/b/b.tar.gz", b"x")], "b.tar.gz"),
        (&[(owner, b"u1\n"), ("p/backups/b/notes.txt", b"x")], "notes.txt"),
    ];
    for (objects, why) in table {
        let (_dir, local) = folder("p");
        for location in [memory("p"), local] {
            for (key, bytes) in objects {
                put(&location, key, bytes).await;
            }
            let error = location.open_backup("b", "u1").await.unwrap_err();
            assert_eq!(error.category(), "exists", "{error}");
            assert!(error.to_string().contains(why), "{error}");
            for (key, bytes) in objects {
                assert_eq!(get(&location, key).await.as_deref(), Some(*bytes));
            }
            assert_eq!(keys(&location).await.len(), objects.len());
        }
    }
}

#[tokio::test]
async fn a_finished_backup_of_ours_is_to_be_adopted() {
    let location = memory("p");
    stored(&location, "u1").await;
    let error = location.open_backup("b", "u1").await.unwrap_err();
    assert!(
        error.category() == "exists" && error.to_string().contains("stored already, as Completed"),
        "{error}"
    );
}

#[tokio::test]
async fn an_interrupted_try_is_cleaned_up_by_the_next_one_of_the_same_uid() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        let mut done = contents(&location, "u1").await;
        done.put_side_files(&files("first try")).await.unwrap();
        drop(done); // the process dies before the metadata
        assert_eq!(location.open_backup("b", "u2").await.unwrap_err().category(), "exists");
        drop(location.open_backup("b", "u1").await.unwrap());
        assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
        let mut done = contents(&location, "u1").await;
        done.put_side_files(&files("second try")).await.unwrap();
        done.commit(&backup("u1", BackupPhase::Completed)).await.unwrap();
        let log = get(&location, &format!("{DIR}/b-logs.gz")).await.unwrap();
        assert!(std::io::read_to_string(MultiGzDecoder::new(log.as_slice())).unwrap().contains("second try"));
    }
}

#[tokio::test]
async fn only_one_of_two_uids_gets_the_folder() {
    for _ in 0..20 {
        let location = memory("p");
        let (a, b) = tokio::join!(location.open_backup("b", "u1"), location.open_backup("b", "u2"));
        assert_eq!(u8::from(a.is_ok()) + u8::from(b.is_ok()), 1);
    }
}

#[tokio::test]
async fn deletion_takes_the_metadata_first_and_can_be_resumed() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    stored(&location, "u1").await;
    put(&location, "p/backups/bb/velero-backup.json", b"neighbour").await;
    put(&location, "p/backups/b/csi-leftover.gz", b"x").await;
    let before = recorder.operations().len();
    recorder.fault("delete p/backups/b/b-results.gz", Fault::Fail);
    assert!(location.delete_backup("b").await.unwrap_err().is_transient());
    assert!(location.read_metadata("b").await.unwrap().is_none());
    assert!(
        get(&location, "p/backups/b/.private/owner").await.is_some(),
        "nobody else takes the folder meanwhile"
    );
    assert!(location.delete_backup("b").await.unwrap() > 0);
    assert_eq!(location.delete_backup("b").await.unwrap(), 0);
    let deletes: Vec<String> = recorder.operations()[before..]
        .iter()
        .filter(|operation| operation.starts_with("delete"))
        .cloned()
        .collect();
    assert_eq!(deletes.first().unwrap(), "delete p/backups/b/velero-backup.json");
    assert_eq!(deletes.last().unwrap(), "delete p/backups/b/.private/owner");
    assert_eq!(keys(&location).await, ["p/backups/bb/velero-backup.json"]);
}

#[tokio::test]
async fn a_deleted_backup_leaves_no_folder_on_disk() {
    let (dir, location) = folder("p");
    stored(&location, "u1").await;
    // A writer that was killed leaves its staging file.
    std::fs::write(dir.path().join("store/p/backups/b/b.tar.gz#1"), "x").unwrap();
    assert_eq!(location.delete_backup("b").await.unwrap(), 10);
    assert!(location.list_backups().await.unwrap().is_empty());
    assert_eq!(location.delete_backup("b").await.unwrap(), 0);
}

#[tokio::test]
async fn files_of_a_restore_are_written_once() {
    let restore_files = |line: &str| RestoreFiles {
        log: log(line),
        results: Results::default(),
        resource_list: ResourceList::default(),
        item_operations: vec![],
        volume_info: vec![],
    };
    let location = memory("p");
    let files = restore_files("x");
    location.put_restore_files("r", &files).await.unwrap();
    location.put_restore_files("r", &files).await.unwrap();
    let expected = [
        "p/restores/r/r-volumeinfo.json.gz",
        "p/restores/r/restore-r-itemoperations.json.gz",
        "p/restores/r/restore-r-logs.gz",
        "p/restores/r/restore-r-resource-list.json.gz",
        "p/restores/r/restore-r-results.gz",
    ];
    assert_eq!(keys(&location).await, expected);
    assert_eq!(location.put_restore_files("r", restore_files("y")).await.unwrap_err().category(), "exists");
    assert_eq!(location.delete_restore("r").await.unwrap(), 5);
    assert_eq!(location.delete_restore("r").await.unwrap(), 0);
    location.put_restore_files("r", restore_files("y")).await.unwrap();
}

#[tokio::test]
async fn missing_contents_are_not_found() {
    assert_eq!(memory("p").read_contents("b").await.unwrap_err().category(), "not_found");
}

#[test]
fn the_futures_can_be_spawned() {
    fn send<T: Send>(_: T) {}
    let location = memory("p");
    send(location.open_backup("b", "u"));
    send(location.read_contents("b"));
    send(location.put_restore_files(
        "r",
        RestoreFiles {
            log: LogFile::new().unwrap(),
            results: Results::default(),
            resource_list: ResourceList::default(),
            item_operations: vec![],
            volume_info: vec![],
        },
    ));
    send(async move {
        let mut writer = location.open_backup("b", "u").await?;
        writer.item(&pod("x"), b"{}").await?;
        let mut done = writer.finish_contents().await?;
        done.put_side_files(&files("x")).await?;
        done.commit(&backup("u", BackupPhase::Completed)).await
    });
}
