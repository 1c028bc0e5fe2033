//! Locations that a plugin serves: whole backups through one that can misbehave.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use backup_core::api::{Backup, BackupPhase, BackupStorageLocation};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::*;
use crate::{
    Body, Fault, FoundJob, JobFiles, ObjectPlugin, PluginFault,
    testing::{NOISE, backup, collected, no_files, of, spec, target, unzipped},
};

/// A bucket in memory that writes in pieces, as a plugin over a file system does.
#[derive(Debug, Default)]
struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    calls: Mutex<Vec<String>>,
    /// Writes of this key fail after this number of bytes, which stay.
    cut: Mutex<Option<(String, usize)>>,
}

fn fault(text: &str) -> PluginFault {
    PluginFault {
        text: text.to_owned(),
        fault: Fault::Retryable,
    }
}

impl Bucket {
    fn note(&self, call: &str, key: &str) {
        self.calls.lock().unwrap().push(format!("{call} {key}"));
    }

    fn calls(&self, call: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter_map(|line| Some(line.strip_prefix(call)?.trim().to_owned()))
            .collect()
    }

    fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn insert(&self, key: &str, bytes: &[u8]) {
        self.objects
            .lock()
            .unwrap()
            .insert(key.to_owned(), bytes.to_vec());
    }

    fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.objects.lock().unwrap().get(key).cloned()
    }
}

#[async_trait]
impl ObjectPlugin for Arc<Bucket> {
    async fn put(&self, key: &str, mut body: Body) -> Result<(), PluginFault> {
        self.note("put", key);
        let cut = self
            .cut
            .lock()
            .unwrap()
            .take_if(|(of, _)| of == key)
            .map(|(_, bytes)| bytes);
        let mut all = Vec::new();
        while let Some(chunk) = body.try_next().await? {
            all.extend_from_slice(&chunk);
            if let Some(bytes) = cut.filter(|bytes| all.len() >= *bytes) {
                self.insert(key, &all[..bytes]);
                return Err(fault("out of luck"));
            }
        }
        self.insert(key, &all);
        Ok(())
    }

    async fn exists(&self, key: &str) -> Result<bool, PluginFault> {
        Ok(self.object(key).is_some())
    }

