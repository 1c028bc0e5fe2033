//! Folders under `backups/` that hold no finished backup, and the removal of those that nobody can want any more.

use futures::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;

use super::Location;
use crate::{StoreError, layout::BackupKeys};

/// What a key in a backup's folder is, where there is no metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// A mark, a note of an upload, a file beside the contents: worth nothing without the contents.
    Scrap,
    /// What was noted before something was done outside of the bucket: a snapshot, a command.
    Journal,
    /// What the backup holds is decided, or was collected: whoever has the Backup finishes it.
    Record,
    /// The items, without metadata: a deletion was broken off, or the metadata was lost.
    Contents,
    /// Nothing that a backup of this name consists of.
    Foreign,
}

/// A folder without metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The most that is in it.
    pub most: Left,
    /// When something was last written into it; none where the store does not tell.
    pub newest: Option<Timestamp>,
}

impl Stray {
    /// Takes one more key into account.
    pub(super) fn add(this: &mut Option<Self>, left: Left, modified: Option<Timestamp>) {
        let Some(stray) = this else {
            *this = Some(Self { most: left, newest: modified });
            return;
        };
        stray.most = stray.most.max(left);
        stray.newest = stray.newest.zip(modified).map(|(a, b)| a.max(b));
    }
}

impl Location {
    /// When an object was written, as the store says; none where it does not.
    pub(super) fn modified(&self, object: &object_store::ObjectMeta) -> Option<Timestamp> {
        let time = Timestamp::from_second(object.last_modified.timestamp()).ok();
        time.filter(|_| self.plugin().is_none())
    }

    /// Who has claimed a folder: the uid of a Backup; empty if nobody has.
    pub async fn owner_of(&self, backup: &str) -> Result<String, StoreError> {
        self.owner(&self.layout().backup(backup)?).await
    }

    /// Removes a folder that holds scrap only; the number of keys. It is looked at again, and what is removed is what was
    /// seen then, key by key: what somebody else writes into it meanwhile stays. The mark of its owner goes last, so that
    /// nobody begins there before. None, and nothing is done, if it is not as it was seen before, or not what may be removed.
    /// Safe to repeat.
    pub async fn remove_stray(&self, backup: &str, seen: &Stray) -> Result<Option<u64>, StoreError> {
        let keys = self.layout().backup(backup)?;
        let mut now = None;
        let mut found = Vec::new();
        let mut listed = self.store().list(Some(keys.folder()));
        loop {
            let object = match listed.try_next().await {
                Ok(Some(object)) => object,
                Ok(None) => break,
                Err(error) => return Err(self.failed("list", keys.folder(), &error)),
            };
            // Another look at the metadata than that of the caller, which saw none.
            match keys.left(&object.location) {
                Some(left @ Left::Scrap) => Stray::add(&mut now, left, self.modified(&object)),
                _ => return Ok(None),
            }
            found.push(object.location);
        }
        // A listing may be late.
        if now.as_ref() != Some(seen)
            || seen.newest.is_none()
            || self.look_at(&keys.metadata()).await?.is_some()
        {
            return Ok(None);
        }
        let number = found.len() as u64;
        if found.iter().any(|key| keys.upload_note_number(key).is_some()) {
            self.remove_begun(&keys, false).await?;
        }
        let owner = keys.owner();
        let (last, first): (Vec<Path>, Vec<Path>) = found.into_iter().partition(|key| *key == owner);
        self.delete(first).await?;
        self.delete(last).await?;
        if self.list(keys.folder()).await?.is_empty() {
            self.remove_folder(keys.folder()).await?;
        }
        Ok(Some(number))
    }
}

impl BackupKeys {
    /// What a key of the folder is; none for the metadata.
    pub(crate) fn left(&self, key: &Path) -> Option<Left> {
        if *key == self.metadata() {
            return None;
        }
        if *key == self.contents() {
            return Some(Left::Contents);
        }
        if self.is_private(key) {
            return Some(self.left_private(key));
        }
        let beside = [
            self.log(),
            self.results(),
            self.resource_list(),
            self.volume_info(),
            self.item_operations(),
            self.pod_volume_backups(),
            self.csi_snapshot_classes(),
            self.csi_snapshots(),
        ];
        // These name snapshots that exist.
        let snapshots = [self.volume_snapshots(), self.csi_snapshot_contents()];
        Some(if beside.contains(key) {
            Left::Scrap
        } else if snapshots.contains(key) {
            Left::Journal
        } else {
            Left::Foreign
        })
    }

