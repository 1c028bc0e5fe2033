use backup_core::api::{Backup, BackupPhase};
use serde_json::{Value, json};

use super::CommittedBackup;
use crate::{
    BackupWriter, Contents, FoundJob, JobFiles, Limits, Location, LogFile, ResourceList, Results,
    Scope, StoreError,
    testing::{
        Fault, NOISE, Recorder, add_noise, backup, collected, folder, get, keys, memory, no_files,
        noise, of, pod, put, unzipped, without_digests,
    },
};

mod abandoned;
mod crashes;
mod waiting;

type Objects<'a> = &'a [(&'a str, &'a [u8])];

const AT: &str = "2026-01-02T03:04:05Z";
const DIR: &str = "p/backups/b";

fn log(line: &str) -> LogFile {
    let mut log = LogFile::new().unwrap();
    log.line("info", line, &[], AT.parse().unwrap());
    log
}

fn files(line: &str) -> JobFiles {
    let mut results = Results::default();
    results.warn(Scope::Namespace("ns"), "something");
    let mut resource_list = ResourceList::default();
    resource_list.add("v1", "Pod", Some("ns"), "one", None);
    let item_operations = vec![json!({"spec": {"backupName": "b"}})];
    JobFiles {
        log: log(line),
        results,
        resource_list,
        item_operations,
        ..no_files()
    }
}

/// Backup `b` of `u1` with a recorded end, and contents of several parts or of less than one.
async fn decided(location: &Location, large: bool) -> CommittedBackup {
    let collected = collected(location, "u1", large).await.unwrap();
    collected
        .commit(&files("x"), &backup("u1", BackupPhase::Completed))
        .await
        .unwrap()
}

async fn stored(location: &Location) {
    decided(location, false).await.publish().await.unwrap();
}

/// The end of a backup that is started again, with another item.
async fn decided_again(mut writer: BackupWriter) -> CommittedBackup {
    writer.item(&pod("again"), b"{}").await.unwrap();
    let end = backup("u1", BackupPhase::Completed);
    writer
        .finish()
        .await
        .unwrap()
        .commit(&files("again"), &end)
        .await
        .unwrap()
}

/// The contents of backup `b`, which can be read.
async fn read_back(location: &Location) -> Contents {
    let contents = location.read_contents("b", Limits::DEFAULT).await;
    contents.unwrap()
}

/// The category of the error with which the folder of backup `b` is refused to this uid.
async fn refused(location: &Location, uid: &str) -> &'static str {
    let writer = location.open_backup("b", &of(uid)).await;
    writer.unwrap_err().category()
}

fn is_private(key: &str) -> bool {
    key.contains("/.private/")
}

async fn private_files(location: &Location) -> usize {
    let keys = keys(location).await;
    keys.iter().filter(|key| is_private(key)).count()
}

async fn nothing_is_visible(location: &Location) -> bool {
    keys(location).await.iter().all(|key| is_private(key))
}

async fn stored_log(location: &Location) -> String {
    unzipped(&get(location, &format!("{DIR}/b-logs.gz")).await.unwrap())
}

