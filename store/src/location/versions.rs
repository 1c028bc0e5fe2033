//! Versions of what was deleted, in buckets that keep them: a deletion there only covers what stays, and is paid for, until
//! each version is removed by itself.
//!
//! At every moment readers see what they saw when the files were deleted: nothing. A key's older versions go first, what
//! covers them last, and that only when nothing else is left under the folder. The mark of the folder's owner stays to the
//! very end, so that nobody else begins there meanwhile.

use backup_core::{
    api::BackupStorageLocation,
    bucket::{Facts, Versions},
    labels::BUCKET_ANNOTATION,
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;

use super::{AskBucket, Location};
use crate::{
    StoreError,
    error::{between, is_passing},
};

/// Locks that are asked about at the same time.
const ASKED_AT_ONCE: usize = 8;

/// A version of a key, or a mark of its deletion, which covers older ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub key: String,
    pub id: String,
    /// Whether it is what readers of the key see.
    pub is_latest: bool,
    /// Whether it is a mark of a deletion.
    pub is_mark: bool,
}

/// A page of versions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub versions: Vec<Version>,
    /// Where it goes on.
    pub next: Option<(String, String)>,
}

/// What keeps a version from being removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lock {
    pub until: Option<Timestamp>,
    /// A legal hold.
    pub held: bool,
}

/// Why a bucket did not do it.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// It will not, until somebody changes something.
    Refused(String),
    /// It may later.
    Passing(String),
}

/// What stays of a folder all of whose versions were to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Versions that stay, as far as they could be counted.
    pub kept: u64,
    /// The latest date until which one of them is locked.
    pub until: Option<Timestamp>,
    /// Versions under legal hold.
    pub held: u64,
    /// Why some stay that are not locked: the right that is missing.
    pub refused: Option<String>,
}

impl Rest {
    /// Whether something is locked, so that it can be removed later.
    pub fn is_locked(&self) -> bool {
        self.until.is_some() || self.held > 0
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            kept: self.kept + other.kept,
            until: self.until.max(other.until),
            held: self.held + other.held,
            refused: self.refused.or(other.refused),
        }
    }
}

impl Location {
    /// Whether what is deleted here may only be covered: the bucket keeps versions, as its location says, or it is not known.
    pub fn may_keep_versions(&self, location: &BackupStorageLocation) -> bool {
        let annotations = location.metadata.annotations.as_ref();
        let annotation = annotations.and_then(|all| all.get(BUCKET_ANNOTATION));
        let known = Facts::read(annotation.map(String::as_str)).and_then(|facts| facts.versions);
        self.inner.bucket.is_some() && known != Some(Versions::Off)
    }

    /// Removes a backup as [`Self::delete_backup`] does, and every version of its keys, where the bucket keeps them; the number
    /// of keys that were there, and what stays.
    ///
    /// `hidden` says that this was begun before and that all keys are hidden since: who had claimed the folder then. Whatever
    /// can be seen there now is somebody else's, and nothing is touched. Safe to repeat.
    ///
    /// Errors: [`StoreError::Exists`] if it is somebody else's.
    pub async fn delete_backup_and_versions(
        &self,
        backup: &str,
        hidden: Option<&str>,
    ) -> Result<(u64, Rest), StoreError> {
        let Some(bucket) = self.inner.bucket.clone() else {
            return Ok((self.delete_backup(backup).await?, Rest::default()));
        };
        let keys = self.layout().backup(backup)?;
        let owner = keys.owner();
        let (found, claimed) = match hidden {
            None => {
                let hidden = self.hide_backup(&keys).await?;
                (hidden.keys, hidden.owner.is_some())
            }
            Some(before) => {
                let found = self.list(keys.folder()).await?;
                let claimed = found.contains(&owner);
                // A second look before anything more is destroyed: days may have passed.
                if found.iter().any(|key| *key != owner) || claimed && self.owner(&keys).await? != before {
                    return Err(StoreError::Exists {
                        url: self.url_of(keys.folder()),
                        detail: "somebody else has used the name of the backup since its files were deleted; what is \
                                 there now stays, and so do the versions that were locked"
                            .to_owned(),
                    });
                }
                (0, claimed)
            }
        };
        let removal = Removal { location: self, bucket: bucket.as_ref(), folder: keys.folder().as_ref() };
        let rest = removal.run(claimed.then_some(owner.as_ref())).await?;
        // It is there yet if versions may not be removed. (A deletion of what is not there would leave a mark of its own.)
        if rest.refused.is_some() && !rest.is_locked() && self.look_at(&owner).await?.is_some() {
            self.delete(vec![owner]).await?;
        }
        Ok((found, rest))
    }

