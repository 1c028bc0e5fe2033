use backup_core::api::{Restore, RestorePhase, RestoreStatus};
use object_store::path::Path;
use serde_json::json;

use super::*;
use crate::{
    FoundJob, Scope,
    testing::{Fault, Recorder, folder, get, keys, memory, no_files, of, put},
};

const AT: &str = "2026-01-01T00:00:00.5Z";

fn ended(errors: i64) -> RestoreEnd {
    let phase = if errors > 0 {
        RestorePhase::PartiallyFailed
    } else {
        RestorePhase::Completed
    };
    let status = RestoreStatus {
        phase: Some(phase),
        errors,
        ..RestoreStatus::default()
    };
    RestoreEnd {
        status,
        annotations: [("of".to_owned(), errors.to_string())].into(),
    }
}

#[test]
fn an_end_that_an_earlier_version_has_recorded_is_a_status_alone() {
    let status = ended(1).status;
    let recorded = serde_json::to_value(&status).unwrap();
    let read: RestoreEnd = serde_json::from_value(recorded.clone()).unwrap();
    assert_eq!(
        read,
        RestoreEnd {
            status,
            ..RestoreEnd::default()
        }
    );
    assert_eq!(serde_json::to_value(&read).unwrap(), recorded);
    let read: RestoreEnd = serde_json::from_value(serde_json::to_value(ended(2)).unwrap()).unwrap();
    assert_eq!(read, ended(2));
}

fn files() -> JobFiles {
    let item_operations = vec![json!({"status": {"phase": "New"}})];
    let mut files = JobFiles {
        item_operations,
        ..no_files()
    };
    files.log.line("info", "so far", &[], AT.parse().unwrap());
    files.results.warn(Scope::Velero, "careful");
    files
        .resource_list
        .add("v1", "Pod", Some("n"), "p", Some("created"));
    files
}

/// All items of the restore are done, and its operations still run.
async fn await_operations(location: &Location) {
    let opened = location.open_restore("r", &of("u")).await.unwrap();
    opened
        .await_operations(&files(), Value::Null)
        .await
        .unwrap();
}

async fn found(location: &Location, uid: &str) -> FoundJob<Restore> {
    location.find_job::<Restore>("r", uid).await.unwrap()
}

async fn awaiting(location: &Location, uid: &str) -> AwaitingRestore {
    match found(location, uid).await {
        FoundJob::Awaiting(awaiting) => *awaiting,
        other => panic!("{other:?}"),
    }
}