    async fn get(&self, key: &str) -> Result<Body, PluginFault> {
        self.note("get", key);
        let bytes = self.object(key).ok_or_else(|| fault("no such object"))?;
        let chunks: Vec<_> = bytes
            .chunks(64 * 1024)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        Ok(stream::iter(chunks).boxed())
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, PluginFault> {
        let mut folders: Vec<_> = self
            .names()
            .into_iter()
            .filter_map(|key| {
                let (folder, _) = key.strip_prefix(prefix)?.split_once('/')?;
                Some(format!("{prefix}{folder}/"))
            })
            .collect();
        folders.dedup();
        Ok(folders)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, PluginFault> {
        Ok(self
            .names()
            .into_iter()
            .filter(|key| key.starts_with(prefix))
            .collect())
    }

    async fn delete(&self, key: &str) -> Result<(), PluginFault> {
        let removed = self.objects.lock().unwrap().remove(key);
        removed.map(drop).ok_or_else(|| fault("no such object"))
    }

    async fn sign(&self, key: &str, ttl: std::time::Duration) -> Result<String, PluginFault> {
        Ok(format!("https://example.io/{key}?{}", ttl.as_secs()))
    }
}

fn location(bucket: &Arc<Bucket>) -> Location {
    let mut bsl = BackupStorageLocation::new("default", spec("example.io/p", "b", &[]));
    bsl.spec.object_storage.prefix = Some("/p/".to_owned());
    Location::through_plugin(&bsl, Arc::new(Arc::clone(bucket))).unwrap()
}

fn completed(uid: &str) -> Backup {
    backup(uid, BackupPhase::Completed)
}

const CONTENTS: &str = "p/backups/b/b.tar.gz";

#[tokio::test]
async fn a_part_of_an_object_is_found_though_a_plugin_gives_whole_ones() {
    let bucket = Arc::new(Bucket::default());
    let bytes: Vec<u8> = (0_u32..100_000).flat_map(u32::to_le_bytes).collect();
    bucket.insert("p/x", &bytes);
    let location = location(&bucket);
    let key = Path::from("p/x");
    for range in [0..10, 65_530..65_540, 70_000..bytes.len(), 5..5] {
        let part = location
            .get_range(&key, range.start as u64..range.end as u64)
            .await
            .unwrap();
        assert_eq!(part, bytes[range]);
    }
    let end = bytes.len() as u64;
    assert_eq!(
        location
            .get_range(&key, 5..end + 1)
            .await
            .unwrap_err()
            .category(),
        "corrupt"
    );
}

#[tokio::test]
async fn a_backup_of_any_size_is_written_read_and_removed() {
    for large in [false, true] {
        let bucket = Arc::new(Bucket::default());
        let location = location(&bucket);
        assert_eq!(location.url(), "example.io/p://b/p");
        let collected = collected(&location, "u", large).await.unwrap();
        let parts = bucket
            .calls("put")
            .iter()
            .filter(|key| key.contains("/.private/parts-"))
            .count();
        let expected = if large {
            usize::try_from(collected.bytes().div_ceil(8 << 20)).unwrap()
        } else {
            0
        };
        assert_eq!(parts, expected);
        let stored = collected
            .commit(&no_files(), &completed("u"))
            .await
            .unwrap()
            .publish()
            .await
            .unwrap();
        assert_eq!(stored.phase(), BackupPhase::Completed);
        let of = |key: &str| {
            bucket
                .calls("put")
                .iter()
                .filter(|call| call.contains(key))
                .count()
        };
        assert_eq!((of(CONTENTS), of("velero-backup.json")), (1, 1));
        assert_eq!(
            bucket
                .calls("get")
                .iter()
                .filter(|key| *key == CONTENTS)
                .count(),
            0,
            "not read back"
        );
        let private: Vec<_> = bucket
            .names()
            .into_iter()
            .filter(|key| key.contains(".private"))
            .collect();
        assert_eq!(private, ["p/backups/b/.private/owner"]);
        location.check().await.unwrap();
        assert_eq!(location.list_backups().await.unwrap(), ["b"]);
        let contents = location
            .read_contents("b", crate::Limits::DEFAULT)
            .await
            .unwrap();
        assert_eq!(
            contents.items("pods").len(),
            if large { NOISE as usize + 1 } else { 1 }
        );
        location.delete_backup("b").await.unwrap();
        assert!(bucket.names().is_empty(), "{:?}", bucket.names());
    }
}

/// A bucket with a committed backup of which no file is visible.
async fn decided(large: bool) -> Bucket {
    let bucket = Arc::new(Bucket::default());
    let collected = collected(&location(&bucket), "u", large).await.unwrap();
    collected
        .commit(&no_files(), &completed("u"))
        .await
        .unwrap();
    Bucket {
        objects: Mutex::new(bucket.objects.lock().unwrap().clone()),
        ..Bucket::default()
    }
}

/// Another process finds the record and publishes it.
async fn publish(location: &Location) -> Result<Backup, StoreError> {
    let FoundJob::Committed(mut decided) = location.find_job::<Backup>("b", "u").await? else {
        panic!("not decided")
    };
    decided.publish().await
}

#[tokio::test]
async fn a_write_that_was_broken_off_is_written_again_from_any_byte() {
    const METADATA: &str = "p/backups/b/velero-backup.json";
    for (large, cuts) in [
        (
            false,
            vec![
                (CONTENTS, 0),
                (CONTENTS, 100),
                (METADATA, 0),
                (METADATA, 20),
            ],
        ),
        (
            true,
            vec![
                (CONTENTS, 0),
                (CONTENTS, 100),
                (CONTENTS, 8 << 20),
                (CONTENTS, (8 << 20) + 7),
            ],
        ),
    ] {
        let before = decided(large).await.objects.into_inner().unwrap();
        for (key, bytes) in cuts {
            let bucket = Arc::new(Bucket {
                objects: Mutex::new(before.clone()),
                ..Bucket::default()
            });
            let location = location(&bucket);
            *bucket.cut.lock().unwrap() = Some((key.to_owned(), bytes));
            let error = publish(&location).await.unwrap_err();
            assert!(
                error.is_transient() && error.to_string().contains("out of luck"),
                "{error}"
            );
            assert_eq!(bucket.object(key).unwrap().len(), bytes);
            publish(&location)
                .await
                .unwrap_or_else(|error| panic!("{large} {key} {bytes}: {error}"));
            location
                .read_contents("b", crate::Limits::DEFAULT)
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn foreign_bytes_are_left_alone_whatever_their_size() {
    for large in [false, true] {
        let before = decided(large).await.objects.into_inner().unwrap();
        for foreign in ["x".to_owned(), "x".repeat(9 << 20), "x".repeat(20 << 20)] {
            let bucket = Arc::new(Bucket {
                objects: Mutex::new(before.clone()),
                ..Bucket::default()
            });
            bucket.insert(CONTENTS, foreign.as_bytes());
            let error = publish(&location(&bucket)).await.unwrap_err();
            assert_eq!(error.category(), "exists", "{error}");
            assert_eq!(bucket.object(CONTENTS).unwrap(), foreign.as_bytes());
        }
    }
}

#[tokio::test]
async fn parts_that_are_gone_or_changed_are_lost_and_nothing_is_visible() {
    for is_gone in [true, false] {
        let bucket = Arc::new(Bucket::default());
        let location = location(&bucket);
        let collected = collected(&location, "u", true).await.unwrap();
        let part = bucket
            .names()
            .into_iter()
            .find(|key| key.contains("/parts-"))
            .unwrap();
        let mut bytes = bucket.objects.lock().unwrap().remove(&part).unwrap();
        if !is_gone {
            *bytes.last_mut().unwrap() ^= 1;
            bucket.insert(&part, &bytes);
        }
        let mut decided = collected
            .commit(&no_files(), &completed("u"))
            .await
            .unwrap();
        let error = decided.publish().await.unwrap_err();
        assert_eq!(error.category(), "lost", "{error}");
        assert!(bucket.object(CONTENTS).is_none());
        decided.begin_again().await.unwrap();
        assert!(
            !bucket.names().iter().any(|key| key.contains("/parts-")),
            "{:?}",
            bucket.names()
        );
    }
}

#[tokio::test]
async fn files_of_a_backup_that_waits_are_shown_as_they_are_so_far_and_go_with_the_end() {
    use backup_core::api::download_request::DownloadTargetKind as Kind;
    let bucket = Arc::new(Bucket::default());
    let location = location(&bucket);
    let ttl = std::time::Duration::from_mins(10);
    let operations = target(Kind::BackupItemOperations);
    let contents = target(Kind::BackupContents);
    assert_eq!(
        location
            .signed_url_of_snapshot(&operations, "u", ttl)
            .await
            .unwrap(),
        None,
        "nothing is there"
    );

    let writer = location.open_backup("b", &of("u")).await.unwrap();
    let state = |phase: &str| vec![serde_json::json!({"status": {"phase": phase}})];
    let early = JobFiles {
        item_operations: state("New"),
        ..no_files()
    };
    let mut waiting = writer
        .await_operations(early, serde_json::Value::Null)
        .await
        .unwrap();
    let shown = async |phase: &str| {
        let url = location
            .signed_url_of_snapshot(&operations, "u", ttl)
            .await
            .unwrap()
            .unwrap();
        let key = url
            .strip_prefix("https://example.io/")
            .unwrap()
            .strip_suffix("?600")
            .unwrap()
            .to_owned();
        assert!(key.starts_with("p/backups/b/.private/"), "{key}");
        let text = unzipped(&bucket.object(&key).unwrap());
        assert_says!(text, phase);
        key
    };
    let first = shown("New").await;
    assert_eq!(shown("New").await, first, "one state is written once");
    waiting
        .store_operations(&state("InProgress"))
        .await
        .unwrap();
    assert_ne!(shown("InProgress").await, first);
    assert_eq!(
        location
            .signed_url_of_snapshot(&operations, "another", ttl)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        location
            .signed_url_of_snapshot(&contents, "u", ttl)
            .await
            .unwrap(),
        None,
        "not before the end"
    );

    let (writer, files) = waiting.resume().unwrap();
    let collected = writer.finish().await.unwrap();
    collected
        .commit(&files, &completed("u"))
        .await
        .unwrap()
        .publish()
        .await
        .unwrap();
    let private: Vec<_> = bucket
        .names()
        .into_iter()
        .filter(|key| key.contains(".private"))
        .collect();
    assert_eq!(private, ["p/backups/b/.private/owner"]);
    assert_eq!(
        location
            .signed_url_of_snapshot(&operations, "u", ttl)
            .await
            .unwrap(),
        None
    );
    let url = location.signed_url(&contents, ttl).await.unwrap();
    assert_eq!(url, "https://example.io/p/backups/b/b.tar.gz?600");
}

/// Both saw an empty folder before either wrote its marker.
#[tokio::test]
async fn of_two_that_claim_at_the_same_moment_the_first_gives_way() {
    let bucket = Arc::new(Bucket::default());
    let location = location(&bucket);
    let first = collected(&location, "first", false).await.unwrap();
    bucket.insert("p/backups/b/.private/owner", b"second\n");
    let error = first
        .commit(&no_files(), &completed("first"))
        .await
        .unwrap_err();
    assert_eq!(error.category(), "exists", "{error}");
    let second = collected(&location, "second", false).await.unwrap();
    second
        .commit(&no_files(), &completed("second"))
        .await
        .unwrap()
        .publish()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_plugin_that_answers_with_other_keys_is_told() {
    assert!(plugin_keys("p/backups/", "p/backups/x").is_ok());
    let error = plugin_keys("p/backups/", "q/x").unwrap_err();
    assert_says!(error, "\"q/x\"");
    assert!(
        plugin_keys("p/", "p//x").unwrap().is_empty(),
        "another program's"
    );
}

fn plugin_keys(prefix: &str, key: &str) -> object_store::Result<Vec<Path>> {
    plugin::paths(prefix, vec![key.to_owned()])
}