    fn left_private(&self, key: &Path) -> Left {
        // Parts that a plugin has stored.
        let is_part = key.filename().is_some_and(|name| name.starts_with("parts-"));
        if *key == self.owner() || self.upload_note_number(key).is_some() || is_part {
            Left::Scrap
        } else if self.journal().number(key).is_some() {
            Left::Journal
        } else if self.record_number(key).is_some() || self.operations_number(key).is_some() {
            Left::Record
        } else if self.is_so_far(key) {
            Left::Scrap
        } else {
            Left::Foreign
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{folder, get, keys, memory, put};

    #[test]
    fn each_key_of_a_folder_is_known_for_what_it_is() {
        let keys = crate::layout::Layout::new("p").unwrap().backup("b").unwrap();
        for (key, expected) in [
            ("velero-backup.json", None),
            ("b.tar.gz", Some(Left::Contents)),
            ("b-logs.gz", Some(Left::Scrap)),
            ("b-results.gz", Some(Left::Scrap)),
            ("b-podvolumebackups.json.gz", Some(Left::Scrap)),
            ("b-volumesnapshots.json.gz", Some(Left::Journal)),
            ("b-csi-volumesnapshotcontents.json.gz", Some(Left::Journal)),
            (".private/owner", Some(Left::Scrap)),
            (".private/upload-17", Some(Left::Scrap)),
            (".private/parts-00ff-0-8-aa", Some(Left::Scrap)),
            (".private/so-far-1-2-b-logs.gz", Some(Left::Scrap)),
            (".private/so-far-log-1700000000000", Some(Left::Scrap)),
            (".private/journal-3", Some(Left::Journal)),
            (".private/record-1", Some(Left::Record)),
            (".private/operations-4", Some(Left::Record)),
            (".private/record-x", Some(Left::Foreign)),
            (".private/deep/owner", Some(Left::Foreign)),
            (".private/later-1", Some(Left::Foreign)),
            ("c.tar.gz", Some(Left::Foreign)),
            ("b-logs.gz.bak", Some(Left::Foreign)),
            ("deep/b-logs.gz", Some(Left::Foreign)),
            ("1.jpg", Some(Left::Foreign)),
        ] {
            assert_eq!(keys.left(&Path::from(format!("p/backups/b/{key}"))), expected, "{key}");
        }
    }

    #[tokio::test]
    async fn only_scrap_is_removed_and_only_as_it_was_seen() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            put(&location, "p/backups/b/.private/owner", b"u1\n").await;
            put(&location, "p/backups/b/b-logs.gz", b"x").await;
            put(&location, "p/backups/bb/bb-logs.gz", b"x").await;
            let seen = location.look_into("b").await.unwrap().stray.unwrap();
            assert!(seen.most == Left::Scrap && seen.newest.is_some(), "{seen:?}");
            assert_eq!(location.owner_of("b").await.unwrap(), "u1");
            for more in ["velero-backup.json", "b.tar.gz", ".private/record-1", ".private/journal-1", "1.jpg"]
            {
                let key = format!("p/backups/b/{more}");
                put(&location, &key, b"x").await;
                assert_eq!(location.remove_stray("b", &seen).await.unwrap(), None, "{more}");
                location.delete(vec![Path::from(key)]).await.unwrap();
                assert!(get(&location, "p/backups/b/b-logs.gz").await.is_some(), "{more}");
            }
            let newest =
                seen.newest.and_then(|time| time.checked_sub(jiff::SignedDuration::from_secs(1)).ok());
            for other in [Stray { newest, ..seen.clone() }, Stray { newest: None, ..seen.clone() }] {
                assert_eq!(location.remove_stray("b", &other).await.unwrap(), None, "it has changed since");
            }
            let seen = location.look_into("b").await.unwrap().stray.unwrap();
            assert_eq!(location.remove_stray("b", &seen).await.unwrap(), Some(2));
            assert_eq!(keys(&location).await, ["p/backups/bb/bb-logs.gz"]);
            assert_eq!(location.list_backups().await.unwrap(), ["bb"]);
            assert_eq!(location.remove_stray("b", &seen).await.unwrap(), None);
        }
    }
}
