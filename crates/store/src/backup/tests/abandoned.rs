use super::*;
use crate::{
    Abandonment::{Abandoned, Committed},
    Claimant, Remnant,
};

async fn abandon(location: &Location, uid: &str) -> crate::Abandonment {
    location.abandon_backup("b", &of(uid), None).await.unwrap()
}

/// The error category of a late commit.
async fn commits_late(collected: &crate::PendingBackup) -> &'static str {
    let end = backup("u1", BackupPhase::Completed);
    collected
        .commit(&files("late"), &end)
        .await
        .unwrap_err()
        .category()
}

#[tokio::test]
async fn of_a_commit_and_an_abandonment_the_first_stands() {
    for large in [false, true] {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            let pending = collected(&location, "u1", large).await.unwrap();
            assert_eq!(abandon(&location, "u1").await, Abandoned);
            assert_eq!(abandon(&location, "u1").await, Abandoned, "once more");
            assert_eq!(commits_late(&pending).await, "exists");
            assert_eq!(refused(&location, "u1").await, "exists");
            let found = location.find_job::<Backup>("b", "u1").await.unwrap();
            assert!(matches!(found, FoundJob::Nothing), "{found:?}");
        }
        let location = memory("p");
        let mut decided = decided(&location, large).await;
        assert_eq!(abandon(&location, "u1").await, Committed);
        decided.publish().await.unwrap();
        assert_eq!(abandon(&location, "u1").await, Committed);
        assert_eq!(
            abandon(&location, "u2").await,
            Abandoned,
            "nothing of another is stored there"
        );
        assert!(location.read_metadata("b").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_waits_for_operations_is_abandoned_and_what_is_lost_is_too() {
    let location = memory("p");
    let mut writer = location.open_backup("b", &of("u1")).await.unwrap();
    add_noise(&mut writer, 3).await.unwrap();
    writer
        .await_operations(files("x"), Value::Null)
        .await
        .unwrap();
    assert_eq!(abandon(&location, "u1").await, Abandoned);
    location.clear_abandoned("b", "u1").await.unwrap();
    let left = [".private/owner", ".private/record-1", ".private/record-2"]
        .map(|key| format!("{DIR}/{key}"));
    assert_eq!(keys(&location).await, left);

    let recorder = Recorder::default();
    let location = recorder.location("p");
    let mut decided = decided(&location, true).await;
    recorder.expire_uploads().await;
    assert_eq!(decided.publish().await.unwrap_err().category(), "lost");
    assert_eq!(
        abandon(&location, "u1").await,
        Committed,
        "that it is lost is to be said"
    );
    let lost = location
        .abandon_backup("b", &of("u1"), Some(decided.number()))
        .await
        .unwrap();
    assert_eq!(lost, Abandoned);
}

#[tokio::test]
async fn a_folder_without_a_marker_is_marked_first_and_one_of_others_is_not_touched() {
    let location = memory("p");
    assert_eq!(abandon(&location, "u1").await, Abandoned);
    assert_eq!(refused(&location, "u1").await, "exists");
    let location = memory("p");
    put(&location, &format!("{DIR}/1.jpg"), b"x").await;
    assert_eq!(abandon(&location, "u1").await, Abandoned);
    assert_eq!(keys(&location).await, [format!("{DIR}/1.jpg")]);
}

#[tokio::test]
async fn the_folder_of_an_abandoned_backup_is_for_the_next_of_its_name() {
    for large in [false, true] {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        let late = collected(&location, "u1", large).await.unwrap();
        location
            .new_journal::<Backup>("b", "u1")
            .unwrap()
            .add(&[json!({"x": 1})])
            .await
            .unwrap();
        assert_eq!(refused(&location, "u2").await, "exists", "it may run");
        assert_eq!(abandon(&location, "u1").await, Abandoned);
        location.clear_abandoned("b", "u1").await.unwrap();
        assert!(recorder.uploads().is_empty(), "nothing of it is billed");
        // From any cluster.
        let other = Claimant {
            installation: "other/velero".to_owned(),
            ..of("u2")
        };
        let mut next = location.open_backup("b", &other).await.unwrap();
        next.item(&pod("next"), b"{}").await.unwrap();
        drop(next);
        assert_eq!(refused(&location, "u3").await, "exists");
        let (_, entries) = location
            .journal::<Backup>("b", "u2", |_, _| {})
            .await
            .unwrap();
        assert_eq!(entries.len(), 1, "numbers are not used twice");
        let mut next = location.open_backup("b", &other).await.unwrap();
        next.item(&pod("next"), b"{}").await.unwrap();
        let end = backup("u2", BackupPhase::Completed);
        let mut next = next
            .finish()
            .await
            .unwrap()
            .commit(&files("next"), &end)
            .await
            .unwrap();
        assert_eq!(
            commits_late(&late).await,
            "exists",
            "by who still works for the first"
        );
        assert_eq!(abandon(&location, "u1").await, Abandoned, "once more, late");
        assert_eq!(without_digests(next.publish().await.unwrap()), end);
        assert_eq!(
            stored_log(&location).await,
            format!("time=\"{AT}\" level=info msg=next\n")
        );
        assert_eq!(location.delete_backup("b").await.unwrap(), 11);
        assert!(keys(&location).await.is_empty());
    }
}

#[tokio::test]
async fn states_of_operations_of_the_abandoned_backup_are_not_those_of_the_next() {
    let location = memory("p");
    let writer = location.open_backup("b", &of("u1")).await.unwrap();
    let mut waiting = writer
        .await_operations(files("x"), Value::Null)
        .await
        .unwrap();
    waiting.store_operations(&[json!("of u1")]).await.unwrap();
    assert_eq!(abandon(&location, "u1").await, Abandoned);
    location.clear_abandoned("b", "u1").await.unwrap();
    let next = location.open_backup("b", &of("u2")).await.unwrap();
    next.await_operations(files("y"), Value::Null)
        .await
        .unwrap();
    let found = async || match location.find_job::<Backup>("b", "u2").await.unwrap() {
        FoundJob::Awaiting(found) => *found,
        other => panic!("{other:?}"),
    };
    let mut waiting = found().await;
    assert_eq!(waiting.files().item_operations, files("y").item_operations);
    waiting.store_operations(&[json!("of u2")]).await.unwrap();
    assert_eq!(found().await.files().item_operations, [json!("of u2")]);
}

#[tokio::test]
async fn foreign_files_survive_what_is_cleared() {
    let location = memory("p");
    drop(collected(&location, "u1", false).await.unwrap());
    for key in ["1.jpg", "b-logs.gz", "b.tar.gz", ".private/journal-1"] {
        put(&location, &format!("{DIR}/{key}"), b"x").await;
    }
    location.clear_abandoned("b", "u2").await.unwrap();
    assert_eq!(abandon(&location, "u1").await, Abandoned);
    location.clear_abandoned("b", "u1").await.unwrap();
    let left = [
        ".private/journal-1",
        ".private/owner",
        ".private/record-1",
        "1.jpg",
    ]
    .map(|key| format!("{DIR}/{key}"));
    assert_eq!(keys(&location).await, left);
    assert_eq!(
        location
            .inspect_folder("b")
            .await
            .unwrap()
            .incomplete
            .unwrap()
            .most,
        Remnant::Foreign
    );
}