async fn found(location: &Location) -> CommittedBackup {
    match location.find_job::<Backup>("b", "u1").await.unwrap() {
        FoundJob::Committed(decided) => *decided,
        other => panic!("{other:?}"),
    }
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
        stored(&location).await;
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
        assert_eq!(
            keys(&location).await,
            expected.map(|key| format!("{DIR}/{key}"))
        );
        for (file, expected) in [
            (
                "b-results.gz",
                json!({"warnings": {"namespaces": {"ns": ["something"]}}, "errors": {}}),
            ),
            ("b-resource-list.json.gz", json!({"v1/Pod": ["ns/one"]})),
            (
                "b-itemoperations.json.gz",
                json!([{"spec": {"backupName": "b"}}]),
            ),
            ("b-volumeinfo.json.gz", json!([])),
            ("b-volumesnapshots.json.gz", json!([])),
            ("b-podvolumebackups.json.gz", json!([])),
        ] {
            assert_eq!(
                json_of(&get(&location, &format!("{DIR}/{file}")).await.unwrap()),
                expected,
                "{file}"
            );
        }
        assert_eq!(
            stored_log(&location).await,
            format!("time=\"{AT}\" level=info msg=x\n")
        );

        let metadata = get(&location, &format!("{DIR}/velero-backup.json"))
            .await
            .unwrap();
        assert!(metadata.starts_with(b"{\n"), "pretty and not compressed");
        let metadata: Value = serde_json::from_slice(&metadata).unwrap();
        assert_eq!(
            (&metadata["apiVersion"], &metadata["kind"]),
            (&json!("velero.io/v1"), &json!("Backup"))
        );
        let metadata = location.read_metadata("b").await.unwrap().unwrap();
        assert_eq!(
            without_digests(metadata),
            backup("u1", BackupPhase::Completed)
        );

        let contents = read_back(&location).await;
        assert_eq!(
            contents.read(&contents.items("pods")[0]).unwrap(),
            br#"{"kind":"Pod"}"#
        );
        assert_eq!(location.list_backups().await.unwrap(), ["b"]);
        location.check().await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_visible_before_it_is_decided_then_contents_come_first_and_metadata_last() {
    for large in [false, true] {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        let collected = collected(&location, "u1", large).await.unwrap();
        assert_eq!(collected.bytes() > 16 << 20, large);
        let visible = |keys: Vec<String>| {
            keys.into_iter()
                .filter(|key| !key.contains("/.private/"))
                .count()
        };
        assert_eq!(visible(keys(&location).await), 0);
        let end = backup("u1", BackupPhase::PartiallyFailed);
        let mut decided = collected.commit(&files("x"), &end).await.unwrap();
        assert_eq!(visible(keys(&location).await), 0);
        let before = recorder.operations().len();
        assert_eq!(without_digests(decided.publish().await.unwrap()), end);
        let changes: Vec<String> = recorder.operations()[before..]
            .iter()
            .filter(|operation| {
                ["create", "overwrite", "complete", "copy"]
                    .iter()
                    .any(|o| operation.starts_with(o))
            })
            .map(|operation| operation.replace(&format!("{DIR}/"), ""))
            .collect();
        let contents = if large {
            "complete b.tar.gz"
        } else {
            "create b.tar.gz"
        };
        assert_eq!(changes[0], contents);
        assert_eq!(changes.last().unwrap(), "create velero-backup.json");
        let side = &changes[1..changes.len() - 1];
        assert!(
            side.len() == 7 && side.iter().all(|write| write.starts_with("create b-")),
            "{changes:?}"
        );
        // Of the private files only the claim is left.
        assert_eq!(private_files(&location).await, 1);
        assert!(recorder.uploads().is_empty());
    }
}

#[tokio::test]
async fn a_failed_part_is_reported_by_the_next_call_and_the_upload_is_aborted() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    let mut writer = location.open_backup("b", &of("u1")).await.unwrap();
    recorder.fault("part p/backups/b/b.tar.gz", Fault::Fail);
    let mut calls = 0;
    let error = loop {
        calls += 1;
        assert!(calls < 20, "the failure is not reported");
        if let Err(error) = writer.item(&pod(&format!("p{calls}")), noise()).await {
            break error;
        }
    };
    assert!(error.is_transient(), "{error}");
    assert!(recorder.uploads().is_empty());
    assert_eq!(
        writer.item(&pod("x"), b"{}").await.unwrap_err(),
        error,
        "it stays failed"
    );
    assert_eq!(writer.finish().await.unwrap_err(), error);
    assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
    // And the same uid can start again.
    stored(&location).await;
}

#[tokio::test]
async fn giving_up_leaves_only_the_claim() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        let mut writer = location.open_backup("b", &of("u1")).await.unwrap();
        add_noise(&mut writer, 3).await.unwrap();
        writer.abort().await;
        assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
        collected(&location, "u1", true)
            .await
            .unwrap()
            .discard()
            .await;
        assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
        let writer = location.open_backup("b", &of("u1")).await.unwrap();
        drop(writer);
        assert_eq!(refused(&location, "u2").await, "exists");
        assert!(
            location.is_anothers("b", "u2").await.unwrap()
                && !location.is_anothers("b", "u1").await.unwrap()
        );
        assert!(!location.is_anothers("c", "u1").await.unwrap());
    }
}