    /// Removes the files of a restore as [`Self::delete_restore`] does, and every version of their keys; what stays. Safe to
    /// repeat. With `hidden` what can be seen there now is somebody else's, and nothing is touched.
    pub async fn delete_restore_and_versions(&self, restore: &str, hidden: bool) -> Result<Rest, StoreError> {
        let keys = self.layout().restore(restore)?;
        let Some(bucket) = self.inner.bucket.clone() else {
            self.delete_restore(restore).await?;
            return Ok(Rest::default());
        };
        if !hidden {
            self.delete_restore(restore).await?;
        } else if !self.list(keys.folder()).await?.is_empty() {
            return Ok(Rest::default());
        }
        let removal = Removal { location: self, bucket: bucket.as_ref(), folder: keys.folder().as_ref() };
        removal.run(None).await
    }
}

/// The removal of all versions under a folder of which nothing is seen any more.
struct Removal<'a> {
    location: &'a Location,
    bucket: &'a dyn AskBucket,
    folder: &'a str,
}

impl Removal<'_> {
    /// `owner` is a key that is still seen, and goes last.
    async fn run(&self, owner: Option<&str>) -> Result<Rest, StoreError> {
        let mut rest = Rest::default();
        let mut of_owner = Vec::new();
        let mut marks = false;
        let mut after = None;
        loop {
            let Some(page) = self.page(after.as_ref(), &mut rest).await? else { return Ok(rest) };
            let (mut covered, own) = split(page.versions, owner);
            of_owner.extend(own);
            if let Some(seen) = covered.iter().find(|version| version.is_latest && !version.is_mark) {
                return Err(self.was_written(&seen.key));
            }
            let before = covered.len();
            covered.retain(|version| !version.is_latest);
            marks |= covered.len() < before;
            self.remove(&covered, &mut rest).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if rest.kept > 0 {
            return Ok(rest);
        }
        // Nothing is left but what covered it.
        after = None;
        while marks {
            let Some(page) = self.page(after.as_ref(), &mut rest).await? else { return Ok(rest) };
            let (covers, _) = split(page.versions, owner);
            if let Some(other) = covers.iter().find(|version| !version.is_mark) {
                return Err(self.was_written(&other.key));
            }
            self.remove(&covers, &mut rest).await?;
            after = page.next;
            marks = after.is_some();
        }
        if rest.kept == 0 {
            // Those that were seen before: a mark of somebody else that is made from now on stays.
            let (last, first): (Vec<_>, Vec<_>) = of_owner.into_iter().partition(|version| version.is_latest);
            self.remove(&first, &mut rest).await?;
            if rest.kept == 0 {
                self.remove(&last, &mut rest).await?;
            }
        }
        Ok(rest)
    }

    /// None: they may not be listed, which is noted.
    async fn page(
        &self,
        after: Option<&(String, String)>,
        rest: &mut Rest,
    ) -> Result<Option<Page>, StoreError> {
        match self.bucket.page(&format!("{}/", self.folder), after).await {
            Ok(page) => Ok(Some(page)),
            Err(Trouble::Refused(why)) => {
                rest.refused = Some(format!("how many there are is not known, {why}"));
                Ok(None)
            }
            Err(Trouble::Passing(why)) => Err(self.failed("list the versions under", why)),
        }
    }

    /// Removes versions; those that stay are noted in `rest`.
    async fn remove(&self, versions: &[Version], rest: &mut Rest) -> Result<(), StoreError> {
        if versions.is_empty() {
            return Ok(());
        }
        let refused = match self.bucket.remove(versions).await {
            Ok(refused) => refused,
            Err(Trouble::Refused(why)) => {
                rest.kept += versions.len() as u64;
                rest.refused = Some(why);
                return Ok(());
            }
            Err(Trouble::Passing(why)) => return Err(self.failed("remove versions under", why)),
        };
        let mut asked = stream::iter(refused)
            .map(|(version, code)| async move {
                if is_passing(&code) {
                    return Err(Trouble::Passing(code));
                }
                match self.bucket.lock_of(&version).await {
                    Ok(lock) => Ok((lock, format!("{code}: s3:DeleteObjectVersion is not granted"))),
                    Err(Trouble::Refused(why)) => {
                        Ok((Lock::default(), format!("{code}: whether it is locked is not known, {why}")))
                    }
                    Err(passing) => Err(passing),
                }
            })
            .buffer_unordered(ASKED_AT_ONCE);
        while let Some(answer) = asked.next().await {
            let (lock, why) = match answer {
                Ok(answer) => answer,
                Err(Trouble::Passing(why) | Trouble::Refused(why)) => {
                    return Err(self.failed("remove versions under", why));
                }
            };
            rest.kept += 1;
            rest.held += u64::from(lock.held);
            rest.until = rest.until.max(lock.until);
            if lock.until.is_none() && !lock.held {
                rest.refused = Some(why);
            }
        }
        Ok(())
    }

    fn was_written(&self, key: &str) -> StoreError {
        self.failed("remove versions under", format!("{key} was written meanwhile; it is looked at again"))
    }

    fn failed(&self, action: &str, detail: String) -> StoreError {
        let url = self.location.url_of(&self.folder.into());
        StoreError::Unreachable { action: action.to_owned(), url, detail }
    }
}

