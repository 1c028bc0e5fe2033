use std::sync::Mutex;

use async_trait::async_trait;
use backup_core::bucket::ObjectLock;
use object_store::path::Path;

use super::*;
use crate::testing::memory;

const OWNER: &str = "p/backups/b/.private/owner";

/// A bucket with versions in S3's order: the newest first.
#[derive(Default)]
struct Bucket {
    versions: Mutex<Vec<(Version, Lock)>>,
    fails: Mutex<Option<usize>>,
    may_list: bool,
}

impl Bucket {
    fn of(history: &[(&str, &[&str])]) -> Self {
        let bucket = Self {
            may_list: true,
            ..Self::default()
        };
        for (key, versions) in history {
            for (at, what) in versions.iter().enumerate() {
                let lock = Lock {
                    until: what
                        .strip_prefix("until ")
                        .map(|date| date.parse().unwrap()),
                    held: *what == "held",
                };
                let is_mark = *what == "mark";
                let version = Version {
                    key: format!("p/backups/b/{key}"),
                    id: format!("{at}"),
                    is_latest: at == 0,
                    is_mark,
                };
                bucket.versions.lock().unwrap().push((version, lock));
            }
        }
        bucket
    }

    fn call(&self) -> Result<(), BucketError> {
        let mut fails = self.fails.lock().unwrap();
        *fails = fails.map(|left| left.wrapping_sub(1));
        if *fails == Some(usize::MAX) {
            Err(BucketError::Retryable("503 SlowDown".to_owned()))
        } else {
            Ok(())
        }
    }

    fn unlock(&self) {
        self.versions
            .lock()
            .unwrap()
            .iter_mut()
            .for_each(|(_, lock)| *lock = Lock::default());
    }

    fn left(&self) -> Vec<String> {
        let all = self.versions.lock().unwrap();
        all.iter()
            .map(|(version, _)| format!("{}#{}", &version.key[12..], version.id))
            .collect()
    }

    /// The keys that readers see.
    fn seen(&self) -> Vec<String> {
        let all = self.versions.lock().unwrap();
        let seen = all
            .iter()
            .filter(|(version, _)| version.is_latest && !version.is_mark);
        seen.map(|(version, _)| version.key.clone()).collect()
    }

    async fn empty(&self) -> Result<RetainedVersions, StoreError> {
        let location = memory("p");
        Removal::new(&location, self, &Path::from("p/backups/b"))
            .run(Some(OWNER))
            .await
    }
}

#[async_trait]
impl BucketApi for Bucket {
    async fn uploads(&self, _: &Path) -> Result<Vec<String>, BucketError> {
        Ok(Vec::new())
    }

    async fn versions(&self) -> Result<Versions, BucketError> {
        Ok(Versions::Enabled)
    }

    async fn lock(&self) -> Result<ObjectLock, BucketError> {
        Ok(ObjectLock::default())
    }

    /// Two versions on a page, so that there are many pages.
    async fn page(&self, start: &str, after: Option<&PageMarker>) -> Result<Page, BucketError> {
        if !self.may_list {
            return Err(BucketError::Refused(
                "403 AccessDenied: s3:ListBucketVersions is not granted".to_owned(),
            ));
        }
        self.call()?;
        let mut all: Vec<Version> = self
            .versions
            .lock()
            .unwrap()
            .iter()
            .map(|(version, _)| version.clone())
            .collect();
        all.retain(|version| version.key.starts_with(start));
        all.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        all.retain(|one| {
            after.is_none_or(|after| (&one.key, &one.id) > (&after.key, &after.version))
        });
        let more = all.len() > 2;
        all.truncate(2);
        let next = all.last().filter(|_| more);
        let next = next.map(|last| PageMarker {
            key: last.key.clone(),
            version: last.id.clone(),
        });
        Ok(Page {
            versions: all,
            next,
        })
    }

    /// Removes in another order; checks after each what readers see.
    async fn remove(&self, versions: &[Version]) -> Result<Vec<FailedRemoval>, BucketError> {
        self.call()?;
        let mut refused = Vec::new();
        for version in versions.iter().rev() {
            let mut all = self.versions.lock().unwrap();
            let Some(at) = all
                .iter()
                .position(|(one, _)| (&one.key, &one.id) == (&version.key, &version.id))
            else {
                continue;
            };
            if all[at].1.held || all[at].1.until.is_some() {
                refused.push(FailedRemoval {
                    version: version.clone(),
                    code: "AccessDenied".to_owned(),
                });
                continue;
            }
            let (gone, _) = all.remove(at);
            if gone.is_latest
                && let Some((next, _)) = all.iter_mut().find(|(one, _)| one.key == gone.key)
            {
                next.is_latest = true;
            }
            drop(all);
            let seen = self.seen();
            assert!(
                seen.iter().all(|key| key == OWNER),
                "{seen:?} can be seen again"
            );
            assert!(
                gone.key == OWNER || seen.len() == 1,
                "another backup may begin there"
            );
        }
        Ok(refused)
    }

