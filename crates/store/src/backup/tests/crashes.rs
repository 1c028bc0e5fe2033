//! Every write of the end: failed, done with its answer lost, and followed by a crash of the
//! process.

use object_store::path::Path;

use super::*;

/// Every key that is written after collection, in order.
const WRITES: [&str; 10] = [
    ".private/record-1",
    "b.tar.gz",
    "b-logs.gz",
    "b-results.gz",
    "b-resource-list.json.gz",
    "b-volumeinfo.json.gz",
    "b-itemoperations.json.gz",
    "b-volumesnapshots.json.gz",
    "b-podvolumebackups.json.gz",
    "velero-backup.json",
];

/// Number of times each final key was written.
fn writes(recorder: &Recorder, key: &str) -> usize {
    let wanted =
        ["create", "overwrite", "complete", "copy"].map(|verb| format!("{verb} {DIR}/{key}"));
    recorder
        .operations()
        .iter()
        .filter(|operation| wanted.contains(operation))
        .count()
}

/// Continues like a process that has just started: from what is stored, and nothing else. It
/// collects other items.
async fn go_on(location: &Location, large: bool) -> Result<Backup, StoreError> {
    let mut end = backup("u1", BackupPhase::Completed);
    match location.find_job::<Backup>("b", "u1").await? {
        FoundJob::Stored(stored) => Ok(*stored),
        FoundJob::Committed(mut decided) => decided.publish().await,
        FoundJob::Nothing | FoundJob::Awaiting(_) => {
            let collected = collected(location, "u1", large).await?;
            end.status.warnings = 7;
            collected
                .commit(&files("collected again"), &end)
                .await?
                .publish()
                .await
        }
    }
}