async fn committed(location: &Location, uid: &str) -> CommittedRestore {
    match found(location, uid).await {
        FoundJob::Committed(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_process_publishes_what_was_committed_byte_for_byte() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        let opened = location.open_restore("r", &of("u")).await.unwrap();
        opened.commit(&no_files(), &ended(0)).await.unwrap();
        assert!(
            keys(&location)
                .await
                .iter()
                .all(|key| key.contains("/.private/")),
            "nothing is visible"
        );
        // Another attempt of the same restore has other bytes: the record counts.
        let late = location.open_restore("r", &of("u")).await.unwrap();
        assert_eq!(
            late.commit(&files(), &ended(1))
                .await
                .unwrap_err()
                .category(),
            "exists"
        );
        let mut first = committed(&location, "u").await;
        let mut second = committed(&location, "u").await;
        assert_eq!(first.publish().await.unwrap(), ended(0));
        assert_eq!(second.publish().await.unwrap(), ended(0));
        first.remove_private().await.unwrap();
        assert_eq!(
            keys(&location).await,
            [
                "p/restores/r/.private/owner",
                "p/restores/r/r-volumeinfo.json.gz",
                "p/restores/r/restore-r-itemoperations.json.gz",
                "p/restores/r/restore-r-logs.gz",
                "p/restores/r/restore-r-resource-list.json.gz",
                "p/restores/r/restore-r-results.gz",
            ]
        );
        assert_eq!(location.delete_restore("r", "another").await.unwrap(), 0);
        assert_eq!(location.delete_restore("r", "u").await.unwrap(), 6);
        assert_eq!(location.delete_restore("r", "u").await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_restore_of_a_name_that_was_used_takes_the_folder_over() {
    let location = memory("p");
    let mut before = location
        .open_restore("r", &of("u"))
        .await
        .unwrap()
        .commit(&files(), &ended(0))
        .await
        .unwrap();
    before.publish().await.unwrap();
    let opened = location.open_restore("r", &of("v")).await.unwrap();
    assert_eq!(keys(&location).await, ["p/restores/r/.private/owner"]);
    assert!(matches!(found(&location, "u").await, FoundJob::Nothing));
    opened
        .commit(&no_files(), &ended(1))
        .await
        .unwrap()
        .publish()
        .await
        .unwrap();
    assert_eq!(keys(&location).await.len(), 7);
    // Files of another cluster, or without a marker.
    let other = Claimant {
        installation: "other/velero".to_owned(),
        ..of("w")
    };
    assert_eq!(
        location
            .open_restore("r", &other)
            .await
            .unwrap_err()
            .category(),
        "exists"
    );
    put(&location, "p/restores/x/restore-x-logs.gz", b"velero").await;
    assert_eq!(
        location
            .open_restore("x", &of("u"))
            .await
            .unwrap_err()
            .category(),
        "exists"
    );
    assert!(
        get(&location, "p/restores/x/restore-x-logs.gz")
            .await
            .is_some()
    );
}

#[tokio::test]
async fn a_takeover_that_was_cut_short_is_gone_on_with() {
    let location = memory("p");
    location
        .open_restore("r", &of("u"))
        .await
        .unwrap()
        .commit(&files(), &ended(0))
        .await
        .unwrap();
    // All files are removed but the marker, then the marker, too.
    location
        .delete(
            location
                .list(&Path::from("p/restores/r/.private/u"))
                .await
                .unwrap(),
        )
        .await
        .unwrap();
    location.open_restore("r", &of("v")).await.unwrap();
    location
        .delete(vec![Path::from("p/restores/r/.private/owner")])
        .await
        .unwrap();
    location.open_restore("r", &of("w")).await.unwrap();
    assert_eq!(keys(&location).await, ["p/restores/r/.private/owner"]);
}

#[tokio::test]
async fn another_process_goes_on_with_operations() {
    let (_dir, local) = folder("p");
    for location in [memory("p"), local] {
        assert!(matches!(found(&location, "u").await, FoundJob::Nothing));
        let opened = location.open_restore("r", &of("u")).await.unwrap();
        opened
            .await_operations(&files(), Value::Null)
            .await
            .unwrap();
        assert!(matches!(found(&location, "other").await, FoundJob::Nothing));
        let mut first = awaiting(&location, "u").await;
        assert_eq!(first.files().item_operations[0]["status"]["phase"], "New");
        assert_eq!(first.files().results.warnings(), 1);
        let mut second = awaiting(&location, "u").await;
        let completed = vec![json!({"status": {"phase": "Completed"}})];
        first.store_operations(&completed).await.unwrap();
        assert_eq!(
            second
                .store_operations(&[json!(2)])
                .await
                .unwrap_err()
                .category(),
            "exists"
        );
        let mut other = files();
        other.results.warn(Scope::Velero, "another");
        assert_eq!(
            opened
                .await_operations(&other, Value::Null)
                .await
                .unwrap_err()
                .category(),
            "exists"
        );
        let files = awaiting(&location, "u").await.into_files();
        assert_eq!(files.item_operations, completed);
        let opened = location.open_restore("r", &of("u")).await.unwrap();
        opened.commit(&files, &ended(0)).await.unwrap();
        committed(&location, "u").await.publish().await.unwrap();
        assert!(
            get(&location, "p/restores/r/restore-r-itemoperations.json.gz")
                .await
                .is_some()
        );
    }
}

#[tokio::test]
async fn a_record_that_an_older_version_stored_with_its_time_is_read() {
    let location = memory("p");
    await_operations(&location).await;
    let state = json!({"at": AT, "operations": [{"status": {"phase": "Completed"}}]});
    put(
        &location,
        "p/restores/r/.private/u/operations-3",
        state.to_string().as_bytes(),
    )
    .await;
    assert_eq!(
        awaiting(&location, "u").await.files().item_operations[0]["status"]["phase"],
        "Completed"
    );
}

#[tokio::test]
async fn what_is_damaged_is_told_and_never_no_operations() {
    for (key, text) in [
        ("record", "junk"),
        ("operations-7", "junk"),
        ("operations-7", "7"),
    ] {
        let location = memory("p");
        await_operations(&location).await;
        if key == "record" {
            location
                .delete(vec![Path::from("p/restores/r/.private/u/record")])
                .await
                .unwrap();
        }
        put(
            &location,
            &format!("p/restores/r/.private/u/{key}"),
            text.as_bytes(),
        )
        .await;
        let error = location.find_job::<Restore>("r", "u").await.unwrap_err();
        assert_eq!(error.category(), "corrupt", "{key}");
    }
}

#[tokio::test]
async fn the_journals_of_two_restores_of_one_name_are_apart() {
    let location = memory("p");
    let mut journal = location.new_journal::<Restore>("r", "u").unwrap();
    assert!(
        location
            .journal::<Restore>("r", "u", |_, _| {})
            .await
            .unwrap()
            .1
            .is_empty()
    );
    journal.add(&[json!(1)]).await.unwrap();
    let (mut late, _) = location
        .journal::<Restore>("r", "u", |_, _| {})
        .await
        .unwrap();
    journal.add(&[json!(2)]).await.unwrap();
    assert_eq!(
        late.add(&[json!(3)]).await.unwrap_err().category(),
        "exists"
    );
    late.look_again().await.unwrap();
    late.add(&[json!(3)]).await.unwrap();
    assert_eq!(
        location
            .journal::<Restore>("r", "u", |_, _| {})
            .await
            .unwrap()
            .1,
        [json!(1), json!(2), json!(3)]
    );
    assert!(
        location
            .journal::<Restore>("r", "v", |_, _| {})
            .await
            .unwrap()
            .1
            .is_empty()
    );
}

/// Every key that is written at the end, in order.
const WRITES: [&str; 6] = [
    ".private/u/record-1",
    "restore-r-logs.gz",
    "restore-r-resource-list.json.gz",
    "restore-r-itemoperations.json.gz",
    "r-volumeinfo.json.gz",
    "restore-r-results.gz",
];

async fn visible(location: &Location) -> Vec<(String, Vec<u8>)> {
    let mut objects = Vec::new();
    for key in keys(location)
        .await
        .into_iter()
        .filter(|key| !key.contains("/.private/"))
    {
        let bytes = get(location, &key).await.unwrap();
        objects.push((key, bytes));
    }
    objects
}

/// Continues like a process that has just started: from what is stored, and nothing else. It
/// restores other items.
async fn go_on(location: &Location) -> Result<RestoreEnd, StoreError> {
    match found(location, "u").await {
        FoundJob::Committed(mut plan) => plan.publish().await,
        FoundJob::Nothing => {
            let opened = location.open_restore("r", &of("u")).await?;
            opened.commit(&no_files(), &ended(7)).await?.publish().await
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whatever_write_fails_the_next_process_ends_with_the_same_bytes() {
    for (file, fault, dies) in WRITES.into_iter().flat_map(|file| {
        [
            (Fault::Fail, false),
            (Fault::Fail, true),
            (Fault::LoseAnswer, false),
            (Fault::LoseAnswer, true),
        ]
        .map(|(fault, dies)| (file, fault, dies))
    }) {
        let case = format!("{file} {fault:?} dies {dies}");
        let recorder = Recorder::default();
        let location = recorder.location("p");
        recorder.fault(&format!("create p/restores/r/{file}"), fault);
        let first = async {
            let opened = location.open_restore("r", &of("u")).await?;
            let mut plan = opened.commit(&files(), &ended(0)).await?;
            let published = plan.publish().await;
            if !dies && published.is_err() {
                plan.publish().await
            } else {
                published
            }
        };
        let first: Result<RestoreEnd, StoreError> = first.await;
        if let Err(error) = &first {
            assert!(error.is_transient(), "{case}: {error}");
        }
        let stored = go_on(&location).await.unwrap();
        let bytes = visible(&location).await;
        assert_eq!(go_on(&location).await.unwrap(), stored, "{case}");
        assert_eq!(visible(&location).await, bytes, "{case}");
        let again = stored.status.errors == 7;
        assert_eq!(again, file == WRITES[0] && fault == Fault::Fail, "{case}");
        let expected = memory("p");
        let opened = expected.open_restore("r", &of("u")).await.unwrap();
        let of_try = if again { no_files() } else { files() };
        opened
            .commit(&of_try, &ended(0))
            .await
            .unwrap()
            .publish()
            .await
            .unwrap();
        assert_eq!(
            visible(&expected).await,
            bytes,
            "{case}: all files are of one try"
        );
        assert_eq!(recorder.count("overwrite"), 0, "{case}");
    }
}

#[tokio::test]
async fn a_late_worker_of_an_earlier_restore_writes_nothing_after_a_takeover() {
    // The takeover fails once at each of its steps.
    for fault in ["delete", "create"] {
        let recorder = Recorder::default();
        let location = recorder.location("p");
        let opened = location.open_restore("r", &of("u")).await.unwrap();
        let mut late = opened.commit(&files(), &ended(0)).await.unwrap();
        recorder.fault(&format!("{fault} p/restores/r/.private/owner"), Fault::Fail);
        let _ = location.open_restore("r", &of("v")).await;
        location.open_restore("r", &of("v")).await.unwrap();
        assert_eq!(
            late.publish().await.unwrap_err().category(),
            "exists",
            "{fault}"
        );
        assert_eq!(
            keys(&location).await,
            ["p/restores/r/.private/owner"],
            "{fault}"
        );
        assert_eq!(
            location.delete_restore("r", "u").await.unwrap(),
            0,
            "{fault}"
        );
    }
}