    async fn lock_of(&self, version: &Version) -> Result<Lock, BucketError> {
        self.call()?;
        let all = self.versions.lock().unwrap();
        Ok(all
            .iter()
            .find(|(one, _)| (&one.key, &one.id) == (&version.key, &version.id))
            .map(|(_, lock)| *lock)
            .unwrap())
    }

    async fn copy(&self, _: &str, _: &Path, _: &Path) -> Result<bool, BucketError> {
        Ok(false)
    }
}

const HISTORY: [(&str, &[&str]); 4] = [
    (".private/owner", &["", "", "mark"]),
    (".private/record-1", &["mark", "", "mark", ""]),
    ("b.tar.gz", &["mark", "", ""]),
    ("velero-backup.json", &["mark", ""]),
];

#[tokio::test]
async fn every_version_goes_and_nothing_is_seen_again_wherever_it_is_broken_off() {
    let mut calls = 0;
    loop {
        let bucket = Bucket::of(&HISTORY);
        *bucket.fails.lock().unwrap() = Some(calls);
        let first = bucket.empty().await;
        *bucket.fails.lock().unwrap() = None;
        assert_eq!(bucket.empty().await.unwrap(), RetainedVersions::default());
        assert!(
            bucket.left().is_empty(),
            "{:?} after {calls} calls",
            bucket.left()
        );
        if first.is_ok() {
            break;
        }
        assert!(first.unwrap_err().is_transient());
        calls += 1;
    }
    assert!(calls > 8, "{calls}");
}

#[tokio::test]
async fn what_is_locked_stays_hidden_until_the_latest_date_and_then_all_goes() {
    let bucket = Bucket::of(&[
        (".private/owner", &["until 2026-12-09T00:00:00Z"]),
        ("b.tar.gz", &["mark", "until 2026-12-01T00:00:00Z", ""]),
        ("b-logs.gz", &["mark", "until 2026-12-02T00:00:00Z", "held"]),
        ("velero-backup.json", &["mark", ""]),
    ]);
    let rest = bucket.empty().await.unwrap();
    let until = Some("2026-12-02T00:00:00Z".parse().unwrap());
    assert_eq!(
        rest,
        RetainedVersions {
            kept: 3,
            until,
            held: 1,
            refused: None
        }
    );
    assert!(rest.is_locked());
    let left = [
        ".private/owner#0",
        "b.tar.gz#0",
        "b.tar.gz#1",
        "b-logs.gz#0",
        "b-logs.gz#1",
        "b-logs.gz#2",
        "velero-backup.json#0",
    ];
    assert_eq!(bucket.left(), left);
    assert_eq!(bucket.empty().await.unwrap(), rest, "the same again");
    bucket.unlock();
    assert_eq!(bucket.empty().await.unwrap(), RetainedVersions::default());
    assert!(bucket.left().is_empty());
}

#[tokio::test]
async fn what_was_written_meanwhile_is_not_touched_and_a_missing_right_is_named() {
    let bucket = Bucket::of(&[(".private/owner", &[""]), ("b.tar.gz", &["", "mark", ""])]);
    assert_says!(
        bucket.empty().await.unwrap_err(),
        "b.tar.gz was written meanwhile"
    );
    assert_eq!(bucket.left().len(), 4);
    let bucket = Bucket {
        may_list: false,
        ..Bucket::of(&HISTORY)
    };
    let rest = bucket.empty().await.unwrap();
    assert!(
        !rest.is_locked()
            && rest
                .refused
                .unwrap()
                .contains("s3:ListBucketVersions is not granted")
    );
    assert_eq!(bucket.left().len(), 12);
}

#[tokio::test]
async fn versions_of_one_key_are_removed_and_what_is_locked_is_counted() {
    let location = memory("p");
    let key = Path::from("p/backups/b/b.tar.gz");
    let bucket = Bucket::of(&[
        (".private/owner", &[""]),
        ("b.tar.gz", &["mark", "until 2026-12-01T00:00:00Z", ""]),
        ("b-logs.gz", &["mark", ""]),
    ]);
    let remove = || Removal::of_key(&location, &bucket, &key).run(None);
    let rest = remove().await.unwrap();
    assert_eq!((rest.kept, rest.is_locked()), (1, true));
    let others = [".private/owner#0", "b-logs.gz#0", "b-logs.gz#1"];
    let left = bucket.left();
    assert!(
        others
            .iter()
            .all(|other| left.contains(&(*other).to_owned()))
    );
    assert_eq!(left.len(), 5, "the delete marker hides the locked version");
    bucket.unlock();
    assert_eq!(remove().await.unwrap(), RetainedVersions::default());
    assert_eq!(bucket.left(), others);
}