#[tokio::test]
async fn large_contents_are_read_back_whole() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        let mut decided = decided(&location, true).await;
        assert!(decided.bytes() > 16 << 20);
        decided.publish().await.unwrap();
        let contents = read_back(&location).await;
        assert_eq!(contents.len(), NOISE as usize + 1);
        for item in &contents.items("pods")[..NOISE as usize] {
            assert!(contents.read(item).unwrap() == noise());
        }
    }
}

#[tokio::test]
async fn a_store_without_conditional_writes_is_looked_at_before_each_write() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    recorder.fault("create p/backups/b/.private/owner", Fault::Unsupported);
    let mut decided = decided(&location, false).await;
    put(&location, "p/backups/b/b-logs.gz", b"foreign").await;
    assert_eq!(decided.publish().await.unwrap_err().category(), "exists");
    assert_eq!(
        get(&location, "p/backups/b/b-logs.gz").await.unwrap(),
        b"foreign"
    );
    assert_eq!(recorder.count("create"), 1, "the answer is remembered");
}

#[tokio::test]
async fn only_the_end_of_this_backup_is_decided() {
    let location = memory("p");
    let collected = collected(&location, "u1", false).await.unwrap();
    for phase in BackupPhase::known() {
        if !matches!(
            phase,
            BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Failed
        ) {
            let error = collected
                .commit(&files("x"), &backup("u1", phase.clone()))
                .await
                .unwrap_err();
            assert_eq!(error.category(), "config", "{phase}");
        }
    }
    let mut other = backup("u1", BackupPhase::Completed);
    other.metadata.name = Some("c".to_owned());
    for wrong in [other, backup("u2", BackupPhase::Completed)] {
        assert_eq!(
            collected
                .commit(&files("x"), &wrong)
                .await
                .unwrap_err()
                .category(),
            "config"
        );
    }
    assert!(matches!(
        location.find_job::<Backup>("b", "u1").await.unwrap(),
        FoundJob::Nothing
    ));
    collected
        .commit(&files("x"), &backup("u1", BackupPhase::Failed))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_first_decision_stands() {
    let location = memory("p");
    let (ours, theirs) = (
        collected(&location, "u1", false).await.unwrap(),
        collected(&location, "u1", false).await.unwrap(),
    );
    let end = backup("u1", BackupPhase::Completed);
    for _ in 0..2 {
        ours.commit(&files("x"), &end).await.unwrap(); // the answer may have been lost
    }
    let late = theirs.commit(&files("y"), &end).await.unwrap_err();
    assert_eq!(late.category(), "exists");
    assert_eq!(refused(&location, "u1").await, "exists", "not begun again");
    found(&location).await.publish().await.unwrap();
    assert_says!(stored_log(&location).await, "msg=x");
}

#[tokio::test]
async fn a_conflict_is_shown_and_left_alone_and_what_is_missing_is_written_once_it_is_gone() {
    for file in ["b.tar.gz", "b-results.gz", "velero-backup.json"] {
        for large in [false, true] {
            let (_dir, local) = folder("p");
            for location in [memory("p"), local] {
                let mut decided = decided(&location, large).await;
                let key = format!("{DIR}/{file}");
                put(&location, &key, b"foreign").await;
                for _ in 0..2 {
                    let error = decided.publish().await.unwrap_err();
                    assert!(["exists", "corrupt"].contains(&error.category()), "{error}");
                }
                assert_eq!(get(&location, &key).await.unwrap(), b"foreign");
                location
                    .delete(vec![object_store::path::Path::from(key)])
                    .await
                    .unwrap();
                decided.publish().await.unwrap();
                read_back(&location).await;
            }
        }
    }
}

#[tokio::test]
async fn a_folder_that_is_not_ours_is_left_alone() {
    let owner = "p/backups/b/.private/owner";
    let metadata = serde_json::to_vec(&backup("u2", BackupPhase::Completed)).unwrap();
    let table: [(Objects<'_>, &str); 7] = [
        (
            &[("p/backups/b/velero-backup.json", &metadata)],
            "uid \"u2\"",
        ),
        (
            &[
                ("p/backups/b/velero-backup.json", &metadata),
                (owner, b"u1\n"),
            ],
            "uid \"u2\"",
        ),
        (&[(owner, b"u2\n")], "not finished"),
        (
            &[(owner, b"u2\n"), ("p/backups/b/b.tar.gz", b"x")],
            "not finished",
        ),
        (&[("p/backups/b/b.tar.gz", b"x")], "b.tar.gz"),
        (
            &[(owner, b"u1\n"), ("p/backups/b/notes.txt", b"x")],
            "notes.txt",
        ),
        (
            &[(owner, b"u1\n"), ("p/backups/b/b.tar.gz", b"x")],
            "b.tar.gz",
        ),
    ];
    for (objects, why) in table {
        let (_dir, local) = folder("p");
        for location in [memory("p"), local] {
            for (key, bytes) in objects {
                put(&location, key, bytes).await;
            }
            let error = location.open_backup("b", &of("u1")).await.unwrap_err();
            assert_eq!(error.category(), "exists", "{error}");
            assert_says!(error, why);
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
    stored(&location).await;
    let error = location.open_backup("b", &of("u1")).await.unwrap_err();
    assert!(
        error.category() == "exists" && error.to_string().contains("stored already, as Completed"),
        "{error}"
    );
}

#[tokio::test]
async fn an_interrupted_try_is_cleaned_up_by_the_next_one_of_the_same_uid() {
    let (_dir, local) = folder("p");
    let recorder = Recorder::default();
    for location in [recorder.location("p"), local] {
        drop(collected(&location, "u1", true).await.unwrap()); // the process dies before the decision
        assert_eq!(refused(&location, "u2").await, "exists");
        drop(location.open_backup("b", &of("u1")).await.unwrap());
        assert_eq!(keys(&location).await, ["p/backups/b/.private/owner"]);
        assert!(recorder.uploads().is_empty());
        stored(&location).await;
    }
}

#[tokio::test]
async fn only_one_of_two_uids_gets_the_folder() {
    for _ in 0..20 {
        let location = memory("p");
        let both = [of("u1"), of("u2")];
        let (a, b) = tokio::join!(
            location.open_backup("b", &both[0]),
            location.open_backup("b", &both[1])
        );
        assert_eq!(u8::from(a.is_ok()) + u8::from(b.is_ok()), 1);
    }
}

#[tokio::test]
async fn deletion_takes_the_metadata_first_and_can_be_resumed() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    stored(&location).await;
    put(&location, "p/backups/bb/velero-backup.json", b"neighbour").await;
    put(&location, "p/backups/b/csi-leftover.gz", b"x").await;
    let before = recorder.operations().len();
    recorder.fault("delete p/backups/b/b-results.gz", Fault::Fail);
    assert!(
        location
            .delete_backup("b")
            .await
            .unwrap_err()
            .is_transient()
    );
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
    assert_eq!(
        deletes.first().unwrap(),
        "delete p/backups/b/velero-backup.json"
    );
    assert_eq!(deletes.last().unwrap(), "delete p/backups/b/.private/owner");
    assert_eq!(keys(&location).await, ["p/backups/bb/velero-backup.json"]);
}

#[tokio::test]
async fn a_deleted_backup_leaves_no_folder_on_disk() {
    let (dir, location) = folder("p");
    stored(&location).await;
    // A writer that was killed leaves its staging file.
    std::fs::write(dir.path().join("store/p/backups/b/b.tar.gz#1"), "x").unwrap();
    assert_eq!(location.delete_backup("b").await.unwrap(), 10);
    assert!(location.list_backups().await.unwrap().is_empty());
    assert_eq!(location.delete_backup("b").await.unwrap(), 0);
}

#[tokio::test]
async fn missing_contents_are_not_found() {
    assert_eq!(
        memory("p")
            .read_contents("b", Limits::DEFAULT)
            .await
            .unwrap_err()
            .category(),
        "not_found"
    );
}

#[test]
fn the_futures_can_be_spawned() {
    fn send<T: Send>(_: T) {}
    let location = memory("p");
    send(location.open_backup("b", &of("u")));
    send(location.read_contents("b", Limits::DEFAULT));
    let claimant = crate::Claimant::default();
    send(location.open_restore("r", &claimant));
    send(async move {
        let mut writer = location.open_backup("b", &of("u")).await?;
        writer.item(&pod("x"), b"{}").await?;
        let collected = writer.finish().await?;
        collected
            .commit(&files("x"), &backup("u", BackupPhase::Completed))
            .await?
            .publish()
            .await
    });
}
