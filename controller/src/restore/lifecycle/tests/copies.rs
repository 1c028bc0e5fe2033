//! Backups whose own location cannot be read, with a copy in another one.

use backup_core::labels::{READ_FROM_ANNOTATION, VERIFIED_ANNOTATION};
use backup_store::CopyNote;

use super::*;

const SECOND: &str = "/apis/velero.io/v1/namespaces/velero/backupstoragelocations/second";

/// Copies the backup into location `second`, and makes its own one unavailable.
async fn copied(fake: &FakeApi, first: &tempfile::TempDir) -> tempfile::TempDir {
    let second = tempfile::tempdir().unwrap();
    let open = |folder: &tempfile::TempDir| {
        Location::open(&testing::local_location(folder.path()), None, None).unwrap()
    };
    let source = open(first);
    let note = CopyNote {
        uid: "uid-b".to_owned(),
        ..CopyNote::default()
    };
    let claimant = testing::claimant("uid-b");
    let copy = open(&second)
        .begin_copy(&source, "b", &claimant, &note)
        .await
        .unwrap();
    for file in copy.small_files() {
        copy.copy_file(&file).await.unwrap();
    }
    copy.finish().await.unwrap();
    let mut location = serde_json::to_value(testing::local_location(second.path())).unwrap();
    location["metadata"]["name"] = json!("second");
    location["metadata"]["namespace"] = json!("velero");
    location["status"] = json!({ "phase": "Available" });
    fake.put(SECOND, location);
    fake.edit(LOCATION, |location| {
        location["status"] = json!({ "phase": "Unavailable", "message": "no answer" });
    });
    fake.edit(BACKUP, |backup| {
        let copy = json!({ "location": "second", "phase": "Completed", "uid": "uid-b" });
        backup["status"]["copies"] = json!([copy]);
    });
    second
}

#[tokio::test]
async fn a_restore_reads_the_copy_and_says_which() {
    let (fake, first, ctx) = prepared(None).await;
    let second = copied(&fake, &first).await;
    assert_eq!(step(&mut worker(&ctx)).await, Step::Done);
    let restore = fake.get(RESTORE).unwrap();
    assert_eq!(restore["status"]["phase"], "Completed", "{restore}");
    let annotations = &restore["metadata"]["annotations"];
    assert_eq!(annotations[READ_FROM_ANNOTATION], "second");
    assert_eq!(fake.get(ITEM).unwrap()["data"]["k"], "v");
    let results = |folder: &tempfile::TempDir| {
        let path = folder.path().join("restores/r/restore-r-results.gz");
        path.exists()
    };
    assert!(results(&second) && !results(&first));
}

#[tokio::test]
async fn a_copy_is_read_where_files_are_gone_or_known_to_be_damaged() {
    for damage in ["gone", "verified"] {
        let (fake, first, ctx) = prepared(None).await;
        let _second = copied(&fake, &first).await;
        fake.edit(LOCATION, |location| {
            location["status"] = json!({ "phase": "Available" });
        });
        if damage == "gone" {
            std::fs::remove_dir_all(first.path().join("backups/b")).unwrap();
        } else {
            let faults = r#"{"at":"2026-11-03T05:14:12Z","findings":1}"#;
            fake.edit(BACKUP, |backup| {
                backup["metadata"]["annotations"] = json!({ VERIFIED_ANNOTATION: faults });
            });
        }
        assert_eq!(step(&mut worker(&ctx)).await, Step::Done, "{damage}");
        let restore = fake.get(RESTORE).unwrap();
        assert_eq!(
            restore["status"]["phase"], "Completed",
            "{damage}: {restore}"
        );
        let annotations = &restore["metadata"]["annotations"];
        assert_eq!(annotations[READ_FROM_ANNOTATION], "second", "{damage}");
    }
}

#[tokio::test]
async fn a_copy_that_is_not_complete_or_not_readable_is_not_read() {
    for (path, field, value) in [
        (BACKUP, "/status/copies/0/phase", "InProgress"),
        (SECOND, "/status/phase", "Unavailable"),
    ] {
        let (fake, first, ctx) = prepared(None).await;
        let _second = copied(&fake, &first).await;
        fake.edit(path, |object| {
            *object.pointer_mut(field).unwrap() = json!(value);
        });
        run(&ctx).await;
        let status = status(&fake);
        assert_eq!(status["phase"], "FailedValidation", "{path}");
        assert_says!(
            status["validationErrors"],
            "which is Unavailable: no answer"
        );
    }
}