#[tokio::test]
async fn whatever_write_fails_and_whoever_goes_on_every_final_key_is_written_once() {
    for large in [false, true] {
        // The other files do not depend on the size of the contents.
        for file in WRITES
            .into_iter()
            .filter(|file| !large || !file.starts_with("b-"))
        {
            for fault in [Fault::Fail, Fault::LoseAnswer] {
                for dies in [false, true] {
                    let recorder = Recorder::default();
                    let location = recorder.location("p");
                    let verb = if large && file == "b.tar.gz" {
                        "complete"
                    } else {
                        "create"
                    };
                    recorder.fault(&format!("{verb} {DIR}/{file}"), fault);
                    let collected = collected(&location, "u1", large).await.unwrap();
                    let end = backup("u1", BackupPhase::Completed);
                    let case = format!("{file} {fault:?} large {large} dies {dies}");
                    let first = async {
                        let mut decided = collected.commit(&files("x"), &end).await?;
                        let published = decided.publish().await;
                        if !dies && published.is_err() {
                            decided.publish().await
                        } else {
                            published
                        }
                    };
                    let first: Result<Backup, StoreError> = first.await;
                    if let Err(error) = &first {
                        assert!(error.is_transient(), "{case}: {error}");
                    }
                    let stored = go_on(&location, large).await.unwrap();
                    assert_eq!(
                        location.read_metadata("b").await.unwrap().unwrap(),
                        stored,
                        "{case}"
                    );
                    // Another attempt writes nothing more.
                    assert_eq!(go_on(&location, large).await.unwrap(), stored, "{case}");
                    let again = stored.status.warnings == 7;
                    assert_eq!(again, file == WRITES[0] && fault == Fault::Fail, "{case}");
                    let log = stored_log(&location).await;
                    assert_eq!(
                        log.contains("again"),
                        again,
                        "{case}: the log belongs to the contents"
                    );
                    for key in &WRITES[1..] {
                        // The second request for the same key was refused by its condition.
                        assert!(writes(&recorder, key) <= 2, "{case}: {key}");
                        assert_eq!(recorder.count("overwrite"), 0, "{case}");
                    }
                    read_back(&location).await;
                    assert!(recorder.uploads().is_empty(), "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn two_replicas_that_finish_at_once_write_the_same_bytes() {
    for large in [false, true] {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        let mut ours = decided(&location, large).await;
        let mut theirs = found(&location).await;
        let (a, b) = tokio::join!(ours.publish(), theirs.publish());
        let end = backup("u1", BackupPhase::Completed);
        let stored = [a, b].map(|stored| without_digests(stored.unwrap()));
        assert_eq!(stored, [end.clone(), end]);
        assert!(
            location.read_contents("b", Limits::DEFAULT).await.is_ok()
                && recorder.count("overwrite") == 0
        );
    }
}

#[tokio::test]
async fn uploaded_contents_that_have_gone_are_said_to_be_lost_and_can_be_begun_again() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    let mut first = decided(&location, true).await;
    recorder.expire_uploads().await;
    for _ in 0..2 {
        let error = first.publish().await.unwrap_err();
        assert!(
            error.category() == "lost" && !error.is_transient(),
            "{error}"
        );
    }
    assert!(nothing_is_visible(&location).await, "nothing was written");
    let writer = found(&location).await.begin_again().await.unwrap();
    let mut second = decided_again(writer).await;
    assert_eq!((first.number(), second.number()), (1, 2));
    assert_eq!(found(&location).await.number(), 2, "the last one counts");
    second.publish().await.unwrap();
    assert_eq!(read_back(&location).await.len(), 1);
    assert_eq!(recorder.count("overwrite"), 0);
}

#[tokio::test]
async fn contents_that_somebody_removes_before_the_metadata_are_written_again_from_what_is_at_hand_or_begun_again()
 {
    for large in [false, true] {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        let mut decided = decided(&location, large).await;
        recorder.fault(&format!("create {DIR}/velero-backup.json"), Fault::Fail);
        assert!(decided.publish().await.unwrap_err().is_transient());
        location
            .delete(vec![Path::from(format!("{DIR}/b.tar.gz"))])
            .await
            .unwrap();
        assert!(
            decided.publish().await.unwrap_err().is_transient(),
            "it is looked at before the metadata"
        );
        match decided.publish().await {
            Ok(_) => assert!(!large),
            Err(error) => {
                assert!(large && error.category() == "lost", "{error}");
                let writer = decided.begin_again().await.unwrap();
                assert!(nothing_is_visible(&location).await);
                decided_again(writer).await.publish().await.unwrap();
            }
        }
        read_back(&location).await;
    }
}

#[tokio::test]
async fn a_late_writer_whose_upload_was_aborted_can_neither_write_nor_decide() {
    let recorder = Recorder::default();
    let location = recorder.location("p");
    let mut late = location.open_backup("b", &of("u1")).await.unwrap();
    add_noise(&mut late, NOISE).await.unwrap();
    let late_end = collected(&location, "u1", true).await.unwrap(); // another replica has aborted what the late one had sent
    assert!(matches!(
        location.find_job::<Backup>("b", "u1").await.unwrap(),
        FoundJob::Nothing
    ));
    let end = backup("u1", BackupPhase::Completed);
    late_end
        .commit(&files("x"), &end)
        .await
        .unwrap()
        .publish()
        .await
        .unwrap();
    let error = match add_noise(&mut late, NOISE).await {
        Err(error) => error,
        Ok(()) => late.finish().await.unwrap_err(),
    };
    assert!(
        error.is_transient(),
        "it begins again, and finds the end: {error}"
    );
    read_back(&location).await;
}

#[tokio::test]
async fn a_record_that_can_not_be_read_is_not_guessed_at() {
    let location = memory("p");
    drop(decided(&location, false).await);
    let key = format!("{DIR}/.private/record-1");
    let record = get(&location, &key).await.unwrap();
    put(&location, &key, &record[..700]).await;
    assert_eq!(
        location
            .find_job::<Backup>("b", "u1")
            .await
            .unwrap_err()
            .category(),
        "corrupt"
    );
    assert_eq!(refused(&location, "u1").await, "exists");
    // A record of another uid says nothing about us.
    put(&location, &key, &record).await;
    assert!(matches!(
        location.find_job::<Backup>("b", "u2").await.unwrap(),
        FoundJob::Nothing
    ));
}
