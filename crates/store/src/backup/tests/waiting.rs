//! Backups that wait for operations.

use super::*;
use crate::backup::AwaitingBackup;

async fn waiting(location: &Location, large: bool) -> AwaitingBackup {
    let mut writer = location.open_backup("b", &of("u1")).await.unwrap();
    add_noise(&mut writer, if large { NOISE } else { 0 })
        .await
        .unwrap();
    writer
        .item(&pod("claim"), br#"{"early":true}"#)
        .await
        .unwrap();
    writer
        .await_operations(files("so far"), serde_json::json!({ "so": "far" }))
        .await
        .unwrap()
}

async fn found_waiting(location: &Location) -> AwaitingBackup {
    match location.find_job::<Backup>("b", "u1").await.unwrap() {
        FoundJob::Awaiting(waiting) => *waiting,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_process_goes_on_with_what_was_collected_and_a_later_item_replaces_an_earlier_one()
{
    for large in [false, true] {
        let (_dir, local) = folder("p");
        for (location, counts_parts) in [(memory("p"), false), (local, true)] {
            drop(waiting(&location, large).await);
            assert!(nothing_is_visible(&location).await);
            assert_eq!(refused(&location, "u1").await, "exists");
            let mut found = found_waiting(&location).await;
            assert_eq!(found.files().results.warnings(), 1);
            assert_eq!(found.files().resource_list.len(), 1);
            found
                .store_operations(&[json!({"status": {"phase": "InProgress"}})])
                .await
                .unwrap();
            let mut found = found_waiting(&location).await;
            assert_eq!(
                found.files().item_operations[0]["status"]["phase"],
                "InProgress"
            );
            found
                .store_operations(&[json!({"status": {"phase": "Completed"}})])
                .await
                .unwrap();
            // The process crashes once after it resumed and uploaded more. (The store in memory
            // completes all uploaded parts.)
            if counts_parts {
                let (mut writer, _) = found_waiting(&location).await.resume().unwrap();
                add_noise(&mut writer, 3).await.unwrap();
                std::mem::forget(writer);
            }
            let (mut writer, mut files) = found_waiting(&location).await.resume().unwrap();
            writer
                .item(&pod("claim"), br#"{"early":false}"#)
                .await
                .unwrap();
            files.log.line("info", "later", &[], AT.parse().unwrap());
            let end = backup("u1", BackupPhase::Completed);
            let collected = writer.finish().await.unwrap();
            collected
                .commit(&files, &end)
                .await
                .unwrap()
                .publish()
                .await
                .unwrap();
            let contents = read_back(&location).await;
            let items = contents.items("pods");
            assert_eq!(items.len(), if large { NOISE as usize + 1 } else { 1 });
            assert_eq!(
                contents.read(items.last().unwrap()).unwrap(),
                br#"{"early":false}"#
            );
            let log = stored_log(&location).await;
            assert_says!(log, "so far", "later");
            let operations = get(&location, &format!("{DIR}/b-itemoperations.json.gz"))
                .await
                .unwrap();
            assert_eq!(json_of(&operations)[0]["status"]["phase"], "Completed");
            assert_eq!(private_files(&location).await, 1);
        }
    }
}

#[tokio::test]
async fn of_two_replicas_only_one_keeps_the_next_state_of_the_operations() {
    let location = memory("p");
    let mut ours = waiting(&location, false).await;
    let mut theirs = found_waiting(&location).await;
    ours.store_operations(&[json!(1)]).await.unwrap();
    assert_eq!(
        theirs
            .store_operations(&[json!(2)])
            .await
            .unwrap_err()
            .category(),
        "exists"
    );
}

#[tokio::test]
async fn a_wait_that_can_not_be_gone_on_with_is_begun_again() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    let first = waiting(&location, true).await;
    recorder.expire_uploads().await;
    decided_again(first.begin_again().await.unwrap())
        .await
        .publish()
        .await
        .unwrap();
    assert_eq!(read_back(&location).await.len(), 1);
}

#[tokio::test]
async fn what_is_about_to_be_done_is_known_to_whoever_comes_next() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        drop(location.open_backup("b", &of("u1")).await.unwrap());
        let (mut journal, entries) = location
            .journal::<Backup>("b", "u1", |_, _| {})
            .await
            .unwrap();
        assert!(entries.is_empty());
        for n in 0..11 {
            journal.add(&[json!({ "intended": n })]).await.unwrap();
        }
        // The backup is a PendingBackup again, and another process continues it.
        drop(location.open_backup("b", &of("u1")).await.unwrap());
        let (mut next, entries) = location
            .journal::<Backup>("b", "u1", |_, _| {})
            .await
            .unwrap();
        assert_eq!(
            entries
                .iter()
                .map(|entry| entry["intended"].clone())
                .collect::<Vec<_>>(),
            (0..11).collect::<Vec<_>>()
        );
        next.add(&[json!("mine")]).await.unwrap();
        assert_eq!(
            journal.add(&[json!("late")]).await.unwrap_err().category(),
            "exists"
        );
        stored(&location).await;
        assert_eq!(private_files(&location).await, 1);
    }
}