/// Those of other keys, and those of the owner's.
fn split(versions: Vec<Version>, owner: Option<&str>) -> (Vec<Version>, Vec<Version>) {
    versions.into_iter().partition(|version| Some(version.key.as_str()) != owner)
}

impl Page {
    /// An answer of S3 (`ListVersionsResult`).
    pub(super) fn read(text: &str) -> Self {
        let of = |element: &str, is_mark: bool| -> Vec<Version> {
            let (opening, closing) = (format!("<{element}>"), format!("</{element}>"));
            let pieces =
                text.split(&opening).skip(1).map(|rest| rest.split(&closing).next().unwrap_or_default());
            pieces.filter_map(|piece| Version::read(piece, is_mark)).collect()
        };
        let mut versions = of("Version", false);
        versions.append(&mut of("DeleteMarker", true));
        let marker = |name: &str| between(text, &format!("<{name}>"), &format!("</{name}>")).map(plain);
        let next = marker("NextKeyMarker").zip(marker("NextVersionIdMarker"));
        let more = between(text, "<IsTruncated>", "</IsTruncated>") == Some("true");
        Self { versions, next: next.filter(|_| more) }
    }
}

impl Version {
    fn read(piece: &str, is_mark: bool) -> Option<Self> {
        let element = |name: &str| between(piece, &format!("<{name}>"), &format!("</{name}>"));
        Some(Self {
            key: plain(element("Key")?),
            id: plain(element("VersionId")?),
            is_latest: element("IsLatest") == Some("true"),
            is_mark,
        })
    }

    /// What S3 is asked to remove.
    pub(super) fn wanted_gone(versions: &[Self]) -> String {
        let object = |Self { key, id, .. }: &Self| {
            let (key, id) = (escaped(key), escaped(id));
            format!("<Object><Key>{key}</Key><VersionId>{id}</VersionId></Object>")
        };
        let objects: String = versions.iter().map(object).collect();
        let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
        format!("<Delete xmlns=\"{namespace}\"><Quiet>true</Quiet>{objects}</Delete>")
    }

    /// Those of them that S3 has not removed, with its word for why.
    pub(super) fn refused(text: &str, asked: &[Self]) -> Vec<(Self, String)> {
        let errors = text.split("<Error>").skip(1);
        errors
            .filter_map(|error| {
                let element =
                    |name: &str| between(error, &format!("<{name}>"), &format!("</{name}>")).map(plain);
                let (key, id) = (element("Key")?, element("VersionId"));
                let same = |one: &&Self| one.key == key && id.as_ref().is_none_or(|id| *id == one.id);
                Some((asked.iter().find(same)?.clone(), element("Code").unwrap_or_default()))
            })
            .collect()
    }
}

/// The text of an element.
fn plain(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];
    let text = entities.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain));
    text.replace("&amp;", "&")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
