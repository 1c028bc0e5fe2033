use std::sync::Mutex;

use async_trait::async_trait;
use backup_core::bucket::ObjectLock;
use object_store::path::Path;

use super::*;
use crate::testing::memory;

const OWNER: &str = "p/backups/b/.private/owner";

/// A bucket with versions, as S3 has them: the newest first.
#[derive(Default)]
struct Bucket {
    versions: Mutex<Vec<(Version, Lock)>>,
    /// The call that fails, if one does.
    fails: Mutex<Option<usize>>,
    may_list: bool,
}

impl Bucket {
    fn of(history: &[(&str, &[&str])]) -> Self {
        let bucket = Self { may_list: true, ..Self::default() };
        for (key, versions) in history {
            for (at, what) in versions.iter().enumerate() {
                let lock = Lock {
                    until: what.strip_prefix("until ").map(|date| date.parse().unwrap()),
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

    fn call(&self) -> Result<(), Trouble> {
        let mut fails = self.fails.lock().unwrap();
        *fails = fails.map(|left| left.wrapping_sub(1));
        if *fails == Some(usize::MAX) { Err(Trouble::Passing("503 SlowDown".to_owned())) } else { Ok(()) }
    }

    fn unlock(&self) {
        self.versions.lock().unwrap().iter_mut().for_each(|(_, lock)| *lock = Lock::default());
    }

    fn left(&self) -> Vec<String> {
        let all = self.versions.lock().unwrap();
        all.iter().map(|(version, _)| format!("{}#{}", &version.key[12..], version.id)).collect()
    }

    /// What readers see.
    fn seen(&self) -> Vec<String> {
        let all = self.versions.lock().unwrap();
        let seen = all.iter().filter(|(version, _)| version.is_latest && !version.is_mark);
        seen.map(|(version, _)| version.key.clone()).collect()
    }

    async fn empty(&self) -> Result<Rest, StoreError> {
        let location = memory("p");
        let folder = "p/backups/b";
        Removal { location: &location, bucket: self, folder }.run(Some(OWNER)).await
    }
}

#[async_trait]
impl AskBucket for Bucket {
    async fn uploads(&self, _: &Path) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    async fn versions(&self) -> Result<Versions, String> {
        Ok(Versions::Enabled)
    }

    async fn lock(&self) -> Result<ObjectLock, String> {
        Ok(ObjectLock::default())
    }

    /// Two of them on a page, so that there are many.
    async fn page(&self, start: &str, after: Option<&(String, String)>) -> Result<Page, Trouble> {
        if !self.may_list {
            return Err(Trouble::Refused(
                "403 AccessDenied: s3:ListBucketVersions is not granted".to_owned(),
            ));
        }
        self.call()?;
        let mut all: Vec<Version> =
            self.versions.lock().unwrap().iter().map(|(version, _)| version.clone()).collect();
        all.retain(|version| version.key.starts_with(start));
        all.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        all.retain(|one| after.is_none_or(|(key, id)| (&one.key, &one.id) > (key, id)));
        let more = all.len() > 2;
        all.truncate(2);
        let next = all.last().filter(|_| more).map(|last| (last.key.clone(), last.id.clone()));
        Ok(Page { versions: all, next })
    }

    /// In any order; what readers see is looked at after each.
    async fn remove(&self, versions: &[Version]) -> Result<Vec<(Version, String)>, Trouble> {
        self.call()?;
        let mut refused = Vec::new();
        for version in versions.iter().rev() {
            let mut all = self.versions.lock().unwrap();
            let Some(at) = all.iter().position(|(one, _)| (&one.key, &one.id) == (&version.key, &version.id))
            else {
                continue;
            };
            if all[at].1.held || all[at].1.until.is_some() {
                refused.push((version.clone(), "AccessDenied".to_owned()));
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
            assert!(seen.iter().all(|key| key == OWNER), "{seen:?} can be seen again");
            assert!(gone.key == OWNER || seen.len() == 1, "somebody else may begin there");
        }
        Ok(refused)
    }

    async fn lock_of(&self, version: &Version) -> Result<Lock, Trouble> {
        self.call()?;
        let all = self.versions.lock().unwrap();
        Ok(all
            .iter()
            .find(|(one, _)| (&one.key, &one.id) == (&version.key, &version.id))
            .map(|(_, lock)| *lock)
            .unwrap())
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
        assert_eq!(bucket.empty().await.unwrap(), Rest::default());
        assert!(bucket.left().is_empty(), "{:?} after {calls} calls", bucket.left());
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
    assert_eq!(rest, Rest { kept: 3, until, held: 1, refused: None });
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
    assert_eq!(bucket.empty().await.unwrap(), Rest::default());
    assert!(bucket.left().is_empty());
}

#[tokio::test]
async fn what_was_written_meanwhile_is_not_touched_and_a_missing_right_is_named() {
    let bucket = Bucket::of(&[(".private/owner", &[""]), ("b.tar.gz", &["", "mark", ""])]);
    assert!(bucket.empty().await.unwrap_err().to_string().contains("b.tar.gz was written meanwhile"));
    assert_eq!(bucket.left().len(), 4);
    let bucket = Bucket { may_list: false, ..Bucket::of(&HISTORY) };
    let rest = bucket.empty().await.unwrap();
    assert!(!rest.is_locked() && rest.refused.unwrap().contains("s3:ListBucketVersions is not granted"));
    assert_eq!(bucket.left().len(), 12);
}

#[test]
fn answers_are_read_and_requests_written_as_s3_has_them() {
    let text = "<?xml?><ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a&amp;b</NextKeyMarker>\
                <NextVersionIdMarker>v1</NextVersionIdMarker><Version><Key>a&amp;b</Key><VersionId>v1</VersionId>\
                <IsLatest>false</IsLatest><ETag>&quot;x&quot;</ETag></Version><DeleteMarker><Key>a&amp;b</Key>\
                <VersionId>v2</VersionId><IsLatest>true</IsLatest></DeleteMarker></ListVersionsResult>";
    let page = Page::read(text);
    let version =
        |id: &str, is_mark| Version { key: "a&b".to_owned(), id: id.to_owned(), is_latest: is_mark, is_mark };
    assert_eq!(page.versions, [version("v1", false), version("v2", true)]);
    assert_eq!(page.next, Some(("a&b".to_owned(), "v1".to_owned())));
    assert_eq!(Page::read(&text.replace("true</IsTruncated", "false</IsTruncated")).next, None);
    let asked = Version::wanted_gone(&page.versions);
    assert!(
        asked.contains("<Object><Key>a&amp;b</Key><VersionId>v2</VersionId></Object></Delete>"),
        "{asked}"
    );
    let answer = "<DeleteResult><Deleted><Key>a&amp;b</Key><VersionId>v2</VersionId></Deleted><Error><Key>a&amp;b</Key>\
                  <VersionId>v1</VersionId><Code>AccessDenied</Code><Message>m</Message></Error></DeleteResult>";
    assert_eq!(Version::refused(answer, &page.versions), [(version("v1", false), "AccessDenied".to_owned())]);
}
