use std::{collections::BTreeMap, sync::Arc};

use backup_core::api::BackupPhase;

use super::*;
use crate::testing::{
    Fault, Recorder, backup, collected, folder, get, keys, memory, no_files, of, put,
};

/// Stores backup `b`, with contents of several parts or of less than one, and a file that this
/// version does not know.
async fn store_backup(location: &Location, large: bool) {
    let collected = collected(location, "u1", large).await.unwrap();
    let end = backup("u1", BackupPhase::Completed);
    let mut plan = collected.commit(&no_files(), &end).await.unwrap();
    plan.publish().await.unwrap();
    let later = format!("{}/backups/b/b-later.json.gz", location.prefix());
    put(location, &later, b"later").await;
}

fn note() -> CopyNote {
    CopyNote {
        uid: "u1".to_owned(),
        source: "s3://bucket/p".to_owned(),
        expiration: Some("2027-01-01T00:00:00Z".parse().unwrap()),
    }
}

async fn copy(source: &Location, target: &Location) -> Result<(), StoreError> {
    let copy = target.begin_copy(source, "b", &of("u1"), &note()).await?;
    for file in copy.small_files().into_iter().chain(copy.large_files()) {
        copy.copy_file(&file).await?;
    }
    copy.finish().await
}

/// The files in the folder of backup `b` that are not private, by name.
async fn files(location: &Location) -> BTreeMap<String, Vec<u8>> {
    let folder = format!("{}/backups/b/", location.prefix());
    let mut files = BTreeMap::new();
    for key in keys(location).await {
        if let Some(name) = key.strip_prefix(&folder)
            && !name.starts_with(".private/")
        {
            files.insert(name.to_owned(), get(location, &key).await.unwrap());
        }
    }
    files
}

/// A source and a target, and what records the writes into the target.
struct Stores {
    source: Location,
    target: Location,
    recorder: Recorder,
}

impl Stores {
    /// Two stores, or two folders of one store that copies by itself.
    async fn new(one_store: bool, large: bool) -> Self {
        let recorder = Recorder::default();
        let target = Location::in_store(Arc::new(recorder.clone()), "q", "one".to_owned());
        let source = if one_store {
            Location::in_store(Arc::new(recorder.clone()), "p", "one".to_owned())
        } else {
            memory("p")
        };
        store_backup(&source, large).await;
        Self {
            source,
            target,
            recorder,
        }
    }

    /// The writes into the target so far, without notes of uploads, whose names are times.
    fn writes(&self) -> Vec<String> {
        let is_write = |line: &String| {
            let (verb, key) = line.split_once(' ').unwrap();
            ["create", "overwrite", "copy", "begin", "part", "complete"].contains(&verb)
                && key.starts_with("q/")
                && !key.contains("/upload-")
        };
        let mut writes = self.recorder.operations();
        writes.retain(is_write);
        writes.dedup();
        writes
    }
}

#[tokio::test]
async fn a_copy_has_the_same_bytes_and_its_metadata_last() {
    for (one_store, large) in [(false, false), (false, true), (true, false), (true, true)] {
        let stores = Stores::new(one_store, large).await;
        copy(&stores.source, &stores.target).await.unwrap();
        let case = format!("one store {one_store}, large {large}");
        if one_store {
            let read = stores.recorder.count("get p/backups/b/b.tar.gz");
            let sent = stores.recorder.count("part q/");
            assert_eq!((read, sent), (0, 0), "{case}");
        }
        assert_eq!(
            files(&stores.target).await,
            files(&stores.source).await,
            "{case}"
        );
        let writes = stores.writes();
        assert_eq!(writes[0], "create q/backups/b/.private/owner", "{case}");
        assert_eq!(writes[1], "create q/backups/b/.private/copy", "{case}");
        assert_eq!(
            writes.last().unwrap(),
            "create q/backups/b/velero-backup.json",
            "{case}"
        );
        let private = |key: &String| key.starts_with("q/backups/b/.private/");
        let mut found = keys(&stores.target).await;
        found.retain(private);
        assert_eq!(
            found,
            ["q/backups/b/.private/copy", "q/backups/b/.private/owner"],
            "{case}"
        );
        let read = stores.target.copy_note("b").await.unwrap();
        assert_eq!(read, Some(note()), "{case}");
        assert_eq!(stores.source.copy_note("b").await.unwrap(), None);
        let seen = stores.target.inspect_folder("b").await.unwrap();
        assert!(seen.is_copy && seen.metadata.is_some() && seen.contents);
        assert!(!stores.source.inspect_folder("b").await.unwrap().is_copy);
    }
}

#[tokio::test]
async fn whatever_write_fails_the_copy_is_resumed_and_no_reader_sees_a_part() {
    for (one_store, large) in [(false, false), (false, true), (true, true)] {
        let stores = Stores::new(one_store, large).await;
        copy(&stores.source, &stores.target).await.unwrap();
        let mut writes = stores.writes();
        // The other writes do not depend on the size of the contents.
        writes.retain(|write| !large || write.ends_with("b.tar.gz"));
        for write in writes {
            for fault in [Fault::Fail, Fault::LoseAnswer] {
                let case = format!("{write} {fault:?}, one store {one_store}, large {large}");
                let Stores {
                    source,
                    target,
                    recorder,
                } = Stores::new(one_store, large).await;
                recorder.fault(&write, fault);
                let first = copy(&source, &target).await;
                if let Err(error) = first {
                    assert!(error.is_transient(), "{case}: {error}");
                }
                let copied = files(&target).await;
                if copied.contains_key("velero-backup.json") {
                    assert_eq!(copied, files(&source).await, "{case}");
                }
                // Another process, twice: the second time everything is there.
                for _ in 0..2 {
                    copy(&source, &target).await.unwrap();
                }
                assert_eq!(files(&target).await, files(&source).await, "{case}");
                assert_eq!(recorder.count("overwrite q/"), 0, "{case}");
                assert_eq!(recorder.uploads(), Vec::<String>::new(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_cannot_copy_gets_the_bytes() {
    let stores = Stores::new(true, true).await;
    let contents = "q/backups/b/b.tar.gz";
    stores
        .recorder
        .fault(&format!("copy {contents}"), Fault::Unsupported);
    copy(&stores.source, &stores.target).await.unwrap();
    assert_eq!(
        stores.recorder.count(&format!("complete {contents}")),
        1,
        "it was transferred"
    );
    assert_eq!(files(&stores.target).await, files(&stores.source).await);
}

#[tokio::test]
async fn files_that_are_not_those_of_the_copy_are_named_and_stay() {
    for (key, bytes, said) in [
        // A backup of another program, with and without metadata.
        ("velero-backup.json", "{}", "another program"),
        ("b-logs.gz", "x", "another program"),
        (".private/owner", "u2\n", "another backup of this name"),
        // In the folder of the copy.
        (
            "velero-backup.json",
            "{}",
            "velero-backup.json exists already",
        ),
        ("b-logs.gz", "x", "b-logs.gz exists already"),
        ("b.tar.gz", "x", "b.tar.gz exists already"),
    ] {
        let Stores { source, target, .. } = Stores::new(false, true).await;
        if said.ends_with("exists already") {
            put(&target, "q/backups/b/.private/owner", b"u1\n").await;
            let text = serde_json::to_vec(&note()).unwrap();
            put(&target, "q/backups/b/.private/copy", &text).await;
        }
        put(&target, &format!("q/backups/b/{key}"), bytes.as_bytes()).await;
        let error = copy(&source, &target).await.unwrap_err();
        assert_eq!(error.category(), "exists", "{key}: {error}");
        assert_says!(error, said);
        let left = get(&target, &format!("q/backups/b/{key}")).await.unwrap();
        assert_eq!(left, bytes.as_bytes(), "{key}");
    }
}

#[tokio::test]
async fn a_small_file_with_other_bytes_of_the_same_size_is_named() {
    let Stores { source, target, .. } = Stores::new(false, false).await;
    copy(&source, &target).await.unwrap();
    let key = "q/backups/b/b-later.json.gz";
    put(&target, key, b"LATER").await;
    let error = copy(&source, &target).await.unwrap_err();
    assert_says!(error, "b-later.json.gz exists already");
}

#[tokio::test]
async fn the_original_is_never_taken_for_a_copy() {
    let location = memory("p");
    store_backup(&location, false).await;
    let error = copy(&location, &location).await.unwrap_err();
    assert_says!(error, "holds the original");
    let deleted = location.delete_copy("b", "u1", false).await.unwrap();
    assert_eq!(deleted.keys, 0);
    assert!(location.read_metadata("b").await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_no_whole_backup_is_not_copied() {
    for (missing, said) in [
        ("velero-backup.json", "was never stored"),
        ("b.tar.gz", "it was never whole"),
    ] {
        let Stores { source, target, .. } = Stores::new(false, false).await;
        let key = Path::from(format!("p/backups/b/{missing}"));
        source.delete(vec![key]).await.unwrap();
        let error = copy(&source, &target).await.unwrap_err();
        assert_eq!(error.category(), "corrupt");
        assert_says!(error, said);
        assert_eq!(keys(&target).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn only_the_copy_of_this_backup_is_removed_complete_or_not() {
    let (_dir, on_disk) = folder("q");
    for target in [memory("q"), on_disk] {
        let source = memory("p");
        store_backup(&source, true).await;
        for complete in [true, false] {
            let begun = target.begin_copy(&source, "b", &of("u1"), &note()).await;
            let begun = begun.unwrap();
            for file in begun.small_files() {
                begun.copy_file(&file).await.unwrap();
            }
            if complete {
                for file in begun.large_files() {
                    begun.copy_file(&file).await.unwrap();
                }
                begun.finish().await.unwrap();
            }
            let others = target.delete_copy("b", "u2", false).await.unwrap();
            assert_eq!(others.keys, 0);
            let own = target.delete_copy("b", "u1", true).await.unwrap();
            assert!(own.keys > 5, "{own:?}");
            assert_eq!(keys(&target).await, Vec::<String>::new());
            // Once more.
            let again = target.delete_copy("b", "u1", false).await.unwrap();
            assert_eq!(again.keys, 0);
        }
        assert!(source.read_metadata("b").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn an_incomplete_copy_is_removed_like_scrap() {
    let target = memory("q");
    let source = memory("p");
    store_backup(&source, false).await;
    let begun = target.begin_copy(&source, "b", &of("u1"), &note()).await;
    let begun = begun.unwrap();
    for file in begun.small_files() {
        begun.copy_file(&file).await.unwrap();
    }
    let seen = target.inspect_folder("b").await.unwrap().incomplete;
    let seen = seen.unwrap();
    assert_eq!(seen.most, crate::Remnant::Copy);
    assert!(
        target
            .remove_incomplete("b", &seen)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(keys(&target).await, Vec::<String>::new());
    assert_eq!(target.remove_incomplete("b", &seen).await.unwrap(), None);
}

#[tokio::test]
async fn the_first_attempt_decides_how_long_the_copy_is_kept() {
    let Stores { source, target, .. } = Stores::new(false, false).await;
    copy(&source, &target).await.unwrap();
    let later = CopyNote {
        expiration: None,
        ..note()
    };
    let again = target.begin_copy(&source, "b", &of("u1"), &later).await;
    assert_eq!(*again.unwrap().note(), note());
}
